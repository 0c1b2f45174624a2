"""The next version of the deployment file at one organisation: proposed and signed; `deploy.version_files` keeps it.

DIR/proposal.toml          the next version, until all have signed it
DIR/NAME.public.toml       what this organisation states of its own service
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.operator.keys import signed_here
from croupier.deploy.operator.public_file import public_file_of, public_file_path, read_public_file
from croupier.deploy.version_files import install, last_signed, write_deployment
from croupier.protocol.deployment import OPERATOR, Deployment, ServiceEntry, read_unchecked
from croupier.protocol.identity import public_key_of
from croupier.protocol.versions import check_continues, differences, without_consent
from croupier.runtime.service_directory import identity_keys

__all__ = ["PROPOSAL_FILE", "Signing", "propose", "sign"]

PROPOSAL_FILE = "proposal.toml"


@dataclass(frozen=True)
class Signing:
    """What came out of proposing or signing a version.

    Attributes:
        deployment: the version, with the signatures that are there.
        missing: the services whose signatures are not; if none is missing, the version is installed.
        changed: a line for each difference to the version that was installed.
    """

    deployment: Deployment
    missing: list[str]
    changed: list[str]


def propose(directory: Path, proposal: Deployment, *, accept_loss: Sequence[str] = (), keep: bool = True) -> Signing:
    """Signs a version with the keys that are here; installs it if no signature is missing, else keeps the proposal.

    Args:
        directory: of the organisation.
        proposal: the version, with the signatures that are there.
        accept_loss: services whose former holders need not have agreed: their keys are lost, or they refuse.
        keep: whether anything is written.

    Raises:
        ValueError: the version does not continue the installed one, or a key cannot be read.
    """
    before = last_signed(directory)
    if before is not None and proposal.fingerprint == before.fingerprint:
        return Signing(before, [], [])
    if before is not None:
        check_continues(proposal, before)
    signed = signed_here(proposal, [directory], before)
    missing = set(signed.not_signed_by())
    if before is not None:
        missing |= {name for name in without_consent(signed, before) if name not in accept_loss}
    changed = differences(before, signed) if before is not None else []
    if missing and keep:
        write_deployment(directory, signed, PROPOSAL_FILE)
    elif keep:
        install(directory, signed)
        (directory / PROPOSAL_FILE).unlink(missing_ok=True)
    return Signing(signed, [name for name in signed.chain if name in missing], changed)


def sign(directory: Path, files: Sequence[Path] = (), *, accept_loss: Sequence[str] = (), keep: bool = True) -> Signing:
    """Checks a proposal, adds the signatures of this organisation, and installs it if no signature is missing.

    Args:
        directory: of the organisation.
        files: copies of the proposal, each with some signatures; the one in the directory if none is given. An edited
            copy of the installed version is a proposal of the next one.
        accept_loss: see `propose`.
        keep: see `propose`.

    Raises:
        ValueError: the copies differ, an own entry is not what this organisation has stated, or as `propose`.
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
        # The installed file, edited: it still has the signatures of what it was.
        following = {"version": before.version + 1, "previous": before.fingerprint.hex(), "signatures": ()}
        proposal = proposal.model_copy(update=following)
    for entry in proposal.services:
        if (directory / entry.name / "identity.key").exists():
            _check_own(directory, entry)
    _check_operator(directory, proposal)
    return propose(directory, proposal, accept_loss=accept_loss, keep=keep)


def _check_operator(directory: Path, proposal: Deployment) -> None:
    """Checks that a version names the operator that this organisation has stated, if it runs one."""
    file = public_file_path(directory, OPERATOR)
    if not (directory / OPERATOR / "identity.key").exists() or not file.exists():
        return
    stated = read_public_file(file)
    if (stated.operator_tls_certificate, stated.operator) != (proposal.operator_tls_certificate, proposal.operator):
        raise ValueError(
            f"the proposal names another operator than {file.name}, which is yours: somebody else would open rounds "
            "and enrol people. If that is agreed, remove the file first; else do not sign"
        )


def _check_own(directory: Path, entry: ServiceEntry) -> None:
    """Checks that a version says of an own service what this organisation has stated."""
    own = {public_key_of(key).hex() for key in identity_keys(directory / entry.name)}
    if entry.identity not in own:
        return  # handed over: this organisation agrees with its former identity
    stated = public_file_of(directory, entry.name)
    if stated is None:
        return
    here, there = (service.model_copy(update={"retired_identities": ()}) for service in (stated, entry))
    kept = {retired_identity.identity for retired_identity in entry.retired_identities} >= {
        retired_identity.identity for retired_identity in stated.retired_identities
    }
    if here != there or not kept:
        wrong = [name for name in type(here).model_fields if getattr(here, name) != getattr(there, name)]
        raise ValueError(
            f"the proposal changes {', '.join(wrong) or 'retired_identities'} of {entry.name}, which is yours: "
            f"{entry.name}.public.toml states something else. Do not sign it; assemble it again with that file"
        )
