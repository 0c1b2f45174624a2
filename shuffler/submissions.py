"""Submissions at hop 1: clients are admitted while a round is open, until the operator or the deadline closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.admission import MAX_PER_CALL, Admission
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.lane_opener import LaneOpener, MakeLaneWork
from croupier.runtime.lane_sender import items_per_chunk
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import LaneWork
from croupier.runtime.transaction import Transaction
from croupier.shuffler.position import ChainPosition
from croupier.shuffler.risk import RiskCheck, is_at_risk

_GATHER_S = 0.1
"""How long (seconds) a submission waits to be opened and stored together with others, where a cluster opens them."""


@dataclass
class _Admitting:
    """What hop 1 keeps in memory of a round that takes submissions.

    Attributes:
        lane_work: how envelopes are opened with their signatures; None if a cluster opens them, or the key is gone.
        cost: of admission so far: wall seconds, and CPU seconds; it is stored with the close.
    """

    lane_work: LaneWork | None
    cost: tuple[float, float] = (0.0, 0.0)


class Submissions:
    """Takes submissions, each answered after a durable commit, and ends that with the close of the round.

    Attributes:
        admission: decides who may submit.
    """

    def __init__(
        self,
        setup: ServiceSetup,
        engine: RoundEngine,
        opener: LaneOpener,
        position: ChainPosition,
        lane_work: MakeLaneWork,
        peers: Peers,
    ) -> None:
        self._store = setup.store
        self._clock = setup.clock
        self._metrics = setup.metrics
        self._engine = engine
        self._opener = opener
        self._position = position
        self._lane_work = lane_work
        self._peers = peers
        self._risk = RiskCheck(peers, setup.clock.now)
        self.admission = Admission(setup.store, setup.pool, "submit", self._keep_envelopes)
        self.admitting: dict[RoundId, _Admitting] = {}

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes from memory what admission needs of a round."""
        self.admitting.pop(round_id, None)
        self._risk.stop_round(round_id)
        self.admission.stop_round(round_id)

    async def submit(self, request: pb.SubmitRequest) -> pb.SubmitResponse:
        """Admits submissions, each answered with its own code after a durable commit.

        Raises:
            Refusal: BAD_REQUEST (number of submissions), UNKNOWN_ROUND, WRONG_STATE (the round is not open yet, or
                deleted), NOT_YOUR_CALL (not hop 1), OVERLOADED, STORE_FAILED.
        """
        if not 1 <= len(request.submissions) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.submissions)} submissions in one call; there must be 1..{MAX_PER_CALL}"
            )
        terms = await self._engine.terms(RoundId(request.round_id))
        if self._position.hop(terms) != 1:
            raise Refusal(Code.NOT_YOUR_CALL, f"clients submit to {terms.hops[0].service!r}")
        deadline = terms.close_deadline_unix_s
        if deadline and self._clock.now() >= deadline:
            await self._close_late(terms)
        watch = Stopwatch()
        admitting = await self._admits_to(terms)
        codes, cpu_s = await self.admission.submit(
            terms, onion_of(terms).joint.sealed_size, request.submissions, admitting.lane_work
        )
        watch.workers_cpu_s += cpu_s
        wall_s, all_cpu_s = watch.read()
        admitting.cost = admitting.cost[0] + wall_s, admitting.cost[1] + all_cpu_s
        if admitting.lane_work is None:
            self._opener.open_soon(terms, pb.LANE_JOINT, _GATHER_S)
        self._metrics.submissions(codes)
        self._metrics.stage("admit", wall_s)
        return pb.SubmitResponse(codes=codes)

    async def _admits_to(self, terms: RoundTerms) -> _Admitting:
        """Returns what is kept of a round while it takes submissions; the same for each of them until the close."""
        admitting = self.admitting.get(terms.round_id)
        if admitting is not None:
            return admitting

        def read(tx: Transaction) -> tuple[bool, dict[KeyPurpose, KeyPair]]:
            return tx.round(terms.round_id).state == pb.ROUND_STATE_OPEN, tx.keys(terms.round_id)

        is_open, keys = await self._store.run(StoreStep.READ_KEYS_TO_ADMIT, read)
        at_once = self._opener.cluster is None and KeyPurpose.ENVELOPE in keys
        admitting = _Admitting(self._lane_work(terms, keys, pb.LANE_JOINT) if at_once else None)
        return self.admitting.setdefault(terms.round_id, admitting) if is_open else admitting

    async def _close_late(self, terms: RoundTerms) -> None:
        """Closes a round whose deadline is over, before a late submission is looked at.

        Where the accountant does not answer now, the round is open for a little longer, for clients that have tickets.
        """
        state, at_risk = pb.ROUND_STATE_OPEN, True
        with suppress(Refusal):
            state, at_risk = await self._close_unless_at_risk(terms)
        # A disposed round still has a log to erase. The watch on the deadline has ended if there were too few clients
        # then; it goes on where the round is at risk now.
        if at_risk or state in (pb.ROUND_STATE_CLOSED, pb.ROUND_STATE_DISPOSED):
            self._engine.wake(terms.round_id)

    async def close_at_deadline(self, terms: RoundTerms) -> bool:
        """Closes the round when its deadline is over; returns False where only the operator closes it.

        A round at risk is held: it is closed once late reports of clients that have tickets have ended the risk, or by
        the operator. It is withdrawn like every overdue round if neither happens (`Retention`).
        """
        deadline = terms.close_deadline_unix_s
        if self._position.hop(terms) != 1 or not deadline:
            return False
        while self._clock.now() < deadline:
            await asyncio.sleep(0.2)  # the clock is injected and may jump
            if (await self._look(terms))[0] != pb.ROUND_STATE_OPEN:  # the operator was faster
                return True
        while True:
            state, at_risk = await self._close_unless_at_risk(terms)
            if state != pb.ROUND_STATE_OPEN or not at_risk:
                return state != pb.ROUND_STATE_OPEN
            self._peers.waiting.wait(
                terms.round_id,
                "held: with these reports, and with tickets that no report has, some mixture of budgets would have it "
                f"refused; 'croupier survey close {terms.round_id}' says more",
            )
            await asyncio.sleep(0.2)

    async def _look(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, int]:
        """Returns the state of a round and how many clients have submitted."""
        return await self._store.run(
            StoreStep.WATCH_DEADLINE,
            lambda tx: (tx.round(terms.round_id).state, tx.num_submissions(terms.round_id)),
        )

    async def _close_unless_at_risk(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, bool]:
        """Closes a round whose deadline is over, unless it is at risk; returns its state, and whether it is."""
        state, count = await self._look(terms)
        if state == pb.ROUND_STATE_OPEN and self._risk.was_at_risk(terms.round_id, count):
            return state, True
        forecast = await self.forecast(terms)
        if forecast is not None and is_at_risk(forecast):
            return state, True
        return (await self.close(terms))[0], False

    async def forecast(self, terms: RoundTerms, *, closes_anyway: bool = False) -> rpc.ForecastResponse | None:
        """Returns what an open round with enough clients would come to; None for any other round.

        closes_anyway: see `RiskCheck.ask`.

        Raises:
            Refusal: the accountant's, or NOT_READY if it does not answer.
        """
        state, count = await self._look(terms)
        if state != pb.ROUND_STATE_OPEN or count < terms.shared.min_batch_size:
            return None
        return await self._risk.ask(terms, count, closes_anyway=closes_anyway)

    async def close(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, int]:
        """Ends admission if there are enough distinct clients; else holds or disposes, as the manifest says."""

        def step(tx: Transaction) -> tuple[pb.RoundState.ValueType, int]:
            state, count = tx.round(terms.round_id).state, tx.num_submissions(terms.round_id)
            if state == pb.ROUND_STATE_OPEN:
                if count >= terms.shared.min_batch_size:
                    state = pb.ROUND_STATE_CLOSED
                elif terms.survey.disposes_if_short:
                    state = pb.ROUND_STATE_DISPOSED
                    tx.shred_round(terms.round_id)
                tx.update_round(terms.round_id, state=state)
                if state != pb.ROUND_STATE_OPEN:
                    admitting = self.admitting.get(terms.round_id)
                    tx.add_cost(terms.round_id, "admit", *(admitting.cost if admitting else (0.0, 0.0)))
            return state, count

        state, count = await self._store.run(StoreStep.CLOSE_ADMISSION, step)
        if state != pb.ROUND_STATE_OPEN:
            self.stop_round(terms.round_id)
        if state == pb.ROUND_STATE_DISPOSED:
            self._engine.end(terms.round_id)
        return state, count

    def _keep_envelopes(
        self, tx: Transaction, terms: RoundTerms, envelopes: Sequence[bytes], records: Sequence[bytes]
    ) -> None:
        """Stores admitted envelopes, or the records of envelopes that are opened already, to be mixed."""
        per_chunk = items_per_chunk(len(envelopes[0]))
        for start in range(0, len(envelopes), per_chunk):
            part = slice(start, start + per_chunk)
            if len(records) == len(envelopes):
                self._opener.keep_records(tx, terms, pb.LANE_JOINT, records[part])
            else:
                tx.append_chunk(terms.round_id, pb.LANE_JOINT, b"".join(envelopes[part]))
