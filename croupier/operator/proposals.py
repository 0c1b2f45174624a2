"""Proposals: files that organisations sign together, each after it was shown what the file says.

DIR/proposal.toml               the next version of the deployment file, until all have signed it (`operator.versions`)
DIR/operator/proposals/N.toml   actions of the operator, where a deployment demands approvals (`operator.carry_out`)

Both are TOML with the signatures in it. Several copies, each with some signatures, are one proposal.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

from google.protobuf.message import DecodeError
from pydantic import Field, StringConstraints

from croupier.deploy.version_files import write_signed
from croupier.operator.keys import identities_in, signed_by, signer_of
from croupier.protocol.approvals import approval_quorum, approving_organisations, expiry_objection, with_expiry
from croupier.protocol.deployment import OPERATOR, Deployment, Quorum, SignedFile
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind
from croupier.protocol.toml_file import parse_toml
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.versions import differences
from croupier.protocol.words import fingerprint_words
from croupier.show.blocks import Section

PROPOSAL_FILE = "proposal.toml"
VALID_S = 7 * 24 * 3600
"""The seconds for which actions are valid: a week, in which people of every organisation have read and signed them."""
_MOST_BYTES = 1 << 26
"""The most bytes of a file of actions: room for a million keys, and five seconds of parsing at most."""


class Actions(SignedFile):
    """Actions of the operator, and the signatures of services on them.

    Attributes:
        actions: each a serialized `Proposal`, hexadecimal.
    """

    kind: ClassVar = Kind.PROPOSAL

    actions: Annotated[tuple[Annotated[str, StringConstraints(pattern="^([0-9a-f]{2})+$")], ...], Field(min_length=1)]

    @property
    def statements(self) -> list[bytes]:
        """What each service signs: every action by itself, because a call to a service carries one."""
        return [bytes.fromhex(action) for action in self.actions]

    def quorum(self, before: Deployment | None = None, accept_loss: Collection[str] = ()) -> Quorum:
        """Returns the signatures that the actions need; see `approval_quorum`."""
        if before is None:
            raise ValueError("there is no deployment.toml; actions are proposed to the organisations that it names")
        return approval_quorum(before)

    def proposals(self) -> list[pb.Proposal]:
        """Returns the actions; raises ValueError for one that cannot be read."""
        try:
            return [pb.Proposal.FromString(statement) for statement in self.statements]
        except DecodeError as error:
            raise ValueError("an action of the proposal cannot be read; ask the operator for the file again") from error

    @property
    def expires_unix_s(self) -> int:
        """When the first of the actions expires."""
        return min(proposal.expires_unix_s for proposal in self.proposals())


def read_proposal(file: Path) -> Deployment | Actions:
    """Reads a version of the deployment file, or a file of actions; its signatures are not checked.

    Raises:
        ValueError: it is neither.
    """
    text = file.read_bytes()
    if text.startswith(b"actions = "):
        return parse_toml(text, Actions, "file of actions", str(file), most_bytes=_MOST_BYTES)
    return parse_toml(text, Deployment, "deployment file", str(file))


def read_actions(file: Path) -> Actions:
    """Reads a file of actions; its signatures are not checked. Raises ValueError if it is not one."""
    if not isinstance(actions := read_proposal(file), Actions):
        raise ValueError(f"{file} is a version of the deployment file; it must hold actions of the operator")
    return actions


def read_copies(files: Sequence[Path]) -> Deployment | Actions:
    """Returns a proposal with the signatures of all its copies.

    Raises:
        ValueError: a file is not a proposal, or the copies are of different ones.
    """
    first, *others = map(read_proposal, files)
    signatures = {(signature.signer, signature.identity): signature for signature in first.signatures}
    for file, other in zip(files[1:], others, strict=True):
        if other.fingerprint != first.fingerprint:
            changed = "another one"
            if isinstance(first, Deployment) and isinstance(other, Deployment):
                changed = "; ".join(differences(first, other)) or changed
            raise ValueError(f"{file} is not the proposal in {files[0]}: {changed}. Sign one of them")
        signatures |= other.valid_signatures()
    return first.model_copy(update={"signatures": tuple(signatures.values())})


@dataclass(frozen=True, kw_only=True)
class Proposal(ABC):
    """A file before an organisation, read from all its copies; it has not signed it yet.

    Attributes:
        directory: of the organisation.
        file: what it signs, with the signatures so far.
        place: where the file is kept with further signatures.
        before: the deployment in force; None before the first.
        accept_loss: the services whose former holders need not have agreed: their keys are lost, or they refuse.
    """

    directory: Path
    file: SignedFile
    place: Path
    before: Deployment | None
    accept_loss: Collection[str] = ()

    @property
    def agreed(self) -> bool:
        """Whether this organisation has agreed to exactly this file before, and need not be asked again."""
        return False

    @property
    def missing(self) -> list[str]:
        """The services or organisations that have not signed; none where enough have."""
        return self.file.not_signed_by(self.before, self.accept_loss)

    def shown(self) -> tuple[dict[str, object], list[str | Section]]:
        """Returns the effect and the signatures of the file: for programs, and for people before they sign."""
        document, texts = self.effect()
        signed_by = self.file.signed_by(self.before, self.accept_loss)
        needed = self.file.quorum(self.before).needed
        words = fingerprint_words(self.file.fingerprint)
        common = {
            "fingerprint": self.file.fingerprint.hex(),
            "words": words,
            "signed_by": signed_by,
            "not_signed_by": self.missing,
        }
        return document | common, [*texts, words, f"signed by {', '.join(signed_by) or 'nobody'}; {needed} must"]

    def sign(self) -> Self:
        """Returns the file, exactly as it was shown, with the signatures of the services whose keys are here.

        Raises:
            ValueError: no keys are here that it asks for, or one cannot be read.
        """
        own = identities_in(self.directory)
        signed = signed_by(self.file, own, self.before)
        if not signed.valid_signatures().keys() & {signer_of(identity) for identity in own}:
            raise ValueError(
                f"{self.directory} has no key that this proposal asks for; it is signed where a service of yours runs"
            )
        return replace(self, file=signed)

    def keep(self) -> str:
        """Writes the signed file; returns what is to be done with it."""
        write_signed(self.place, self.file)
        if missing := self.missing:
            return f"not signed yet by {', '.join(missing)}; send {self.place} on, or back"
        return f"enough have signed; send {self.place} back to the operator, who does it with 'croupier proposal send'"

    @abstractmethod
    def effect(self) -> tuple[dict[str, object], list[str | Section]]:
        """Returns what carrying the file out changes, for programs and for people."""

    @abstractmethod
    def check(self, hand_over: Collection[str] = (), instead_of: str = "") -> None:
        """Checks that the file may be signed and carried out, and that this organisation intends the consequences.

        Args:
            hand_over: the services that it gives away.
            instead_of: the beginning of the fingerprint of the version that this one replaces, 16 digits or more.

        Raises:
            ValueError: see the subclasses.
        """

    @abstractmethod
    def carry_out(self) -> list[str]:
        """Carries out what enough have signed; returns a line for each action. The same call again is harmless."""


@dataclass(frozen=True)
class ActionApproval:
    """The organisations' signatures on one action, and their expiry."""

    signatures: list[pb.Signature]
    organisations: list[str]
    expires_unix_s: int = 0


class Approvals:
    """The proposals in the operator's directory."""

    def __init__(self, directory: Path, deployment: Deployment, now: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._folder = directory / OPERATOR / "proposals"
        self._deployment = deployment
        self._now = now
        self._elsewhere: list[Actions] = []

    def add(self, proposal: Actions) -> None:
        """Takes the signatures in a file that lies elsewhere into account."""
        self._elsewhere.append(proposal)

    def of(self, actions: Sequence[bytes]) -> list[ActionApproval]:
        """Returns the valid signatures on each action, given without expiry; writes a proposal if some are missing.

        Raises:
            Refusal: NOT_APPROVED, with the name of the file that the organisations have to sign.
        """
        if not self._deployment.approvals or not actions:
            return [ActionApproval([], []) for _ in actions]
        approved = [self.valid(action) for action in actions]
        if min(len(each.organisations) for each in approved) >= self._deployment.approvals:
            return approved
        file = self.write(actions)
        have = set.intersection(*(set(each.organisations) for each in approved))
        raise Refusal(
            Code.NOT_APPROVED,
            f"{len(have)} have; this deployment needs {self._deployment.approvals}. Send {file} to them; each signs it "
            f"with 'croupier proposal sign'. Then, with the copies that come back: croupier proposal send {file} "
            f"COPY... --dir {self._directory}",
        )

    def valid(self, action: bytes) -> ActionApproval:
        """Returns the valid signatures on an action, given without expiry, by the most organisations; maybe none."""
        found = self._known().get(action) if self._deployment.approvals else None
        return max(found or [ActionApproval([], [])], key=lambda each: (len(each.organisations), each.expires_unix_s))

    def _known(self) -> Mapping[bytes, list[ActionApproval]]:
        """Returns the signatures that are still valid, by action without its expiry."""
        signatures: dict[bytes, list[pb.Signature]] = {}
        for proposal in [*map(read_actions, self._files()), *self._elsewhere]:
            made = [signature.signatures for signature in proposal.valid_signatures().values()]
            for number, action in enumerate(proposal.statements):
                signatures.setdefault(action, []).extend(by_signer[number] for by_signer in made)
        known: dict[bytes, list[ActionApproval]] = {}
        for signed, those in signatures.items():
            expires = pb.Proposal.FromString(signed).expires_unix_s
            if expiry_objection(expires, self._now()) is None:
                organisations = approving_organisations(self._deployment, signed, those)
                known.setdefault(with_expiry(signed, 0), []).append(ActionApproval(those, organisations, expires))
        return known

    def write(self, actions: Sequence[bytes]) -> Path:
        """Writes a file of these actions, given without expiry; returns it, or the one that is valid already."""
        files = self._files()
        number = max((int(file.stem) for file in files), default=0) + 1
        expires = int(self._now()) + VALID_S
        proposed = Actions(actions=tuple(with_expiry(action, expires).hex() for action in actions))
        for file in files:
            kept = read_actions(file)
            if [with_expiry(action, 0) for action in kept.statements] == [*actions]:
                if expiry_objection(kept.expires_unix_s, self._now()):
                    write_signed(file, proposed)
                return file
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_signed(file := self._folder / f"{number}.toml", proposed)
        return file

    def _files(self) -> list[Path]:
        return [file for file in self._folder.glob("*.toml") if file.stem.isdecimal()]
