"""Whole lanes as they stand in a store, for tests; services read them chunk by chunk."""

from __future__ import annotations

from croupier.protocol.batches import unpack
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.onion import Onion
from croupier.runtime.kinds import Direction
from croupier.runtime.service import RoundService
from croupier.runtime.transaction import Transaction


def chunks(tx: Transaction, round_id: str, direction: Direction, lane: int) -> list[bytes] | None:
    """Returns the chunks of a complete batch in order, or None while one is missing, and after it was forgotten."""
    count = tx.num_chunks(RoundId(round_id), direction, lane)
    return None if count is None else [tx.chunk(RoundId(round_id), direction, lane, index) for index in range(count)]


async def lane_in(service: RoundService, terms: RoundTerms, lane: Lane) -> list[bytes]:
    """Returns the ciphertexts of a complete incoming lane in the order of their arrival."""
    packed = await service.store.run("look", lambda tx: chunks(tx, terms.round_id, Direction.IN, lane))
    size = Onion(terms).arriving_size(lane, service.position.hop(terms))
    return [ciphertext for chunk in packed or [] for ciphertext in unpack(chunk, size)]
