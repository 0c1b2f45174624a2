"""From a user's value and largest acceptable budget to a signed, sealed submission, and from there to hop 1.

Randomizing and sealing are elsewhere (`client.randomizers`, `protocol.onion`); this room puts them together in the one
order that is safe: choose the budget, randomize once, seal, sign, store, send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.randomizers import randomize
from protocol.identity import sign_submission
from protocol.manifest import RoundTerms, parse_terms
from protocol.onion import Onion, encode_budget
from protocol.questions import JOINING, Question, choose_budget
from protocol.randomness import SystemRandom
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2_grpc as stubs
from runtime.transport import retrying

__all__ = [
    "MAX_PER_CALL",
    "Participant",
    "Sealed",
    "new_client_key",
    "per_call",
    "seal_all",
    "seal_answer",
    "seal_one",
    "send",
]

MAX_PER_CALL = 1000
_BYTES_PER_CALL = 3 * 1024 * 1024  # of the 4 MiB that a message may have
_AROUND_ENVELOPE = 256


@dataclass(frozen=True)
class Participant:
    """One user of a round.

    Attributes:
        value: the true value, as `client.randomizers.randomize` takes it. None in a sequential
            round, where it is asked for later (client.sequential).
        max_local_epsilon: the most that the user spends on this round; its budget is the largest of the grid up to it.
        private_key: Ed25519, 32 bytes; empty for a fresh ephemeral key.
        token: a one-use token, 32 bytes; empty for a registered key.
    """

    value: Any
    max_local_epsilon: float
    private_key: bytes = b""
    token: bytes = b""

    def __repr__(self) -> str:
        return f"Participant(max_local_epsilon={self.max_local_epsilon})"


def new_client_key() -> bytes:
    """Returns a fresh Ed25519 private key."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


class Sealed(NamedTuple):
    """A serialised submission, its trail (`protocol.onion.Wrapped`), and the local epsilon that it spends."""

    submission: bytes
    trail: bytes
    local_epsilon: float = 0.0


def seal_one(terms: RoundTerms, onion: Onion, participant: Participant) -> Sealed:
    """Returns one user's sealed submission; every call spends the user's budget once.

    Raises:
        ValueError: the value is outside the question's domain, or `max_local_epsilon` is below every budget.
    """
    epsilon = choose_budget(participant.max_local_epsilon, terms.budget_grid)
    report = JOINING if terms.question.sequential else _report(terms.question, participant.value, epsilon)
    envelope, trail = onion.wrap(report, encode_budget(epsilon, terms.question.mechanism.budget_delta))
    key = participant.private_key or new_client_key()
    submission = sign_submission(terms.round_id, envelope, key, participant.token)
    return Sealed(submission.SerializeToString(), trail, epsilon)


def seal_answer(terms: RoundTerms, onion: Onion, value: Any, max_local_epsilon: float) -> bytes:
    """Returns the envelope around one user's randomized vector, for given when hop 1 asks it.

    Spends the budget that was submitted for the same `max_local_epsilon`.

    Raises:
        ValueError: the value is not a vector of the round's dimension.
    """
    epsilon = choose_budget(max_local_epsilon, terms.budget_grid)
    return onion.wrap_answer(_report(terms.question, value, epsilon))


def _report(question: Question, value: Any, epsilon: float) -> bytes:
    return question.mechanism.encode_report(randomize(question, value, epsilon, SystemRandom()))


@lru_cache(maxsize=4)
def _round(manifest: bytes) -> tuple[RoundTerms, Onion]:
    terms = parse_terms(manifest)
    return terms, Onion(terms)


def seal_all(manifest: bytes, participants: Sequence[Participant]) -> list[Sealed]:
    """Returns sealed submissions, in order; the work of one chunk of a fleet, made for a worker process."""
    terms, onion = _round(manifest)
    return [seal_one(terms, onion, participant) for participant in participants]


def per_call(terms: RoundTerms) -> int:
    """Returns how many submissions of a round fit into one call."""
    return max(1, min(MAX_PER_CALL, _BYTES_PER_CALL // (Onion(terms).joint.sealed_size + _AROUND_ENVELOPE)))


async def send(
    channel: grpc.aio.Channel, round_id: str, submissions: Mapping[str, bytes], patience_s: float = 60.0
) -> dict[str, pb.SubmissionCode.ValueType]:
    """Sends submissions in one call, retrying the identical bytes, and returns hop 1's code for each user."""
    request = pb.SubmitRequest(
        round_id=round_id, submissions=[pb.Submission.FromString(raw) for raw in submissions.values()]
    )
    stub = stubs.ShufflerStub(channel)
    answer = await retrying(lambda: stub.Submit(request, timeout=60.0), give_up_after_s=patience_s)
    return dict(zip(submissions, answer.codes, strict=True))
