"""The guarantee of a round's budgets in its certificate, and the round's cost for each tier.

The bounds are those of `accountant.certify`. This file applies the manifest's policy, and allows for lost messages
(docs/accounting.md, 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from croupier.accountant.bounds.blanket import shown_alone
from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.guarantees import Grade, Guarantee
from croupier.accountant.hop_fakes import Fakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.numerics.decimals import difference
from croupier.accountant.recorded_profile import Profile
from croupier.accountant.release import SettledConditions, conditions_of_round
from croupier.accountant.rounds.round_entries import entries_of, keeps_profiles
from croupier.accountant.spending import Entry
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.statements import SCHEMA, Statement, messages_of
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.tier_counts import EXACT
from croupier.protocol.v1 import messages_pb2 as pb

Certify = Callable[..., Certificate]
"""`certify` with the terms of a round."""
SEARCHES_DIFFER = 1 + 1e-6
"""The factor of a forecast on the blanket bound: the searches of two bounds at one delta have differed by 2e-9."""
SHARPER_SECONDS = 10.0
"""A time limit, because a round waits for its certificate; tiers that are not finished then keep the blanket bound."""


def fakes_of_round(terms: QuestionTerms) -> Fakes:
    """Returns the fakes that hops add to the reports of a round."""
    return SettledConditions.of(conditions_of_round(terms)).fakes(randomizer_of(terms.question.mechanism))


def certify_into(
    message: pb.Certificate, terms: QuestionTerms, budgets: Sequence[tuple[float, int]], *, as_forecast: bool = False
) -> list[Entry]:
    """Writes the guarantee for (local epsilon, users) into a certificate, and every reason to refuse it.

    as_forecast: by the blanket bound alone, without an attack; see `forecast`.

    budgets: exact, without those that nobody uses; or, with budget privacy, the noised counts.

    The reasons depend on the budgets: see `refuse`. Returns the round's cost for each tier, in the ledger's form.
    """
    conditions = conditions_of_round(terms, message.dishonest, "blanket" if as_forecast else "all")
    randomizer, rounds = randomizer_of(terms.question.mechanism), terms.permanent or 1
    certified = partial(certify, randomizer=randomizer, delta=terms.shared.delta, rounds=rounds, **conditions)
    message.schema, message.randomizer = SCHEMA, randomizer.name
    budgets = terms.counted_by.certified(budgets, terms.budget_grid)
    multiset = Budgets.from_tiers(
        [(epsilon, count, terms.question.mechanism.budget_delta) for epsilon, count in budgets]
    )
    certificate = certified(multiset, seconds=SHARPER_SECONDS, attack=not as_forecast)
    _fill(message, certificate, multiset)
    entries = entries_of(multiset, randomizer, certificate, with_profiles=keeps_profiles(terms))
    assumptions = certificate.assumptions
    if message.unknown_budgets and terms.counted_by.victims:  # a victim of any budget is certified, and helps nobody
        message.unknown_budget_epsilon = message.epsilon
    elif message.unknown_budgets:
        entries, more = _unknown_budgets_into(message, terms, multiset, randomizer, entries, certified)
        assumptions = tuple(dict.fromkeys([*assumptions, *more]))  # with hop noise each may rest on another bound
    hop = _one_honest_hop_into(message, terms, assumptions, certified)
    central_delta = max([certificate.delta, *(entry.delta for entry in entries)])
    # The largest of the offered budgets, not of those that arrived, which a shuffler can forge.
    message.everyone_else_colludes_epsilon = terms.budget_grid[-1]
    del message.assumptions[:]
    message.assumptions.extend(messages_of(_assumptions(terms, message, assumptions)))
    if certificate.grade is not Grade.CERTIFIED:
        _add_refusal(message, Statement.of(RefusalReason.NOT_CERTIFIED, grade=str(certificate.grade)))
    if not central_delta <= terms.shared.delta:
        _add_refusal(
            message, Statement.of(RefusalReason.DELTA_ABOVE_LIMIT, delta=central_delta, most=terms.shared.delta)
        )
    if as_forecast:
        _raise_slightly(message, terms.budget_grid[-1])
    limits = [terms.epsilon_max_of.get(tier.local_epsilon, terms.shared.epsilon_max) for tier in message.tiers]
    reached = [(tier.local_epsilon, tier.epsilon, limit) for tier, limit in zip(message.tiers, limits, strict=True)]
    if message.unknown_budgets:  # each may be any budget
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
        parameters = {"epsilon": epsilon, "most": limit, "excess": difference(epsilon, limit)}
        if len(set(terms.epsilon_max_of.values())) > 1:
            _add_refusal(
                message, Statement.of(RefusalReason.BUDGET_ABOVE_LIMIT, local_epsilon=local_epsilon, **parameters)
            )
        else:
            _add_refusal(message, Statement.of(RefusalReason.EPSILON_ABOVE_LIMIT, **parameters))
    return entries


def _one_honest_hop_into(
    message: pb.Certificate,
    terms: QuestionTerms,
    assumptions: Sequence[Statement[Assumption]],
    certified: Certify,
) -> Guarantee | None:
    """Writes the guarantee of one honest hop for any client of the round, with any budget of the grid.

    Returns it if the certificate uses nothing else: then the certificate's own epsilon has to hold for these clients,
    too, because a dishonest accountant can omit a budget. If reports are kept for several waves and no hop adds noise,
    that is the largest local budget.
    """
    if terms.fakes is None:
        if terms.permanent is not None:
            message.epsilon = max(message.epsilon, terms.budget_grid[-1])
        return None
    largest = Budgets.from_tiers([(terms.budget_grid[-1], 1, 0.0)])
    alone = certified(largest, attack=False, counted_by=EXACT)
    message.one_honest_hop.CopyFrom(alone.to_message().one_honest_hop)
    if _rests_on_shuffle(assumptions):
        return None
    message.epsilon = max(message.epsilon, message.one_honest_hop.epsilon)
    return alone.one_honest_hop


def _rests_on_shuffle(assumptions: Sequence[Statement[Assumption]]) -> bool:
    """Says whether a certificate uses a bound of the shuffle, which holds only in a genuine crowd."""
    codes = {assumption.code for assumption in assumptions}
    return Assumption.UNIFORM_ORDER in codes or not codes & {Assumption.ONE_HONEST_HOP, Assumption.SAME_REPORT}


def _raise_slightly(message: pb.Certificate, largest: float) -> None:
    """Raises a forecast by the largest difference between searches for an epsilon; a local budget needs no search."""
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
    terms: QuestionTerms,
    known: Budgets,
    randomizer: Randomizer,
    entries: Sequence[Entry],
    certified: Certify,
) -> tuple[list[Entry], tuple[Statement[Assumption], ...]]:
    """Writes the guarantee for clients with unknown budgets into a certificate.

    Returns the round's cost for everybody, and the assumptions of that guarantee.

    Such a client may have any budget of the grid, and has all known budgets around it. If a report with a smaller
    budget is one with a larger budget or else random, the largest budget is the worst (docs/accounting.md, 7); with
    other randomizers a client's guarantee is at worst its local budget, if no known client uses it.
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
        certificate = certified(around, seconds=SHARPER_SECONDS)
        (*_, extra) = entries_of(around, randomizer, certificate, with_profiles=keeps_profiles(terms))
        assumptions = certificate.assumptions
        others, largest = list(entries), replace(extra, count=message.unknown_budgets)
        message.numerical_slack = max(message.numerical_slack, certificate.numerical_slack)
        message.unknown_budget_witness.CopyFrom(certificate.to_message().tiers[-1].witness)
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
    """Returns the larger of a profile and that of any report with this local budget alone, at the same epsilons.

    The profile of a client with either is convex in e^epsilon, so it is below the chords between these points, too.
    """
    return tuple((epsilon, max(delta, shown_alone(local_epsilon, epsilon))) for epsilon, delta in profile)


def _assumptions(
    terms: QuestionTerms, message: pb.Certificate, of_batch: Sequence[Statement[Assumption]]
) -> list[Statement[Assumption]]:
    """Returns the assumptions of a batch's certificate, with those of the round."""
    assumptions = list(of_batch)
    order, uniform = terms.question.sequential, Statement.of(Assumption.UNIFORM_ORDER)
    if order is not None and uniform in assumptions:
        assumptions.remove(uniform)
        clients = message.num_reports
        answered = Statement.of(
            Assumption.CLIENTS_WILL_ANSWER, least=min(clients, terms.shared.min_batch_size), clients=clients
        )
        if message.HasField("num_answers"):
            answered = Statement.of(Assumption.CLIENTS_ANSWERED, answered=message.num_answers, clients=clients)
        assumptions += [
            Statement.of(Assumption.HONEST_FIRST_SHUFFLER),
            answered,
            Statement.of(Assumption.INDEPENDENT_ABSENCE),
            Statement.of(Assumption.UNWATCHED),
            Statement.of(Assumption.ANSWER_PERIOD, period_ms=order.period_ms),
        ]
    if _rests_on_shuffle(assumptions):
        assumptions += [
            Statement.of(Assumption.GENUINE_ROSTER, dishonest=terms.shared.dishonest),
            Statement.of(Assumption.HONEST_ACCOUNTANT),
        ]
    if terms.survey.privacy_limit is not None and terms.survey.privacy_limit.fixed_terms:
        assumptions.append(Statement.of(Assumption.FIXED_TERMS))
    return assumptions


def _fill(message: pb.Certificate, certificate: Certificate, budgets: Budgets) -> None:
    stated, victims = certificate.to_message(), certificate.counted_by.victims
    stated.num_users = message.num_users or stated.num_users  # of whom some are not counted
    del stated.tiers[:]
    # Estimates need every budget with its count; a certificate of very many budgets groups them.
    for tier in budgets.tiers:
        group = certificate.tier_of(tier.local_epsilon)
        stated.tiers.add(
            local_epsilon=tier.local_epsilon,
            local_delta=tier.local_delta,
            count=tier.count - victims,
            epsilon=group.epsilon,
            delta=group.delta,
            witness=None if group.witness is None else group.witness.to_message(),
        )
    message.MergeFrom(stated)
