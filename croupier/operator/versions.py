"""The next version of the deployment file at one organisation: proposed, read and signed.

DIR/proposal.toml          the next version, until all have signed it
DIR/NAME.public.toml       this organisation's statement of its own service
DIR/agreed-versions.txt    number and fingerprint of every version that this organisation has agreed to, oldest first

`deploy.version_files` keeps the versions that all have signed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.version_files import give_to_owner, install, last_signed, write_deployment
from croupier.operator.keys import signed_here
from croupier.operator.public_file import (
    PublicFile,
    entry_fingerprint,
    public_file_of,
    public_file_path,
    read_public_file,
)
from croupier.protocol.deployment import OPERATOR, Deployment, read_unchecked
from croupier.protocol.identity import public_key_of
from croupier.protocol.versions import check_continues, differences, without_consent
from croupier.protocol.words import fingerprint_words
from croupier.runtime.service_directory import PENDING, identity_keys

PROPOSAL_FILE = "proposal.toml"
_AGREED_FILE = "agreed-versions.txt"


@dataclass(frozen=True)
class Signing:
    """The outcome of proposing or signing a version.

    Attributes:
        deployment: the version, with the signatures so far.
        missing: the services whose signatures are missing; without any, the version is installed.
        changed: a line for each difference to the installed version.
    """

    deployment: Deployment
    missing: list[str]
    changed: list[str]


@dataclass(frozen=True)
class VersionProposal:
    """A version before an organisation, which has not signed these bytes yet.

    Attributes:
        deployment: the version, with the signatures so far.
        before: the installed version; None before the first.
        changed: a line for each difference to the version before.
        given_away: this organisation's services, or "operator", that the version gives to somebody else's keys.
        agreed: whether this organisation has agreed to exactly this version before.
        instead_of: the fingerprint of another version with this number that it has agreed to; empty if there is none.
    """

    deployment: Deployment
    before: Deployment | None
    changed: list[str]
    given_away: tuple[str, ...]
    agreed: bool
    instead_of: str

    def require(self, hand_over: Collection[str], instead_of: str) -> None:
        """Checks that this organisation intends the consequences of its signature.

        Args:
            hand_over: the services that it gives away.
            instead_of: the beginning of the fingerprint of the version that this one replaces, 16 digits or more.

        Raises:
            ValueError: a service is given away, or another version with this number was agreed to, and is not named.
        """
        if self.agreed:
            return
        if silent := [name for name in self.given_away if name not in hand_over]:
            raise ValueError(
                f"the proposal gives {', '.join(silent)}, which is yours, to keys that are not here. Compare the words "
                "of the new keys with their owner; if you give it away: "
                f"{' '.join(f'--hand-over {name}' for name in silent)}. Else do not sign"
            )
        if self.instead_of and not (len(instead_of) >= 16 and self.instead_of.startswith(instead_of)):
            raise ValueError(
                f"you have agreed to another version {self.deployment.version} before, with the fingerprint "
                f"{self.instead_of[:16]}…: with two, services and participants could be led to different ones. If that "
                f"one was given up everywhere: --instead-of {self.instead_of[:16]}"
            )


def handed_over(version: Deployment, before: Deployment | None) -> dict[str, str]:
    """Returns the services, and "operator", that a version gives to new keys, with the words of their public files."""
    if before is None:
        return {}
    words = {
        entry.name: fingerprint_words(entry_fingerprint(stated.model_copy(update={"retired_identities": ()})))
        for entry in before.services
        if (stated := version.service(entry.name)).identity not in entry.live_identities
    }
    if version.operator_tls_certificate != before.operator_tls_certificate:
        stated_operator = PublicFile(
            operator_tls_certificate=version.operator_tls_certificate, operator=version.operator
        )
        words[OPERATOR] = fingerprint_words(stated_operator.fingerprint)
    return words


def propose(directory: Path, proposal: Deployment) -> Signing:
    """Keeps the next version as a proposal; signs and installs it if the keys of all services are here.

    If others have to sign it, nobody has signed it yet, because an owner sees a version before signing it.

    Raises:
        ValueError: the version does not continue the installed one, or a key cannot be read.
    """
    before = last_signed(directory)
    if before is not None:
        check_continues(proposal, before)
    signed = signed_here(proposal, [directory], before)
    missing = _missing(signed, before, ())
    changed = differences(before, signed) if before is not None else []
    if missing:
        write_deployment(directory, proposal, PROPOSAL_FILE)
        return Signing(proposal, list(proposal.chain), changed)
    _install(directory, signed)
    return Signing(signed, [], changed)


def read_version(directory: Path, files: Sequence[Path] = ()) -> VersionProposal:
    """Reads and checks a proposal, to be shown; nothing is signed.

    Args:
        directory: of the organisation.
        files: copies of the proposal, each with some signatures; by default the one in the directory. An edited copy of
            the installed version is a proposal of the next one.

    Raises:
        ValueError: the copies differ, the version does not continue the installed one, or an own service is missing or
            differs from this organisation's statement.
    """
    first, *others = [(file, read_unchecked(file)) for file in files or [directory / PROPOSAL_FILE]]
    signatures = {(signature.signer, signature.identity): signature for signature in first[1].signatures}
    for file, other in others:
        if other.fingerprint != first[1].fingerprint:
            changed = "; ".join(differences(first[1], other)) or "another version"
            raise ValueError(f"{file} is not the proposal in {first[0]}: {changed}. Sign one of them")
        statement = other.statement
        signatures |= {
            (signature.signer, signature.identity): signature
            for signature in other.signatures
            if signature.is_valid(statement)
        }
    proposal = first[1].model_copy(update={"signatures": tuple(signatures.values())})
    before = last_signed(directory)
    if before is not None and first[1].signatures == before.signatures and proposal.fingerprint != before.fingerprint:
        # The installed file, edited: it still has the signatures of its former contents.
        following = {"version": before.version + 1, "previous": before.fingerprint.hex(), "signatures": ()}
        proposal = proposal.model_copy(update=following)
    if before is not None and proposal.fingerprint != before.fingerprint:
        check_continues(proposal, before)
    given_away = _given_away(directory, proposal, before)
    fingerprint = proposal.fingerprint.hex()
    agreed = [noted for number, noted in _agreed(directory) if number == proposal.version]
    is_installed = before is not None and before.fingerprint == proposal.fingerprint
    return VersionProposal(
        proposal,
        before,
        differences(before, proposal) if before is not None else [],
        tuple(given_away),
        is_installed or agreed[-1:] == [fingerprint],
        "" if is_installed or agreed[-1:] in ([], [fingerprint]) else agreed[-1],
    )


def sign(directory: Path, proposed: VersionProposal, *, accept_loss: Sequence[str] = (), keep: bool = True) -> Signing:
    """Signs a version with the keys that are here, and installs it if no signature is missing.

    The organisation's consent is noted first, so that it does not sign two versions with one number without knowing.

    Args:
        directory: of the organisation.
        proposed: the version that was shown, after `VersionProposal.require`.
        accept_loss: services whose former holders need not have agreed: their keys are lost, or they refuse.
        keep: whether to write files.

    Raises:
        ValueError: a key cannot be read.
    """
    before = proposed.before
    if before is not None and proposed.deployment.fingerprint == before.fingerprint:
        return Signing(before, [], [])
    if keep and not proposed.agreed:
        _note(directory, proposed.deployment)
    signed = signed_here(proposed.deployment, [directory], before)
    missing = _missing(signed, before, accept_loss)
    if missing and keep:
        write_deployment(directory, signed, PROPOSAL_FILE)
    elif keep:
        _install(directory, signed)
    return Signing(signed, missing, proposed.changed)


def _missing(signed: Deployment, before: Deployment | None, accept_loss: Sequence[str]) -> list[str]:
    missing = set(signed.not_signed_by())
    if before is not None:
        missing |= {name for name in without_consent(signed, before) if name not in accept_loss}
    return [name for name in signed.chain if name in missing]


def _install(directory: Path, version: Deployment) -> None:
    install(directory, version)
    (directory / PROPOSAL_FILE).unlink(missing_ok=True)


def _agreed(directory: Path) -> list[tuple[int, str]]:
    """Returns number and fingerprint of the versions that this organisation has agreed to, oldest first."""
    file = directory / _AGREED_FILE
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [(int(number), fingerprint) for number, fingerprint in map(str.split, lines)]


def _note(directory: Path, version: Deployment) -> None:
    file = directory / _AGREED_FILE
    with file.open("a", encoding="ascii") as text:
        text.write(f"{version.version} {version.fingerprint.hex()}\n")
        text.flush()
        os.fsync(text.fileno())
    give_to_owner(file)


def _given_away(directory: Path, proposal: Deployment, before: Deployment | None) -> list[str]:
    """Returns the own services that a version gives to somebody else's keys, after checking the other own ones.

    Raises:
        ValueError: an own service is not in the version, or differs from this organisation's statement.
    """
    own = [key.parent.name for key in sorted(directory.glob("*/identity.key")) if key.parent.name != OPERATOR]
    if absent := sorted(set(own) - set(proposal.chain)):
        raise ValueError(
            f"the proposal has the services {', '.join(proposal.chain)}, and not {', '.join(absent)}, whose keys are "
            "here. Do not sign it; assemble it again with your public file"
        )
    given_away = [name for name in own if _is_given_away(directory, proposal, name, before)]
    return [*given_away, *([OPERATOR] if _operator_is_given_away(directory, proposal, before) else [])]


def _is_given_away(directory: Path, proposal: Deployment, name: str, before: Deployment | None) -> bool:
    """Returns whether an own service has another holder; raises ValueError if its entry is not the owner's."""
    entry = proposal.service(name)
    own = {public_key_of(key).hex() for key in identity_keys(directory / entry.name)}
    if entry.identity not in own:
        if before is None:
            raise ValueError(
                f"the proposal names another identity for {entry.name} than the key in {directory / entry.name}: "
                "somebody else would run your service. Do not sign it; assemble it again with your public file"
            )
        return bool(own & set(before.service(entry.name).live_identities))
    stated = public_file_of(directory, entry.name)
    wrong = []
    retired = () if stated is None else stated.retired_identities
    if stated is not None:
        here, there = (service.model_copy(update={"retired_identities": ()}) for service in (stated, entry))
        wrong = [field for field in type(here).model_fields if getattr(here, field) != getattr(there, field)]
    elif not set(entry.live_identities) <= own:
        wrong.append("pending_identity")
    elif not set(map(_plain, entry.tls_certificates)) <= set(_own_certificates(directory / entry.name)):
        wrong.append("tls_certificate")
    listed = entry.retired_identities
    # Later versions add none that the version before did not have (`check_continues`).
    if any(one not in listed for one in retired) or (proposal.version == 1 and len(listed) > len(retired)):
        wrong.append("retired_identities")
    if wrong:
        says = f"{entry.name}.public.toml" if stated is not None else f"{directory / entry.name}"
        raise ValueError(
            f"the proposal changes {', '.join(wrong)} of {entry.name}, which is yours: {says} has something else. Do "
            "not sign it; assemble it again with that file"
        )
    return False


def _operator_is_given_away(directory: Path, proposal: Deployment, before: Deployment | None) -> bool:
    """Returns whether the operator that this organisation runs is another one; raises ValueError in a first version."""
    own = set(_own_certificates(directory / OPERATOR))
    file = public_file_path(directory, OPERATOR)
    stated = read_public_file(file) if own and file.exists() else None
    as_stated = stated is None or stated.operator == proposal.operator
    if not own or (_plain(proposal.operator_tls_certificate) in own and as_stated):
        return False
    if before is None or (_plain(proposal.operator_tls_certificate) in own):
        raise ValueError(
            f"the proposal names another operator than {file.name}, which is yours: somebody else would open rounds "
            "and enrol people. Do not sign it; assemble it again with that file"
        )
    return _plain(before.operator_tls_certificate) in own


def _own_certificates(home: Path) -> Iterable[str]:
    files = (home / f"{prefix}tls.crt" for prefix in ("", PENDING))
    return [_plain(file.read_text(encoding="ascii")) for file in files if file.exists()]


def _plain(certificate: str) -> str:
    return "".join(certificate.split())
