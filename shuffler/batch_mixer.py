"""Mixes a batch: reads its records, draws an order for each lane, writes the lanes, and signs what was done.

The output batch and the commitments are durable before the first byte is sent, so a crash can repeat a delivery but
never choose a second order. Which items are passed on, and in which order, is computed in `shuffler.mixing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from croupier.protocol.batches import ciphertext_hashes, digest_of_hashes, drop_counts
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.lane_sender import LaneOutput, LaneSender, items_per_chunk
from croupier.runtime.peers import Peers
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import Page
from croupier.runtime.transaction import Transaction
from croupier.shuffler.fake_reports import FakeReports
from croupier.shuffler.inclusion import put_inclusion_list
from croupier.shuffler.mixing import BatchSurvey, OrderWindow, PageCache, draw_orders
from croupier.shuffler.noise_ledger import NoiseLedger
from croupier.shuffler.position import LANES, ChainPosition

HELD_BYTES = 128 * 1024 * 1024
"""The largest batch that stays in memory between its two readings; a larger one is read from the store twice."""
WINDOW_BYTES = 64 * 1024 * 1024
"""How much of a lane is put in order at once; a larger lane is read several times, so that memory stays bounded."""


class BatchMixer:
    """Mixes the batches of one hop."""

    def __init__(
        self,
        setup: ServiceSetup,
        peers: Peers,
        opener: LaneOpener,
        sender: LaneSender,
        position: ChainPosition,
        fakes: FakeReports,
    ) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._peers = peers
        self._opener = opener
        self._sender = sender
        self._position = position
        self._fakes = fakes

    async def mix(self, terms: RoundTerms) -> None:
        """Permutes the opened lanes, window by window; an attempt that was cut short starts from the beginning.

        Nothing in an order that is drawn here is sent before the state is MIXED, so a second attempt may draw another.
        """
        watch = Stopwatch()
        lanes = self._opened_lanes(terms)
        held = {lane: PageCache(HELD_BYTES // len(lanes)) for lane in lanes}
        surveys = await self._survey(terms, held)
        counts = {lane: survey.kept.count(1) for lane, survey in surveys.items()}
        num_in = len(surveys[pb.LANE_REPORT].kept)

        def begin(tx: Transaction) -> None:
            admitted = tx.num_submissions(terms.round_id)
            if (
                self._position.hop(terms) == 1 and num_in != admitted
            ):  # nothing that was acknowledged is left out in silence
                raise Refusal(Code.BAD_BATCH, f"{num_in} of {admitted} submissions are there")
            tx.delete_output(terms.round_id)

        await self._store.run(StoreStep.BEGIN_TO_MIX, begin)
        earlier = await self._earlier_commitments(terms)
        self.check_enough(
            terms, counts, sum(pb.Commitment.FromString(commitment.payload).num_fakes for commitment in earlier)
        )
        fakes = {pb.LANE_REPORT: await self._fakes.make(terms), pb.LANE_PARAMETER: list[bytes]()}
        orders = await asyncio.to_thread(draw_orders, {lane: counts[lane] + len(fakes[lane]) for lane in counts})
        hashes = {
            lane: await self._put_lane(terms, lane, survey.kept, orders[lane], held, fakes[lane])
            for lane, survey in surveys.items()
        }
        held.clear()
        num_fakes = {lane: len(added) for lane, added in fakes.items()}
        commitments = await asyncio.to_thread(self._commit, terms, surveys, hashes, num_fakes)
        handover = pb.HandOverRequest(round_id=terms.round_id, commitments=[*earlier, *commitments])

        def keep(tx: Transaction) -> None:
            for lane in LANES:
                put_inclusion_list(tx, terms.round_id, lane, hashes[lane])
            tx.put_document(
                terms.round_id, DocumentKind.COMMITMENTS_OUT, handover.SerializeToString(deterministic=True)
            )
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_MIXED)
            NoiseLedger(tx.connection).leave(terms.round_id)
            if terms.fakes is not None:
                self._fakes.delete(tx, terms.round_id)
            tx.add_cost(terms.round_id, "mix", *watch.read())

        await self._store.run(StoreStep.KEEP_MIXED_BATCH, keep)
        for lane in self._opened_lanes(terms):
            self._metrics.drops(lane, surveys[pb.LANE_REPORT if lane == pb.LANE_JOINT else lane].drops)
        self._metrics.stage("mix", watch.read()[0])

    def check_enough(self, terms: RoundTerms, counts: Mapping[Lane, int], num_fakes: int = 0) -> None:
        """Raises Refusal SHORT_BATCH if fewer items of a lane can be passed on than the round needs.

        num_fakes: how many fake reports earlier hops have added to the report lane.
        """
        fewest = min(counts[pb.LANE_REPORT] - num_fakes, counts[pb.LANE_PARAMETER])
        needed = terms.shared.min_batch_size
        if fewest < needed:
            raise Refusal(Code.SHORT_BATCH, f"{fewest} of them open; the round needs {needed}")

    def _opened_lanes(self, terms: RoundTerms) -> tuple[Lane, ...]:
        return (pb.LANE_JOINT,) if self._position.hop(terms) == 1 else LANES

    async def _survey(self, terms: RoundTerms, held: Mapping[Lane, PageCache]) -> dict[Lane, BatchSurvey]:
        """Opens the remaining chunks and surveys each lane; at hop 1 both lanes come from the same envelopes."""
        surveys = {}
        for lane, second_look in held.items():
            await self._opener.open_all(terms, lane)
            surveys[lane] = BatchSurvey()
            async for page in self._opener.pages(terms, lane):
                surveys[lane].add(page)
                second_look.add(page)
            await asyncio.to_thread(surveys[lane].close)
        return surveys if pb.LANE_JOINT not in surveys else dict.fromkeys(LANES, surveys[pb.LANE_JOINT])

    async def _once_more(self, terms: RoundTerms, lane: Lane, held: PageCache) -> AsyncIterator[Page]:
        """Yields the pages of a lane again."""
        if held.pages is None:
            async for page in self._opener.pages(terms, lane):
                yield page
        else:
            for page in held.pages:
                yield page

    async def _put_lane(
        self,
        terms: RoundTerms,
        lane: Lane,
        kept: bytearray,
        order: Sequence[int],
        held: Mapping[Lane, PageCache],
        fakes: Sequence[bytes],
    ) -> list[bytes]:
        """Stores a lane with the hop's fakes in its new order, and returns the sorted hashes of what it consists of."""
        onion, hop, which = onion_of(terms), self._position.hop(terms), LANES.index(lane)
        source = pb.LANE_JOINT if hop == 1 else lane
        size, part = onion.layer(source, hop).plain_size, slice(None)
        if source == pb.LANE_JOINT:
            sizes = [len(envelope) for envelope in onion.split(bytes(size))]
            size, part = sizes[which], (slice(sizes[0]), slice(sizes[0], None))[which]
        per_chunk = items_per_chunk(size)
        per_window = per_chunk * max(1, WINDOW_BYTES // (per_chunk * size))
        hashes: list[bytes] = []
        for start in range(0, len(order), per_window):
            window = OrderWindow(kept, order, start, min(start + per_window, len(order)), part)
            async for page in self._once_more(terms, source, held[source]):
                await asyncio.to_thread(window.add, page)
            await asyncio.to_thread(window.add_fakes, fakes)
            hashes += await asyncio.to_thread(ciphertext_hashes, window.items)
            output = LaneOutput(lane, window.items, start, len(order))
            await self._store.run(
                StoreStep.KEEP_MIXED_PART,
                partial(self._sender.put_output, round_id=terms.round_id, output=output),
            )
        hashes.sort()
        return hashes

    async def _earlier_commitments(self, terms: RoundTerms) -> Sequence[pb.Signed]:
        document = await self._store.run(
            StoreStep.READ_EARLIER_COMMITMENTS, lambda tx: tx.document(terms.round_id, DocumentKind.COMMITMENTS_IN)
        )
        return pb.HandOverRequest.FromString(document).commitments if document else []

    def _commit(
        self,
        terms: RoundTerms,
        surveys: Mapping[Lane, BatchSurvey],
        hashes: Mapping[Lane, Sequence[bytes]],
        num_fakes: Mapping[Lane, int],
    ) -> list[pb.Signed]:
        """Returns this hop's signed commitments, report lane first."""
        return [
            self._peers.identity.signed(
                Kind.COMMITMENT,
                canonical(
                    pb.Commitment(
                        round_id=terms.round_id,
                        manifest_hash=terms.hash,
                        hop=self._position.hop(terms),
                        lane=lane,
                        num_in=len(surveys[lane].kept),
                        num_out=len(hashes[lane]),
                        drops=drop_counts(surveys[lane].drops),
                        digest_in=surveys[lane].digest,
                        digest_out=digest_of_hashes(hashes[lane]),
                        num_fakes=num_fakes[lane],
                    )
                ),
            )
            for lane in LANES
        ]
