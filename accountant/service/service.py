"""The accountant's gRPC service: certify the round from its shuffled budgets, then release the reports or refuse.

    OPEN ──hand-over──▶ CLOSED ──certify──▶ CERTIFIED ──grant──▶ RELEASED
                                        └──▶ REFUSED   (release key destroyed in the same transaction)
    sequential:  CERTIFIED ──grant──▶ SEQUENTIAL ──asking ends: certify the answers──▶ RELEASED | REFUSED

The bounds are `accountant.certify`'s; this room opens budgets, applies the policy of the manifest, and keeps the
release key, without which no report can be opened.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import grpc.aio

from accountant.budgets import Budgets
from accountant.certification import UNIFORM_ORDER, certify
from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.registry import randomizer_of
from accountant.planner import plan, resized
from accountant.results import Certificate, Grade, round_down, round_up
from accountant.service.ledger import PROFILE_POINTS, Entry, Ledger, Limit, Profile, profile_of
from accountant.service.tickets import BudgetsFound, ReportsFound, TicketService
from protocol.batches import digest_of_hashes, drop_counts, read_commitments
from protocol.envelope import HOP_ACCOUNTANT
from protocol.errors import Code, Refusal
from protocol.identity import Kind
from protocol.manifest import RoundTerms, canonical
from protocol.mechanisms import KaryResponse
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.service import RELEASE_KEY, SEQUENTIAL_REPORT, Stopwatch
from runtime.store import RoundRow, Transaction

__all__ = ["HONEST_ACCOUNTANT", "AccountantService", "genuine_roster"]

HONEST_ACCOUNTANT = (
    "the accountant follows the protocol: it gives tickets to enrolled clients alone, one for each lane, certifies the "
    "budgets that arrived with one, as published, and gives the release key away only with the certificate"
)

Context = grpc.aio.ServicerContext[Any, Any]
_CERTIFICATE = "certificate"
_LAST_CERTIFICATE = "last-certificate"
_REJECTED = "rejected"
_MAX_REJECTED = 100_000
"""Hashes of reports without a ticket that fit into the message with the grant."""
SHARPER_SECONDS = 10.0
"""After so many a round's tiers that are left keep the blanket bound: a round waits for its certificate."""
_MIXTURES = ("rr", "krr", "onebit", "hemisphere")
"""Kinds of which a report with a smaller budget is one with a larger budget, or else a random one."""
_NO_MORE = (
    "rounds have shown how many clients used each budget, as many as the privacy limit allows; nothing about the "
    "budgets of this one is said"
)
_MOST_GROWTH = 21  # steps of a quarter: a hundred times as many users
_CUT_SHORT = "; a sequential round may be cut short, so its local budgets must fit until it has ended"


def genuine_roster(dishonest: int) -> str:
    """Returns what a certificate assumes of the clients that were given tickets."""
    return f"the roster is genuine: of the clients with tickets at most {dishonest} are dishonest"


class AccountantService(TicketService):
    """The only holder of the release key until it has granted the round."""

    passing = (_REJECTED,)
    lasting = (_CERTIFICATE, _LAST_CERTIFICATE)

    def hop(self, terms: RoundTerms) -> int:
        """Returns the accountant's place in the onion, behind the chain."""
        return HOP_ACCOUNTANT

    async def warm(self) -> None:
        """Loads the numeric libraries, which the bounds import when they are first needed."""
        await asyncio.to_thread(certify, [1.0] * 10, randomizer_of(KaryResponse(3)), delta=1e-3)

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Certifies, grants, or ends a sequential round; see `RoundDriver.advance`."""
        if row.state == pb.ROUND_STATE_CLOSED:
            return await self._certify(terms)
        if row.state == pb.ROUND_STATE_CERTIFIED:
            await self._grant(terms)
        elif row.state == pb.ROUND_STATE_SEQUENTIAL:
            return await self._end_sequential(terms)
        else:
            return False
        return True

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """See `RoundDriver.withdrawable`; a sequential round also until its answers are certified.

        The ledger has such a round as if there were no amplification (`_reserved`), which a withdrawal does not change:
        how many answers the analyzer has seen by then is not known.
        """
        is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
        return super().withdrawable(tx, row) or (is_sequential and tx.document(row.round_id, _LAST_CERTIFICATE) is None)

    # ------------------------------------------------------------- certify

    async def _certify(self, terms: RoundTerms) -> bool:
        """Certifies the round once both lanes are here; returns False until then."""
        watch = Stopwatch()
        checked = await self.reports_with_tickets(terms)
        if checked is None:
            return False
        reports, cpu_s = checked
        watch.workers_cpu_s += cpu_s
        handover = await self.store.run(
            "read the commitments", lambda tx: tx.document(terms.round_id, "commitments-in")
        )
        signed = pb.HandOverRequest.FromString(handover or b"").commitments
        chain = read_commitments(signed, terms, self.deployment.identities, terms.num_hops)
        budgets, cpu_s = await self.budgets_with_tickets(terms)
        watch.workers_cpu_s += cpu_s
        num_tickets = await self.num_tickets(terms)
        certificate, entries = await asyncio.to_thread(_certificate, terms, chain, budgets, reports, num_tickets)
        if terms.question.sequential is not None and certificate.granted:
            entries = await asyncio.to_thread(_reserved, terms, certificate)
        certificate.commitments.extend(signed)
        async with self._ledger_turn:  # between the check and the entry no other round is entered
            outcome = await self._enter(terms, certificate, entries, b"".join(reports.rejected), watch)
        self.metrics.certificate(outcome)
        self.metrics.invalid_budgets(budgets.off_grid)
        self.metrics.drops(pb.LANE_TICKET, reports.dropped)
        self.metrics.drops(pb.LANE_PARAMETER, budgets.dropped)
        self.metrics.stage("certify", watch.read()[0])
        await self.store.erase_log()
        self.giving.pop(terms.round_id, None)
        self.requests.forget(terms.round_id)
        return True

    async def _enter(
        self,
        terms: RoundTerms,
        certificate: pb.Certificate,
        entries: Sequence[Entry],
        rejected: bytes,
        watch: Stopwatch,
    ) -> str:
        """Refuses what the ledger cannot bear; else enters the round in the transaction that keeps its certificate.

        Returns the outcome, as `Metrics.certificate` names it.
        """
        limit = _limit(terms)
        if limit is not None and not await self.store.run(
            "count the rounds shown", lambda tx: Ledger(tx.connection).may_show(terms.round_id, limit)
        ):
            _withhold(certificate, f"{limit.max_rounds} {_NO_MORE}")
        outcome = "granted" if certificate.granted else "policy"
        if certificate.granted and limit is not None:
            # A sequential round asks for what it may come to, so that no later amendment can exceed the limit.
            refusal = await self.store.run(
                "ask the ledger",
                lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),
            )
            if refusal is not None:
                outcome = "ledger"
                certificate.granted = False
                certificate.refusals.append(f"{refusal}{_CUT_SHORT if terms.question.sequential is not None else ''}")
        document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

        def keep(tx: Transaction) -> None:
            if certificate.tiers:
                Ledger(tx.connection).show(terms.round_id)
            if certificate.granted:
                one_record = randomizer_of(terms.question.mechanism).unit == "record"
                Ledger(tx.connection).enter(terms.round_id, certificate.batch_digest, entries, one_record=one_record)
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            tx.add_cost(terms.round_id, "tickets", *self.giving.get(terms.round_id, (0.0, 0.0)))
            tx.add_cost(terms.round_id, "certify", *watch.read())
            if certificate.granted:
                tx.put_document(terms.round_id, _REJECTED, rejected)
            else:
                tx.destroy_keys(terms.round_id)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_CERTIFIED)

        await self.store.run("enter the certificate", keep)
        return outcome

    @cached_property
    def _ledger_turn(self) -> asyncio.Lock:
        return asyncio.Lock()

    # ------------------------------------------------------------- release

    async def _grant(self, terms: RoundTerms) -> None:
        document, rejected = await self.store.run(
            "read the certificate to grant",
            lambda tx: (tx.document(terms.round_id, _CERTIFICATE), tx.document(terms.round_id, _REJECTED)),
        )
        signed = pb.Signed.FromString(document or b"")
        keys = await self.store.run("read the release key", lambda tx: tx.keys(terms.round_id))
        granted = pb.Certificate.FromString(signed.payload).granted
        request = pb.GrantRequest(
            round_id=terms.round_id,
            certificate=signed,
            release_private_key=keys[RELEASE_KEY].private if granted else b"",
            rejected=rejected or b"",
        )
        analyzer = terms.manifest.analyzer.service
        await self.persist(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_RELEASED if granted else pb.ROUND_STATE_REFUSED
            if granted and terms.question.sequential is not None:
                state = pb.ROUND_STATE_SEQUENTIAL
            tx.update_round(terms.round_id, state=state, bytes_sent=request.ByteSize())
            self.forget(tx, terms.round_id)

        await self.store.run("finish the grant", finish)

    # ------------------------------------------------------------- sequential rounds

    async def _end_sequential(self, terms: RoundTerms) -> bool:
        """Certifies the clients that answered, once the asking has ended; returns False until then."""
        kinds = (_CERTIFICATE, SEQUENTIAL_REPORT, _LAST_CERTIFICATE)
        read = await self.store.run(
            "read what the sequential part came to",
            lambda tx: [tx.document(terms.round_id, kind) for kind in kinds],
        )
        first, ended, document = read
        if first is None or ended is None:
            return False
        if document is None:
            granted = pb.Certificate.FromString(pb.Signed.FromString(first).payload)
            report = pb.SequentialReport.FromString(pb.Signed.FromString(ended).payload)
            document = await self._certify_sequential(terms, granted, report)
        signed = pb.Signed.FromString(document)
        state = pb.ROUND_STATE_RELEASED if pb.Certificate.FromString(signed.payload).granted else pb.ROUND_STATE_REFUSED
        analyzer = terms.manifest.analyzer.service
        request = pb.GrantRequest(round_id=terms.round_id, certificate=signed)
        await self.persist(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)
        await self.store.run("finish the last certificate", lambda tx: tx.update_round(terms.round_id, state=state))
        return True

    async def _certify_sequential(self, terms: RoundTerms, first: pb.Certificate, report: pb.SequentialReport) -> bytes:
        """Returns the signed last certificate, which is durable; the ledger has what it says then."""
        certificate, entries = await asyncio.to_thread(_after_sequential, terms, first, report.num_answers)
        limit = _limit(terms)
        async with self._ledger_turn:
            if limit is not None:
                refusal = await self.store.run(
                    "ask the ledger again",
                    lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),
                )
                certificate.refusals.extend([refusal] if refusal else [])
            certificate.granted = not certificate.refusals
            document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

            def keep(tx: Transaction) -> None:
                if report.num_answers:  # else what was entered with the grant stays
                    Ledger(tx.connection).amend(terms.round_id, entries)
                tx.put_document(terms.round_id, _LAST_CERTIFICATE, document)

            await self.store.run("amend the ledger", keep)
        return document

    async def GetCertificate(  # noqa: N802
        self, request: rpc.GetCertificateRequest, context: Context
    ) -> rpc.GetCertificateResponse:
        """Returns the round's newest signed certificate to any caller.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_READY (not certified yet).
        """

        def read(tx: Transaction) -> bytes | None:
            tx.round(request.round_id)
            return tx.document(request.round_id, _LAST_CERTIFICATE) or tx.document(request.round_id, _CERTIFICATE)

        document = await self.store.run("show the certificate", read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not certified yet")
        return rpc.GetCertificateResponse(certificate=pb.Signed.FromString(document))


def _limit(terms: RoundTerms) -> Limit | None:
    limit = terms.privacy_limit
    return None if limit is None else Limit(limit.total_epsilon, limit.total_delta, limit.max_rounds)


def _certificate(
    terms: RoundTerms,
    chain: Mapping[pb.Lane.ValueType, Sequence[pb.Commitment]],
    budgets: BudgetsFound,
    reports: ReportsFound,
    num_tickets: int,
) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the certificate of a released batch, with every reason against it, and what it costs each tier.

    Why these counts cover whatever hops drop, replace, add or repeat: docs/accounting.md, 7.
    """
    manifest, num_reports = terms.manifest, len(reports.hashes)
    last = chain[pb.LANE_REPORT][-1]
    num_users, off_grid = budgets.counts.total(), budgets.off_grid
    if reports.num_items != last.num_out:
        raise Refusal(Code.BAD_BATCH, f"the analyzer has handed in {reports.num_items} of {last.num_out} reports")
    if max(num_reports, num_users + off_grid) > num_tickets:
        raise Refusal(Code.BAD_BATCH, "more messages have a ticket than tickets were given")
    released = num_reports
    if terms.question.sequential is not None:  # only as many need to answer
        released = min(num_reports, manifest.min_batch_size)
    message = pb.Certificate(
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=last.digest_out,
        delta=manifest.delta,
        num_users=num_users,
        dishonest=manifest.dishonest + num_tickets - released,
        invalid_budgets=off_grid,
        num_tickets=num_tickets,
        num_reports=num_reports,
        reports_digest=digest_of_hashes(reports.hashes),
        report_drops=drop_counts(reports.dropped),
        budget_drops=drop_counts(budgets.dropped),
        unknown_budgets=num_tickets - num_users - off_grid,
    )
    if num_reports < manifest.min_batch_size:
        message.refusals.append(
            f"{num_reports} reports have a ticket; it must be at least {manifest.min_batch_size} of them"
        )
    if len(reports.rejected) > _MAX_REJECTED:
        message.refusals.append(
            f"{len(reports.rejected)} reports have no ticket; it must be at most {_MAX_REJECTED} of them"
        )
    if not num_users:
        message.epsilon = math.inf
        message.refusals.append("no budget of this batch is on the grid")
        return message, []
    entries = _certify_into(message, terms, sorted(budgets.counts.items()))
    message.granted = not message.refusals
    return message, entries


def _reserved(terms: RoundTerms, first: pb.Certificate) -> list[Entry]:
    """Returns what a sequential round costs if it is cut short: every budget without amplification.

    Clients may vanish and the operator may end or withdraw the round after any answer, so this is what the ledger has
    to bear when the round is granted. It is amended, downwards, when the round has ended.
    """
    return _after_sequential(terms, first, 0)[1]


def _after_sequential(terms: RoundTerms, first: pb.Certificate, num_answers: int) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the last certificate of a sequential round, for the clients that answered, and what it costs each tier.

    It is made from the certificate that the round was granted with. Hop 1 has said how many clients answered; the
    analyzer publishes nothing unless it has learnt from as many.
    """
    message = pb.Certificate(
        round_id=first.round_id,
        manifest_hash=first.manifest_hash,
        batch_digest=first.batch_digest,
        delta=first.delta,
        num_users=first.num_users,
        dishonest=terms.manifest.dishonest + max(0, first.num_tickets - num_answers),
        invalid_budgets=first.invalid_budgets,
        commitments=first.commitments,
        num_answers=num_answers,
        num_tickets=first.num_tickets,
        num_reports=first.num_reports,
        reports_digest=first.reports_digest,
        report_drops=first.report_drops,
        budget_drops=first.budget_drops,
        unknown_budgets=first.unknown_budgets,
    )
    entries = _certify_into(message, terms, [(tier.local_epsilon, tier.count) for tier in first.tiers])
    message.granted = not message.refusals
    return message, entries


def _certify_into(message: pb.Certificate, terms: RoundTerms, budgets: Sequence[tuple[float, int]]) -> list[Entry]:
    """Writes the guarantee for (local epsilon, users) into a certificate, and every reason to refuse it.

    Returns what the round costs each tier, as the ledger keeps it.
    """
    manifest, dishonest = terms.manifest, message.dishonest
    if min(count for _, count in budgets) < manifest.min_tier_size:
        _withhold(
            message,
            f"a budget was used by fewer than {manifest.min_tier_size} clients, the smallest number that may be shown; "
            "which one, and how many they are, is not said",
        )
        return []
    multiset = Budgets.from_tiers(
        [(epsilon, count, terms.question.mechanism.budget_delta) for epsilon, count in budgets]
    )
    randomizer = randomizer_of(terms.question.mechanism)
    adaptive_order = terms.question.sequential is not None
    certificate = certify(
        multiset,
        randomizer,
        delta=manifest.delta,
        dishonest=dishonest,
        adaptive_order=adaptive_order,
        seconds=SHARPER_SECONDS,
    )
    _fill(message, certificate, multiset)
    entries = _entries(multiset, randomizer, certificate, with_profiles=_limit(terms) is not None)
    if message.unknown_budgets:
        entries = _unknown_budgets_into(message, terms, multiset, randomizer, entries)
    central_delta = max([certificate.delta, *(entry.delta for entry in entries)])
    # Of the budgets that a client may have used, not of those that arrived: a shuffler can forge the latter.
    message.everyone_else_colludes_epsilon = terms.budget_grid[-1]
    if terms.question.sequential is not None and UNIFORM_ORDER in message.assumptions:
        message.assumptions.remove(UNIFORM_ORDER)
        message.assumptions.extend(_sequential_assumptions(terms, message))
    message.assumptions.extend((genuine_roster(manifest.dishonest), HONEST_ACCOUNTANT))
    if certificate.grade is not Grade.CERTIFIED:
        message.refusals.append(f"the grade is {certificate.grade}; only CERTIFIED opens a round")
    if not central_delta <= manifest.delta:
        message.refusals.append(
            f"certified delta is {round_up(central_delta, 3)}; it must be at most {round_down(manifest.delta, 3)}"
        )
    limits = [terms.epsilon_max_of.get(tier.local_epsilon, manifest.epsilon_max) for tier in message.tiers]
    reached = [(tier.local_epsilon, tier.epsilon, limit) for tier, limit in zip(message.tiers, limits, strict=True)]
    if message.unknown_budgets:  # of which each may be any
        used = {tier.local_epsilon for tier in message.tiers}
        reached += [
            (budget, min(budget, message.unknown_budget_epsilon), limit)
            for budget, limit in terms.epsilon_max_of.items()
            if budget not in used
        ]
    over = [(epsilon, local, limit) for local, epsilon, limit in reached if not epsilon <= limit]
    if over:
        epsilon, local_epsilon, limit = max(over)
        whose = "certified epsilon"
        if len(set(terms.epsilon_max_of.values())) > 1:
            whose = f"certified epsilon of clients with local epsilon {local_epsilon:g}"
        if message.unknown_budgets:
            nearest = f"the budgets of {message.unknown_budgets} clients that were given tickets have not arrived"
        else:
            nearest = _nearest(multiset, limits, terms, dishonest)
        message.refusals.append(
            f"{whose} is {round_up(epsilon)}; it must be at most {round_down(limit)} "
            f"({round_up(epsilon - limit, 3)} too much); {nearest}"
        )
    return entries


def _unknown_budgets_into(
    message: pb.Certificate, terms: RoundTerms, known: Budgets, randomizer: Randomizer, entries: Sequence[Entry]
) -> list[Entry]:
    """Writes the guarantee for clients whose budget is not known into a certificate; returns what it costs everybody.

    One of them may have any budget of the grid, and has all known budgets around it. Where a report with a smaller
    budget is one with a larger budget or else random, the largest budget speaks for all (docs/accounting.md, 7); with
    other randomizers each is at worst certified its local budget, if nobody known uses it.
    """
    mechanism, grid, used = terms.question.mechanism, terms.budget_grid, set(known.local_epsilon.tolist())
    at_worst = 0.0
    if mechanism.kind not in _MIXTURES:
        at_worst = max([message.epsilon, *(budget for budget in grid[:-1] if budget not in used)])
    *others, largest = entries
    if grid[-1] not in used:  # else its users have been certified, with one helper fewer
        around = Budgets.from_tiers([*known.tiers, (grid[-1], 1, mechanism.budget_delta)])
        certificate = certify(
            around,
            randomizer,
            delta=message.delta,
            dishonest=message.dishonest,
            adaptive_order=terms.question.sequential is not None,
            seconds=SHARPER_SECONDS,
        )
        (*_, extra) = _entries(around, randomizer, certificate, with_profiles=_limit(terms) is not None)
        others, largest = list(entries), replace(extra, count=message.unknown_budgets)
        message.numerical_slack = max(message.numerical_slack, certificate.numerical_slack)
        if largest.epsilon > message.epsilon:
            message.method = certificate.method
    if at_worst > largest.epsilon:
        largest = replace(largest, epsilon=at_worst, profile=())
    message.unknown_budget_epsilon = largest.epsilon
    message.epsilon = max(message.epsilon, largest.epsilon)
    return [*others, largest]


def _withhold(message: pb.Certificate, why: str) -> None:
    """Refuses a round for what its certificate would show; nothing that depends on the budgets stays in it."""
    message.CopyFrom(
        pb.Certificate(
            round_id=message.round_id,
            manifest_hash=message.manifest_hash,
            batch_digest=message.batch_digest,
            delta=message.delta,
            num_users=message.num_users,
            dishonest=message.dishonest,
            invalid_budgets=message.invalid_budgets,
            num_tickets=message.num_tickets,
            num_reports=message.num_reports,
            reports_digest=message.reports_digest,
            report_drops=message.report_drops,
            budget_drops=message.budget_drops,
            commitments=message.commitments,
            num_answers=message.num_answers if message.HasField("num_answers") else None,
            epsilon=math.inf,
            refusals=[why],
        )
    )


def _sequential_assumptions(terms: RoundTerms, message: pb.Certificate) -> list[str]:
    order, users = terms.question.sequential, message.num_reports
    if message.HasField("num_answers"):
        answered = f"{message.num_answers} of {users} clients answered"
    else:
        answered = f"at least {min(users, terms.manifest.min_batch_size)} of {users} clients answer"
    return [
        "the first shuffler is honest: it drew the order of the clients at random and keeps it secret",
        f"{answered}, each once, and which clients do not answer does not depend on the data",
        "nobody who learns the answers watches the clients' connections: their traffic shows who is asked, and when",
        f"an answer is passed on {order.period_ms if order else 0} ms after it was asked for: its time tells nothing",
    ]


def _entries(
    budgets: Budgets,
    randomizer: Randomizer,
    certificate: Certificate,
    *,
    with_profiles: bool,
) -> list[Entry]:
    """Returns what the round costs every budget, as the ledger keeps it.

    The profiles are those that the certificate was read from. Nothing is computed from its tiers: very
    many budgets are answered in groups, and noise made for a smaller budget hides less than the group's budget says.
    """
    profiles: dict[int, Profile] = {}
    entries = []
    for budget in budgets.tiers:
        group = _answered(certificate, budget.local_epsilon)
        tier = certificate.tiers[group]
        if group not in profiles:
            profiles[group] = ()
            pure = with_profiles and not randomizer.spends_local_delta
            if pure and tier.privacy_profile is not None and 0 < tier.epsilon < tier.local_epsilon:
                profiles[group] = profile_of(tier.privacy_profile, tier.epsilon, tier.local_epsilon)
        profile = profiles[group]
        if with_profiles:
            local = randomizer.local_profile(budget.local_epsilon, budget.local_delta, PROFILE_POINTS)
            profile = local or profile
        entries.append(Entry(budget.local_epsilon, budget.local_delta, budget.count, tier.epsilon, tier.delta, profile))
    return entries


def _answered(certificate: Certificate, local_epsilon: float) -> int:
    """Returns the place of the tier in which this budget was answered: the first that is not below it."""
    return next(place for place, tier in enumerate(certificate.tiers) if tier.local_epsilon >= local_epsilon)


def _nearest(budgets: Budgets, limits: Sequence[float], terms: RoundTerms, dishonest: int) -> str:
    """Returns which settings would have been granted: smaller budgets for these users, or more users.

    Each is certified as it is printed, against the limit of every budget, before it is said; by the blanket bound,
    which is fast at any number of users, and above what the accountant would certify.
    """
    randomizer, delta = randomizer_of(terms.question.mechanism), terms.manifest.delta
    sequential = terms.question.sequential is not None

    def granted(candidate: Budgets) -> bool:
        found = certify(
            candidate,
            randomizer,
            delta=delta,
            dishonest=dishonest,
            adaptive_order=sequential,
            attack=False,
            bounds="blanket",
        )
        reached = [found.tiers[_answered(found, epsilon)].epsilon for epsilon in candidate.local_epsilon.tolist()]
        return found.delta <= delta and all(one <= limit for one, limit in zip(reached, limits, strict=True))

    found = []
    with suppress(ValueError):
        smaller = plan(
            randomizer,
            delta=delta,
            epsilon=min(limits),
            num_users=budgets.num_users,
            budgets=budgets,
            dishonest=dishonest,
            adaptive_order=sequential,
            bounds="blanket",
        ).budgets
        largest = float(budgets.local_epsilon[-1])
        share = round_down(float(smaller.local_epsilon[-1]) / largest, 3)
        if granted(Budgets(budgets.local_epsilon * float(share), budgets.local_delta, budgets.count)):
            found.append(f"local budgets {share} times as large (at most {round_down(float(share) * largest, 3)})")
    # In a sequential round more users may be missing, too, so that more of them alone need not be enough.
    sizes = [] if sequential else [int(budgets.num_users * 1.25**step) for step in range(1, _MOST_GROWTH)]
    enough = bisect_left(sizes, True, key=lambda users: granted(resized(budgets, users)))
    if enough < len(sizes):
        found.append(f"{sizes[enough]} users with these budgets in the same proportions")
    return f"this would be granted: {' or '.join(found) or 'only a larger epsilon_max'}"


def _fill(message: pb.Certificate, certificate: Certificate, budgets: Budgets) -> None:
    message.epsilon = certificate.epsilon
    message.grade = certificate.grade
    message.method = certificate.method
    message.assumptions.extend(certificate.assumptions)
    message.numerical_slack = certificate.numerical_slack
    # Estimates need every budget with its count; a certificate of very many budgets answers them in groups.
    for tier in budgets.tiers:
        group = certificate.tiers[_answered(certificate, tier.local_epsilon)]
        message.tiers.add(
            local_epsilon=tier.local_epsilon, local_delta=tier.local_delta, count=tier.count, epsilon=group.epsilon
        )
    for bound in certificate.comparison:
        message.comparison.add(name=bound.name, epsilon=bound.epsilon, grade=bound.grade, status=bound.status)
    if certificate.lower_bound is not None:
        message.lower_bound_epsilon = certificate.lower_bound.epsilon
        message.lower_bound_attack = certificate.lower_bound.attack
