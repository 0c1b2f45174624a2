"""The work of the accountant's worker processes: giving tickets, opening budgets, and checking tickets of both lanes.

Pure functions in a room of their own, so that a worker imports the cryptography and nothing of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from croupier.protocol.envelope import Label
from croupier.protocol.names import Digest, Lane, PrivateKey
from croupier.protocol.onion import UNOPENED, BudgetRecord
from croupier.protocol.tickets import BLINDED_BYTES, TicketIssuer, ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.tasks import DOES_NOT_OPEN, HASH_BYTES, NO_TICKET, OPENED, open_layer


@lru_cache(maxsize=8)  # for tickets that are given, few at a time; a worker that checks them forgets the key
def _issuer(seed: bytes, lane: Lane) -> TicketIssuer:
    return TicketIssuer(seed, lane)


def evaluate_both(seeds: dict[Lane, bytes], granted: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Returns the evaluations of both lanes' blinded messages, which are side by side in each request.

    Args:
        seeds: of the ticket keys, by lane.
        granted: the requests.

    Raises:
        TicketError: see `TicketIssuer.evaluate`.
    """
    reports = _issuer(seeds[pb.LANE_REPORT], pb.LANE_REPORT)
    budgets = _issuer(seeds[pb.LANE_PARAMETER], pb.LANE_PARAMETER)
    return (
        reports.evaluate([request[:BLINDED_BYTES] for request in granted]),
        budgets.evaluate([request[BLINDED_BYTES:] for request in granted]),
    )


def evaluate_fakes(seed: bytes, blinded: Sequence[bytes]) -> bytes:
    """Returns the evaluations of a hop's blinded messages; raises TicketError as `TicketIssuer.evaluate` does."""
    return _issuer(seed, pb.LANE_REPORT).evaluate(blinded)


def open_budgets(
    suite: str,
    private_key: PrivateKey,
    label: Label,
    plain_size: int,
    seed: bytes,
    manifest_hash: Digest,
    ciphertexts: list[bytes],
) -> list[tuple[int, bytes]]:
    """Returns for each budget whether it has a valid ticket, and the message of the ticket."""
    issuer = TicketIssuer(seed, pb.LANE_PARAMETER)
    opened: list[tuple[int, bytes]] = []
    for status, plaintext in open_layer(suite, private_key, label, plain_size, ciphertexts):
        if status == OPENED:
            ticket, record = BudgetRecord.split(plaintext)
            content = record.budget + record.salt
            is_valid = issuer.is_valid(ticket_message(manifest_hash, pb.LANE_PARAMETER, content), ticket)
            opened.append((OPENED, content) if is_valid else (NO_TICKET, b""))
        else:
            opened.append((status, b""))
    return opened


def check_reports(seed: bytes, manifest_hash: Digest, items: list[bytes]) -> list[tuple[int, bytes]]:
    """Returns for each item whether its ticket is valid, and the hash that it is about."""
    issuer = TicketIssuer(seed, pb.LANE_REPORT)
    checked: list[tuple[int, bytes]] = []
    for item in items:
        name, ticket = item[:HASH_BYTES], item[HASH_BYTES:]
        if item == UNOPENED:
            checked.append((DOES_NOT_OPEN, b""))
        else:
            is_valid = issuer.is_valid(ticket_message(manifest_hash, pb.LANE_REPORT, name), ticket)
            checked.append((OPENED if is_valid else NO_TICKET, name))
    return checked
