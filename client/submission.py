"""From a user's value and largest acceptable budget to a signed, sealed submission, and from there to hop 1.

Randomizing and sealing are elsewhere (`client.randomizers`, `protocol.onion`); this room puts them together in the one
order that is safe: choose the budget, randomize once, seal, store, get tickets (`client.tickets`), seal again, sign,
store, send.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import grpc.aio

from croupier.client.randomizers import randomize
from croupier.net.retrying import retrying
from croupier.protocol.errors import ProtocolError
from croupier.protocol.identity import key_pair_of, public_key_of, sign_answer, sign_submission
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import NO_KEY, Digest, PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import BudgetRecord, Onion, decode_budget, encode_budget, onion_of
from croupier.protocol.questions import Question, choose_budget
from croupier.protocol.randomness import RandomSource, SystemRandom
from croupier.protocol.tickets import ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.voprf import random_scalar

MAX_PER_CALL = 1000
"""The most submissions that a client sends in one call."""
_BYTES_PER_CALL = 3 * 1024 * 1024  # of the 4 MiB that a message may have
_AROUND_ENVELOPE = 256
"""An upper estimate of the bytes that a submission has besides its envelope."""


@dataclass(frozen=True)
class Participant:
    """One user of a round.

    Attributes:
        value: the true value, for `client.randomizers.randomize`. None in a sequential round, which asks for it later
            (client.sequential).
        max_local_epsilon: the most that the user spends on this round; its budget is the largest of the grid up to it.
        private_key: Ed25519, 32 bytes; empty for a fresh ephemeral key.
        kept_report: in a round of a permanent study, the report for the value in all its waves; see
            `Outbox.keep_reports`. `max_local_epsilon` is then the report's budget.
    """

    value: Any
    max_local_epsilon: float
    private_key: PrivateKey = NO_KEY
    kept_report: bytes = b""

    @property
    def public_key(self) -> PublicKey:
        """The public half of `private_key`, if there is one."""
        return public_key_of(self.private_key)

    def __repr__(self) -> str:
        return f"Participant(max_local_epsilon={self.max_local_epsilon})"


def new_client_key() -> PrivateKey:
    """Returns a fresh Ed25519 private key."""
    return PrivateKey(os.urandom(32))  # any 32 bytes are one (RFC 8032)


class PreparedReport(NamedTuple):
    """A randomized report and its budget, with everything but their tickets: stored, it can be gone on with.

    Attributes:
        sealed: the report under the release key; in a sequential round, the key that will sign the answer.
        record: the local budget, with random bytes.
        key: signs the submission; see `key_pair_of`.
        answer_key: sequential rounds: Ed25519, 32 bytes, which signs the answer; empty otherwise.
        blinds: of the report lane's and of the parameter lane's ticket request; see `protocol.tickets.TicketRequest`.
    """

    sealed: bytes
    record: BudgetRecord
    key: PrivateKey
    answer_key: PrivateKey
    blinds: tuple[bytes, bytes]

    @property
    def client_key(self) -> PublicKey:
        """The public half of the key that signs the submission."""
        return PublicKey(self.key[-32:])

    def __repr__(self) -> str:
        return "PreparedReport()"

    def messages(self, manifest_hash: Digest) -> tuple[bytes, bytes]:
        """Returns the messages of the tickets: the report lane's, then the parameter lane's."""
        sealed_hash = hashlib.sha256(self.sealed).digest()
        return (
            ticket_message(manifest_hash, pb.LANE_REPORT, sealed_hash),
            ticket_message(manifest_hash, pb.LANE_PARAMETER, self.record.budget + self.record.salt),
        )


class SealedSubmission(NamedTuple):
    """The user's record of a submission.

    Attributes:
        submission: serialised.
        inclusion_hashes: of its envelope; see `protocol.onion.JointEnvelope`.
        local_epsilon, local_delta: its spending.
        answer_key: sequential rounds: Ed25519, 32 bytes, which signs the answer; empty otherwise.
    """

    submission: bytes
    inclusion_hashes: bytes
    local_epsilon: float = 0.0
    answer_key: PrivateKey = NO_KEY
    local_delta: float = 0.0


def prepare_one(
    terms: RoundTerms,
    onion: Onion,
    participant: Participant,
    source: RandomSource | None = None,
) -> PreparedReport:
    """Returns one user's randomized report, ready for its tickets; every call spends the user's budget once.

    Args:
        terms: the round's, verified.
        onion: of the same round.
        participant: the user.
        source: the operating system's generator, which keeps a block of drawn bytes; one of its own by default.

    Raises:
        ValueError: the value is outside the question's domain, `max_local_epsilon` is below every budget, or the kept
            report of a permanent study is missing.
    """
    if (terms.permanent is None) == bool(participant.kept_report):
        raise ValueError("kept_report must be given in a round of a permanent study, and in no other")
    epsilon = choose_budget(participant.max_local_epsilon, terms.budget_grid)
    answer_key = new_client_key() if terms.question.sequential else NO_KEY
    source = source or SystemRandom()
    report = participant.kept_report or (
        public_key_of(answer_key) if answer_key else _report(terms.question, participant.value, epsilon, source)
    )
    record = BudgetRecord(encode_budget(epsilon, terms.question.mechanism.budget_delta), source.block(16))
    key = key_pair_of(participant.private_key or new_client_key())
    blinds = random_scalar(), random_scalar()
    return PreparedReport(onion.seal_report(report), record, key, answer_key, blinds)


def draw_report(terms: RoundTerms, value: Any, epsilon: float) -> bytes:
    """Returns a randomized report, to be kept for all waves of a question; every call spends the budget once.

    Raises:
        ValueError: the value is outside the question's domain.
    """
    return _report(terms.question, value, epsilon, SystemRandom())


def value_key(value: float) -> str:
    """Returns a text for a value of a question with kept reports, equal for equal values of any type."""
    return repr(float(value) + 0.0)  # -0.0 is 0.0


def seal_one(
    terms: RoundTerms, onion: Onion, prepared: PreparedReport, tickets: tuple[bytes, bytes]
) -> SealedSubmission:
    """Returns the sealed submission of a user who has a ticket for each lane."""
    envelope, hashes = onion.wrap(prepared.sealed, prepared.record, tickets)
    submission = sign_submission(terms.hash, envelope, prepared.key)
    epsilon, delta = decode_budget(prepared.record.budget)
    return SealedSubmission(submission.SerializeToString(), hashes, epsilon, prepared.answer_key, delta)


def seal_answer(terms: RoundTerms, onion: Onion, value: Any, epsilon: float, answer_key: PrivateKey) -> bytes:
    """Returns the envelope around one user's randomized vector, for when hop 1 asks it.

    Spends the budget that was submitted, which is already counted; `answer_key` is that submission's.

    Raises:
        ValueError: the value is not a vector of the round's dimension, or epsilon not a budget of the round.
    """
    if epsilon not in terms.budget_grid:
        raise ValueError(f"the submission counted a local epsilon of {epsilon}, which is not a budget of this round")
    report = _report(terms.question, value, epsilon, SystemRandom())
    return onion.wrap_answer(sign_answer(terms.hash, report, answer_key))


def _report(question: Question, value: Any, epsilon: float, source: RandomSource) -> bytes:
    return question.mechanism.encode_report(randomize(question, value, epsilon, source))


@lru_cache(maxsize=4)
def terms_of(manifest: bytes) -> RoundTerms:
    """Returns the terms of a verified manifest; a worker process parses it once."""
    return parse_terms(manifest)


def prepare_all(manifest: bytes, participants: Sequence[Participant]) -> list[PreparedReport]:
    """Returns prepared reports, in order; the work of one chunk of a fleet, made for a worker process."""
    terms, source = terms_of(manifest), SystemRandom()
    onion = onion_of(terms)
    return [prepare_one(terms, onion, participant, source) for participant in participants]


def seal_all(manifest: bytes, prepared: Sequence[tuple[PreparedReport, tuple[bytes, bytes]]]) -> list[SealedSubmission]:
    """Returns sealed submissions, in order, of reports with their tickets; made for a worker process."""
    terms = terms_of(manifest)
    onion = onion_of(terms)
    return [seal_one(terms, onion, report, tickets) for report, tickets in prepared]


def per_call(terms: RoundTerms) -> int:
    """Returns how many submissions of a round fit into one call."""
    return max(1, min(MAX_PER_CALL, _BYTES_PER_CALL // (onion_of(terms).joint.sealed_size + _AROUND_ENVELOPE)))


async def send(
    channel: grpc.aio.Channel, round_id: RoundId, submissions: Mapping[str, bytes], patience_s: float = 60.0
) -> dict[str, pb.SubmissionCode.ValueType]:
    """Sends submissions in one call, retrying the identical bytes, and returns hop 1's code for each user.

    Raises:
        ProtocolError: hop 1 answered with codes that the protocol does not have, or with another number of them.
        Refusal: hop 1 refuses the call.
        grpc.aio.AioRpcError: it stayed out of reach.
    """
    request = pb.SubmitRequest(
        round_id=round_id, submissions=[pb.Submission.FromString(raw) for raw in submissions.values()]
    )
    stub = stubs.ShufflerStub(channel)
    answer = await retrying(lambda: stub.Submit(request, timeout=60.0), give_up_after_s=patience_s)
    check_codes(answer.codes, len(submissions))
    return dict(zip(submissions, answer.codes, strict=True))


def check_codes(codes: Sequence[pb.SubmissionCode.ValueType], asked: int) -> None:
    """Checks that a service has answered each request with a code that the protocol has.

    Raises:
        ProtocolError: it has not.
    """
    if len(codes) != asked:
        raise ProtocolError(
            f"the service answered with {len(codes)} codes; it must be one for each of {asked} requests"
        )
    for code in codes:
        if code == pb.SUBMISSION_CODE_UNSPECIFIED or code not in pb.SubmissionCode.values():
            raise ProtocolError(f"the service answered with code {code}, which the protocol does not have")
