"""Sends the lanes of a round to the next services.

An output batch is stored as it will be sent, in chunks that are idempotent by (round, lane, index). The hand-over ends
a delivery with the signed commitments of all hops so far; only its acknowledgement lets the sender forget the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import Direction
from croupier.runtime.peers import Peers
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

CHUNK_BYTES = 1024 * 1024


def items_per_chunk(size: int) -> int:
    """Returns how many items of a size are sent, and stored, together."""
    return max(1, CHUNK_BYTES // size)


@dataclass(frozen=True)
class LaneOutput:
    """An output batch of one lane, or a part of it.

    Attributes:
        lane: of the batch.
        ciphertexts: all of one size.
        start: the position of the part in the batch; a multiple of `items_per_chunk`.
        total: the number of ciphertexts of the whole batch; None if this is the whole batch.
    """

    lane: Lane
    ciphertexts: Sequence[bytes]
    start: int = 0
    total: int | None = None


class LaneSender:
    """Stores output batches, and sends them until they are acknowledged."""

    def __init__(self, setup: ServiceSetup, peers: Peers) -> None:
        self._store = setup.store
        self._peers = peers

    def put_output(self, tx: Transaction, round_id: RoundId, output: LaneOutput) -> None:
        """Stores an output batch, or a part of it, in the order in which it will be sent."""
        per_chunk = items_per_chunk(len(output.ciphertexts[0]))
        count = -(-(output.total or len(output.ciphertexts)) // per_chunk)
        for first in range(0, len(output.ciphertexts), per_chunk):
            chunk = b"".join(output.ciphertexts[first : first + per_chunk])
            tx.put_chunk(round_id, Direction.OUT, output.lane, (output.start + first) // per_chunk, count, chunk)

    async def send_lane(self, terms: RoundTerms, receiver: str, lane: Lane) -> int:
        """Sends this round's stored output of one lane and returns the bytes on the wire; keeps trying."""
        round_id, sent = terms.round_id, 0
        count = (
            await self._store.run(
                StoreStep.MEASURE_LANE_TO_SEND, lambda tx: tx.num_chunks(round_id, Direction.OUT, lane)
            )
            or 0
        )
        for index in range(count):
            request = pb.DeliverRequest(
                round_id=round_id,
                lane=lane,
                chunk_index=index,
                chunk_count=count,
                ciphertexts=await self._chunk(round_id, lane, index),
            )
            sent += request.ByteSize()
            await self._peers.call_until_answered(
                round_id, receiver, lambda to: stubs.DeliveryStub(to).Deliver, request
            )
        return sent

    async def _chunk(self, round_id: RoundId, lane: Lane, index: int) -> bytes:
        return await self._store.run(
            StoreStep.READ_CHUNK_TO_SEND, lambda tx: tx.chunk(round_id, Direction.OUT, lane, index)
        )

    async def hand_over(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> None:
        """Tells the receiver that its lanes are complete, and returns when it has taken responsibility."""
        request = pb.HandOverRequest(round_id=terms.round_id, commitments=commitments)
        await self._peers.call_until_answered(
            terms.round_id, receiver, lambda to: stubs.DeliveryStub(to).HandOver, request
        )
