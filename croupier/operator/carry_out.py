"""Proposals: their actions in words, and carrying them out once enough organisations have signed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from google.protobuf.message import DecodeError

from croupier.net.transport import TLS, Transport
from croupier.operator.invitations import note_revoked_invitations
from croupier.operator.opened_surveys import open_rounds
from croupier.operator.operator import Operator
from croupier.operator.proposals import ProposalFile, read_proposal
from croupier.operator.roster import Enrolment, note_enrolled, note_revoked
from croupier.operator.round_settings import with_drawn_keys
from croupier.protocol.approvals import proposal_to_open
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.errors import Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.words import fingerprint_words

_MOST_SHOWN = 100
"""The most keys that people are shown one by one, because they compare them by eye; longer lists are summarised."""
_NEWER = "says something that this version of croupier does not know; upgrade, or do not sign it"


@dataclass(frozen=True)
class Action:
    """The effect of one action of a proposal, for people and for programs.

    Attributes:
        line: for people.
        document: for programs.
        terms: of the opened round; None for another action.
        details: of keys, for comparison by the operator and the organisations.
    """

    line: str
    document: Mapping[str, object]
    terms: RoundTerms | None = None
    details: tuple[str, ...] = ()


def described_actions(proposal: ProposalFile, deployment: Deployment) -> list[Action]:
    """Returns the effect of each action of a proposal.

    Raises:
        ValueError: an action cannot be read, its round could not be opened, or it has fields that this version of
            croupier does not know.
    """
    actions = proposal.proposals()
    for serialized, action in zip(proposal.actions, actions, strict=True):
        action.DiscardUnknownFields()
        if action.SerializeToString(deterministic=True) != bytes.fromhex(serialized):
            raise ValueError(f"an action of the proposal {_NEWER}")
    return [_described(action, deployment) for action in actions]


def _described(action: pb.Proposal, deployment: Deployment) -> Action:
    kind = action.WhichOneof("action")
    if kind == "open_round":
        try:
            terms = parse_terms(with_drawn_keys(pb.Manifest.FromString(action.open_round), deployment.chain))
        except (DecodeError, Refusal) as error:
            raise ValueError(f"the proposed round cannot be opened: {error}") from error
        return Action(f"open round {terms.round_id}", {"open_round": terms.round_id}, terms)
    if kind is None:
        raise ValueError(f"an action of the proposal {_NEWER}")
    request = action.register if kind == "register" else action.revoke
    keys = [key.hex() for key in request.client_keys]
    until = action.register.valid_until_unix_s
    where = f" for survey {action.register.survey_hash.hex()[:16]}…" if action.register.survey_hash else ""
    where += f" until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC" if until else ""
    document = {
        kind: keys,
        "words": (words := _words(keys)),
        "survey_hash": action.register.survey_hash.hex(),
        "valid_until_unix_s": until,
    }
    listed = [f"key {key}" for key in keys[:_MOST_SHOWN]]
    more = [f"and {len(keys) - _MOST_SHOWN:,} more, which --json lists"] if len(keys) > _MOST_SHOWN else []
    details = (*listed, *more, f"their words, which 'croupier proposal show' prints everywhere: {words}")
    return Action(f"{kind} {len(keys):,} keys{where}", document, details=details)


def _words(keys: Sequence[str]) -> str:
    """Returns twelve words of a list of keys, whatever its order."""
    return fingerprint_words(Digest(hashlib.sha256("\n".join(sorted(keys)).encode()).digest()))


async def carry_out(directory: Path, file: Path, transport: Transport = TLS) -> list[str]:
    """Carries out a proposal that enough organisations have signed; returns a line for each action.

    The same call again is harmless: finished actions are not repeated.

    Args:
        directory: of the deployment, with the operator's keys.
        file: the proposal.
        transport: to the services.

    Raises:
        ValueError: the file is not a proposal.
        Refusal: NOT_APPROVED (too few signatures), or a service refuses; grpc.aio.AioRpcError: one is out of reach.
    """
    proposal = read_proposal(file)
    async with Operator(directory, transport) as operator:
        operator.add_approvals(proposal)
        actions = described_actions(proposal, operator.deployment)
        await _open(operator, directory, [described.terms for described in actions if described.terms is not None])
        for action in proposal.proposals():
            if action.HasField("register"):
                approved_by = await operator.register([action.register])
                if not action.register.survey_hash:
                    keys = [Enrolment(key.hex()) for key in action.register.client_keys]
                    note_enrolled(directory, keys, approved_by)
            elif action.HasField("revoke"):
                await operator.carry_out_revocation([action.revoke])
                revoked = {key.hex() for key in action.revoke.client_keys}
                note_revoked(directory, revoked - note_revoked_invitations(directory, revoked))
    return [f"done: {described.line}" for described in actions]


async def _open(operator: Operator, directory: Path, rounds: Sequence[RoundTerms]) -> None:
    """Opens rounds, those of a survey like `open_survey`; signed manifests are kept, so the same call continues."""
    of_surveys: dict[Survey, dict[RoundId, pb.Manifest]] = {}
    for terms in rounds:
        without_keys = pb.Proposal.FromString(proposal_to_open(terms.manifest)).open_round
        manifest = pb.Manifest.FromString(without_keys)
        if terms.survey is not None:
            of_surveys.setdefault(terms.survey, {})[terms.round_id] = manifest
        else:
            name = hashlib.sha256(terms.round_id.encode()).hexdigest()[:32]
            kept = directory / OPERATOR / "proposals" / f"{name}.signed"
            await operator.open_signed(await operator.sign_and_keep(manifest, kept))
    for survey, manifests in of_surveys.items():
        await open_rounds(operator, directory, survey, manifests)
