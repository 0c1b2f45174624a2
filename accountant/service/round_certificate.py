"""The certificate of a round: the guarantee of its budgets, or that it is refused, and what it costs each tier.

The bounds are `accountant.certify`'s. Here the manifest's policy is applied, and losses on the way are allowed for
(docs/accounting.md, 7). A refused certificate shows nothing that depends on budgets (`refuse`): hop 1 chooses whose
budgets arrive, and could otherwise read one person's budget from a round that it ruins (docs/threat-model.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from croupier.accountant.bounds.exact_binary import shown_alone
from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.numerics.decimals import difference
from croupier.accountant.ranges import Bounds
from croupier.accountant.recorded_profile import PROFILE_POINTS, Profile, profile_of
from croupier.accountant.results import Grade, Guarantee
from croupier.accountant.service.ledger import Entry, Limit
from croupier.accountant.service.small_tiers import merge_small_tiers
from croupier.accountant.service.tickets import BudgetsFound, ReportsFound
from croupier.protocol.batches import drop_counts, num_fakes
from croupier.protocol.budget_privacy import privacy_message
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.deployment import PrivacyLimit
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.statements import SCHEMA, Statement, messages_of, state
from croupier.protocol.v1 import messages_pb2 as pb

__all__ = [
    "after_sequential",
    "as_limit",
    "certify_into",
    "certify_round",
    "check_stated_fakes",
    "entries_of",
    "limit_of",
    "refuse",
    "reserved",
    "study_limit_of",
    "withhold",
]

_MAX_REJECTED = 100_000
"""Hashes of reports without a ticket that fit into the message with the grant."""
SEARCHES_DIFFER = 1 + 1e-6
"""A forecast is above the blanket bound by this factor: what two bounds find at one delta has differed by 2e-9."""
SHARPER_SECONDS = 10.0
"""A time limit, because a round waits for its certificate; tiers that are not finished then keep the blanket bound."""


def limit_of(terms: RoundTerms) -> Limit | None:
    """Returns what the ledger may come to with this round, if its manifest limits that."""
    return None if terms.privacy_limit is None else as_limit(terms.privacy_limit)


def study_limit_of(terms: RoundTerms) -> Limit | None:
    """Returns what the rounds of a study may come to with this round; None for a round that is not of a study."""
    if terms.survey is None or terms.survey.wave is None:
        return None
    study = terms.survey.wave.study
    return Limit(study.total_epsilon, study.total_delta, study_id=study.study_id)


def _keeps_profiles(terms: RoundTerms) -> bool:
    """Whether what the round costs is composed with other rounds, so that the ledger needs its curves."""
    return limit_of(terms) is not None or study_limit_of(terms) is not None


def as_limit(limit: PrivacyLimit) -> Limit:
    """Returns the ledger's form of a privacy limit."""
    return Limit(limit.total_epsilon, limit.total_delta, limit.max_rounds, limit.fixed_terms)


def certify_round(
    terms: RoundTerms,
    chain: Mapping[Lane, Sequence[pb.Commitment]],
    budgets: BudgetsFound,
    reports: ReportsFound,
    num_tickets: int,
    fake_tickets: Sequence[int] = (),
) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the certificate of a released batch, and what it costs each tier.

    Of the reports that have a ticket all but as many as hops were given tickets for their fakes are from clients; a hop
    that crashed was given more of them than it used.
    Why these counts cover whatever hops drop, replace, add or repeat: docs/accounting.md, 7.
    """
    manifest, num_reports = terms.manifest, max(0, reports.number - num_fakes(chain))
    last = chain[pb.LANE_REPORT][-1]
    num_budgets = budgets.on_grid + budgets.off_grid
    if reports.num_items != last.num_out:
        raise Refusal(Code.BAD_BATCH, f"the analyzer has handed in {reports.num_items:,} of {last.num_out:,} reports")
    released = max(0, reports.number - sum(fake_tickets))  # of clients, for certain
    check_stated_fakes(chain[pb.LANE_REPORT], fake_tickets)
    if max(released, num_budgets, num_reports) > num_tickets:
        raise Refusal(Code.BAD_BATCH, "more messages have a ticket than tickets were given")
    if terms.question.sequential is not None:  # only as many need to answer
        released = min(num_reports, manifest.min_batch_size)
    message = pb.Certificate(
        schema=SCHEMA,
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=last.digest_out,
        delta=manifest.delta,
        dishonest=manifest.dishonest + num_tickets - released,
        num_tickets=num_tickets,
        num_reports=num_reports,
        reports_digest=reports.digest,
        report_drops=drop_counts(reports.dropped),
        budget_drops=drop_counts(budgets.dropped),
        unknown_budgets=num_tickets - num_budgets,
        randomizer=randomizer_of(terms.question.mechanism).name,
        linkage="separate",
        rounds=1,
        fake_tickets=fake_tickets,
    )
    least = manifest.min_batch_size
    refusals: list[Statement[RefusalReason]] = []
    if num_reports < least:
        refusals.append(state(RefusalReason.TOO_FEW_REPORTS, reports=num_reports, least=least))
    if num_budgets < least:
        refusals.append(state(RefusalReason.TOO_FEW_BUDGETS, budgets=num_budgets, least=least))
    if len(reports.rejected) > _MAX_REJECTED:
        rejected = len(reports.rejected)
        refusals.append(state(RefusalReason.TOO_MANY_WITHOUT_TICKET, reports=rejected, most=_MAX_REJECTED))
    if not budgets.on_grid:  # no honest client's is among them: those are on the grid
        refusals.append(state(RefusalReason.NO_BUDGET_ON_GRID))
    if refusals:  # before anything is computed from the budgets
        withhold(message, refusals)
        return message, []
    message.num_users, message.invalid_budgets = budgets.on_grid, budgets.off_grid
    entries = certify_into(message, terms, sorted(budgets.counts.items()))
    message.granted = not message.refusals
    if not message.granted:
        refuse(message, terms)
    return message, entries


def check_stated_fakes(chain: Sequence[pb.Commitment], fake_tickets: Sequence[int]) -> None:
    """Checks that no hop states more fake reports than the accountant gave it tickets for.

    Behind hop 1 the next hop's numbers would not add up; but hop 1 states itself how many reports it has received, and
    the analyzer would subtract fakes that are not there.

    Raises:
        Refusal: BAD_BATCH.
    """
    for commitment, given in zip_longest(chain, fake_tickets):
        if commitment.num_fakes > (given or 0):
            raise Refusal(Code.BAD_BATCH, "a hop states more fake reports than it was given tickets for")


def reserved(terms: RoundTerms, first: pb.Certificate) -> list[Entry]:
    """Returns what a sequential round costs if it is cut short: every budget without amplification.

    Clients may vanish and the operator may end or withdraw the round after any answer, so this is what the ledger has
    to bear when the round is granted. It is amended, downwards, when the round has ended.
    """
    return after_sequential(terms, first, 0)[1]


def after_sequential(terms: RoundTerms, first: pb.Certificate, num_answers: int) -> tuple[pb.Certificate, list[Entry]]:
    """Returns the last certificate of a sequential round, for the clients that answered, and what it costs each tier.

    It is made from the certificate that the round was granted with, which has shown the tiers. So this one shows them
    and what they come to even where it refuses: the answers have been learnt. Hop 1 has said how many clients answered;
    the analyzer publishes nothing unless it has learnt from as many.
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
    entries = certify_into(message, terms, [(tier.local_epsilon, tier.count) for tier in first.tiers])
    message.granted = not message.refusals
    return message, entries


def certify_into(
    message: pb.Certificate, terms: RoundTerms, budgets: Sequence[tuple[float, int]], *, as_forecast: bool = False
) -> list[Entry]:
    """Writes the guarantee for (local epsilon, users) into a certificate, and every reason to refuse it.

    as_forecast: by the blanket bound alone, without an attack and whatever the size of tiers; see `forecast`.

    budgets: exact, without those that nobody uses; or, with budget privacy, as they are counted.

    The reasons depend on the budgets: see `refuse`. Returns what the round costs each tier, as the ledger keeps it.
    Where the manifest has small tiers merged, all of it is about the merged ones, and depends on the budgets in no
    other way (docs/accounting.md, 7.1).
    """
    manifest, dishonest, privacy = terms.manifest, message.dishonest, terms.budget_privacy
    randomizer = randomizer_of(terms.question.mechanism)
    message.schema, message.randomizer = SCHEMA, randomizer.name
    if manifest.merge_small_tiers and not as_forecast:
        budgets = merge_small_tiers(budgets, terms.smallest_tier)
        message.merged_below = terms.smallest_tier
    if privacy is not None:  # a victim of every budget of the grid
        message.budget_privacy.CopyFrom(privacy_message(privacy))
        message.most_uncounted, counted = privacy.most_uncounted, dict(budgets)
        budgets = [(budget, counted.get(budget, 0) + 1) for budget in terms.budget_grid]
    if min(count for _, count in budgets) < terms.smallest_tier and not as_forecast:
        message.epsilon = math.inf
        _add_refusal(message, state(RefusalReason.RARE_BUDGET, least=terms.smallest_tier))
        return []
    multiset = Budgets.from_tiers(
        [(epsilon, count, terms.question.mechanism.budget_delta) for epsilon, count in budgets]
    )
    adaptive_order = terms.question.sequential is not None
    certificate = certify(
        multiset,
        randomizer,
        delta=manifest.delta,
        dishonest=dishonest,
        adaptive_order=adaptive_order,
        bounds="blanket" if as_forecast else "all",
        seconds=SHARPER_SECONDS,
        attack=not (as_forecast or manifest.merge_small_tiers),  # on the exact budgets it might come to less
        hop_noise=terms.hop_noise,
        hops=terms.num_hops,
        rounds=terms.permanent or 1,
        counted_by=privacy,
    )
    _fill(message, certificate, multiset)
    entries = entries_of(multiset, randomizer, certificate, with_profiles=_keeps_profiles(terms))
    assumptions = certificate.assumptions
    if message.unknown_budgets and privacy is not None:  # a victim of any budget is certified, and helps nobody
        message.unknown_budget_epsilon = message.epsilon
    elif message.unknown_budgets:
        entries, more = _unknown_budgets_into(
            message, terms, multiset, randomizer, entries, "blanket" if as_forecast else "all"
        )
        assumptions = tuple(dict.fromkeys([*assumptions, *more]))  # with hop noise each may rest on another bound
    hop = _one_honest_hop_into(message, terms, assumptions)
    central_delta = max([certificate.delta, *(entry.delta for entry in entries)])
    # Of the budgets that a client may have used, not of those that arrived: a shuffler can forge the latter.
    message.everyone_else_colludes_epsilon = terms.budget_grid[-1]
    del message.assumptions[:]
    message.assumptions.extend(messages_of(_assumptions(terms, message, assumptions)))
    if certificate.grade is not Grade.CERTIFIED:
        _add_refusal(message, state(RefusalReason.NOT_CERTIFIED, grade=str(certificate.grade)))
    if not central_delta <= manifest.delta:
        _add_refusal(message, state(RefusalReason.DELTA_ABOVE_LIMIT, delta=central_delta, most=manifest.delta))
    if as_forecast:
        _raise_slightly(message, terms.budget_grid[-1])
    limits = [terms.epsilon_max_of.get(tier.local_epsilon, manifest.epsilon_max) for tier in message.tiers]
    reached = [(tier.local_epsilon, tier.epsilon, limit) for tier, limit in zip(message.tiers, limits, strict=True)]
    if message.unknown_budgets:  # of which each may be any
        used = {tier.local_epsilon for tier in message.tiers}
        reached += [
            (budget, min(budget, message.unknown_budget_epsilon), limit)
            for budget, limit in terms.epsilon_max_of.items()
            if budget not in used
        ]
    if hop is not None:  # also for a budget that nobody is seen to use
        reached.append((terms.budget_grid[-1], hop.epsilon, terms.epsilon_max_of[terms.budget_grid[-1]]))
    over = [(epsilon, local, limit) for local, epsilon, limit in reached if not epsilon <= limit]
    if over:
        epsilon, local_epsilon, limit = max(over)
        found = {"epsilon": epsilon, "most": limit, "excess": difference(epsilon, limit)}
        if len(set(terms.epsilon_max_of.values())) > 1:
            _add_refusal(message, state(RefusalReason.BUDGET_ABOVE_LIMIT, local_epsilon=local_epsilon, **found))
        else:
            _add_refusal(message, state(RefusalReason.EPSILON_ABOVE_LIMIT, **found))
    return entries


def _one_honest_hop_into(
    message: pb.Certificate, terms: RoundTerms, assumptions: Sequence[Statement[Assumption]]
) -> Guarantee | None:
    """Writes what one honest hop guarantees to any client of the round, whichever budget of the grid it uses.

    Returns it if the certificate rests on it alone: then the certificate's own epsilon has to hold for these clients,
    too, because a dishonest accountant can leave out a budget that was used. Where reports are kept for several waves
    and no hop adds noise, that is the largest local budget.
    """
    if terms.hop_noise is None:
        if terms.permanent is not None:
            message.epsilon = max(message.epsilon, terms.budget_grid[-1])
        return None
    largest = Budgets.from_tiers([(terms.budget_grid[-1], 1, 0.0)])
    alone = certify(
        largest,
        randomizer_of(terms.question.mechanism),
        delta=terms.manifest.delta,
        attack=False,
        hop_noise=terms.hop_noise,
        hops=terms.num_hops,
        rounds=terms.permanent or 1,
    )
    message.one_honest_hop.CopyFrom(alone.to_message().one_honest_hop)
    if _rests_on_shuffle(assumptions):
        return None
    message.epsilon = max(message.epsilon, message.one_honest_hop.epsilon)
    return alone.one_honest_hop


def _rests_on_shuffle(assumptions: Sequence[Statement[Assumption]]) -> bool:
    """Whether a bound of the shuffle is in a certificate, which holds only with a genuine crowd around a client."""
    codes = {one.code for one in assumptions}
    return Assumption.UNIFORM_ORDER in codes or not codes & {Assumption.ONE_HONEST_HOP, Assumption.SAME_REPORT}


def _raise_slightly(message: pb.Certificate, largest: float) -> None:
    """Raises a forecast above what the searches for an epsilon may differ by; a local budget needs no search."""
    for tier in message.tiers:
        tier.epsilon = min(tier.local_epsilon, tier.epsilon * SEARCHES_DIFFER)
    reached = [tier.epsilon for tier in message.tiers]
    if message.unknown_budgets:
        message.unknown_budget_epsilon = min(largest, message.unknown_budget_epsilon * SEARCHES_DIFFER)
        reached.append(message.unknown_budget_epsilon)
    message.epsilon = max(reached)


def _add_refusal(message: pb.Certificate, reason: Statement[RefusalReason]) -> None:
    message.refusals.extend(messages_of([reason]))


def _unknown_budgets_into(
    message: pb.Certificate,
    terms: RoundTerms,
    known: Budgets,
    randomizer: Randomizer,
    entries: Sequence[Entry],
    bounds: Bounds,
) -> tuple[list[Entry], tuple[Statement[Assumption], ...]]:
    """Writes the guarantee for clients whose budget is not known into a certificate.

    Returns what the round costs everybody, and what that guarantee rests on.

    One of them may have any budget of the grid, and has all known budgets around it. Where a report with a smaller
    budget is one with a larger budget or else random, the largest budget speaks for all (docs/accounting.md, 7); with
    other randomizers each is at worst certified its local budget, if no known client uses it.
    """
    grid, used = terms.budget_grid, set(known.local_epsilon.tolist())
    at_worst = alone = 0.0
    if not randomizer.smaller_budgets_mix:
        alone = max((budget for budget in grid[:-1] if budget not in used), default=0.0)
        at_worst = max(message.epsilon, alone)
    *others, largest = entries
    assumptions: tuple[Statement[Assumption], ...] = ()
    if grid[-1] not in used:  # else its users have been certified, with one helper fewer
        around = Budgets.from_tiers([*known.tiers, (grid[-1], 1, terms.question.mechanism.budget_delta)])
        certificate = certify(
            around,
            randomizer,
            delta=terms.manifest.delta,
            dishonest=message.dishonest,
            adaptive_order=terms.question.sequential is not None,
            bounds=bounds,
            hop_noise=terms.hop_noise,
            hops=terms.num_hops,
            rounds=terms.permanent or 1,
            seconds=SHARPER_SECONDS,
        )
        (*_, extra) = entries_of(around, randomizer, certificate, with_profiles=_keeps_profiles(terms))
        assumptions = certificate.assumptions
        others, largest = list(entries), replace(extra, count=message.unknown_budgets)
        message.numerical_slack = max(message.numerical_slack, certificate.numerical_slack)
        if largest.epsilon > message.epsilon:
            del message.method[:]
            message.method.extend(messages_of(certificate.method))
    if at_worst > largest.epsilon:
        largest = replace(largest, epsilon=at_worst, profile=())
    elif alone and not randomizer.spends_local_delta:
        largest = replace(largest, profile=_beside_a_report(largest.profile, alone))
    if alone and randomizer.spends_local_delta:
        largest = replace(largest, delta=max(largest.delta, terms.question.mechanism.budget_delta))
    message.unknown_budget_epsilon = largest.epsilon
    message.epsilon = max(message.epsilon, largest.epsilon)
    return [*others, largest], assumptions


def _beside_a_report(profile: Profile, local_epsilon: float) -> Profile:
    """Returns the larger of a profile and that of any report with this local budget, by itself, at the same epsilons.

    That of a client with either is convex in e^epsilon, so that it is below the chords between these points, too.
    """
    return tuple((epsilon, max(delta, shown_alone(local_epsilon, epsilon))) for epsilon, delta in profile)


def refuse(message: pb.Certificate, terms: RoundTerms, limits_now: Sequence[Limit] = ()) -> None:
    """Refuses a round for its budgets. That it is refused is all that the certificate then tells of them: one bit.

    It names all limits of the round, because which of them was not met, and by how much, would tell more.

    limits_now: those of the deployment that are not in the round's manifest.
    """
    now = [state(RefusalReason.LEDGER_LIMIT_NOW, epsilon=limit.epsilon, delta=limit.delta) for limit in limits_now]
    reasons = [state(RefusalReason.LIMITS_NOT_MET), *_limits(terms), *now]
    reports_lost, budgets_lost = message.num_tickets - message.num_reports, message.unknown_budgets
    if reports_lost or budgets_lost:
        lost = {"tickets": message.num_tickets, "reports": reports_lost, "budgets": budgets_lost}
        reasons.append(state(RefusalReason.MESSAGES_LOST, **lost))
    withhold(message, reasons)


def _limits(terms: RoundTerms) -> list[Statement[RefusalReason]]:
    """Returns the limits of a round that depend on its budgets; they are in its manifest."""
    manifest, limit = terms.manifest, limit_of(terms)
    found = []
    if terms.smallest_tier:
        merged = RefusalReason.MERGED_TIER_LIMIT if manifest.merge_small_tiers else RefusalReason.TIER_LIMIT
        found.append(state(merged, least=terms.smallest_tier))
    if randomizer_of(terms.question.mechanism).spends_local_delta:
        found.append(state(RefusalReason.DELTA_LIMIT, most=manifest.delta))
    smallest, *others = sorted(set(terms.epsilon_max_of.values()))
    if others:
        found.append(state(RefusalReason.EPSILON_LIMITS, least=smallest, most=others[-1]))
    else:
        found.append(state(RefusalReason.EPSILON_LIMIT, most=smallest))
    if limit is not None:
        may_end = terms.question.sequential is not None
        ledger = RefusalReason.SEQUENTIAL_LEDGER_LIMIT if may_end else RefusalReason.LEDGER_LIMIT
        found.append(state(ledger, epsilon=limit.epsilon, delta=limit.delta))
    if (of_study := study_limit_of(terms)) is not None:
        found.append(state(RefusalReason.STUDY_LIMIT, epsilon=of_study.epsilon, delta=of_study.delta))
    return found


def withhold(message: pb.Certificate, refusals: Sequence[Statement[RefusalReason]]) -> None:
    """Refuses a round; nothing that depends on the budgets stays in its certificate.

    What stays is how many messages have a ticket, and what follows from that and the manifest.
    """
    message.CopyFrom(
        pb.Certificate(
            schema=SCHEMA,
            round_id=message.round_id,
            manifest_hash=message.manifest_hash,
            batch_digest=message.batch_digest,
            delta=message.delta,
            dishonest=message.dishonest,
            num_tickets=message.num_tickets,
            num_reports=message.num_reports,
            unknown_budgets=message.unknown_budgets,
            reports_digest=message.reports_digest,
            report_drops=message.report_drops,
            budget_drops=message.budget_drops,
            randomizer=message.randomizer,
            commitments=message.commitments,
            linkage=message.linkage,
            rounds=message.rounds,
            fake_tickets=message.fake_tickets,
            epsilon=math.inf,
            refusals=messages_of(refusals),
        )
    )


def _assumptions(
    terms: RoundTerms, message: pb.Certificate, of_batch: Sequence[Statement[Assumption]]
) -> list[Statement[Assumption]]:
    """Returns the assumptions of a batch's certificate, and those that a round adds."""
    found = list(of_batch)
    order, uniform = terms.question.sequential, state(Assumption.UNIFORM_ORDER)
    if order is not None and uniform in found:
        found.remove(uniform)
        clients = message.num_reports
        answered = state(
            Assumption.CLIENTS_WILL_ANSWER, least=min(clients, terms.manifest.min_batch_size), clients=clients
        )
        if message.HasField("num_answers"):
            answered = state(Assumption.CLIENTS_ANSWERED, answered=message.num_answers, clients=clients)
        found += [
            state(Assumption.HONEST_FIRST_SHUFFLER),
            answered,
            state(Assumption.INDEPENDENT_ABSENCE),
            state(Assumption.UNWATCHED),
            state(Assumption.ANSWER_PERIOD, period_ms=order.period_ms),
        ]
    if _rests_on_shuffle(found):
        found += [
            state(Assumption.GENUINE_ROSTER, dishonest=terms.manifest.dishonest),
            state(Assumption.HONEST_ACCOUNTANT),
        ]
    if terms.privacy_limit is not None and terms.privacy_limit.fixed_terms:
        found.append(state(Assumption.FIXED_TERMS))
    return found


def entries_of(
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
    profiles: dict[float, Profile] = {}
    entries = []
    for budget in budgets.tiers:
        tier = certificate.tier_of(budget.local_epsilon)
        group = tier.local_epsilon
        if group not in profiles:
            profiles[group] = ()
            pure = with_profiles and not randomizer.spends_local_delta
            if pure and tier.privacy_profile is not None and 0 < tier.epsilon < tier.local_epsilon:
                profiles[group] = profile_of(tier.privacy_profile, tier.epsilon, tier.local_epsilon)
        profile = profiles[group]
        if with_profiles:
            local = randomizer.local_profile(budget.local_epsilon, budget.local_delta, PROFILE_POINTS)
            profile = local or profile
        count = budget.count - (certificate.budget_privacy is not None)  # without the victim that was added
        of_tier = budget.local_epsilon, budget.local_delta, count, tier.epsilon, tier.delta
        series = "" if certificate.series is None else certificate.series.name
        entries.append(Entry(*of_tier, profile, series))
    return entries


def _fill(message: pb.Certificate, certificate: Certificate, budgets: Budgets) -> None:
    found, added = certificate.to_message(), certificate.budget_privacy is not None
    found.num_users = message.num_users or found.num_users  # of whom some are not counted
    del found.tiers[:]
    # Estimates need every budget with its count; a certificate of very many budgets answers them in groups.
    for tier in budgets.tiers:
        group = certificate.tier_of(tier.local_epsilon)
        found.tiers.add(
            local_epsilon=tier.local_epsilon,
            local_delta=tier.local_delta,
            count=tier.count - added,  # without the victim
            epsilon=group.epsilon,
            delta=group.delta,
            up_to=bool(message.merged_below),  # else every budget of the grid has its own
        )
    message.MergeFrom(found)
