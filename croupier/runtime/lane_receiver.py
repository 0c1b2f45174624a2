"""Receives the lanes of a round from the services before this one.

Chunks are idempotent by (round, lane, index). The hand-over ends a delivery with the signed commitments of all hops so
far, which are checked against the received chunks; only then is the delivery acknowledged.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from croupier.net.tls import Context
from croupier.protocol.batches import digest_of_hashes, num_fakes, read_commitments, unpack
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, read_signed
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest, Lane, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import Direction, DocumentKind
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.peers import Peers
from croupier.runtime.position import Position
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

_MOST_ITEMS = 100_000_000  # if the manifest names no maximum


@dataclass(frozen=True)
class LaneSource:
    """Where a lane comes from that is not handed over.

    Attributes:
        sender: returns the only service that may deliver it.
        states: the states in which new chunks of it are taken.
    """

    sender: Callable[[RoundTerms], str]
    states: Collection[pb.RoundState.ValueType]


class LaneReceiver:
    """Takes deliveries, checks hand-overs, and wakes the engine.

    Args:
        setup: of the service.
        peers: the other services.
        engine: drives the rounds.
        opener: opens the chunks that arrive.
        position: of the role in the chain.
        others: lanes that come from elsewhere.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        peers: Peers,
        engine: RoundEngine,
        opener: LaneOpener,
        position: Position,
        others: dict[Lane, LaneSource] | None = None,
    ) -> None:
        self._store = setup.store
        self._peers = peers
        self._engine = engine
        self._opener = opener
        self._position = position
        self._others = others or {}

    def _sources(self, terms: RoundTerms) -> dict[Lane, LaneSource]:
        handed_over = LaneSource(self._position.predecessor, (pb.ROUND_STATE_OPEN,))
        return dict.fromkeys(self._position.lanes, handed_over) | self._others

    async def deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:
        """Takes one chunk of a lane; answers after it is durable. The same chunk again changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the lane's sender may), UNKNOWN_ROUND, BAD_REQUEST (lane, chunk number),
                BAD_BATCH (size, more items than the round can have), CONFLICT (the chunk was delivered with other
                content), WRONG_STATE (the round has ended here, or the batch has been handed over).
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        sources = self._sources(terms)
        source = sources.get(request.lane)
        allowed = [source] if source else sources.values()
        self._peers.require_caller(context, [role.sender(terms) for role in allowed])
        if source is None:
            raise Refusal(Code.BAD_REQUEST, f"lane {request.lane} does not come to {self._peers.name}")
        if not request.chunk_index < request.chunk_count:
            raise Refusal(Code.BAD_REQUEST, f"chunk {request.chunk_index} of {request.chunk_count}")
        size = onion_of(terms).arriving_size(request.lane, self._position.hop(terms))
        unpack(request.ciphertexts, size)
        most = terms.shared.max_batch_size or _MOST_ITEMS
        if request.lane != pb.LANE_PARAMETER and terms.fakes is not None:
            most += terms.fakes.most
        if request.chunk_count > most:
            raise Refusal(Code.BAD_BATCH, f"{request.chunk_count} chunks; the round has at most {most} items")

        def take(tx: Transaction) -> None:
            row = tx.round(terms.round_id)
            if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                raise Refusal(Code.WRONG_STATE, "the round has ended here")
            is_new = tx.put_chunk(
                terms.round_id,
                Direction.IN,
                request.lane,
                request.chunk_index,
                request.chunk_count,
                request.ciphertexts,
            )
            if is_new and row.state not in source.states:
                raise Refusal(Code.WRONG_STATE, "the batch has been handed over")
            if is_new and tx.num_bytes(terms.round_id, Direction.IN, request.lane) > most * size:
                raise Refusal(Code.BAD_BATCH, f"more than the {most} items that the round can have")

        await self._store.run(StoreStep.TAKE_CHUNK, take)
        self._opener.open_soon(terms, request.lane)
        return pb.DeliverResponse()

    async def hand_over(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Checks a complete delivery against the commitments, and closes the round here.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, BAD_BATCH (the received items are not
            those
                of the commitments), SHORT_BATCH (too few distinct items), CONFLICT (other commitments were handed over
                before), WRONG_STATE (the round has ended here).
            SignatureError: a commitment is not signed by its hop.
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        self._peers.require_caller(context, [self._position.predecessor(terms)])
        document = request.SerializeToString(deterministic=True)
        row = await self._store.run(StoreStep.FIND_ROUND_HANDED_OVER, lambda tx: tx.round(terms.round_id))
        if row.problem:
            raise Refusal(Code.WRONG_STATE, "the round has ended here")
        if row.state == pb.ROUND_STATE_OPEN:
            await self.check_batch(terms, request)

        def close(tx: Transaction) -> None:
            tx.put_document(terms.round_id, DocumentKind.COMMITMENTS_IN, document)
            if tx.round(terms.round_id).state == pb.ROUND_STATE_OPEN:
                tx.update_round(terms.round_id, state=pb.ROUND_STATE_CLOSED)

        await self._store.run(StoreStep.TAKE_OVER_BATCH, close)
        self._engine.wake(terms.round_id)
        return pb.HandOverResponse()

    async def check_batch(self, terms: RoundTerms, request: pb.HandOverRequest) -> None:
        """Checks the chain of commitments, and the received items against the predecessor's."""
        hops = min(self._position.hop(terms) - 1, terms.shared.num_hops)
        chain = read_commitments(request.commitments, terms, self._peers.pinned_at(terms), hops)
        for lane in self._position.lanes:
            hashes = await self._hashes(terms, lane)
            last = chain[lane][-1]
            arrived = await asyncio.to_thread(lambda: digest_of_hashes(sorted(hashes)))  # noqa: B023
            if (last.num_out, last.digest_out) != (len(hashes), arrived):
                raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not what hop {hops} committed to")
            distinct = len(set(hashes)) - (num_fakes(chain) if lane == pb.LANE_REPORT else 0)
            if distinct < terms.shared.min_batch_size:
                raise Refusal(
                    Code.SHORT_BATCH, f"{distinct} distinct items; the round needs {terms.shared.min_batch_size}"
                )

    async def _hashes(self, terms: RoundTerms, lane: Lane) -> list[Digest]:
        """Returns the SHA-256 of every ciphertext of a complete incoming lane, in the order of their arrival.

        Raises:
            Refusal: BAD_BATCH while something of it is missing.
        """
        count = await self._store.run(
            StoreStep.MEASURE_RECEIVED_LANE, lambda tx: tx.num_chunks(terms.round_id, Direction.IN, lane)
        )
        if count is None:
            raise Refusal(Code.BAD_BATCH, f"lane {pb.Lane.Name(lane)} is not complete")
        size = onion_of(terms).arriving_size(lane, self._position.hop(terms))
        hashes: list[Digest] = []
        for index in range(count):
            chunk = await self._store.run(
                StoreStep.READ_RECEIVED_CHUNK,
                lambda tx: tx.chunk(terms.round_id, Direction.IN, lane, index),  # noqa: B023
            )
            hashes += [Digest(hashlib.sha256(ciphertext).digest()) for ciphertext in unpack(chunk, size)]
        return hashes

    async def end_sequential(self, request: pb.EndSequentialRequest, context: Context) -> pb.EndSequentialResponse:
        """Takes hop 1's signed report of the number of answers in a sequential round.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, BAD_BATCH (another round or manifest),
                CONFLICT (a different report was taken before), WRONG_STATE (the round is not open yet, or deleted).
            SignatureError: the report is not signed by hop 1.
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        self._peers.require_caller(context, [self._position.predecessor(terms)])
        first = terms.hops[0].service
        pinned = {first: self._peers.pinned_at(terms)[first]}  # a further signature is refused
        report = read_signed(Kind.SEQUENTIAL, pb.SequentialReport, request.report, pinned, [first])
        if (report.round_id, report.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the report is about another round or manifest")
        document = request.report.SerializeToString(deterministic=True)
        await self._store.run(
            StoreStep.KEEP_SEQUENTIAL_REPORT,
            lambda tx: tx.put_document(terms.round_id, DocumentKind.SEQUENTIAL_REPORT, document),
        )
        self._engine.wake(terms.round_id)
        return pb.EndSequentialResponse()
