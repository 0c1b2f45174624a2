"""`certify`: from a multiset of local budgets to a certificate for the shuffled release.

Asks what every group of victims is certified, takes the worst, and puts the assumptions, an attack and published
figures beside the number. Which victims are answered together is left to `victims`, what one group is certified to
`answers`, the mathematics of a curve to the randomizers, published figures to `published`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from croupier.accountant.answers import LOCAL, Answer, BoundPolicy, answer_of, composed_curve, times
from croupier.accountant.bounds.profile import Victim
from croupier.accountant.budgets import AnyBudgets, Budgets, as_budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.hop_fakes import AnyHopNoise, HopFakes
from croupier.accountant.mechanism_choice import MeanCost, other_for_a_mean, remark, standard_error, worth_trying
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.privacy_curve import PrivacyProfile, Proof
from croupier.accountant.ranges import (
    DEFAULT_DELTA,
    Bounds,
    Linkage,
    check_bounds,
    check_count,
    check_epsilon,
    check_linkage,
    check_target_delta,
    is_number,
    outside,
)
from croupier.accountant.results import Comparison, Grade, Guarantee, LowerBound, TierCertificate
from croupier.accountant.victims import groups_of_victims
from croupier.protocol.budget_privacy import BudgetPrivacy
from croupier.protocol.codes import Assumption, Method, Note, Step
from croupier.protocol.hop_noise import KINDS_WITH_FAKES
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.statements import Statement, state


def certify(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
    linkage: Linkage = "separate",
    rounds: int | PermanentSeries = 1,
    attack: bool = True,
    compare_all: bool = False,
    bounds: Bounds = "all",
    adaptive_order: bool = False,
    hop_noise: AnyHopNoise = None,
    hops: int = 2,
    counted_by: BudgetPrivacy | None = None,
    seconds: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """A CERTIFIED central (epsilon, delta) for the shuffled multiset of reports, at the actual number of users.

    Args:
        budgets: the public multiset of local budgets: `Budgets`, a mapping from local epsilon to users, a sequence of
            (local epsilon, users) pairs, or a sequence of floats, one user each.
        randomizer: what every client runs, or its name, as `randomizer_from_name` takes it: "rr", "krr(k=5)".
        delta: the total delta over all rounds, 0 < delta < 1; the certificate then gives the least epsilon found.
        epsilon: alternatively the total epsilon, >= 0; the certificate then gives delta. Exactly one of the two.
        dishonest: how many of the other clients may collude with the observer, or lie about their budget.
        linkage: "separate" (budgets and reports are shuffled apart) or "stratified" (a report shows its tier).
        attack: put the strongest quick attack beside the certificate, and refute published figures below it; and
            remark, as the last step of the last tier, where the other one of laplace and onebit is much better for a
            mean.
        compare_all: put every published bound beside the certificate, and not only the one that has personal budgets.
        rounds: how many such releases one client may take part in, each a batch of its own. A `PermanentSeries`: people
            send the same report in all of its waves. The certificate is then about all of them together, by the local
            budget and by hop noise: no bound of the shuffle holds (docs/permanent.md).
        bounds: "all" (the least of the local budget, the blanket bound, the exchange bound and, where it can be
            enumerated, the exact worst case) or "blanket" (the local budget and the blanket bound).
        adaptive_order: the clients answer one after the other in a secret uniform order, and what a client is asked may
            depend on the answers before it. Only the blanket bound holds then, and only for bits and half spheres.
        hop_noise: the epsilon and delta of the fake reports that every hop adds in every round; None: hops add none.
            Every tier then has the least of three bounds (docs/hop-noise.md), and the certificate states beside its
            own number what one honest hop guarantees.
        hops: how many hops there are, >= 1; without hop noise it changes nothing.
        counted_by: the budget privacy of a round (docs/accounting.md, 7.2). `budgets` are then those of the users that
            were counted and of one user more for every budget of the grid: a victim, whom it need not have. None:
            `budgets` are those of all users.
        seconds: after this time no slower bound is begun, the remaining tiers keep the blanket's, and nothing is
            remarked. None: no limit.
        progress: called with the number of tiers that are done, and of all.

    Neighbouring relation: replace-one. Direction of error: epsilon (or delta) is never below the exact one, and never
    above what the local budget alone gives. Source: docs/accounting.md, section 2, personalised common blanket.
    Several rounds are composed by privacy loss distributions or by basic composition, whichever gives less.

    Raises ValueError for anything outside these ranges, naming the value and the range.
    """
    budgets = as_budgets(budgets)
    randomizer = as_randomizer(randomizer)
    _check_local_deltas(budgets, randomizer)
    _check(delta, epsilon)
    series, count = (rounds, 1) if isinstance(rounds, PermanentSeries) else (None, rounds)
    check_setting(randomizer, delta, dishonest, linkage, count, bounds, adaptive_order)
    if series is not None:
        _check_permanent(randomizer, linkage, adaptive_order)
        attack = attack and hop_noise is not None
    if seconds is not None and not (is_number(seconds) and seconds >= 0):
        raise outside("seconds", seconds, "a finite number >= 0, or None")
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    fakes = HopFakes.of(hop_noise, hops, randomizer, linkage, adaptive_order=adaptive_order)
    waves = 0 if series is None else series.waves
    policy = BoundPolicy(adaptive_order or bounds == "blanket", deadline, fakes=fakes, waves=waves)
    colluding = dishonest + (0 if fakes is None else fakes.most)  # behind its fakes a hop can hide lost reports
    if counted_by is not None:  # the victims of other tiers need not be there, nor the one that is in its tier's count
        colluding += budgets.num_tiers
    groups = groups_of_victims(budgets, randomizer, colluding, linkage)
    answers: list[Answer] = []
    for group in reversed(groups):  # the largest budgets first: they nearly always decide
        enough = max((answer.alone for answer in answers), default=0.0)
        answer = answer_of(group, randomizer, delta, epsilon, count, policy, enough)
        if delta is None and count > 1:  # again, with bounds made for about the delta that all rounds come to
            again = answer_of(group, randomizer, delta, epsilon, count, policy, enough, answer.tier.delta / count)
            answer = min(answer, again, key=lambda candidate: candidate.tier.delta)
        answers.append(answer)
        if progress is not None:
            progress(len(answers), len(groups))
    answers.sort(key=lambda answer: (answer.tier.local_epsilon, answer.tier.local_delta))
    worst = max(answers, key=lambda answer: (answer.tier.epsilon, answer.tier.delta))
    local = _local(budgets, randomizer, count)
    local_deltas = bool((budgets.local_delta > 0).any()) and not randomizer.spends_local_delta
    of_shuffle = _assumptions(randomizer, dishonest, linkage, count, local_deltas, adaptive_order, counted_by)
    of_one_hop = () if fakes is None else _assumptions_of_one_hop(fakes, count, local_deltas)
    if series is not None:
        same = state(Assumption.SAME_REPORT, waves=series.waves, series=series.name)
        alone = state(Assumption.EVERYONE_ELSE_DISHONEST)
        of_shuffle = (state(Assumption.REPLACE_ONE), randomizer.statement, alone, same)
        of_one_hop = () if fakes is None else (*of_one_hop, same, state(Assumption.FIXED_TERMS))
        local = replace(local, assumptions=(*local.assumptions, same))
    resting = {answer.rests_on_one_hop for answer in answers}
    assumptions = tuple(
        dict.fromkeys([*(of_shuffle if False in resting else ()), *(of_one_hop if True in resting else ())])
    )
    reached = max(answer.tier.delta for answer in answers)
    # At the delta that is certified, which may be a local one and larger than what was asked for.
    at = None if delta is None else reached
    lower = None
    if attack and resting == {False} and series is None:
        present = budgets if counted_by is None else _at_most(budgets, counted_by.most_uncounted)
        lower = _lower_bound(present, randomizer, at, epsilon, dishonest, linkage, count)
    elif attack and resting == {True} and fakes is not None:
        lower = _attack_on_one_hop(fakes, float(budgets.local_epsilon[-1]), at, epsilon, count)
    remarks: tuple[Statement[Step], ...] = ()
    remarked = attack and delta is not None and not adaptive_order and seconds is None and fakes is None
    other = other_for_a_mean(randomizer) if remarked else None
    if other is not None and worth_trying(budgets, randomizer, other):
        alternative = certify(
            budgets,
            other,
            delta=delta,
            dishonest=dishonest,
            linkage=linkage,
            rounds=count,
            attack=False,
            bounds=bounds,
        )
        costs = ((randomizer, worst.tier.epsilon), (other, alternative.epsilon))
        remarks = remark(*(MeanCost(mechanism, most, standard_error(budgets, mechanism)) for mechanism, most in costs))
    tiers = [answer.tier for answer in answers]
    if counted_by is not None:
        tiers = _as_counted(tiers, budgets)
    return Certificate(
        epsilon=worst.tier.epsilon,
        delta=reached,
        grade=Grade.CERTIFIED,
        method=_of_unit(worst.method, randomizer),
        assumptions=assumptions,
        num_users=sum(tier.count for tier in tiers),
        dishonest=dishonest,
        numerical_slack=max(answer.slack for answer in answers),
        tiers=(*tiers[:-1], replace(tiers[-1], steps=(*tiers[-1].steps, *remarks))),
        everyone_else_colludes=local,
        one_honest_hop=None if fakes is None else _one_honest_hop(answers, of_one_hop),
        comparison=()
        if count > 1 or series is not None
        else tuple(
            _in_this_deployment(row, colluding, linkage)
            for row in _comparison(budgets, randomizer, reached, at, lower if fakes is None else None, compare_all)
        ),
        lower_bound=lower,
        randomizer=randomizer.name,
        linkage=linkage,
        rounds=count,
        budget_privacy=counted_by,
    )


def _check_permanent(randomizer: Randomizer, linkage: Linkage, adaptive_order: bool) -> None:
    """Raises ValueError for a release of which nothing is proved where reports are drawn once for several waves."""
    if randomizer.num_report_values is None or randomizer.spends_local_delta:
        raise ValueError(
            f"rounds is a series of waves of {randomizer.name}; it must be of a randomizer or a table whose reports "
            "have one of finitely many values"
        )
    if linkage != "separate" or adaptive_order:
        raise ValueError(
            f"rounds is a series of waves, with linkage {linkage!r} and adaptive_order {adaptive_order}; it must be "
            "with 'separate' and false"
        )


def tier_profiles(
    budgets: Budgets, randomizer: Randomizer, delta: float, dishonest: int = 0, *, adaptive_order: bool
) -> list[tuple[Victim, PrivacyProfile | None]]:
    """The curve behind every tier's certificate at this delta; None where there is none, or only for a span of tiers.

    Arguments as for `certify`, with separate linkage.
    """
    check_order(randomizer, adaptive_order)
    policy = BoundPolicy(blanket_only=adaptive_order)
    return [
        (group.victim, composed_curve(group, randomizer, delta, policy))
        for group in groups_of_victims(budgets, randomizer, dishonest)
    ]


def check_order(randomizer: Randomizer, adaptive_order: bool) -> None:
    """Raises ValueError where nothing is proved of a randomizer whose clients answer one after the other."""
    if adaptive_order and not (randomizer.clones_are_fair_bits or randomizer.local_assumptions):
        raise ValueError(
            f"adaptive_order is true for {randomizer.name}; it must be false: the bound is proved for bits and half "
            "spheres only"
        )


def _check_local_deltas(budgets: Budgets, randomizer: Randomizer) -> None:
    without = np.flatnonzero(budgets.local_delta == 0)
    if randomizer.spends_local_delta and without.size:
        epsilon, count = float(budgets.local_epsilon[without[0]]), int(budgets.count[without[0]])
        raise ValueError(
            f"local_delta is 0 where local_epsilon is {epsilon:g}; {randomizer.kind} spends one, 0 < local_delta < 1: "
            f"give budgets=Budgets.from_tiers([({epsilon:g}, {count}, 1e-8)]), each (local_epsilon, users, local_delta)"
        )


def _check(delta: float | None, epsilon: float | None) -> None:
    if delta is None and epsilon is None:
        raise ValueError(f"neither delta nor epsilon is given; give exactly one, such as delta {DEFAULT_DELTA:.0e}")
    if delta is not None and epsilon is not None:
        raise ValueError(f"delta is {delta!r} and epsilon is {epsilon!r}; give exactly one")
    if epsilon is not None:
        check_epsilon(epsilon)


def check_setting(
    randomizer: Randomizer,
    delta: float | None,
    dishonest: int,
    linkage: Linkage,
    rounds: int,
    bounds: Bounds,
    adaptive_order: bool,
) -> None:
    """Raises ValueError for an argument of `certify` outside its range."""
    if delta is not None:
        check_target_delta(delta)
    check_count(dishonest, "dishonest")
    check_count(rounds, "rounds", 1)
    check_linkage(linkage)
    check_bounds(bounds)
    check_order(randomizer, adaptive_order)


def _local(budgets: Budgets, randomizer: Randomizer, rounds: int) -> Guarantee:
    return Guarantee(
        epsilon=times(randomizer.effective_epsilon(float(budgets.local_epsilon[-1])), rounds),
        delta=min(1.0, times(float(budgets.local_delta.max()), rounds)) if randomizer.spends_local_delta else 0.0,
        grade=Grade.CERTIFIED,
        method=_of_unit(LOCAL if rounds == 1 else (*LOCAL, state(Method.BASIC_COMPOSITION, rounds=rounds)), randomizer),
        assumptions=(state(Assumption.EVERYONE_ELSE_DISHONEST),),
    )


def _of_unit(method: Proof, randomizer: Randomizer) -> Proof:
    """The method, and whose data it is about where that is less than a user's."""
    return method if randomizer.unit == "user" else (*method, state(Method.ONE_RECORD))


def _one_honest_hop(answers: Sequence[Answer], assumptions: tuple[Statement[Assumption], ...]) -> Guarantee:
    """What the fakes of one honest hop guarantee to the user of every tier."""
    known = [answer.one_honest_hop for answer in answers if answer.one_honest_hop is not None]
    worst = max(known, key=lambda answer: (answer.tier.epsilon, answer.tier.delta))
    largest = max(answer.tier.delta for answer in known)
    return Guarantee(worst.tier.epsilon, largest, Grade.CERTIFIED, worst.method, assumptions)


def _assumptions_of_one_hop(fakes: HopFakes, rounds: int, local_deltas: bool) -> tuple[Statement[Assumption], ...]:
    assumptions = [state(Assumption.REPLACE_ONE), fakes.randomizer.statement, fakes.assumption]
    if rounds > 1:
        assumptions += [state(Assumption.FRESH_NOISE, rounds=rounds), state(Assumption.FIXED_TERMS)]
    if local_deltas:
        assumptions.append(state(Assumption.LOCAL_DELTAS_UNSPENT))
    return tuple(assumptions)


def _assumptions(
    randomizer: Randomizer,
    dishonest: int,
    linkage: Linkage,
    rounds: int,
    local_deltas: bool,
    adaptive_order: bool,
    counted_by: BudgetPrivacy | None,
) -> tuple[Statement[Assumption], ...]:
    fixed = state(Assumption.FIXED_TERMS)
    if randomizer.local_assumptions:
        together = (state(Assumption.FRESH_NOISE, rounds=rounds), fixed)
        return (*randomizer.local_assumptions, *(together if rounds > 1 else ()))
    assumptions = [
        state(Assumption.REPLACE_ONE),
        randomizer.statement,
        state(Assumption.UNIFORM_ORDER),
        state(Assumption.DISHONEST_CLIENTS, dishonest=dishonest),
        state(Assumption.BUDGETS_PUBLIC) if counted_by is None else _noised(counted_by),
        state(Assumption.ADAPTIVE_ORDER if adaptive_order else Assumption.INDEPENDENT_REPORTS),
        state(Assumption.BUDGETS_UNLINKED if linkage == "separate" else Assumption.BUDGETS_SHOWN),
    ]
    if rounds > 1:
        assumptions += [state(Assumption.FRESH_SHUFFLES, rounds=rounds), fixed]
    if local_deltas:
        assumptions.append(state(Assumption.LOCAL_DELTAS_UNSPENT))
    return tuple(assumptions)


def _noised(privacy: BudgetPrivacy) -> Statement[Assumption]:
    most = privacy.most_uncounted
    return state(Assumption.BUDGETS_NOISED, epsilon=privacy.epsilon, delta=privacy.delta, most=most)


def _as_counted(tiers: Sequence[TierCertificate], budgets: Budgets) -> list[TierCertificate]:
    """Returns tiers without the victim that was added to each budget; very many budgets are answered in groups."""
    answered_in = np.searchsorted([tier.local_epsilon for tier in tiers], budgets.local_epsilon)
    added = np.bincount(answered_in, minlength=len(tiers)).tolist()
    return [replace(tier, count=tier.count - more) for tier, more in zip(tiers, added, strict=True)]


def _at_most(budgets: Budgets, uncounted: int) -> Budgets:
    """Returns the most users that there can be where up to `uncounted` more of every budget are not counted.

    An attack on these holds for fewer: a report of which the observer knows the value hides others, and never helps.
    """
    return Budgets(budgets.local_epsilon, budgets.local_delta, budgets.count + uncounted)


def _lower_bound(
    budgets: Budgets,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    dishonest: int,
    linkage: Linkage,
    rounds: int,
) -> LowerBound | None:
    from croupier.accountant.attacks.lower_bound import is_attackable, lower_bound

    if not is_attackable(randomizer) or (delta is not None and delta >= 1):
        return None
    attack = lower_bound(budgets, randomizer, delta=delta, epsilon=epsilon, dishonest=dishonest, linkage=linkage)
    return attack if rounds == 1 else replace(attack, attack=f"in one of {rounds} rounds: {attack.attack}")


def _attack_on_one_hop(
    fakes: HopFakes, local_epsilon: float, delta: float | None, epsilon: float | None, rounds: int
) -> LowerBound | None:
    from croupier.accountant.attacks.hop_noise import attack_on_hop_noise

    if fakes.randomizer.kind not in KINDS_WITH_FAKES or (delta is not None and delta >= 1):
        return None
    variation = fakes.randomizer.total_variation(local_epsilon)
    attack = attack_on_hop_noise(fakes.law, variation, delta=delta, epsilon=epsilon)
    return attack if rounds == 1 else replace(attack, attack=f"in one of {rounds} rounds: {attack.attack}")


def _comparison(
    budgets: Budgets,
    randomizer: Randomizer,
    reached: float,
    delta: float | None,
    lower: LowerBound | None,
    everything: bool,
) -> tuple[Comparison, ...]:
    """The published bounds, which are about one round; what an attack at the same delta exceeds is refuted."""
    from croupier.accountant.published import compare

    if not 0 < reached < 1:
        return ()
    attack = lower.epsilon if lower is not None and delta == reached else None
    return compare(budgets, randomizer, reached, attack=attack, only=None if everything else ("GSPA Thm 2",))


def _in_this_deployment(row: Comparison, dishonest: int, linkage: Linkage) -> Comparison:
    """A published bound proves nothing where its assumptions fail: all users honest, no report linked to its budget."""
    if row.grade is not Grade.CERTIFIED or (dishonest == 0 and linkage == "separate"):
        return row
    missing = state(Note.IGNORES_SHOWN_BUDGETS)
    if linkage == "separate":
        missing = state(Note.IGNORES_DISHONEST, dishonest=dishonest)
    return replace(row, grade=Grade.HEURISTIC, notes=(*row.notes, missing))
