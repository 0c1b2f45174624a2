"""The shuffler's gRPC service and its part in the life of a round.

    hop 1:     OPEN ──close──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    hop 2..k:  OPEN ──hand-over──▶ CLOSED ──mix──▶ MIXED ──deliver──▶ DELIVERED
    sequential:                                     MIXED ──deliver──▶ SEQUENTIAL ──asking ends──▶ DELIVERED

The output batch and the commitments are durable before the first byte is sent, so a crash can repeat a delivery but
never choose a second order. After the next role's acknowledgement bodies and round key are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import grpc.aio

from croupier.protocol.batches import ciphertext_hashes, digest_of_hashes, drop_counts
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.identity import Kind
from croupier.protocol.manifest import RoundTerms, canonical
from croupier.protocol.onion import onion_of
from croupier.protocol.randomness import SystemRandom
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.admission import MAX_PER_CALL
from croupier.runtime.service import ENVELOPE_KEY, AdmittingService, ServiceSetup, Stopwatch
from croupier.runtime.tasks import LaneWork, Page, open_layer
from croupier.runtime.tls import Context
from croupier.runtime.transaction import RoundRow, Transaction
from croupier.shuffler.inclusion import put_inclusion_list, read_inclusion_page
from croupier.shuffler.mixing import OrderWindow, SecondLook, Survey, draw_orders
from croupier.shuffler.sequential import SequentialHop
from croupier.shuffler.sequential_order import ORDER_KEY, SEQUENTIAL_ENDED, new_order_key

__all__ = ["ShufflerService"]

_log = logging.getLogger(__name__)
_BEFORE_LAST_ANSWER = (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_MIXED, pb.ROUND_STATE_SEQUENTIAL)
_LISTS_AT_ONCE = 4
_GATHER_S = 0.1
"""So long the first of several submissions waits for the others, to be opened and stored with them."""
_HELD_BYTES = 128 * 1024 * 1024
"""A batch of at most so many bytes is read from the store once."""
_WINDOW_BYTES = 64 * 1024 * 1024
"""So much of a lane is put in order at once; for a larger one what has been opened is read several times."""
_LANES: tuple[pb.Lane.ValueType, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)


@dataclass
class _Admitting:
    """What hop 1 keeps in memory of a round that takes submissions.

    Attributes:
        lane_work: how envelopes are opened with their signatures; None if a cluster opens them, or no key is left.
        cost: of admission so far: wall seconds, and CPU seconds; it is stored with the close.
    """

    lane_work: LaneWork | None
    cost: tuple[float, float] = (0.0, 0.0)


class ShufflerService(AdmittingService, SequentialHop, stubs.ShufflerServicer):
    """One hop. Hop 1 also admits clients."""

    admits = "submit"

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self._fetching = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._admitting: dict[str, _Admitting] = {}

    def dismiss(self, round_id: str) -> None:
        """See `RoundDriver.dismiss`."""
        super().dismiss(round_id)
        self._admitting.pop(round_id, None)

    # ------------------------------------------------------------- place in the chain

    def hop(self, terms: RoundTerms) -> int:
        """Returns this shuffler's place in the chain, 1..k."""
        return terms.services.index(self.name) + 1

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the hop before this one.

        Raises:
            Refusal: NOT_YOUR_CALL at hop 1, which takes submissions and no deliveries.
        """
        hop = self.hop(terms)
        if hop == 1:
            raise Refusal(Code.NOT_YOUR_CALL, "hop 1 takes submissions, not deliveries")
        return terms.manifest.hops[hop - 2].service

    def receivers(self, terms: RoundTerms) -> dict[pb.Lane.ValueType, str]:
        """Returns the next service on each lane."""
        hop = self.hop(terms)
        if hop < terms.num_hops:
            return dict.fromkeys(_LANES, terms.manifest.hops[hop].service)
        return {
            pb.LANE_REPORT: terms.manifest.analyzer.service,
            pb.LANE_PARAMETER: terms.manifest.accountant.service,
        }

    # ------------------------------------------------------------- the round

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Closes, mixes, delivers, or asks clients in turn."""
        if row.state == pb.ROUND_STATE_OPEN:
            return await self._close_at_deadline(terms)
        if row.state == pb.ROUND_STATE_CLOSED:
            await self._mix(terms)
        elif row.state == pb.ROUND_STATE_MIXED:
            await self._deliver(terms)
        elif row.state == pb.ROUND_STATE_SEQUENTIAL:
            return await self.run_sequential(terms)
        return True

    async def _close_at_deadline(self, terms: RoundTerms) -> bool:
        deadline = terms.manifest.close_deadline_unix_s
        if self.hop(terms) != 1 or not deadline:
            return False
        while self.clock.now() < deadline:
            await asyncio.sleep(0.2)  # the clock is injected and may jump
            row = await self.store.run("watch the deadline", lambda tx: tx.round(terms.round_id))
            if row.state != pb.ROUND_STATE_OPEN:  # the operator was faster
                return True
        state, _ = await self.close(terms)
        return state != pb.ROUND_STATE_OPEN

    async def close(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, int]:
        """Ends admission if there are enough distinct clients; else holds or disposes, as the manifest says."""
        manifest = terms.manifest

        def step(tx: Transaction) -> tuple[pb.RoundState.ValueType, int]:
            state, count = tx.round(terms.round_id).state, tx.num_submissions(terms.round_id)
            if state == pb.ROUND_STATE_OPEN:
                if count >= manifest.min_batch_size:
                    state = pb.ROUND_STATE_CLOSED
                elif manifest.short_batch_policy == pb.SHORT_BATCH_POLICY_DISPOSE:
                    state = pb.ROUND_STATE_DISPOSED
                    tx.forget(terms.round_id)
                tx.update_round(terms.round_id, state=state)
                if state != pb.ROUND_STATE_OPEN:
                    admitting = self._admitting.get(terms.round_id)
                    tx.add_cost(terms.round_id, "admit", *(admitting.cost if admitting else (0.0, 0.0)))
            return state, count

        state, count = await self.store.run("close admission", step)
        if state != pb.ROUND_STATE_OPEN:
            self._admitting.pop(terms.round_id, None)
            self.admission.forget(terms.round_id)
        if state == pb.ROUND_STATE_DISPOSED:
            self.dismiss(terms.round_id)
        return state, count

    def keep_envelopes(
        self, tx: Transaction, terms: RoundTerms, envelopes: Sequence[bytes], records: Sequence[bytes]
    ) -> None:
        """See `AdmittingService.keep_envelopes`: hop 1 has to mix them."""
        per_chunk = self.items_per_chunk(len(envelopes[0]))
        for start in range(0, len(envelopes), per_chunk):
            part = slice(start, start + per_chunk)
            if len(records) == len(envelopes):
                self.keep_records(tx, terms, pb.LANE_JOINT, records[part])
            else:
                tx.append_chunk(terms.round_id, pb.LANE_JOINT, b"".join(envelopes[part]))

    def lane_work(self, terms: RoundTerms, keys: Mapping[str, KeyPair], lane: pb.Lane.ValueType) -> LaneWork:
        """See `Opening.lane_work`: a hop takes one layer off."""
        layer = onion_of(terms).layer(lane, self.hop(terms))
        work = partial(open_layer, terms.suite, keys[ENVELOPE_KEY].private, layer.label, layer.plain_size)
        return LaneWork(layer.sealed_size, layer.plain_size, work)

    async def _mix(self, terms: RoundTerms) -> None:
        """Permutes what has been opened, window by window; an attempt that was cut short is begun anew.

        Nothing of an order that is drawn here is sent before the state is MIXED, so a second attempt may draw another.
        """
        watch = Stopwatch()
        lanes = self._opened_lanes(terms)
        held = {lane: SecondLook(_HELD_BYTES // len(lanes)) for lane in lanes}
        surveys = await self._survey(terms, held)
        counts = {lane: survey.kept.count(1) for lane, survey in surveys.items()}
        num_in = len(surveys[pb.LANE_REPORT].kept)

        def begin(tx: Transaction) -> None:
            admitted = tx.num_submissions(terms.round_id)
            if self.hop(terms) == 1 and num_in != admitted:  # nothing that was acknowledged is left out in silence
                raise Refusal(Code.BAD_BATCH, f"{num_in} of {admitted} submissions are there")
            tx.drop_output(terms.round_id)

        await self.store.run("begin to mix", begin)
        self._check_enough(terms, counts)
        orders = await asyncio.to_thread(draw_orders, counts)
        hashes = {
            lane: await self._put_lane(terms, lane, survey.kept, orders[lane], held) for lane, survey in surveys.items()
        }
        held.clear()
        commitments = await asyncio.to_thread(self._commit, terms, surveys, hashes)
        earlier = await self._earlier_commitments(terms)
        handover = pb.HandOverRequest(round_id=terms.round_id, commitments=[*earlier, *commitments])

        def keep(tx: Transaction) -> None:
            for lane in _LANES:
                put_inclusion_list(tx, terms.round_id, lane, hashes[lane])
            tx.put_document(terms.round_id, "commitments-out", handover.SerializeToString(deterministic=True))
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_MIXED)
            tx.add_cost(terms.round_id, "mix", *watch.read())

        await self.store.run("keep the mixed batch", keep)
        for lane in self._opened_lanes(terms):
            self.metrics.drops(lane, surveys[pb.LANE_REPORT if lane == pb.LANE_JOINT else lane].drops)
        self.metrics.stage("mix", watch.read()[0])

    def _check_enough(self, terms: RoundTerms, counts: Mapping[pb.Lane.ValueType, int]) -> None:
        fewest, needed = min(counts.values()), terms.manifest.min_batch_size
        if fewest < needed:
            raise Refusal(Code.SHORT_BATCH, f"{fewest} of them open; the round needs {needed}")

    def _opened_lanes(self, terms: RoundTerms) -> tuple[pb.Lane.ValueType, ...]:
        return (pb.LANE_JOINT,) if self.hop(terms) == 1 else _LANES

    async def _survey(
        self, terms: RoundTerms, held: Mapping[pb.Lane.ValueType, SecondLook]
    ) -> dict[pb.Lane.ValueType, Survey]:
        """Opens what is left, and returns what has come for each lane; at hop 1 both come from the same envelopes."""
        surveys = {}
        for lane, second_look in held.items():
            await self.open_all(terms, lane)
            surveys[lane] = Survey()
            async for page in self.pages(terms, lane):
                surveys[lane].add(page)
                second_look.add(page)
            await asyncio.to_thread(surveys[lane].close)
        return surveys if pb.LANE_JOINT not in surveys else dict.fromkeys(_LANES, surveys[pb.LANE_JOINT])

    async def _once_more(self, terms: RoundTerms, lane: pb.Lane.ValueType, held: SecondLook) -> AsyncIterator[Page]:
        """Yields the pages of a lane again."""
        if held.pages is None:
            async for page in self.pages(terms, lane):
                yield page
        else:
            for page in held.pages:
                yield page

    async def _put_lane(
        self,
        terms: RoundTerms,
        lane: pb.Lane.ValueType,
        kept: bytearray,
        order: Sequence[int],
        held: Mapping[pb.Lane.ValueType, SecondLook],
    ) -> list[bytes]:
        """Stores a lane in its new order, and returns the sorted hashes of what it consists of."""
        onion, hop, which = onion_of(terms), self.hop(terms), _LANES.index(lane)
        source = pb.LANE_JOINT if hop == 1 else lane
        size, part = onion.layer(source, hop).plain_size, slice(None)
        if source == pb.LANE_JOINT:
            sizes = [len(one) for one in onion.split(bytes(size))]
            size, part = sizes[which], (slice(sizes[0]), slice(sizes[0], None))[which]
        per_chunk = self.items_per_chunk(size)
        per_window = per_chunk * max(1, _WINDOW_BYTES // (per_chunk * size))
        hashes: list[bytes] = []
        for start in range(0, len(order), per_window):
            window = OrderWindow(kept, order, start, min(start + per_window, len(order)), part)
            async for page in self._once_more(terms, source, held[source]):
                await asyncio.to_thread(window.add, page)
            hashes += await asyncio.to_thread(ciphertext_hashes, window.items)
            await self.store.run(
                "keep a part of the mixed batch",
                lambda tx: self.put_output(tx, terms.round_id, lane, window.items, start, len(order)),  # noqa: B023
            )
        hashes.sort()
        return hashes

    async def _earlier_commitments(self, terms: RoundTerms) -> Sequence[pb.Signed]:
        document = await self.store.run(
            "read earlier commitments", lambda tx: tx.document(terms.round_id, "commitments-in")
        )
        return pb.HandOverRequest.FromString(document).commitments if document else []

    def _commit(
        self,
        terms: RoundTerms,
        surveys: Mapping[pb.Lane.ValueType, Survey],
        hashes: Mapping[pb.Lane.ValueType, Sequence[bytes]],
    ) -> list[pb.Signed]:
        """Returns this hop's signed commitments, report lane first."""
        return [
            self.identity.signed(
                Kind.COMMITMENT,
                canonical(
                    pb.Commitment(
                        round_id=terms.round_id,
                        manifest_hash=terms.hash,
                        hop=self.hop(terms),
                        lane=lane,
                        num_in=len(surveys[lane].kept),
                        num_out=len(hashes[lane]),
                        drops=drop_counts(surveys[lane].drops),
                        digest_in=surveys[lane].digest,
                        digest_out=digest_of_hashes(hashes[lane]),
                    )
                ),
            )
            for lane in _LANES
        ]

    async def _deliver(self, terms: RoundTerms) -> None:
        watch = Stopwatch()
        document = await self.store.run(
            "read the commitments to deliver", lambda tx: tx.document(terms.round_id, "commitments-out")
        )
        handover = pb.HandOverRequest.FromString(document or b"")
        receivers = self.receivers(terms)
        sent = 0
        for lane, receiver in receivers.items():
            sent += await self.send_lane(terms, receiver, lane)
        for receiver in dict.fromkeys(receivers.values()):
            await self.hand_over(terms, receiver, handover.commitments)

        is_sequential = terms.question.sequential is not None

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_SEQUENTIAL if is_sequential else pb.ROUND_STATE_DELIVERED
            tx.update_round(terms.round_id, state=state, bytes_sent=sent)
            tx.add_cost(terms.round_id, "deliver", *watch.read())
            if not is_sequential:
                tx.forget(terms.round_id)
                return
            tx.forget_ciphertexts(terms.round_id)
            if self.hop(terms) == 1:
                tx.put_key(terms.round_id, ORDER_KEY, new_order_key(SystemRandom()))

        await self.store.run("finish the delivery", finish)
        self.metrics.stage("deliver", watch.read()[0])

    # ------------------------------------------------------------- Shuffler

    async def GetRound(self, request: rpc.GetRoundRequest, context: Context) -> rpc.GetRoundResponse:  # noqa: N802
        """Returns the signed manifest and the state of a round, or of the newest open one.

        Raises:
            Refusal: UNKNOWN_ROUND, NO_OPEN_ROUND, NOT_READY (the round is being prepared), WRONG_STATE (it is deleted).
        """

        def find(tx: Transaction) -> RoundRow:
            if request.round_id:
                return tx.round(request.round_id)
            newest = tx.newest_open_round()
            if newest is None:
                raise Refusal(Code.NO_OPEN_ROUND)
            return newest

        row = await self.store.run("find a round for a client", find)
        self.check_kept(row)
        if not row.manifest:
            raise Refusal(Code.NOT_READY, f"round {row.round_id!r} is being prepared")
        return rpc.GetRoundResponse(manifest=pb.Signed.FromString(row.manifest), state=row.state)

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        """Admits submissions, each answered with its own code after a durable commit.

        Raises:
            Refusal: BAD_REQUEST (number of submissions), UNKNOWN_ROUND, WRONG_STATE (the round is not open yet, or
                deleted), NOT_YOUR_CALL (not hop 1), OVERLOADED, STORE_FAILED.
        """
        if not 1 <= len(request.submissions) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.submissions)} submissions in one call; there must be 1..{MAX_PER_CALL}"
            )
        terms = await self.terms(request.round_id)
        if self.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"clients submit to {terms.manifest.hops[0].service!r}")
        deadline = terms.manifest.close_deadline_unix_s
        if deadline and self.clock.now() >= deadline:
            state, _ = await self.close(terms)
            if state in (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_DISPOSED):  # the latter still has a log to erase
                self.wake(terms.round_id)  # the watch on the deadline has ended if there were too few clients then
        watch = Stopwatch()
        admitting = await self._admits_to(terms)
        codes, cpu_s = await self.admission.submit(
            terms, onion_of(terms).joint.sealed_size, request.submissions, admitting.lane_work
        )
        watch.workers_cpu_s += cpu_s
        wall_s, all_cpu_s = watch.read()
        admitting.cost = admitting.cost[0] + wall_s, admitting.cost[1] + all_cpu_s
        if admitting.lane_work is None:
            self.open_soon(terms, pb.LANE_JOINT, _GATHER_S)
        self.metrics.submissions(codes)
        self.metrics.stage("admit", wall_s)
        return pb.SubmitResponse(codes=codes)

    async def _admits_to(self, terms: RoundTerms) -> _Admitting:
        """Returns what is kept of a round while it takes submissions; the same for each of them until the close."""
        admitting = self._admitting.get(terms.round_id)
        if admitting is not None:
            return admitting

        def read(tx: Transaction) -> tuple[bool, dict[str, KeyPair]]:
            return tx.round(terms.round_id).state == pb.ROUND_STATE_OPEN, tx.keys(terms.round_id)

        is_open, keys = await self.store.run("read the keys to open", read)
        at_once = self.cluster is None and ENVELOPE_KEY in keys
        admitting = _Admitting(self.lane_work(terms, keys, pb.LANE_JOINT) if at_once else None)
        return self._admitting.setdefault(terms.round_id, admitting) if is_open else admitting

    async def GetInclusion(  # noqa: N802
        self, request: rpc.GetInclusionRequest, context: Context
    ) -> rpc.GetInclusionResponse:
        """Returns a page of the sorted hashes of what a hop has passed on in one lane.

        Hop 1 fetches the lists of the others, which clients cannot reach.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_YOUR_CALL (behind hop 1 only the operator and hop 1 may), BAD_REQUEST (lane or
                hop), NOT_READY (the batch is not mixed yet, or the hop does not answer), WRONG_STATE (the round is not
                open yet, or deleted), OVERLOADED.
        """
        terms = await self.terms(request.round_id)
        own = self.hop(terms)
        if own != 1:
            self.require_caller(context, [OPERATOR, terms.manifest.hops[0].service])
        if request.hop not in (0, own):
            if own != 1 or request.hop > terms.num_hops:
                raise Refusal(Code.BAD_REQUEST, f"hop is {request.hop}; it must be in 1..{terms.num_hops}")
            return await self._list_of(terms.manifest.hops[request.hop - 1].service, request)
        if request.lane not in _LANES:
            raise Refusal(Code.BAD_REQUEST, f"lane is {request.lane}; it must be LANE_REPORT or LANE_PARAMETER")
        hashes, total = await self.store.run(
            "read an inclusion list", lambda tx: read_inclusion_page(tx, terms.round_id, request.lane, request.offset)
        )
        if not total:
            raise Refusal(Code.NOT_READY, "the list is published when the batch is mixed")
        return rpc.GetInclusionResponse(hashes=hashes, total=total)

    async def _list_of(self, service: str, request: rpc.GetInclusionRequest) -> rpc.GetInclusionResponse:
        """Fetches a page from another hop; a few at once, so that strangers do not take the calls of a delivery."""
        if self._fetching.locked():
            raise Refusal(Code.OVERLOADED, "other lists are being fetched", retry_after_s=0.5)
        async with self._fetching:
            try:
                return await stubs.ShufflerStub(self.channel_to(service)).GetInclusion(request, timeout=15.0)
            except grpc.aio.AioRpcError as error:
                raise refusal_of(error) or Refusal(Code.NOT_READY, f"{service} does not answer") from error

    # ------------------------------------------------------------- RoundControl

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        """Ends admission, and on request the asking of a sequential round; again: nothing changes.

        Raises:
            Refusal: NOT_YOUR_CALL (not the operator, or not hop 1), UNKNOWN_ROUND, WRONG_STATE (the round is not open
                yet, or deleted).
        """
        self.require_caller(context, [OPERATOR])
        terms = await self.terms(request.round_id)
        if self.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"{terms.manifest.hops[0].service!r} closes this round")
        state, count = await self.close(terms)
        if request.end_sequential and terms.question.sequential is not None and state in _BEFORE_LAST_ANSWER:
            await self.store.run(
                "end the sequential part", lambda tx: tx.put_document(terms.round_id, SEQUENTIAL_ENDED, b"1")
            )
            await self.attendance.end(terms.round_id)
        if state != pb.ROUND_STATE_OPEN:
            self.wake(terms.round_id)
        return rpc.CloseResponse(state=state, num_clients=count)
