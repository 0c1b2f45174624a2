"""Clients of a deployment: honest ones that get their tickets, dishonest ones, and such as have none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import grpc.aio

from croupier.client import tickets as client_tickets
from croupier.client.submission import (
    Participant,
    PreparedReport,
    SealedSubmission,
    new_client_key,
    prepare_one,
    seal_one,
)
from croupier.client.tickets import SealedUsers, get_tickets
from croupier.operator.operator import Operator
from croupier.protocol.identity import key_pair_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey
from croupier.protocol.onion import BudgetRecord, Onion, encode_budget
from croupier.protocol.tickets import TICKET_BYTES
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.voprf import random_scalar
from tests.support import encode_report


def forged_tickets() -> tuple[bytes, bytes]:
    return os.urandom(TICKET_BYTES), os.urandom(TICKET_BYTES)


def without_tickets(terms: RoundTerms, user: Participant) -> SealedSubmission:
    """Returns what a client sends that has made its tickets up; hop 1 cannot tell."""
    onion = Onion(terms)
    return seal_one(terms, onion, prepare_one(terms, onion, user), forged_tickets())


def stranger(terms: RoundTerms, key: bytes = b"") -> pb.Submission:
    """Returns such a submission, of a client that nothing is known about."""
    return pb.Submission.FromString(without_tickets(terms, Participant(1, 2.0, PrivateKey(key))).submission)


def crafted(
    terms: RoundTerms, report: int | bytes, epsilon: float, delta: float = 0.0, key: bytes = b""
) -> PreparedReport:
    """Returns what a dishonest client may ask tickets for: any report beside any budget, well sealed."""
    sealed = Onion(terms).seal_report(report if isinstance(report, bytes) else encode_report(report))
    record = BudgetRecord(encode_budget(epsilon, delta), os.urandom(16))
    return PreparedReport(
        sealed,
        record,
        key_pair_of(PrivateKey(key or new_client_key())),
        PrivateKey(b""),
        (random_scalar(), random_scalar()),
    )


async def tickets_of(
    operator: Operator, terms: RoundTerms, prepared: Sequence[PreparedReport]
) -> list[tuple[bytes, bytes]]:
    """Returns the tickets of clients that are enrolled here, and are all given tickets."""
    await operator.enrol([person.client_key for person in prepared])
    named = {str(index): person for index, person in enumerate(prepared)}
    async with operator.client_channel(operator.deployment.accountant.name) as accountant:
        tickets = await get_tickets(accountant, terms, named)
    assert not tickets.refused, tickets.refused
    return [tickets.granted[name] for name in named]


async def seal_prepared(
    operator: Operator, terms: RoundTerms, prepared: Sequence[PreparedReport]
) -> list[SealedSubmission]:
    """Returns the submissions of such clients."""
    onion, tickets = Onion(terms), await tickets_of(operator, terms, prepared)
    return [seal_one(terms, onion, person, pair) for person, pair in zip(prepared, tickets, strict=True)]


async def seal_all_of(operator: Operator, terms: RoundTerms, users: Sequence[Participant]) -> list[SealedSubmission]:
    """Seals the submissions of honest clients."""
    onion = Onion(terms)
    return await seal_prepared(operator, terms, [prepare_one(terms, onion, user) for user in users])


async def seal_participants(
    channel: grpc.aio.Channel, terms: RoundTerms, users: Mapping[str, Participant], patience_s: float = 60.0
) -> SealedUsers:
    """Returns the sealed submissions of admitted users, with nothing stored; every call spends their budgets once."""
    onion = Onion(terms)
    prepared = {name: prepare_one(terms, onion, user) for name, user in users.items()}
    return await client_tickets.seal_prepared(channel, terms, prepared, patience_s)


def submissions_of(sealed: Sequence[SealedSubmission]) -> list[pb.Submission]:
    return [pb.Submission.FromString(submission.submission) for submission in sealed]
