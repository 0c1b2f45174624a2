"""Tickets for a client's messages, from the accountant, who sees which client asks and never for which message.

The answers are checked against the keys of the signed manifest, so that a key made for one client, by which the
accountant would recognise it, is noticed. The accountant answers a client's first request of a round again and again,
and no other one: a client stores its prepared report before it asks (`client.outbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import grpc.aio

from croupier.client.submission import PreparedReport, SealedSubmission, check_codes, seal_one, terms_of
from croupier.net.retrying import retrying
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey
from croupier.protocol.onion import onion_of
from croupier.protocol.tickets import TicketRequest, collect_tickets
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs

_PER_CALL = 1000
"""The most tickets that one call asks for."""
RunElsewhere: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function of picklable arguments in a thread or a process, and returns its result."""


class Tickets(NamedTuple):
    """The accountant's answer.

    Attributes:
        granted: (report lane's, parameter lane's) ticket by user.
        refused: the code of each user that got none.
    """

    granted: dict[str, tuple[bytes, bytes]]
    refused: dict[str, pb.SubmissionCode.ValueType]


class SealedUsers(NamedTuple):
    """Sealed submissions by user, and the code of each user that got no tickets."""

    sealed: dict[str, SealedSubmission]
    refused: dict[str, pb.SubmissionCode.ValueType]


async def seal_prepared(
    channel: grpc.aio.Channel, terms: RoundTerms, prepared: Mapping[str, PreparedReport], patience_s: float = 60.0
) -> SealedUsers:
    """Returns the sealed submissions of a few admitted users, for whom the same call may be made again.

    Arguments and errors as for `get_tickets`. Many users are sealed in worker processes: `deploy.local.users`.
    """
    onion = onion_of(terms)
    granted, refused = await get_tickets(channel, terms, prepared, patience_s)
    return SealedUsers(
        {name: seal_one(terms, onion, prepared[name], tickets) for name, tickets in granted.items()}, refused
    )


async def get_tickets(
    channel: grpc.aio.Channel,
    terms: RoundTerms,
    users: Mapping[str, PreparedReport],
    patience_s: float = 60.0,
    *,
    elsewhere: RunElsewhere = asyncio.to_thread,
) -> Tickets:
    """Returns the tickets of admitted users, by one call for each thousand.

    Args:
        channel: to the accountant's public address.
        terms: of the round; its manifest names the keys of the tickets.
        users: by any name.
        patience_s: the time for which the accountant may be out of reach.
        elsewhere: blinds the messages and checks the tickets; about 1 ms of processor time for each user.

    Raises:
        TicketError: the accountant's answer does not verify under the keys of the manifest.
        ProtocolError: its codes are not part of the protocol, or there is another number of them.
        Refusal: the accountant refuses the call.
        grpc.aio.AioRpcError: it stayed out of reach.
    """
    tickets = Tickets({}, {})
    names = list(users)
    for start in range(0, len(names), _PER_CALL):
        part = {name: users[name] for name in names[start : start + _PER_CALL]}
        await _ask(stubs.AccountantStub(channel), terms, part, tickets, patience_s, elsewhere)
    return tickets


async def _ask(
    stub: stubs.AccountantAsyncStub,
    terms: RoundTerms,
    users: Mapping[str, PreparedReport],
    tickets: Tickets,
    patience_s: float,
    elsewhere: RunElsewhere,
) -> None:
    blinded, request = await elsewhere(_blind_all, terms.unsigned, [*users.values()])
    message = pb.GetTicketsRequest.FromString(request)
    answer = await retrying(lambda: stub.GetTickets(message, timeout=60.0), give_up_after_s=patience_s)
    check_codes(answer.codes, len(users))
    codes = dict(zip(users, answer.codes, strict=True))
    granted = [name for name, code in codes.items() if code == pb.SUBMISSION_CODE_ACCEPTED]
    requests = [pair for pair, code in zip(blinded, answer.codes, strict=True) if code == pb.SUBMISSION_CODE_ACCEPTED]
    tickets.refused.update({name: code for name, code in codes.items() if code != pb.SUBMISSION_CODE_ACCEPTED})
    if granted:
        evaluations = answer.report_evaluations, answer.parameter_evaluations
        pairs = await elsewhere(_unblind_all, terms.unsigned, requests, evaluations)
        tickets.granted.update(dict(zip(granted, pairs, strict=True)))


def _blind_all(
    manifest: bytes, users: Sequence[PreparedReport]
) -> tuple[list[tuple[TicketRequest, TicketRequest]], bytes]:
    """Returns each user's ticket requests, and the serialised GetTicketsRequest; processes exchange bytes."""
    terms, blinded = terms_of(manifest), []
    for user in users:
        report, parameter = map(TicketRequest, user.messages(terms.hash), user.blinds)
        blinded.append((report, parameter))
    requests = [
        sign_submission(terms.hash, report.blinded + parameter.blinded, user.key, "tickets")
        for user, (report, parameter) in zip(users, blinded, strict=True)
    ]
    message = pb.GetTicketsRequest(round_id=terms.round_id, requests=requests)
    return blinded, message.SerializeToString()


def _unblind_all(
    manifest: bytes,
    requests: list[tuple[TicketRequest, TicketRequest]],
    evaluations: tuple[bytes, bytes],
) -> list[tuple[bytes, bytes]]:
    keys = terms_of(manifest).accountant
    reports = collect_tickets([pair[0] for pair in requests], evaluations[0], PublicKey(keys.report_ticket_key))
    budgets = collect_tickets([pair[1] for pair in requests], evaluations[1], PublicKey(keys.parameter_ticket_key))
    return list(zip(reports, budgets, strict=True))
