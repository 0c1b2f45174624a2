"""The accountant's gRPC service: certify the round from its shuffled budgets, then release the reports or refuse.

    OPEN ──hand-over──▶ CLOSED ──certify──▶ CERTIFIED ──grant──▶ RELEASED
                                        └──▶ REFUSED   (release key destroyed in the same transaction)
    in turns:  CERTIFIED ──grant──▶ IN_TURNS ──no more turns: certify who answered──▶ RELEASED | REFUSED

The bounds are `accountant.certify`'s; this room opens budgets, applies the policy of the manifest, and keeps the
release key, without which no report can be opened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import grpc.aio

from accountant.budgets import Budgets
from accountant.certification import HONEST_SHUFFLER, certify, tier_curves
from accountant.mechanisms.randomizers import Randomizer, RecordGaussian
from accountant.mechanisms.registry import randomizer_of
from accountant.planner import plan
from accountant.results import Certificate, Grade
from accountant.service.ledger import PROFILE_POINTS, Entry, Ledger, Limit, profile_of
from protocol.batches import read_commitments
from protocol.envelope import HOP_ACCOUNTANT, open_many
from protocol.errors import Code, Refusal
from protocol.identity import Kind
from protocol.manifest import RoundTerms, canonical, parse_terms
from protocol.mechanisms import KaryResponse
from protocol.onion import Onion, decode_budget
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.service import ENVELOPE_KEY, RELEASE_KEY, TURNS_REPORT, RoundService, Stopwatch
from runtime.store import RoundRow, Transaction

__all__ = ["AccountantService"]

Context = grpc.aio.ServicerContext[Any, Any]
_CERTIFICATE = "certificate"
_LAST_CERTIFICATE = "last-certificate"


class AccountantService(RoundService, stubs.AccountantServicer):
    """The only holder of the release key until it has granted the round."""

    purposes = (ENVELOPE_KEY, RELEASE_KEY)
    lanes_in = (pb.LANE_PARAMETER,)

    def hop(self, terms: RoundTerms) -> int:
        return HOP_ACCOUNTANT

    async def warm(self) -> None:
        """Loads the numeric libraries, which the bounds import when they are first needed."""
        await asyncio.to_thread(certify, [1.0] * 10, randomizer_of(KaryResponse(3)), delta=1e-3)

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        if row.state == pb.ROUND_STATE_CLOSED:
            await self._certify(terms)
        elif row.state == pb.ROUND_STATE_CERTIFIED:
            await self._grant(terms)
        elif row.state == pb.ROUND_STATE_IN_TURNS:
            return await self._end_turns(terms)
        else:
            return False
        return True

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """In turns, too, until those who answered are certified."""
        in_turns = row.state == pb.ROUND_STATE_IN_TURNS
        return super().withdrawable(tx, row) or (in_turns and tx.document(row.round_id, _LAST_CERTIFICATE) is None)

    def on_withdrawal(self, tx: Transaction, row: RoundRow) -> None:
        """How many answers the analyzer has seen by then nobody says: they are paid for as if nobody hid anybody."""
        if row.state != pb.ROUND_STATE_IN_TURNS:
            return
        terms = parse_terms(pb.Signed.FromString(row.manifest).payload)
        first = pb.Signed.FromString(tx.document(terms.round_id, _CERTIFICATE) or b"")
        certificate = _after_turns(terms, pb.Certificate.FromString(first.payload), 0)
        entries = _entries(terms, certificate, with_profiles=_limit(terms) is not None)
        Ledger(tx.connection).amend(terms.round_id, entries)

    # ------------------------------------------------------------- certify

    async def _certify(self, terms: RoundTerms) -> None:
        watch = Stopwatch()
        handover = await self.store.run(lambda tx: tx.document(terms.round_id, "commitments-in"))
        signed = pb.HandOverRequest.FromString(handover or b"").commitments
        chain = read_commitments(signed, terms, self.deployment.identities, terms.num_hops)
        budgets, invalid, cpu_s = await self._open_budgets(terms)
        watch.workers_cpu_s += cpu_s
        certificate = await asyncio.to_thread(_certificate, terms, chain, budgets, invalid)
        certificate.commitments.extend(signed)
        async with self._ledger_turn:  # between the check and the entry no other round is entered
            outcome = await self._enter(terms, certificate, watch)
        self.metrics.certificate(outcome)
        self.metrics.invalid_budgets(invalid)
        self.metrics.stage("certify", watch.read()[0])
        await self.store.erase_log()

    async def _enter(self, terms: RoundTerms, certificate: pb.Certificate, watch: Stopwatch) -> str:
        """Refuses what the ledger cannot bear; else enters the round in the transaction that keeps its certificate.

        Returns the outcome, as `Metrics.certificate` names it.
        """
        outcome = "granted" if certificate.granted else "policy"
        limit = _limit(terms)
        entries = await asyncio.to_thread(_entries, terms, certificate, with_profiles=limit is not None)
        if certificate.granted and limit is not None:
            refusal = await self.store.run(
                lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),
            )
            if refusal is not None:
                outcome = "ledger"
                certificate.granted = False
                certificate.refusals.append(refusal)
        document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

        def keep(tx: Transaction) -> None:
            if certificate.granted:
                one_record = randomizer_of(terms.question.mechanism).unit == "record"
                Ledger(tx.connection).enter(terms.round_id, certificate.batch_digest, entries, one_record=one_record)
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            tx.add_cost(terms.round_id, "certify", *watch.read())
            if not certificate.granted:
                tx.destroy_keys(terms.round_id)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_CERTIFIED)

        await self.store.run(keep)
        return outcome

    @cached_property
    def _ledger_turn(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def _open_budgets(self, terms: RoundTerms) -> tuple[Counter[float], int, float]:
        """Returns the count of each grid budget, how many were invalid or repeated, and the workers' CPU seconds."""
        layer = Onion(terms).layer(pb.LANE_PARAMETER, HOP_ACCOUNTANT)
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        ciphertexts = await self.lane_in(terms, pb.LANE_PARAMETER)
        opened, cpu_s = await self.pool.map_chunks(
            partial(open_many, terms.suite, keys[ENVELOPE_KEY].private, layer.label), list(dict.fromkeys(ciphertexts))
        )
        grid = {(budget.epsilon, budget.delta) for budget in terms.manifest.budget_grid}
        found = Counter(
            plaintext for plaintext in opened if plaintext is not None and len(plaintext) == layer.plain_size
        )
        decoded = [(decode_budget(plaintext), count) for plaintext, count in found.items()]
        budgets = Counter({budget[0]: count for budget, count in decoded if budget in grid})
        return budgets, len(ciphertexts) - budgets.total(), cpu_s

    # ------------------------------------------------------------- release

    async def _grant(self, terms: RoundTerms) -> None:
        document = await self.store.run(lambda tx: tx.document(terms.round_id, _CERTIFICATE))
        signed = pb.Signed.FromString(document or b"")
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        granted = pb.Certificate.FromString(signed.payload).granted
        request = pb.GrantRequest(
            round_id=terms.round_id,
            certificate=signed,
            release_private_key=keys[RELEASE_KEY].private if granted else b"",
        )
        stub = stubs.AnalyzerStub(self.channel_to(terms.manifest.analyzer.service))
        await self.persist(terms.round_id, terms.manifest.analyzer.service, stub.Grant, request)

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_RELEASED if granted else pb.ROUND_STATE_REFUSED
            if granted and terms.question.turns is not None:
                state = pb.ROUND_STATE_IN_TURNS
            tx.update_round(terms.round_id, state=state, bytes_sent=request.ByteSize())
            tx.forget(terms.round_id)

        await self.store.run(finish)

    # ------------------------------------------------------------- turns

    async def _end_turns(self, terms: RoundTerms) -> bool:
        """Certifies those who answered once there are no more turns; returns False until then."""
        read = await self.store.run(
            lambda tx: [tx.document(terms.round_id, kind) for kind in (_CERTIFICATE, TURNS_REPORT, _LAST_CERTIFICATE)]
        )
        first, ended, document = read
        if first is None or ended is None:
            return False
        if document is None:
            granted = pb.Certificate.FromString(pb.Signed.FromString(first).payload)
            report = pb.TurnsReport.FromString(pb.Signed.FromString(ended).payload)
            document = await self._certify_turns(terms, granted, report)
        signed = pb.Signed.FromString(document)
        state = pb.ROUND_STATE_RELEASED if pb.Certificate.FromString(signed.payload).granted else pb.ROUND_STATE_REFUSED
        analyzer = terms.manifest.analyzer.service
        stub = stubs.AnalyzerStub(self.channel_to(analyzer))
        await self.persist(
            terms.round_id, analyzer, stub.Grant, pb.GrantRequest(round_id=terms.round_id, certificate=signed)
        )
        await self.store.run(lambda tx: tx.update_round(terms.round_id, state=state))
        return True

    async def _certify_turns(self, terms: RoundTerms, first: pb.Certificate, report: pb.TurnsReport) -> bytes:
        """Returns the signed last certificate, which is durable; the ledger has what it says then."""
        certificate = await asyncio.to_thread(_after_turns, terms, first, report.num_answers)
        limit = _limit(terms)
        async with self._ledger_turn:
            entries = await asyncio.to_thread(_entries, terms, certificate, with_profiles=limit is not None)
            if limit is not None:
                refusal = await self.store.run(
                    lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),
                )
                certificate.refusals.extend([refusal] if refusal else [])
            certificate.granted = not certificate.refusals
            document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

            def keep(tx: Transaction) -> None:
                if report.num_answers:  # else what was entered with the grant stays, which is for more than none
                    Ledger(tx.connection).amend(terms.round_id, entries)
                tx.put_document(terms.round_id, _LAST_CERTIFICATE, document)

            await self.store.run(keep)
        return document

    async def GetCertificate(  # noqa: N802
        self, request: rpc.GetCertificateRequest, context: Context
    ) -> rpc.GetCertificateResponse:
        def read(tx: Transaction) -> bytes | None:
            tx.round(request.round_id)
            return tx.document(request.round_id, _LAST_CERTIFICATE) or tx.document(request.round_id, _CERTIFICATE)

        document = await self.store.run(read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not certified yet")
        return rpc.GetCertificateResponse(certificate=pb.Signed.FromString(document))


def _limit(terms: RoundTerms) -> Limit | None:
    limit = terms.privacy_limit
    return None if limit is None else Limit(limit.total_epsilon, limit.total_delta)


def _certificate(
    terms: RoundTerms,
    chain: Mapping[pb.Lane.ValueType, Sequence[pb.Commitment]],
    budgets: Counter[float],
    invalid: int,
) -> pb.Certificate:
    """Returns the certificate of a released batch, granted or refused, with every reason against it."""
    manifest = terms.manifest
    last = chain[pb.LANE_REPORT][-1]
    # Whoever was dropped in one lane only, or sent a budget off the grid, is one more user who may be anything.
    lost = sum(drop.count for lane in chain.values() for commitment in lane[1:] for drop in commitment.drops)
    dishonest = manifest.dishonest + invalid + lost
    if terms.question.turns is not None:
        # Whoever does not answer hides nobody; nor does an answer of somebody whose submission hop 1 could not open.
        unreadable = sum(drop.count for drop in chain[pb.LANE_REPORT][0].drops)
        dishonest += _most_missing(terms, budgets.total()) + unreadable
    message = pb.Certificate(
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=last.digest_out,
        delta=manifest.delta,
        num_users=budgets.total(),
        dishonest=dishonest,
        invalid_budgets=invalid,
    )
    if not budgets:
        message.refusals.append("no budget of this batch is on the grid")
        return message
    _certify_into(message, terms, sorted(budgets.items()))
    message.granted = not message.refusals
    return message


def _most_missing(terms: RoundTerms, num_users: int) -> int:
    """Returns how many clients may fail to answer in turns before hop 1 ends them."""
    return max(0, num_users - terms.manifest.min_batch_size)


def _after_turns(terms: RoundTerms, first: pb.Certificate, num_answers: int) -> pb.Certificate:
    """Returns the certificate of a round in turns for those who answered, from the one that it was granted with.

    Hop 1 has said how many; the analyzer publishes nothing unless it has learnt from as many.
    """
    message = pb.Certificate(
        round_id=first.round_id,
        manifest_hash=first.manifest_hash,
        batch_digest=first.batch_digest,
        delta=first.delta,
        num_users=first.num_users,
        dishonest=first.dishonest - _most_missing(terms, first.num_users) + max(0, first.num_users - num_answers),
        invalid_budgets=first.invalid_budgets,
        commitments=first.commitments,
        num_answers=num_answers,
    )
    _certify_into(message, terms, [(tier.local_epsilon, tier.count) for tier in first.tiers])
    message.granted = not message.refusals
    return message


def _certify_into(message: pb.Certificate, terms: RoundTerms, budgets: Sequence[tuple[float, int]]) -> None:
    """Writes the guarantee for (local epsilon, users) into a certificate, and every reason to refuse it."""
    manifest, dishonest = terms.manifest, message.dishonest
    multiset = Budgets.from_tiers(
        [(epsilon, count, terms.question.mechanism.budget_delta) for epsilon, count in budgets]
    )
    randomizer = randomizer_of(terms.question.mechanism)
    certificate = certify(multiset, randomizer, delta=manifest.delta, dishonest=dishonest)
    _fill(message, certificate, multiset)
    if terms.question.turns is not None and HONEST_SHUFFLER in message.assumptions:
        message.assumptions.remove(HONEST_SHUFFLER)
        message.assumptions.extend(_assumptions_in_turns(terms, message))
    rare = [tier for tier in multiset.tiers if tier.count < manifest.min_tier_size]
    if rare:
        message.refusals.append(
            f"local epsilon {rare[0].local_epsilon:g} was used by {rare[0].count} clients, allowed is at least "
            f"{manifest.min_tier_size} for each budget that is used"
        )
    if certificate.grade is not Grade.CERTIFIED:
        message.refusals.append(f"the grade is {certificate.grade}; only CERTIFIED opens a round")
    if not certificate.delta <= manifest.delta:
        message.refusals.append(f"certified delta is {certificate.delta:.3g}, allowed is {manifest.delta:.3g}")
    if not certificate.epsilon <= manifest.epsilon_max:
        excess = certificate.epsilon - manifest.epsilon_max
        nearest = _nearest(multiset, randomizer, manifest.delta, manifest.epsilon_max, dishonest)
        message.refusals.append(
            f"certified epsilon is {certificate.epsilon:.6g}, allowed is {manifest.epsilon_max:.6g}, "
            f"{excess:.3g} too much; {nearest}"
        )


def _assumptions_in_turns(terms: RoundTerms, message: pb.Certificate) -> list[str]:
    turns, users = terms.question.turns, message.num_users
    if message.HasField("num_answers"):
        answered = f"{message.num_answers} of {users} clients answered"
    else:
        answered = f"at least {min(users, terms.manifest.min_batch_size)} of {users} clients answer"
    return [
        "the first shuffler is honest: it drew the order of the clients at random and tells it nobody",
        f"{answered}, each once, and who does not answer does not depend on the data",
        f"an answer is passed on {turns.period_ms if turns else 0} ms after it was asked for: its time tells nothing",
    ]


def _entries(terms: RoundTerms, certificate: pb.Certificate, *, with_profiles: bool) -> list[Entry]:
    """Returns what the round costs each of its tiers, as the ledger keeps it."""
    if not certificate.tiers:
        return []
    budgets = Budgets.from_tiers([(tier.local_epsilon, tier.count, tier.local_delta) for tier in certificate.tiers])
    randomizer = randomizer_of(terms.question.mechanism)
    curves = {}
    if with_profiles and not randomizer.spends_local_delta:
        found = tier_curves(budgets, randomizer, certificate.delta, int(certificate.dishonest))
        curves = {victim.local_epsilon: curve for victim, curve in found}
    entries = []
    for tier in certificate.tiers:
        curve = curves.get(tier.local_epsilon)
        known = curve is not None and 0 < tier.epsilon < tier.local_epsilon
        profile = profile_of(curve, tier.epsilon, tier.local_epsilon) if known and curve is not None else ()
        if with_profiles and isinstance(randomizer, RecordGaussian):
            profile = randomizer.local_profile(tier.local_epsilon, tier.local_delta, PROFILE_POINTS)
        entries.append(
            Entry(tier.local_epsilon, tier.local_delta, tier.count, tier.epsilon, certificate.delta, profile)
        )
    return entries


def _nearest(budgets: Budgets, randomizer: Randomizer, delta: float, epsilon: float, dishonest: int) -> str:
    """Returns which settings would have been granted: smaller budgets for these users, or more users."""
    largest = float(budgets.local_epsilon[-1])
    found = []
    try:
        smaller = plan(
            randomizer, delta=delta, epsilon=epsilon, num_users=budgets.num_users, budgets=budgets, dishonest=dishonest
        )
        share = float(smaller.budgets.local_epsilon[-1]) / largest
        found.append(f"local budgets {share:.3g} times as large (at most {share * largest:.3g})")
    except ValueError:
        pass
    try:
        more = plan(randomizer, delta=delta, epsilon=epsilon, budgets=budgets, dishonest=dishonest)
        found.append(f"{more.budgets.num_users} users with these budgets")
    except ValueError:
        pass
    return f"allowed would be {' or '.join(found) or 'only a larger epsilon_max'}"


def _fill(message: pb.Certificate, certificate: Certificate, budgets: Budgets) -> None:
    message.epsilon = certificate.epsilon
    message.grade = certificate.grade
    message.method = certificate.method
    message.assumptions.extend(certificate.assumptions)
    message.numerical_slack = certificate.numerical_slack
    message.everyone_else_colludes_epsilon = certificate.everyone_else_colludes.epsilon
    # Estimates need every budget with its count; a certificate of very many budgets answers them in groups.
    answered = sorted(certificate.tiers, key=lambda tier: tier.local_epsilon)
    for tier in budgets.tiers:
        group = next(one for one in answered if one.local_epsilon >= tier.local_epsilon)
        message.tiers.add(
            local_epsilon=tier.local_epsilon, local_delta=tier.local_delta, count=tier.count, epsilon=group.epsilon
        )
    for bound in certificate.comparison:
        message.comparison.add(name=bound.name, epsilon=bound.epsilon, grade=bound.grade, status=bound.status)
    if certificate.lower_bound is not None:
        message.lower_bound_epsilon = certificate.lower_bound.epsilon
        message.lower_bound_attack = certificate.lower_bound.attack
