"""Proposals on file: the operator's requests for approval to the organisations of a deployment, and their signatures.

DIR/operator/proposals/NAME.json   each proposal that was made here, with the signatures received so far

A deployment without approvals (`Deployment.approvals` is 0) has none.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from pydantic import ValidationError

from croupier.operator.keys import replace_secret
from croupier.protocol.approvals import approving_organisations, expiry_objection, with_expiry
from croupier.protocol.deployment import OPERATOR, Deployment, FileSignature, Strict
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Identity, Kind, public_key_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import identity_keys

VALID_S = 7 * 24 * 3600
"""The seconds for which a proposal is valid: a week, in which people of every organisation have read and signed it."""


class Approval(Strict):
    """The signature of one service on one action.

    Attributes:
        action: the place of the action in the file, from 0.
        by: the signature.
    """

    action: int
    by: FileSignature


class ProposalFile(Strict):
    """One file that travels between the operator and the organisations.

    Attributes:
        actions: each a serialized `Proposal`, hexadecimal.
        approvals: the signatures so far.
    """

    actions: tuple[str, ...]
    approvals: tuple[Approval, ...] = ()

    def proposals(self) -> list[pb.Proposal]:
        """Returns the actions; raises ValueError for one that cannot be read."""
        try:
            return [pb.Proposal.FromString(bytes.fromhex(action)) for action in self.actions]
        except (ValueError, DecodeError) as error:
            raise ValueError("an action of the proposal cannot be read; ask the operator for the file again") from error

    @property
    def expires_unix_s(self) -> int:
        """When the first of the actions expires."""
        return min((proposal.expires_unix_s for proposal in self.proposals()), default=0)

    def signatures(self, action: int) -> list[pb.Signature]:
        """Returns the signatures on one action, whether they are valid or not."""
        of_action = [approval.by for approval in self.approvals if approval.action == action]
        return [pb.Signature(signer=by.signer, signature=bytes.fromhex(by.signature)) for by in of_action]

    def approved_by(self, deployment: Deployment) -> list[str]:
        """Returns the organisations that have approved of every action."""
        approving = [
            set(approving_organisations(deployment, bytes.fromhex(action), self.signatures(number)))
            for number, action in enumerate(self.actions)
        ]
        return sorted(set.intersection(*approving)) if approving else []

    def with_approvals(self, approvals: Iterable[Approval]) -> ProposalFile:
        """Returns the file with further signatures, each once."""
        return self.model_copy(update={"approvals": tuple(dict.fromkeys((*self.approvals, *approvals)))})


@dataclass(frozen=True)
class ActionApproval:
    """The organisations' signatures on one action, and their expiry."""

    signatures: list[pb.Signature]
    organisations: list[str]
    expires_unix_s: int = 0


def read_proposal(file: Path) -> ProposalFile:
    """Reads a proposal; its signatures are not checked here.

    Raises:
        ValueError: the file is not a proposal.
    """
    try:
        proposal = ProposalFile.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{file} is not a proposal; 'croupier round propose' writes one") from error
    proposal.proposals()
    return proposal


def read_copies(files: Sequence[Path]) -> ProposalFile:
    """Returns a proposal with the signatures of all its copies; they are not checked here.

    Raises:
        ValueError: a file is not a proposal, or the copies are of different ones.
    """
    first, *copies = map(read_proposal, files)
    for file, copy in zip(files[1:], copies, strict=True):
        if copy.actions != first.actions:
            raise ValueError(f"{file} is not the proposal in {files[0]}; approve of one of them")
        first = first.with_approvals(copy.approvals)
    return first


def approve(
    directory: Path, proposal: ProposalFile, deployment: Deployment, *, now: Callable[[], float] = time.time
) -> ProposalFile:
    """Returns a proposal with the signatures of the services whose keys are here, on exactly the bytes that were shown.

    Args:
        directory: of an organisation; each service of the deployment that has its identity there signs.
        proposal: as it was shown to its reader; the file may have changed meanwhile.
        deployment: the deployment.
        now: returns the time, Unix seconds.

    Raises:
        ValueError: the proposal is for another deployment or has expired, or no keys are here.
    """
    for action in proposal.proposals():
        if action.deployment != deployment.name:
            raise ValueError(f"the proposal is for deployment {action.deployment!r}; this one is {deployment.name!r}")
    if objection := expiry_objection(proposal.expires_unix_s, now()):
        raise ValueError(f"the proposal cannot be used: {objection}")
    signers = _signers(directory, deployment)
    if not signers:
        raise ValueError(
            f"{directory} has the keys of no service; a proposal is signed where an organisation's service runs"
        )
    return proposal.with_approvals(
        Approval(action=number, by=FileSignature.made(signer, bytes.fromhex(action), Kind.PROPOSAL))
        for signer in signers
        for number, action in enumerate(proposal.actions)
    )


def write_proposal(file: Path, proposal: ProposalFile) -> None:
    """Writes a proposal into a file, replacing its contents."""
    file.write_text(_text(proposal), encoding="utf-8")


def _signers(directory: Path, deployment: Deployment) -> list[Identity]:
    """Returns the identities of the deployment's services whose keys are in a directory."""
    homes = {entry: directory / entry.name for entry in deployment.services}
    return [
        Identity(entry.name, key)
        for entry, home in homes.items()
        if (home / "identity.key").exists()
        for key in identity_keys(home)
        if public_key_of(key).hex() == entry.identity
    ]


def _text(proposal: ProposalFile) -> str:
    return proposal.model_dump_json(indent=1) + "\n"


class Approvals:
    """The proposals in the operator's directory."""

    def __init__(self, directory: Path, deployment: Deployment, now: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._folder = directory / OPERATOR / "proposals"
        self._deployment = deployment
        self._now = now
        self._elsewhere: list[ProposalFile] = []

    def add(self, proposal: ProposalFile) -> None:
        """Takes the signatures in a file that lies elsewhere into account."""
        self._elsewhere.append(proposal)

    def of(self, actions: Sequence[bytes]) -> list[ActionApproval]:
        """Returns the valid signatures on each action, given without expiry; writes a proposal if some are missing.

        Raises:
            Refusal: NOT_APPROVED, with the name of the file that the organisations have to sign.
        """
        if not self._deployment.approvals or not actions:
            return [ActionApproval([], []) for _ in actions]
        known = self._known()
        nothing = ActionApproval([], [])
        approved = [
            max(known.get(action, [nothing]), key=lambda each: (len(each.organisations), each.expires_unix_s))
            for action in actions
        ]
        if min(len(each.organisations) for each in approved) >= self._deployment.approvals:
            return approved
        file = self.write(actions)
        have = set.intersection(*(set(each.organisations) for each in approved))
        raise Refusal(
            Code.NOT_APPROVED,
            f"{len(have)} have; this deployment needs {self._deployment.approvals}. Send {file} to them; each signs it "
            f"with 'croupier proposal approve'. Bring the signatures together with 'croupier proposal merge {file} "
            f"COPY... --dir {self._directory}', then: croupier proposal send {file} --dir {self._directory}",
        )

    def _known(self) -> Mapping[bytes, list[ActionApproval]]:
        """Returns the signatures that are still valid, by action without its expiry."""
        signatures: dict[bytes, list[pb.Signature]] = {}
        for proposal in [*map(read_proposal, sorted(self._folder.glob("*.json"))), *self._elsewhere]:
            for number, action in enumerate(proposal.actions):
                signatures.setdefault(bytes.fromhex(action), []).extend(proposal.signatures(number))
        known: dict[bytes, list[ActionApproval]] = {}
        for signed, those in signatures.items():
            expires = pb.Proposal.FromString(signed).expires_unix_s
            if expiry_objection(expires, self._now()) is None:
                organisations = sorted(approving_organisations(self._deployment, signed, those))
                known.setdefault(with_expiry(signed, 0), []).append(ActionApproval(those, organisations, expires))
        return known

    def write(self, actions: Sequence[bytes], file: Path | None = None) -> Path:
        """Writes a proposal of these actions, given without expiry; returns its file, which may exist already.

        Raises:
            ValueError: the given file exists.
        """
        if file is not None and file.exists():
            raise ValueError(f"{file} exists; choose another file")
        file = file or self._folder / f"{hashlib.sha256(b''.join(actions)).hexdigest()[:12]}.json"
        if not file.exists() or expiry_objection(read_proposal(file).expires_unix_s, self._now()):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            expires = int(self._now()) + VALID_S
            replace_secret(
                file, _text(ProposalFile(actions=tuple(with_expiry(action, expires).hex() for action in actions)))
            )
        return file
