"""Proposed actions of the operator: in words, and carried out once enough organisations have signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from croupier.net.transport import TLS, Transport
from croupier.operator.invitations import note_revoked_invitations
from croupier.operator.opened_surveys import keep_survey, open_rounds
from croupier.operator.operator import Operator
from croupier.operator.proposals import Actions, Proposal, read_actions
from croupier.operator.roster import Enrolment, note_enrolled, note_revoked
from croupier.protocol.approvals import expiry_objection
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Refusal
from croupier.protocol.surveys import Survey, read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.blocks import Section
from croupier.show.survey_description import survey_texts

_MOST_SHOWN = 100
"""The most keys that people are shown one by one, because they compare them by eye; longer lists are summarised."""
_NEWER = "says something that this version of croupier does not know; upgrade, or do not sign it"


@dataclass(frozen=True)
class Action:
    """The effect of one action, for people and for programs.

    Attributes:
        line: for people.
        document: for programs.
        survey: whose rounds are opened; None for another action.
        details: of keys, for comparison by the operator and the organisations.
    """

    line: str
    document: Mapping[str, object]
    survey: Survey | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ActionsProposal(Proposal):
    """Actions before an organisation, or before the operator who carries them out.

    Attributes:
        before: the deployment whose organisations approve.
        actions: the effect of each.
    """

    file: Actions
    before: Deployment
    actions: Sequence[Action]

    def check(self, hand_over: Collection[str] = (), instead_of: str = "", *, now_s: float | None = None) -> None:
        """Checks that services would accept the actions now; raises ValueError if not."""
        for action in self.file.proposals():
            if action.deployment != self.before.name:
                raise ValueError(
                    f"the proposal is for deployment {action.deployment!r}; this one is {self.before.name!r}"
                )
        if objection := expiry_objection(self.file.expires_unix_s, time.time() if now_s is None else now_s):
            raise ValueError(f"the proposal cannot be used: {objection}")

    def effect(self) -> tuple[dict[str, object], list[str | Section]]:
        """Returns each action with all that is in a survey, or with its keys, and when all of them expire."""
        texts: list[str | Section] = []
        for action in self.actions:
            texts += [action.line, *action.details]
            if action.survey is not None:
                texts += survey_texts(action.survey, self.before.chain)
        expires = self.file.expires_unix_s
        texts.append(f"expires {datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M} UTC")
        return {"actions": [action.document for action in self.actions], "expires_unix_s": expires}, texts

    def carry_out(self) -> list[str]:
        """Has the services do it, with the operator's keys; see `carry_out`."""
        self.keep()
        return asyncio.run(carry_out(self.directory, self.place))


def actions_proposal(directory: Path, actions: Actions, deployment: Deployment, file: Path) -> ActionsProposal:
    """Returns actions, with the signatures of all copies of a file, before the organisation of a directory.

    Raises:
        ValueError: an action cannot be read, its survey could not be opened, or it has fields that this version of
            croupier does not know.
    """
    described = []
    for statement, action in zip(actions.statements, actions.proposals(), strict=True):
        action.DiscardUnknownFields()
        if action.SerializeToString(deterministic=True) != statement:
            raise ValueError(f"an action of the proposal {_NEWER}")
        described.append(_described(action, deployment))
    return ActionsProposal(directory=directory, file=actions, place=file, before=deployment, actions=described)


def _described(action: pb.Proposal, deployment: Deployment) -> Action:
    kind = action.WhichOneof("action")
    if kind == "open_survey":
        try:
            survey = read_survey(action.open_survey)
            survey.check_place(deployment)
        except Refusal as error:
            raise ValueError(f"the proposed survey cannot be opened: {error}") from error
        what = f"open {'the waves of ' if survey.schedule else ''}{survey.version_name}"
        return Action(what, {"open_survey": survey.survey_id}, survey)
    if kind is None:
        raise ValueError(f"an action of the proposal {_NEWER}")
    request = action.register if kind == "register" else action.revoke
    keys = [key.hex() for key in request.client_keys]
    until = action.register.valid_until_unix_s
    where = f" for survey {action.register.survey_hash.hex()[:16]}…" if action.register.survey_hash else ""
    where += f" until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC" if until else ""
    document = {kind: keys, "survey_hash": action.register.survey_hash.hex(), "valid_until_unix_s": until}
    listed = [f"key {key}" for key in keys[:_MOST_SHOWN]]
    more = [f"and {len(keys) - _MOST_SHOWN:,} more, which --json lists"] if len(keys) > _MOST_SHOWN else []
    return Action(f"{kind} {len(keys):,} keys{where}", document, details=(*listed, *more))


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
    async with Operator(directory, transport) as operator:
        proposal = actions_proposal(directory, read_actions(file), operator.deployment, file)
        operator.approvals.add(proposal.file)
        for described in proposal.actions:
            if described.survey is not None:
                await _open(operator, directory, described.survey)
        for action in proposal.file.proposals():
            if action.HasField("register"):
                approved_by = await operator.register([action.register])
                if not action.register.survey_hash:
                    keys = [Enrolment(key.hex()) for key in action.register.client_keys]
                    note_enrolled(directory, keys, approved_by)
            elif action.HasField("revoke"):
                await operator.carry_out_revocation([action.revoke])
                revoked = {key.hex() for key in action.revoke.client_keys}
                note_revoked(directory, revoked - note_revoked_invitations(directory, revoked))
    return [
        f"approved: {described.line}, which 'croupier survey run' does in their time"
        if described.survey and described.survey.schedule
        else f"done: {described.line}"
        for described in proposal.actions
    ]


async def _open(operator: Operator, directory: Path, survey: Survey) -> None:
    """Opens the rounds of a survey like `survey_plans.open_survey`; the waves of a schedule open in their time."""
    keep_survey(directory, survey)
    if survey.schedule is None:
        await open_rounds(operator, directory, survey)
