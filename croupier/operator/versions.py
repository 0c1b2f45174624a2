"""The next version of the deployment file at one organisation: proposed, checked, and installed once all have signed.

DIR/proposal.toml          the next version, until all have signed it
DIR/NAME.public.toml       this organisation's statement of its own service
DIR/agreed-versions.txt    number and fingerprint of every version that this organisation has agreed to, oldest first

`deploy.version_files` keeps the versions that all have signed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.page.participants import page_hash
from croupier.deploy.version_files import give_to_owner, install, last_signed, write_deployment
from croupier.operator.keys import signed_here
from croupier.operator.organisations import shared
from croupier.operator.proposals import PROPOSAL_FILE, Proposal
from croupier.operator.public_file import (
    PublicFile,
    entry_fingerprint,
    public_file_of,
    public_file_path,
    read_public_file,
)
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment
from croupier.protocol.identity import public_key_of
from croupier.protocol.versions import check_continues, differences, following
from croupier.protocol.words import fingerprint_words
from croupier.runtime.service_directory import PENDING, identity_keys
from croupier.show.blocks import Section

_AGREED_FILE = "agreed-versions.txt"


@dataclass(frozen=True, kw_only=True)
class VersionProposal(Proposal):
    """A version before an organisation.

    Attributes:
        given_away: this organisation's services, or "operator", that the version gives to somebody else's keys.
        last_agreed: the fingerprint of the version with this number that it has agreed to last; empty if there is none.
    """

    file: Deployment
    given_away: tuple[str, ...]
    last_agreed: str

    @property
    def agreed(self) -> bool:
        """Whether this organisation has agreed to exactly this version before; the installed one counts."""
        return self._is_installed or self.last_agreed == self.file.fingerprint.hex()

    @property
    def _is_installed(self) -> bool:
        return self.before is not None and self.before.fingerprint == self.file.fingerprint

    def check(self, hand_over: Collection[str] = (), instead_of: str = "") -> None:
        """Checks that this organisation intends the consequences; see `Proposal.check`.

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
        other = self.last_agreed
        if other and not (len(instead_of) >= 16 and other.startswith(instead_of)):
            raise ValueError(
                f"you have agreed to another version {self.file.version} before, with the fingerprint "
                f"{other[:16]}…: with two, services and participants could be led to different ones. If that "
                f"one was given up everywhere: --instead-of {other[:16]}"
            )

    def effect(self) -> tuple[dict[str, object], list[str | Section]]:
        """Returns the services of the version, who shares what, and its differences to the version before."""
        version = self.file
        services = [
            f"{entry.name} at {entry.address}: {entry.organisation or 'no organisation named'}\n"
            f"    {fingerprint_words(entry_fingerprint(entry))}"
            for entry in version.services
        ]
        operator = version.operator.organisation if version.operator else ""
        services.append(f"operator: {operator or 'no organisation named'}")
        pages = [f"page for participants {page}: {_whose(page)}" for page in version.participant_pages]
        organisations = {entry.name: entry.organisation for entry in version.services} | {OPERATOR: operator}
        holders = [
            f"{name} is handed over to new keys, of {organisations[name] or 'no organisation named'}, whose words must "
            f"be:\n    {words}"
            for name, words in handed_over(version, self.before).items()
        ]
        changed = differences(self.before, version) if self.before is not None else []
        parts = [f"version {version.version} of {version.name!r}", *services, *shared(version), *pages, *holders]
        document = {"version": version.version, "shared": shared(version), "changed": changed}
        return document, ["\n".join([*parts, *changed])]

    def keep(self) -> str:
        """Writes the signed version, or installs it where no signature is missing.

        It is noted first, so that the organisation does not sign two versions with one number without knowing.
        """
        if not self.agreed:
            file = self.directory / _AGREED_FILE
            with file.open("a", encoding="ascii") as text:
                text.write(f"{self.file.version} {self.file.fingerprint.hex()}\n")
                text.flush()
                os.fsync(text.fileno())
            give_to_owner(file)
        return super().keep() if self.missing else self.carry_out()[0]

    def carry_out(self) -> list[str]:
        """Installs the version, which all have signed."""
        if not self._is_installed:
            _install(self.directory, self.file)
        return [f"all have signed version {self.file.version}; it is in {self.directory / DEPLOYMENT_FILE}"]


def version_proposal(directory: Path, version: Deployment, accept_loss: Collection[str] = ()) -> VersionProposal:
    """Returns a version, with the signatures of all its copies, before the organisation of a directory.

    An edited copy of the installed version is a proposal of the next one.

    Raises:
        ValueError: the version does not continue the installed one, or an own service is missing or differs from this
            organisation's statement.
    """
    before = last_signed(directory)
    if before is not None and version.fingerprint != before.fingerprint:
        if version.signatures == before.signatures:  # of the former contents
            version = following(before, version)
        check_continues(version, before)
    agreed = [fingerprint for number, fingerprint in _agreed(directory) if number == version.version]
    return VersionProposal(
        directory=directory,
        file=version,
        place=directory / PROPOSAL_FILE,
        before=before,
        accept_loss=accept_loss,
        given_away=tuple(_given_away(directory, version, before)),
        last_agreed=agreed[-1] if agreed else "",
    )


def propose(directory: Path, version: Deployment) -> Deployment:
    """Keeps the next version as a proposal; signs and installs it if the keys of all services are here.

    If others have to sign it, nobody has signed it yet, because an owner sees a version before signing it.

    Raises:
        ValueError: the version does not continue the installed one, or a key cannot be read.
    """
    before = last_signed(directory)
    if before is not None:
        check_continues(version, before)
    signed = signed_here(version, [directory], before)
    if signed.not_signed_by(before):
        write_deployment(directory, version, PROPOSAL_FILE)
        return version
    _install(directory, signed)
    return signed


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


def _install(directory: Path, version: Deployment) -> None:
    install(directory, version)
    (directory / PROPOSAL_FILE).unlink(missing_ok=True)


def _whose(page: str) -> str:
    return "the one of this installation" if page == page_hash() else "of another release than this installation"


def _agreed(directory: Path) -> list[tuple[int, str]]:
    """Returns number and fingerprint of the versions that this organisation has agreed to, oldest first."""
    file = directory / _AGREED_FILE
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return [(int(number), fingerprint) for number, fingerprint in map(str.split, lines)]


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
