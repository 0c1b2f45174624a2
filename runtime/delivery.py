"""Delivery: lanes that come from the service before, and lanes that go to the next one.

Chunks are idempotent by (round, lane, index). The hand-over ends a delivery with the signed commitments of all hops so
far, which the receiver checks against what has arrived; only its acknowledgement lets the sender forget.
"""

from __future__ import annotations

import abc
import asyncio
import hashlib
from collections.abc import Collection, Sequence

from croupier.protocol.batches import digest_of_hashes, read_commitments, unpack
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, read_signed
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.opening import Opening
from croupier.runtime.tls import Context
from croupier.runtime.transaction import Transaction

__all__ = ["SEQUENTIAL_REPORT", "Delivery"]


SEQUENTIAL_REPORT = "sequential-report"
_CHUNK_BYTES = 1024 * 1024
_MOST_ITEMS = 100_000_000  # where the manifest names no maximum


class Delivery(Opening, stubs.DeliveryServicer):
    """Both ends of a delivery, the same for every role."""

    lanes_in: tuple[pb.Lane.ValueType, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)

    @abc.abstractmethod
    def hop(self, terms: RoundTerms) -> int:
        """Returns this service's place in the onion: 1..k, or one of the places behind the chain."""

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the only service that may deliver lanes to this one."""
        return terms.manifest.hops[-1].service

    def senders(self, terms: RoundTerms) -> dict[pb.Lane.ValueType, str]:
        """Returns which lanes come to this service, and the only service that may deliver each."""
        return dict.fromkeys(self.lanes_in, self.predecessor(terms))

    def taking(self, lane: pb.Lane.ValueType) -> Collection[pb.RoundState.ValueType]:
        """Returns the states in which something new of a lane is taken: until the hand-over."""
        return (pb.ROUND_STATE_OPEN,)

    async def send_lane(self, terms: RoundTerms, receiver: str, lane: pb.Lane.ValueType) -> int:
        """Sends this round's stored output of one lane and returns the bytes on the wire; keeps trying."""
        sent = 0
        count = await self.count_chunks("measure a lane to send", terms, "out", lane) or 0
        for index in range(count):
            request = pb.DeliverRequest(
                round_id=terms.round_id,
                lane=lane,
                chunk_index=index,
                chunk_count=count,
                ciphertexts=await self._chunk("read a lane to send", terms, "out", lane, index),
            )
            sent += request.ByteSize()
            await self.persist(terms.round_id, receiver, lambda to: stubs.DeliveryStub(to).Deliver, request)
        return sent

    async def count_chunks(self, name: str, terms: RoundTerms, direction: str, lane: pb.Lane.ValueType) -> int | None:
        """Returns `Transaction.num_chunks`."""
        return await self.store.run(name, lambda tx: tx.num_chunks(terms.round_id, direction, lane))

    async def _chunk(self, name: str, terms: RoundTerms, direction: str, lane: pb.Lane.ValueType, index: int) -> bytes:
        return await self.store.run(name, lambda tx: tx.chunk(terms.round_id, direction, lane, index))

    async def hand_over(self, terms: RoundTerms, receiver: str, commitments: Sequence[pb.Signed]) -> None:
        """Tells the receiver that its lanes are complete, and returns when it has taken responsibility."""
        request = pb.HandOverRequest(round_id=terms.round_id, commitments=commitments)
        await self.persist(terms.round_id, receiver, lambda to: stubs.DeliveryStub(to).HandOver, request)

    def put_output(
        self,
        tx: Transaction,
        round_id: str,
        lane: pb.Lane.ValueType,
        ciphertexts: Sequence[bytes],
        start: int = 0,
        total: int | None = None,
    ) -> None:
        """Stores an output batch, or the part of it from `start` on, in the order in which it will be sent.

        A part must begin at a multiple of `items_per_chunk`.
        """
        per_chunk = self.items_per_chunk(len(ciphertexts[0]))
        count = -(-(total or len(ciphertexts)) // per_chunk)
        for first in range(0, len(ciphertexts), per_chunk):
            chunk = b"".join(ciphertexts[first : first + per_chunk])
            tx.put_chunk(round_id, "out", lane, (start + first) // per_chunk, count, chunk)

    def items_per_chunk(self, size: int) -> int:
        """Returns how many items of a size are sent, and stored, together."""
        return max(1, _CHUNK_BYTES // size)

    async def hashes_in(self, terms: RoundTerms, lane: pb.Lane.ValueType) -> list[bytes]:
        """Returns the SHA-256 of every ciphertext of a complete incoming lane, in the order of their arrival.

        Raises:
            Refusal: BAD_BATCH while something of it is missing.
        """
        count = await self.count_chunks("measure a lane that came", terms, "in", lane)
        if count is None:
            raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not complete")
        size = onion_of(terms).arriving_size(lane, self.hop(terms))
        hashes: list[bytes] = []
        for index in range(count):
            chunk = unpack(await self._chunk("read a lane that came", terms, "in", lane, index), size)
            hashes += [hashlib.sha256(ciphertext).digest() for ciphertext in chunk]
        return hashes

    async def Deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:  # noqa: N802
        """Takes one chunk of a lane; answers after it is durable. The same chunk again changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the lane's sender may), UNKNOWN_ROUND, BAD_REQUEST (lane, chunk number),
                BAD_BATCH (size, more items than the round can have), CONFLICT (the chunk was delivered with other
                content), WRONG_STATE (the round has ended here, or the batch has been handed over).
        """
        terms = await self.terms(request.round_id)
        senders = self.senders(terms)
        self.require_caller(context, [senders[request.lane]] if request.lane in senders else senders.values())
        if request.lane not in senders:
            raise Refusal(Code.BAD_REQUEST, f"lane {request.lane} does not come to {self.name}")
        if not request.chunk_index < request.chunk_count:
            raise Refusal(Code.BAD_REQUEST, f"chunk {request.chunk_index} of {request.chunk_count}")
        size = onion_of(terms).arriving_size(request.lane, self.hop(terms))
        unpack(request.ciphertexts, size)
        most = terms.manifest.max_batch_size or _MOST_ITEMS
        if request.chunk_count > most:
            raise Refusal(Code.BAD_BATCH, f"{request.chunk_count} chunks; the round has at most {most} items")

        def take(tx: Transaction) -> None:
            row = tx.round(terms.round_id)
            if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                raise Refusal(Code.WRONG_STATE, "the round has ended here")
            is_new = tx.put_chunk(
                terms.round_id, "in", request.lane, request.chunk_index, request.chunk_count, request.ciphertexts
            )
            if is_new and row.state not in self.taking(request.lane):
                raise Refusal(Code.WRONG_STATE, "the batch has been handed over")
            if is_new and tx.num_bytes(terms.round_id, "in", request.lane) > most * size:
                raise Refusal(Code.BAD_BATCH, f"more than the {most} items that the round can have")

        await self.store.run("take a chunk", take)
        self.open_soon(terms, request.lane)
        return pb.DeliverResponse()

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:  # noqa: N802
        """Checks a delivery that is complete against the commitments, and closes the round here.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, BAD_BATCH (what arrived is not what was
                committed to), SHORT_BATCH (too few distinct items), CONFLICT (other commitments were handed over
                before), WRONG_STATE (the round has ended here).
            SignatureError: a commitment is not signed by its hop.
        """
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        document = request.SerializeToString(deterministic=True)
        row = await self.store.run("find the round that is handed over", lambda tx: tx.round(terms.round_id))
        if row.problem:
            raise Refusal(Code.WRONG_STATE, "the round has ended here")
        if row.state == pb.ROUND_STATE_OPEN:
            await self._check_batch(terms, request)

        def close(tx: Transaction) -> None:
            tx.put_document(terms.round_id, "commitments-in", document)
            if tx.round(terms.round_id).state == pb.ROUND_STATE_OPEN:
                tx.update_round(terms.round_id, state=pb.ROUND_STATE_CLOSED)

        await self.store.run("take the batch over", close)
        self.wake(terms.round_id)
        return pb.HandOverResponse()

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """Passes one answer of a sequential round on; only hops behind the first and the analyzer do.

        Raises:
            Refusal: NOT_YOUR_CALL, always.
        """
        raise Refusal(Code.NOT_YOUR_CALL, f"{self.name} takes no answers")

    async def EndSequential(self, request: pb.EndSequentialRequest, context: Context) -> pb.EndSequentialResponse:  # noqa: N802
        """Takes hop 1's signed report of how many clients have answered in a sequential round.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, BAD_BATCH (another round or manifest),
                CONFLICT (a different report was taken before), WRONG_STATE (the round is not open yet, or deleted).
            SignatureError: the report is not signed by hop 1.
        """
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        first = terms.manifest.hops[0].service
        report = read_signed(
            Kind.SEQUENTIAL,
            pb.SequentialReport,
            request.report,
            {first: self.deployment.service(first).pinned(terms.created_unix_s)},
            [first],
        )
        if (report.round_id, report.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the report is about another round or manifest")
        document = request.report.SerializeToString(deterministic=True)
        await self.store.run(
            "keep the sequential report", lambda tx: tx.put_document(terms.round_id, SEQUENTIAL_REPORT, document)
        )
        self.wake(terms.round_id)
        return pb.EndSequentialResponse()

    async def _check_batch(self, terms: RoundTerms, request: pb.HandOverRequest) -> None:
        """Checks the chain of commitments, and that what arrived is what the predecessor committed to."""
        hops = min(self.hop(terms) - 1, terms.num_hops)
        chain = read_commitments(request.commitments, terms, self.deployment.pinned(terms.created_unix_s), hops)
        for lane in self.lanes_in:
            hashes = await self.hashes_in(terms, lane)
            last = chain[lane][-1]
            arrived = await asyncio.to_thread(lambda: digest_of_hashes(sorted(hashes)))  # noqa: B023
            if (last.num_out, last.digest_out) != (len(hashes), arrived):
                raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not what hop {hops} committed to")
            distinct = len(set(hashes))
            if distinct < terms.manifest.min_batch_size:
                raise Refusal(
                    Code.SHORT_BATCH, f"{distinct} distinct items; the round needs {terms.manifest.min_batch_size}"
                )
