"""The accountant's tickets: given to admitted clients while a round is open, checked before it is certified.

The roster is the same as hop 1's. A client's request is durable before it is answered: the same request again gets the
same tickets, another one is refused. Afterwards every message of both lanes is checked: the budgets, which are opened
here, and the hashes of the reports, which the analyzer hands in while it cannot open them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter

from croupier.accountant.rounds.found import BudgetsFound, ReportsFound
from croupier.accountant.service.checking import evaluate_both, evaluate_fakes
from croupier.accountant.service.ticket_keys import TICKET_KEYS
from croupier.protocol.batches import digest_of_hashes, unpack
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import BUDGET_BYTES, decode_budget
from croupier.protocol.tickets import BLINDED_BYTES, MAX_PER_BATCH, are_blinded
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.admission import MAX_PER_CALL, Admission
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import Direction, DocumentKind
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import DOES_NOT_OPEN, NO_TICKET, OPENED
from croupier.runtime.transaction import Transaction

_REASONS = {DOES_NOT_OPEN: "does-not-open", NO_TICKET: "no-ticket"}
_REPEATED = "repeated"
_MEANING = {pb.SUBMISSION_CODE_ALREADY_EXISTS: pb.SUBMISSION_CODE_TICKETS_GIVEN}
"""Admission's codes that have another name in an answer about tickets."""


class TicketDesk:
    """Gives admitted clients their tickets while a round is open."""

    def __init__(self, setup: ServiceSetup, engine: RoundEngine, admission: Admission) -> None:
        self._store = setup.store
        self._pool = setup.pool
        self._clock = setup.clock
        self._metrics = setup.metrics
        self._engine = engine
        self._admission = admission
        self._costs: dict[RoundId, tuple[float, float]] = {}  # wall and CPU seconds, stored with the certificate

    def cost(self, round_id: RoundId) -> tuple[float, float]:
        """Returns the wall and CPU seconds that the tickets of a round have cost."""
        return self._costs.get(round_id, (0.0, 0.0))

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes the data for giving a round's tickets from memory."""
        self._costs.pop(round_id, None)
        self._admission.stop_round(round_id)

    async def give(self, request: pb.GetTicketsRequest) -> pb.GetTicketsResponse:
        """Gives admitted clients their tickets, one for each lane and round, without seeing the messages.

        Raises:
            Refusal: BAD_REQUEST (number of requests), UNKNOWN_ROUND, WRONG_STATE (the round is not open yet),
                OVERLOADED, STORE_FAILED.
        """
        if not 1 <= len(request.requests) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.requests)} requests in one call; there must be 1..{MAX_PER_CALL}"
            )
        terms = await self._engine.terms(RoundId(request.round_id))
        closed = pb.GetTicketsResponse(codes=[pb.SUBMISSION_CODE_ROUND_CLOSED] * len(request.requests))
        deadline = terms.close_deadline_unix_s
        if deadline and self._clock.now() >= deadline:
            return closed
        watch = Stopwatch()
        codes, cpu_s = await self._admission.submit(terms, 2 * BLINDED_BYTES, request.requests)
        watch.workers_cpu_s += cpu_s
        granted = [
            admitted.envelope
            for admitted, code in zip(request.requests, codes, strict=True)
            if code == pb.SUBMISSION_CODE_ACCEPTED and admitted.envelope
        ]
        response = pb.GetTicketsResponse(codes=[_MEANING.get(code, code) for code in codes])
        if not granted:
            return response
        keys = await self._store.run(StoreStep.READ_TICKET_KEYS, lambda tx: tx.keys(terms.round_id))
        if not keys:  # the round is over
            return closed
        (reports, budgets), cpu_s = await self._pool.run(
            evaluate_both, {lane: keys[purpose].private for lane, purpose in TICKET_KEYS.items()}, granted
        )
        response.report_evaluations, response.parameter_evaluations = reports, budgets
        watch.workers_cpu_s += cpu_s
        spent = watch.read()
        before = self.cost(terms.round_id)
        self._costs[terms.round_id] = before[0] + spent[0], before[1] + spent[1]
        self._metrics.stage("tickets", spent[0])
        return response

    async def give_fakes(self, terms: RoundTerms, hop: str, blinded: bytes) -> pb.GetFakeTicketsResponse:
        """Gives a hop tickets for its fake reports, without seeing the messages; counted before they are given.

        The same messages again are answered alike and counted once: a hop keeps its fakes and their blinds. In all a
        hop gets as many tickets as an honest hop can have fakes.

        Raises:
            Refusal: BAD_REQUEST (the round has no hop noise, the request does not contain blinded messages, or it is
                for more tickets than the hop can have), WRONG_STATE (the batch has been handed over, or the round is
                over).
        """
        if terms.fakes is None:
            raise Refusal(Code.BAD_REQUEST, "the round has no hop noise")
        messages = unpack(blinded, BLINDED_BYTES)
        if len(messages) > MAX_PER_BATCH or len(set(messages)) < len(messages) or not are_blinded(blinded):
            raise Refusal(
                Code.BAD_REQUEST,
                f"{len(messages)} messages; they must be at most {MAX_PER_BATCH} different blinded messages",
            )
        place, most = terms.services.index(hop) + 1, terms.fakes.law.most
        part = f"{place}-{hashlib.sha256(blinded).hexdigest()}"

        def count(tx: Transaction) -> None:
            if tx.round(terms.round_id).state != pb.ROUND_STATE_OPEN:
                raise Refusal(Code.WRONG_STATE, "the batch has been handed over")
            if tx.document(terms.round_id, DocumentKind.FAKE_TICKETS, part) is not None:
                return
            given = _fake_tickets(tx, terms)[place - 1]
            if given + len(messages) > most:
                raise Refusal(
                    Code.BAD_REQUEST,
                    f"{hop} asks for {len(messages)} tickets after {given}; it can have {most} at most for its fakes",
                )
            tx.put_document(terms.round_id, DocumentKind.FAKE_TICKETS, str(len(messages)).encode(), part)

        await self._store.run(StoreStep.COUNT_FAKE_TICKETS, count)
        keys = await self._store.run(StoreStep.READ_TICKET_KEYS, lambda tx: tx.keys(terms.round_id))
        if not keys:
            raise Refusal(Code.WRONG_STATE, "the round is over")
        seed = keys[TICKET_KEYS[pb.LANE_REPORT]].private
        evaluations, _ = await self._pool.run(evaluate_fakes, seed, messages)
        return pb.GetFakeTicketsResponse(evaluations=evaluations)

    async def fake_tickets(self, terms: RoundTerms) -> list[int]:
        """Returns how many tickets for fake reports each hop was given, in hop order; empty without hop noise."""
        if terms.fakes is None:
            return []
        return await self._store.run(StoreStep.READ_FAKE_TICKETS, lambda tx: _fake_tickets(tx, terms))

    async def num_tickets(self, terms: RoundTerms) -> int:
        """Returns how many clients have been given tickets: no lane has more genuine messages.

        A ticket is counted durably before it is given, so those in lanes that have arrived are counted.
        """
        return await self._store.run(StoreStep.COUNT_TICKETS, lambda tx: tx.num_submissions(terms.round_id))


def _fake_tickets(tx: Transaction, terms: RoundTerms) -> list[int]:
    given = [0] * terms.shared.num_hops
    for part, count in tx.documents(terms.round_id, DocumentKind.FAKE_TICKETS).items():
        given[int(part.partition("-")[0]) - 1] += int(count)
    return given


class TicketCheck:
    """Reads both lanes once they are here, and keeps the messages that have a ticket."""

    def __init__(self, setup: ServiceSetup, opener: LaneOpener) -> None:
        self._store = setup.store
        self._opener = opener

    async def budgets_with_tickets(self, terms: RoundTerms) -> BudgetsFound:
        """Returns the budgets of the parameter lane that have a ticket."""
        grid = {(epsilon, terms.local_delta) for epsilon in terms.budget_grid}
        counts: Counter[float] = Counter()
        dropped = Counter({_REPEATED: 0})
        off_grid = 0
        met: set[bytes] = set()  # status and record of messages with a ticket, status and hash of the others
        async for records in self._opener.records(terms, pb.LANE_PARAMETER):
            for name, status, record in records:
                identity = bytes([status]) + (record if status == OPENED else name)
                if identity in met:
                    dropped[_REPEATED] += 1
                    continue
                met.add(identity)
                if status != OPENED:
                    dropped[_REASONS[status]] += 1
                elif (budget := decode_budget(record[:BUDGET_BYTES])) in grid:
                    counts[budget[0]] += 1
                else:
                    off_grid += 1
        return BudgetsFound(counts, off_grid, dict(dropped))

    async def reports_with_tickets(self, terms: RoundTerms) -> ReportsFound | None:
        """Returns the reports that have a ticket; None until all are handed in."""
        count = await self._store.run(
            StoreStep.MEASURE_REPORT_TICKETS, lambda tx: tx.num_chunks(terms.round_id, Direction.IN, pb.LANE_TICKET)
        )
        if count is None:
            return None
        await self._opener.open_all(terms, pb.LANE_TICKET)
        good: set[bytes] = set()
        bad: set[bytes] = set()
        num_items = unopened = 0
        async for records in self._opener.records(terms, pb.LANE_TICKET):
            num_items += len(records)
            unopened += sum(record.status == DOES_NOT_OPEN for record in records)
            good.update(record.content for record in records if record.status == OPENED)
            bad.update(record.content for record in records if record.status == NO_TICKET)
        bad -= good
        dropped = {
            _REASONS[DOES_NOT_OPEN]: unopened,
            _REASONS[NO_TICKET]: len(bad),
            _REPEATED: num_items - unopened - len(good) - len(bad),
        }
        digest = await asyncio.to_thread(lambda: digest_of_hashes(sorted(good)))
        return ReportsFound(len(good), digest, sorted(bad), num_items, dropped)
