"""The accountant's tickets: given to admitted clients while a round is open, checked before it is certified.

The roster is the same as hop 1's. A client's request is durable before it is answered: the same request again gets the
same tickets, another one is refused. What is checked afterwards is every message of both lanes: the budgets, which are
opened here, and of the reports their hashes, which the analyzer hands in while it cannot open them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import grpc.aio

from protocol.deployment import OPERATOR
from protocol.envelope import HOP_ACCOUNTANT, KeyPair, generate_key_pair, open_many
from protocol.errors import Code, Refusal, TicketError
from protocol.manifest import RoundTerms
from protocol.onion import BudgetRecord, Onion, decode_budget, report_message
from protocol.randomness import SystemRandom
from protocol.tickets import BLINDED_BYTES, TICKET_BYTES, TicketIssuer
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2_grpc as stubs
from runtime.admission import MAX_PER_CALL, Admission
from runtime.service import ENVELOPE_KEY, RELEASE_KEY, RoundService, ServiceSetup

__all__ = ["BudgetsFound", "ReportsFound", "TicketService"]

Context = grpc.aio.ServicerContext[Any, Any]
_KEYS: dict[pb.Lane.ValueType, str] = {pb.LANE_REPORT: "report-tickets", pb.LANE_PARAMETER: "parameter-tickets"}
_HASH_BYTES = 32


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
        without_ticket: the hashes that the analyzer handed in and that have none, sorted.
        dropped: how many were left out, by reason.
    """

    hashes: list[bytes]
    without_ticket: list[bytes]
    dropped: dict[str, int]


class TicketService(RoundService, stubs.AccountantServicer):
    """The part of the accountant that gives and checks tickets."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self._requests = Admission(setup.store, setup.pool, "tickets")

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

    # ------------------------------------------------------------- giving

    async def RegisterClients(  # noqa: N802
        self, request: pb.RegisterClientsRequest, context: Context
    ) -> pb.RegisterClientsResponse:
        """Registers clients' keys and one-use tokens, as at hop 1.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key or hash of a wrong length).
        """
        self.require_caller(context, [OPERATOR])
        return pb.RegisterClientsResponse(
            registered=await self._requests.register(request.client_keys, request.token_hashes)
        )

    async def GetTickets(  # noqa: N802
        self, request: pb.GetTicketsRequest, context: Context
    ) -> pb.GetTicketsResponse:
        """Gives admitted clients their tickets, one for each lane and round, without seeing what they are for.

        Raises:
            Refusal: BAD_REQUEST (number of requests, or a blinded message that is no element of the group),
                UNKNOWN_ROUND, ROUND_CLOSED (the ticket keys are destroyed), OVERLOADED, STORE_FAILED.
        """
        if not 1 <= len(request.requests) <= MAX_PER_CALL:
            raise Refusal(
                Code.BAD_REQUEST, f"{len(request.requests)} requests in one call; there must be 1..{MAX_PER_CALL}"
            )
        terms = await self.terms(request.round_id)
        codes, _ = await self._requests.submit(terms, 2 * BLINDED_BYTES, request.requests)
        granted = [
            one.envelope
            for one, code in zip(request.requests, codes, strict=True)
            if code == pb.SUBMISSION_CODE_ACCEPTED
        ]
        response = pb.GetTicketsResponse(codes=codes)
        if granted:
            seeds = await self._seeds(terms)
            response.report_evaluations, response.parameter_evaluations = await self._evaluate(seeds, granted)
        return response

    async def _evaluate(self, seeds: dict[pb.Lane.ValueType, bytes], granted: list[bytes]) -> tuple[bytes, bytes]:
        """Returns the evaluations of both lanes; all fail where one blinded message is not an element."""
        try:
            evaluated, _ = await self.pool.run(_evaluate_both, seeds, granted)
        except TicketError as error:
            raise Refusal(Code.BAD_REQUEST, str(error)) from error
        return evaluated

    async def _seeds(self, terms: RoundTerms) -> dict[pb.Lane.ValueType, bytes]:
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        if not keys:
            raise Refusal(Code.ROUND_CLOSED, "its ticket keys are destroyed")
        return {lane: keys[purpose].private for lane, purpose in _KEYS.items()}

    async def num_tickets(self, terms: RoundTerms) -> int:
        """Returns how many clients have been given tickets: at most so many messages of a lane can be genuine."""
        return await self.store.run(lambda tx: tx.num_submissions(terms.round_id))

    # ------------------------------------------------------------- checking

    async def budgets_with_tickets(self, terms: RoundTerms) -> tuple[BudgetsFound, float]:
        """Opens the parameter lane; returns the budgets that have a ticket and the workers' CPU seconds."""
        layer = Onion(terms).layer(pb.LANE_PARAMETER, HOP_ACCOUNTANT)
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        ciphertexts = list(dict.fromkeys(await self.lane_in(terms, pb.LANE_PARAMETER)))
        check = partial(
            _open_budgets,
            terms.suite,
            keys[ENVELOPE_KEY].private,
            layer,
            keys[_KEYS[pb.LANE_PARAMETER]].private,
            terms.hash,
        )
        found, cpu_s = await self.pool.map_chunks(check, ciphertexts)
        dropped: Counter[str] = Counter()
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
        size = _HASH_BYTES + TICKET_BYTES
        packed = await self.store.run(lambda tx: tx.chunks(terms.round_id, "in", pb.LANE_TICKET))
        if packed is None:
            return None
        items = [chunk[start : start + size] for chunk in packed for start in range(0, len(chunk), size)]
        distinct = list(dict.fromkeys(items))
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        check = partial(_check_reports, keys[_KEYS[pb.LANE_REPORT]].private, terms.hash)
        valid, cpu_s = await self.pool.map_chunks(check, distinct)
        good = {item[:_HASH_BYTES] for item, is_valid in zip(distinct, valid, strict=True) if is_valid}
        bad = {item[:_HASH_BYTES] for item in distinct} - good
        dropped = {"no-ticket": len(bad), "repeated": len(items) - len(good) - len(bad)}
        return ReportsFound(sorted(good), sorted(bad), dropped), cpu_s


@lru_cache(maxsize=8)
def _issuer(seed: bytes, lane: pb.Lane.ValueType) -> TicketIssuer:
    return TicketIssuer(seed, lane)


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
    return [
        issuer.is_valid(report_message(manifest_hash, item[:_HASH_BYTES]), item[_HASH_BYTES:]) for item in items
    ]


def hash_of_report(sealed: bytes) -> bytes:
    """Returns the hash by which a report's ciphertext under the release key is known to the accountant."""
    return hashlib.sha256(sealed).digest()
