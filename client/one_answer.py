"""One person's answer to one round, given once.

`client.round_client` calls this. The order is the safe one: the contents of the outbox go first, then the person's own
limits, and only then is anything randomized or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import grpc.aio
from sqlalchemy.exc import IntegrityError

from croupier.client.limits import Limits
from croupier.client.outbox import KEPT_DAYS, Outbox, WantedReport, other_person
from croupier.client.submission import Participant, draw_report, prepare_one, send, value_key
from croupier.client.tickets import seal_prepared
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism, ScalarMechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.names import NO_KEY, PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import decode_budget, onion_of
from croupier.protocol.questions import choose_budget
from croupier.protocol.v1 import messages_pb2 as pb

Given: TypeAlias = float | str | Collection[str]
"""An answer: a number, or text as people write it down, such as a category's name; with `choices` the names of the
chosen options."""
_NAMED = "person "
"""Begins the outbox's name of a person with a name; keys are hexadecimal."""
Enrol = Callable[[PublicKey], Awaitable[None]]
"""Registers a client's public key with the services; only an operator can."""

ALREADY_ANSWERED = "ALREADY_ANSWERED"
"""Replaces hop 1's code if hop 1 has acknowledged a submission of this user before, and nothing was sent now."""


@dataclass(frozen=True)
class Respondent:
    """The respondent of a round, with the credentials for the answer.

    Attributes:
        person: a constant name, if a program answers for several people; "" is the one person whose device this is.
        key: an enrolled Ed25519 key, 32 bytes; empty for the client's own.
        new_key: without a key, sign with a new one for this answer. Such a person cannot be told from the one who has
            answered the round from here before, so that an earlier answer is sent again.
        another_person: not the person who has answered the round from here before.
    """

    person: str = ""
    key: PrivateKey = field(default=NO_KEY, repr=False)
    new_key: bool = False
    another_person: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a named person without a key."""
        if self.person and not self.key:
            raise ValueError("key is missing; a person with a name needs a key or an invitation")

    @property
    def alone(self) -> bool:
        """Whether nobody else may have answered the round from here."""
        return not (self.person or self.another_person)

    def user(self, public_key: PublicKey, known: Collection[str]) -> str:
        """Returns the outbox's name for the person.

        Args:
            public_key: of the key that signs this answer.
            known: the names of those who have answered the round from here.
        """
        if self.person:
            return f"{_NAMED}{self.person}"
        if self.new_key and not self.key and self.alone and len(known) == 1:
            (user,) = known
            return user
        return public_key.hex()


def is_of_person(user: str, person: str) -> bool:
    """Returns whether a user of the outbox is this person; "" is everybody who has no name (`Respondent.person`)."""
    return user == f"{_NAMED}{person}" if person else not user.startswith(_NAMED)


@dataclass(frozen=True)
class AnswerOutcome:
    """The outcome of one user's submission.

    Attributes:
        round_id: of the round.
        code: hop 1's, or ALREADY_ANSWERED.
        local_epsilon, local_delta: the spending of the submission that counts.
        sealed_before: an earlier call made it, and value and budget of this one were not used.
    """

    round_id: RoundId
    code: str
    local_epsilon: float
    local_delta: float
    sealed_before: bool


def value_of(mechanism: Mechanism, given: Given) -> Any:
    """Returns the value of a person's answer in one of its forms.

    Raises:
        ValueError: it is outside the question's domain, or the question is for vectors.
    """
    if isinstance(mechanism, MultipleChoice) and isinstance(given, Collection) and not isinstance(given, str):
        return mechanism.value_of(given)
    if not isinstance(given, int | float) or not isinstance(mechanism, ScalarMechanism):
        return mechanism.parse_value(str(given))
    mechanism.check_value(given)
    return given


async def answer_once(
    shuffler: grpc.aio.Channel,
    accountant: grpc.aio.Channel,
    terms: RoundTerms,
    respondent: Respondent,
    user: str,
    participant: Participant,
    *,
    outbox: Outbox,
    limits: Limits,
    enrol: Enrol | None = None,
    patience_s: float = 60.0,
) -> AnswerOutcome:
    """Submits one user's answer and returns its outcome.

    A user whose submission for this round is already in the outbox sends those bytes again, whatever the value now is:
    to randomize twice would spend the budget twice. One whose report is prepared asks for the same tickets again. So
    the same call may be repeated until it returns, also by a process that follows one that was killed.

    Args:
        shuffler: channel to hop 1.
        accountant: channel to the accountant's public address.
        terms: the round's, verified.
        respondent: who answers.
        user: the outbox's name for the respondent.
        participant: the value, and the key that signs.
        outbox: stores the prepared report before the request for tickets, and the submission before it is sent.
        limits: the user's own.
        enrol: registers the signing public key, if the caller can.
        patience_s: the time for which each service may be out of reach.

    Raises:
        ValueError: the budget cannot be used, or the stored submission is forgotten.
        LimitError: the user's own limits do not allow the answer.
        OtherPersonError: someone else has answered, perhaps meanwhile; nothing was sent.
        TicketError: the accountant's tickets cannot be trusted.
        ProtocolError: a service's answer is not part of the protocol.
        Refusal: a service refuses the call.
        grpc.aio.AioRpcError: a service stayed out of reach.
    """
    round_id, alone = terms.round_id, respondent.alone
    known = outbox.begun(round_id)
    if alone and known and user not in known:  # it may be the same person under a new key
        raise other_person(round_id, len(known))
    sealed_before = user in outbox.users(round_id)
    if not sealed_before:
        earlier = outbox.prepared(round_id).get(user)
        if earlier is None:
            epsilon = choose_budget(participant.max_local_epsilon, terms.budget_grid)
        else:
            epsilon, _ = decode_budget(earlier.record.budget)
            sealed_before = True
        limits.check_round(terms, epsilon)
        if earlier is None and terms.permanent is not None:
            if not (respondent.person or alone):
                raise ValueError("person is missing; in a permanent study each of several people needs a name")
            mine, whose = {user: participant}, lambda _: respondent.person
            participant = (await asyncio.to_thread(with_kept_reports, outbox, terms, mine, whose, limits))[user]
        attempt = await asyncio.to_thread(outbox.begin, round_id, epsilon, terms.local_delta, limits)
        try:
            if enrol:
                await enrol(participant.public_key if earlier is None else earlier.client_key)
            fresh = earlier or prepare_one(terms, onion_of(terms), participant)
            prepared = await asyncio.to_thread(outbox.prepare, round_id, {user: fresh}, alone=alone)
            sealed, refused = await seal_prepared(accountant, terms, prepared, patience_s)
            if user in refused:
                await asyncio.to_thread(outbox.discard, round_id, refused)
                await asyncio.to_thread(outbox.overwrite_log)
                return AnswerOutcome(round_id, _name(refused[user]), 0.0, 0.0, sealed_before)
            await asyncio.to_thread(outbox.keep, round_id, sealed, limits=limits, alone=alone)
            sealed_before = sealed_before or prepared != {user: fresh}  # of the same person's other window
        except IntegrityError:  # the other window has sealed the answer meanwhile
            sealed_before = True
        finally:
            outbox.withdraw(attempt)
        await asyncio.to_thread(outbox.overwrite_log)
    kept = outbox.kept(round_id, user)
    if kept.acknowledged:
        code = ALREADY_ANSWERED
    else:
        if not kept.submission:
            raise ValueError(f"the answer was sealed more than {KEPT_DAYS} days ago, and is forgotten; it was not sent")
        if enrol and sealed_before:
            await enrol(PublicKey(pb.Submission.FromString(kept.submission).client_key))
        sent = (await send(shuffler, round_id, {user: kept.submission}, patience_s))[user]
        if sent == pb.SUBMISSION_CODE_ACCEPTED:
            await asyncio.to_thread(outbox.acknowledge, round_id, [user])
        code = _name(sent)
    return AnswerOutcome(round_id, code, kept.local_epsilon, terms.local_delta, sealed_before)


def with_kept_reports(
    outbox: Outbox,
    terms: RoundTerms,
    users: Mapping[str, Participant],
    person_of: Callable[[str], str] = str,
    limits: Limits | None = None,
) -> dict[str, Participant]:
    """Returns the users with the reports that are kept for their values in a permanent study.

    Args:
        outbox: keeps the reports.
        terms: of a round; if it is of no permanent study, the users are unchanged.
        users: by the outbox's names.
        person_of: returns the owner of a user's kept reports.
        limits: of the only user; see `Outbox.keep_reports`.

    Raises:
        LimitError: see `Outbox.keep_reports`.
    """
    if terms.permanent is None:
        return dict(users)
    wanted = {
        user: WantedReport(
            person_of(user), value_key(who.value), choose_budget(who.max_local_epsilon, terms.budget_grid)
        )
        for user, who in users.items()
    }
    wave = (terms.round_id, terms.permanent)
    kept = outbox.keep_reports(wave, wanted, lambda user, budget: draw_report(terms, users[user].value, budget), limits)
    return {
        user: replace(who, max_local_epsilon=kept[user][1], kept_report=kept[user][0]) for user, who in users.items()
    }


def _name(code: pb.SubmissionCode.ValueType) -> str:
    return pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_")
