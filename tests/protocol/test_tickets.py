"""Tickets: what they are for, what they must not be good for, and a request that is made again."""

from __future__ import annotations

import os

import pytest

from croupier.protocol.errors import TicketError
from croupier.protocol.names import Digest, Lane
from croupier.protocol.tickets import (
    MAX_PER_BATCH,
    TICKET_BYTES,
    TICKET_KEY_BYTES,
    TicketIssuer,
    TicketRequest,
    collect_tickets,
    ticket_message,
)
from croupier.protocol.v1 import messages_pb2 as pb

HASH = Digest(bytes(range(32)))


@pytest.fixture
def issuer() -> TicketIssuer:
    return TicketIssuer(os.urandom(32), pb.LANE_REPORT)


def message(content: bytes, lane: Lane = pb.LANE_REPORT, manifest_hash: Digest = HASH) -> bytes:
    return ticket_message(manifest_hash, lane, content)


def test_tickets_of_a_batch_are_valid_for_their_own_messages_only(issuer: TicketIssuer) -> None:
    messages = [message(bytes([number])) for number in range(5)]
    requests = [TicketRequest(message) for message in messages]
    evaluated = issuer.evaluate([request.blinded for request in requests])
    tickets = collect_tickets(requests, evaluated, issuer.public_key)
    assert {len(ticket) for ticket in tickets} == {TICKET_BYTES}
    assert len(issuer.public_key) == TICKET_KEY_BYTES
    for index, ticket in enumerate(tickets):
        assert [issuer.is_valid(message, ticket) for message in messages] == [place == index for place in range(5)]


def test_a_message_is_bound_to_manifest_lane_and_content(issuer: TicketIssuer) -> None:
    (ticket,) = collect_tickets(
        requests := [TicketRequest(message(b"budget"))], issuer.evaluate([requests[0].blinded]), issuer.public_key
    )
    assert issuer.is_valid(message(b"budget"), ticket)
    assert not issuer.is_valid(message(b"budgets"), ticket)
    assert not issuer.is_valid(message(b"budget", lane=pb.LANE_PARAMETER), ticket)
    assert not issuer.is_valid(message(b"budget", manifest_hash=Digest(bytes(32))), ticket)


def test_the_lanes_of_a_round_have_different_keys() -> None:
    seed = os.urandom(32)
    keys = {TicketIssuer(seed, lane).public_key for lane in (pb.LANE_REPORT, pb.LANE_PARAMETER)}
    assert len(keys) == 2


def test_the_same_message_is_blinded_differently_and_gives_one_ticket(issuer: TicketIssuer) -> None:
    first, second = TicketRequest(message(b"x")), TicketRequest(message(b"x"))
    assert first.blinded != second.blinded
    tickets = collect_tickets([first, second], issuer.evaluate([first.blinded, second.blinded]), issuer.public_key)
    assert tickets[0] == tickets[1]


def test_a_request_that_is_made_again_gets_the_same_ticket(issuer: TicketIssuer) -> None:
    """What a client has to store is the message and the blind."""
    first = TicketRequest(message(b"x"))
    again = TicketRequest(message(b"x"), first.blind)
    assert again.blinded == first.blinded
    answers = [issuer.evaluate([request.blinded]) for request in (first, again)]
    assert answers[0] != answers[1]  # the proofs differ, and each holds
    tickets = [collect_tickets([again], answer, issuer.public_key) for answer in answers]
    assert tickets[0] == tickets[1]


def test_a_key_made_for_one_client_is_noticed(issuer: TicketIssuer) -> None:
    request = TicketRequest(message(b"x"))
    evaluated = TicketIssuer(os.urandom(32), pb.LANE_REPORT).evaluate([request.blinded])
    with pytest.raises(TicketError, match="manifest's key"):
        collect_tickets([request], evaluated, issuer.public_key)


def test_evaluations_that_were_exchanged_are_noticed(issuer: TicketIssuer) -> None:
    requests = [TicketRequest(message(bytes([number]))) for number in range(2)]
    evaluated = issuer.evaluate([request.blinded for request in requests])
    with pytest.raises(TicketError):
        collect_tickets(requests[::-1], evaluated, issuer.public_key)


@pytest.mark.parametrize(
    "evaluated", [b"", bytes(96), bytes(range(96)), bytes(63)], ids=["none", "zeros", "noise", "short"]
)
def test_nonsense_from_the_accountant_is_a_ticket_error(issuer: TicketIssuer, evaluated: bytes) -> None:
    with pytest.raises(TicketError):
        collect_tickets([TicketRequest(message(b"x"))], evaluated, issuer.public_key)


@pytest.mark.parametrize("blinded", [[], [bytes(32)], [b"\xff" * 32], [b"short"], [bytes(32)] * (MAX_PER_BATCH + 1)])
def test_nonsense_from_a_client_is_a_ticket_error(issuer: TicketIssuer, blinded: list[bytes]) -> None:
    with pytest.raises(TicketError):
        issuer.evaluate(blinded)


def test_a_ticket_of_another_length_is_not_valid(issuer: TicketIssuer) -> None:
    assert not issuer.is_valid(message(b"x"), b"")
    assert not issuer.is_valid(message(b"x"), bytes(TICKET_BYTES))
