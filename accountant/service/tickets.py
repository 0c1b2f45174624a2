"""The accountant's tickets: given to admitted clients while a round is open, checked before it is certified.

The roster is the same as hop 1's. A client's request is durable before it is answered: the same request again gets the
same tickets, another one is refused. What is checked afterwards is every message of both lanes: the budgets, which are
opened here, and of the reports their hashes, which the analyzer hands in while it cannot open them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from protocol.batches import unpack
from protocol.envelope import HOP_ACCOUNTANT, KeyPair, generate_key_pair, open_many
from protocol.errors import Code, Refusal
from protocol.manifest import RoundTerms
from protocol.onion import UNOPENED, BudgetRecord, Onion, decode_budget, report_message
from protocol.randomness import SystemRandom
from protocol.tickets import BLINDED_BYTES, TicketIssuer
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2_grpc as stubs
from runtime.admission import MAX_PER_CALL
from runtime.service import ENVELOPE_KEY, RELEASE_KEY, AdmittingService, ServiceSetup, Stopwatch
from runtime.tls import Context

__all__ = ["BudgetsFound", "ReportsFound", "TicketService"]

_KEYS: dict[pb.Lane.ValueType, str] = {pb.LANE_REPORT: "report-tickets", pb.LANE_PARAMETER: "parameter-tickets"}
_HASH_BYTES = 32
_MEANING = {pb.SUBMISSION_CODE_ALREADY_EXISTS: pb.SUBMISSION_CODE_TICKETS_GIVEN}
"""What a code of admission is called where it is about tickets."""


@dataclass(frozen=True)
class BudgetsFound:
    """The budgets of a round that have a ticket.

    Attributes:
        counts: how many clients use each local epsilon of the grid.
        off_grid: how many budgets have a ticket and are not on the grid.
        dropped: how many messages were left out, by reason.
    """

    counts: Counter[float]
    off_grid: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class ReportsFound:
    """The reports of a round that have a ticket.

    Attributes:
        hashes: SHA-256 of each report's ciphertext under the release key, sorted.
        rejected: the hashes that the analyzer handed in and that have no ticket, sorted.
        num_items: how many items the analyzer handed in: one for everything that it received.
        dropped: how many of them were left out, by reason.
    """

    hashes: list[bytes]
    rejected: list[bytes]
    num_items: int
    dropped: dict[str, int]


class TicketService(AdmittingService, stubs.AccountantServicer):
    """The part of the accountant that gives and checks tickets."""

    admits = "tickets"
    lanes_in = (pb.LANE_PARAMETER,)

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.giving: dict[str, tuple[float, float]] = {}  # what it has cost, kept with the certificate

    def fresh_keys(self, suite: str) -> dict[str, KeyPair]:
        """Returns the round's envelope and release keys and its two ticket keys, of which seeds are kept."""
        keys = super().fresh_keys(suite) | {RELEASE_KEY: generate_key_pair(suite)}
        for lane, purpose in _KEYS.items():
            seed = SystemRandom().block(32)
            keys[purpose] = KeyPair(TicketIssuer(seed, lane).public_key, seed)
        return keys

    def round_keys(self, round_id: str, keys: dict[str, KeyPair]) -> pb.RoundKeys:
        """Returns the public halves as they stand in the manifest."""
        public = super().round_keys(round_id, keys)
        public.release_public_key = keys[RELEASE_KEY].public
        public.report_ticket_key = keys[_KEYS[pb.LANE_REPORT]].public
        public.parameter_ticket_key = keys[_KEYS[pb.LANE_PARAMETER]].public
        return public

    def senders(self, terms: RoundTerms) -> dict[pb.Lane.ValueType, str]:
        """Returns who delivers each lane: the last hop the budgets, and the analyzer the tickets of the reports."""
        return super().senders(terms) | {pb.LANE_TICKET: terms.manifest.analyzer.service}

    def taking(self, lane: pb.Lane.ValueType) -> Collection[pb.RoundState.ValueType]:
        """Returns the states in which something new of a lane is taken: of tickets until the certificate."""
        return (*super().taking(lane), *([pb.ROUND_STATE_CLOSED] if lane == pb.LANE_TICKET else []))

    async def Deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:  # noqa: N802
        """Takes one chunk of a lane, and goes on when both lanes are here; see `Delivery.Deliver`.

        Raises:
            Refusal: NOT_YOUR_CALL, UNKNOWN_ROUND, BAD_REQUEST, BAD_BATCH, CONFLICT, WRONG_STATE, each as there.
        """
        response = await super().Deliver(request, context)
        if request.lane == pb.LANE_TICKET:
            self.wake(request.round_id)
        return response

    # ------------------------------------------------------------- giving

    async def GetTickets(  # noqa: N802
        self, request: pb.GetTicketsRequest, context: Context
    ) -> pb.GetTicketsResponse:
        """Gives admitted clients their tickets, one for each lane and round, without seeing what they are for.

        Raises:
            Refusal: BAD_REQUEST (number of requests), UNKNOWN_ROUND, WRONG_STATE (the round is not open yet),
                OVERLOADED, STORE_FAILED.
        """
        if not 1 <= len(request.requests) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.requests)} requests in one call; there must be 1..{MAX_PER_CALL}"
            )
        terms = await self.terms(request.round_id)
        closed = pb.GetTicketsResponse(codes=[pb.SUBMISSION_CODE_ROUND_CLOSED] * len(request.requests))
        deadline = terms.manifest.close_deadline_unix_s
        if deadline and self.clock.now() >= deadline:
            return closed
        watch = Stopwatch()
        codes, cpu_s = await self.admission.submit(terms, 2 * BLINDED_BYTES, request.requests)
        watch.workers_cpu_s += cpu_s
        granted = [
            one.envelope
            for one, code in zip(request.requests, codes, strict=True)
            if code == pb.SUBMISSION_CODE_ACCEPTED
        ]
        response = pb.GetTicketsResponse(codes=[_MEANING.get(code, code) for code in codes])
        if not granted:
            return response
        keys = await self.store.run("read the ticket keys", lambda tx: tx.keys(terms.round_id))
        if not keys:  # the round is over
            return closed
        (reports, budgets), cpu_s = await self.pool.run(_evaluate_both, _seeds(keys), granted)
        response.report_evaluations, response.parameter_evaluations = reports, budgets
        watch.workers_cpu_s += cpu_s
        spent = watch.read()
        before = self.giving.get(terms.round_id, (0.0, 0.0))
        self.giving[terms.round_id] = before[0] + spent[0], before[1] + spent[1]
        self.metrics.stage("tickets", spent[0])
        return response

    def dismiss(self, round_id: str) -> None:
        """See `RoundDriver.dismiss`."""
        super().dismiss(round_id)
        self.giving.pop(round_id, None)

    async def num_tickets(self, terms: RoundTerms) -> int:
        """Returns how many clients have been given tickets: at most so many messages of a lane are genuine.

        A ticket is counted durably before it is given, so those in lanes that have arrived are counted.
        """
        return await self.store.run("count the tickets", lambda tx: tx.num_submissions(terms.round_id))

    # ------------------------------------------------------------- checking

    async def budgets_with_tickets(self, terms: RoundTerms) -> tuple[BudgetsFound, float]:
        """Opens the parameter lane; returns the budgets that have a ticket and the workers' CPU seconds."""
        layer = Onion(terms).layer(pb.LANE_PARAMETER, HOP_ACCOUNTANT)
        keys = await self.store.run("read the keys to open budgets", lambda tx: tx.keys(terms.round_id))
        arrived = await self.lane_in(terms, pb.LANE_PARAMETER)
        ciphertexts = list(dict.fromkeys(arrived))
        check = partial(
            _open_budgets,
            terms.suite,
            keys[ENVELOPE_KEY].private,
            layer,
            keys[_KEYS[pb.LANE_PARAMETER]].private,
            terms.hash,
        )
        found, cpu_s = await self.pool.map_chunks(check, ciphertexts)
        dropped = Counter({"repeated": len(arrived) - len(ciphertexts)})
        records: set[BudgetRecord] = set()
        for record in found:
            if isinstance(record, str):
                dropped[record] += 1
            elif record in records:
                dropped["repeated"] += 1
            else:
                records.add(record)
        grid = {(budget.epsilon, budget.delta) for budget in terms.manifest.budget_grid}
        decoded = [decode_budget(record.budget) for record in records]
        counts = Counter(budget[0] for budget in decoded if budget in grid)
        return BudgetsFound(counts, len(decoded) - counts.total(), dict(dropped)), cpu_s

    async def reports_with_tickets(self, terms: RoundTerms) -> tuple[ReportsFound, float] | None:
        """Returns the reports that have a ticket and the workers' CPU seconds; None until all are handed in."""
        packed = await self.store.run(
            "read the tickets of the reports", lambda tx: tx.chunks(terms.round_id, "in", pb.LANE_TICKET)
        )
        if packed is None:
            return None
        items = [item for chunk in packed for item in unpack(chunk, len(UNOPENED))]
        present = [item for item in items if item != UNOPENED]
        distinct = list(dict.fromkeys(present))
        keys = await self.store.run("read the keys to check tickets", lambda tx: tx.keys(terms.round_id))
        check = partial(_check_reports, keys[_KEYS[pb.LANE_REPORT]].private, terms.hash)
        valid, cpu_s = await self.pool.map_chunks(check, distinct)
        good = {item[:_HASH_BYTES] for item, is_valid in zip(distinct, valid, strict=True) if is_valid}
        bad = {item[:_HASH_BYTES] for item in distinct} - good
        dropped = {
            "does-not-open": len(items) - len(present),
            "no-ticket": len(bad),
            "repeated": len(present) - len(good) - len(bad),
        }
        return ReportsFound(sorted(good), sorted(bad), len(items), dropped), cpu_s


@lru_cache(maxsize=8)
def _issuer(seed: bytes, lane: pb.Lane.ValueType) -> TicketIssuer:
    return TicketIssuer(seed, lane)


def _seeds(keys: Mapping[str, KeyPair]) -> dict[pb.Lane.ValueType, bytes]:
    return {lane: keys[purpose].private for lane, purpose in _KEYS.items()}


def _evaluate_both(seeds: dict[pb.Lane.ValueType, bytes], granted: Sequence[bytes]) -> tuple[bytes, bytes]:
    reports = _issuer(seeds[pb.LANE_REPORT], pb.LANE_REPORT)
    budgets = _issuer(seeds[pb.LANE_PARAMETER], pb.LANE_PARAMETER)
    return (
        reports.evaluate([one[:BLINDED_BYTES] for one in granted]),
        budgets.evaluate([one[BLINDED_BYTES:] for one in granted]),
    )


def _open_budgets(
    suite: str, private_key: bytes, layer: Any, seed: bytes, manifest_hash: bytes, ciphertexts: list[bytes]
) -> list[BudgetRecord | str]:
    """Returns each budget with a valid ticket, or why there is none."""
    issuer = _issuer(seed, pb.LANE_PARAMETER)
    found: list[BudgetRecord | str] = []
    for plaintext in open_many(suite, private_key, layer.label, ciphertexts):
        if plaintext is None or len(plaintext) != layer.plain_size:
            found.append("does-not-open")
            continue
        ticket, record = BudgetRecord.split(plaintext)
        found.append(record if issuer.is_valid(record.message(manifest_hash), ticket) else "no-ticket")
    return found


def _check_reports(seed: bytes, manifest_hash: bytes, items: list[bytes]) -> list[bool]:
    issuer = _issuer(seed, pb.LANE_REPORT)
    return [issuer.is_valid(report_message(manifest_hash, item[:_HASH_BYTES]), item[_HASH_BYTES:]) for item in items]
