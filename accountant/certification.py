"""`certify`: from a multiset of local budgets to a certificate for the shuffled release.

Asks the randomizer for the curve of every group of victims, inverts it where a delta is given, takes the local budget
wherever that is smaller, and puts the assumptions beside the number. Which victims are answered together is left to
`victims`, the mathematics of a curve to the randomizers, published figures to `published`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from accountant.bounds.density_blanket import SpanProfile
from accountant.bounds.exact_binary import ExactBinaryProfile
from accountant.bounds.exchange_core import ExchangeCoreProfile
from accountant.bounds.exchange_laplace import ExchangeLaplaceProfile, ExchangeSpanProfile
from accountant.bounds.exchange_lattice import ExchangeLatticeProfile
from accountant.bounds.least import LeastProfile
from accountant.bounds.profile import Inverse, NoAmplification, PrivacyProfile, Victim, smallest_epsilon
from accountant.bounds.split_search import SplitSearchProfile
from accountant.budgets import AnyBudgets, Budgets, as_budgets
from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.registry import as_randomizer
from accountant.ranges import (
    DEFAULT_DELTA,
    check_count,
    check_epsilon,
    check_linkage,
    check_target_delta,
    is_number,
    outside,
)
from accountant.results import (
    Certificate,
    Comparison,
    Grade,
    Guarantee,
    LowerBound,
    TierCertificate,
    round_up,
)
from accountant.victims import Group, groups_of_victims

MAX_COMPOSED_TIERS = 8
"""With more budgets the exchange bound gives the number of one round only, and the blanket's curve is composed."""
EXCHANGE_TOLERANCE, SLOW_TOLERANCE, CORE_TOLERANCE, BLANKET_TOLERANCE = 1e-4, 1e-3, 5e-4, 1e-6
"""Relative width at which the search for epsilon on these bounds stops: the first is that loose by itself, the second
is for noise with many budgets, the third where every point takes a second."""
LOWEST = 0.8
"""Of many budgets, the epsilon of a group is not looked for below this part of another group's."""
BOUNDS = ("all", "blanket")
"""Which bounds the certificate is the least of; the local budget is always one of them."""
MAX_COMPOSED_ROUNDS = 1_000_000
"""More rounds are only added up: their loss distribution would take gigabytes."""
UNIFORM_ORDER = (
    "at least one shuffler keeps its order secret: the order of the reports is uniformly random to the observer"
)


@dataclass(frozen=True)
class _Answer:
    tier: TierCertificate
    alone: float
    """What was asked for, epsilon or delta, in one round."""
    slack: float
    method: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class _Reached:
    """(epsilon, delta) of one round for one victim, and how."""

    epsilon: float
    delta: float
    slack: float
    method: str
    steps: tuple[str, ...]


LOCAL = "local budget"
NOISE = (ExchangeLaplaceProfile, ExchangeCoreProfile, ExchangeLatticeProfile)
"""Curves with a quicker one for many points."""
WorstCase = ExactBinaryProfile | SplitSearchProfile
"""Curves with a search of their own, and slow to evaluate."""


@dataclass(frozen=True, eq=False)
class _Choice:
    """Which bounds to try, and until when."""

    blanket_only: bool = False
    deadline: float = math.inf
    """By time.monotonic()."""


def certify(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    dishonest: int = 0,
    linkage: str = "separate",
    rounds: int = 1,
    attack: bool = True,
    compare_all: bool = False,
    thorough: bool = False,
    bounds: str = "all",
    adaptive_order: bool = False,
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
        attack: put the strongest quick attack beside the certificate, and refute published figures below it.
        compare_all: put every published bound beside the certificate, and not only the one that has personal budgets.
        thorough: spend seconds on the worst case of bits, where there are at most four different budgets.
        rounds: how many such releases one client may take part in, each a batch of its own.
        bounds: "all" (the least of the local budget, the blanket bound, the exchange bound and, where it can be
            enumerated, the exact worst case) or "blanket" (the local budget and the blanket bound).
        adaptive_order: the clients answer one after the other in a secret uniform order, and what a client is asked may
            depend on the answers before it. Only the blanket bound holds then, and only for bits and half spheres.
        seconds: after so many no slower bound is begun; tiers that are left keep the blanket's. None: no limit.
        progress: called with the number of tiers that are done, and of all.

    Neighbouring relation: replace-one. Direction of error: epsilon (or delta) is never below the exact one, and never
    above what the local budget alone gives. Source: docs/accounting.md, section 2, personalised common blanket.
    Several rounds are composed by privacy loss distributions or by basic composition, whichever gives less.

    Raises ValueError for anything outside these ranges, naming the value and the range.
    """
    budgets = as_budgets(budgets)
    randomizer = as_randomizer(randomizer)
    _check_local_deltas(budgets, randomizer)
    _check(delta, epsilon, dishonest, linkage, rounds)
    if seconds is not None and not (is_number(seconds) and seconds >= 0):
        raise outside("seconds", seconds, "a finite number >= 0, or None")
    if bounds not in BOUNDS:
        raise outside("bounds", bounds, f"one of {', '.join(BOUNDS)}")
    check_order(randomizer, adaptive_order)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    choice = _Choice(adaptive_order or bounds == "blanket", deadline)
    groups = groups_of_victims(
        budgets, randomizer, dishonest, linkage, thorough=thorough, blanket_only=choice.blanket_only
    )
    answers: list[_Answer] = []
    for group in reversed(groups):  # the largest budgets first: they nearly always decide
        enough = max((answer.alone for answer in answers), default=0.0)
        answer = _answer(group, randomizer, delta, epsilon, rounds, choice, enough)
        if delta is None and rounds > 1:  # again, with bounds made for about the delta that all rounds come to
            again = _answer(group, randomizer, delta, epsilon, rounds, choice, enough, answer.tier.delta / rounds)
            answer = min(answer, again, key=lambda one: one.tier.delta)
        answers.append(answer)
        if progress is not None:
            progress(len(answers), len(groups))
    answers.sort(key=lambda answer: (answer.tier.local_epsilon, answer.tier.local_delta))
    worst = max(answers, key=lambda answer: (answer.tier.epsilon, answer.tier.delta))
    local = _local(budgets, randomizer, rounds)
    assumptions = _assumptions(randomizer, dishonest, linkage, rounds, budgets, adaptive_order)
    reached = max(answer.tier.delta for answer in answers)
    # At the delta that is certified, which may be a local one and larger than what was asked for.
    at = None if delta is None else reached
    lower = _lower_bound(budgets, randomizer, at, epsilon, dishonest, linkage, rounds) if attack else None
    return Certificate(
        epsilon=worst.tier.epsilon,
        delta=reached,
        grade=Grade.CERTIFIED,
        method=_of_unit(worst.method, randomizer),
        assumptions=assumptions,
        num_users=budgets.num_users,
        dishonest=dishonest,
        numerical_slack=max(answer.slack for answer in answers),
        tiers=tuple(answer.tier for answer in answers),
        everyone_else_colludes=local,
        comparison=()
        if rounds > 1
        else tuple(
            _in_this_deployment(row, dishonest, linkage)
            for row in _comparison(budgets, randomizer, reached, at, lower, compare_all)
        ),
        lower_bound=lower,
        randomizer=randomizer.name,
        linkage=linkage,
        rounds=rounds,
        steps=tuple(f"tier {round_up(a.tier.local_epsilon)}: {step}" for a in answers for step in a.steps),
    )


def tier_profiles(
    budgets: Budgets, randomizer: Randomizer, delta: float, dishonest: int = 0, *, adaptive_order: bool
) -> list[tuple[Victim, PrivacyProfile | None]]:
    """The curve behind every tier's certificate at this delta; None where there is none, or only for a span of tiers.

    Arguments as for `certify`, with separate linkage.
    """
    check_order(randomizer, adaptive_order)
    choice = _Choice(blanket_only=adaptive_order)
    found: list[tuple[Victim, PrivacyProfile | None]] = []
    for group in groups_of_victims(budgets, randomizer, dishonest, blanket_only=choice.blanket_only):
        curve = randomizer.profile(group.victim, group.others, delta) if group.others.honest else None
        if curve is None or isinstance(curve, NoAmplification | SpanProfile):
            found.append((group.victim, None))
            continue
        few = group.others.count.size <= MAX_COMPOSED_TIERS or isinstance(curve, WorstCase)
        exchange = _other_bound(curve, group, randomizer, delta, choice) if few else NoAmplification("not composed")
        found.append((group.victim, _to_compose(curve, exchange, group, delta)))
    return found


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


def _check(delta: float | None, epsilon: float | None, dishonest: int, linkage: str, rounds: int) -> None:
    if delta is None and epsilon is None:
        raise ValueError(f"neither delta nor epsilon is given; give exactly one, such as delta {DEFAULT_DELTA:.0e}")
    if delta is not None and epsilon is not None:
        raise ValueError(f"delta is {delta!r} and epsilon is {epsilon!r}; give exactly one")
    if delta is not None:
        check_target_delta(delta)
    if epsilon is not None:
        check_epsilon(epsilon)
    check_count(dishonest, "dishonest")
    check_count(rounds, "rounds", 1)
    check_linkage(linkage)


def _answer(
    group: Group,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    choice: _Choice,
    enough: float,
    about: float | None = None,
) -> _Answer:
    """What a group is certified: epsilon at delta, or delta at epsilon, for which the delta of a round is `about`.

    enough: what another group has in one round; where budgets are many, no slow bound is tried for less.
    """
    victim = replace(group.victim, local_epsilon=randomizer.shown(group.victim.local_epsilon))
    per_round = None if delta is None else _share(delta, rounds)
    at = _share(epsilon or 0.0, rounds)
    curve: PrivacyProfile | NoAmplification
    if group.others.honest == 0 and (delta is not None or group.others.count.size == 0):
        curve = NoAmplification("no other honest client: the local budget is certified")
    else:
        late = time.monotonic() > choice.deadline
        curve = randomizer.profile(
            group.victim,
            replace(group.others, blanket_only=True) if late else group.others,
            per_round if about is None else _target(about),
        )
    spends = randomizer.spends_local_delta
    started = time.perf_counter()
    if per_round is not None:
        found = _epsilon_at(curve, victim, per_round, spends)
    else:
        found = _delta_at(curve, victim, at, spends)
    if not isinstance(curve, NoAmplification):
        line = _said("worst case" if isinstance(curve, WorstCase) else "blanket", found, delta, started)
        started = time.perf_counter()
        target = per_round or _target(about or found.delta)
        name = "blanket" if isinstance(curve, WorstCase) else "exchange"
        beside: PrivacyProfile | NoAmplification = NoAmplification("nothing to gain")
        # Bits have closed forms; with many budgets of noise every evaluation of the exchange bound takes long.
        slow = not randomizer.clones_are_fair_bits and group.others.count.size > MAX_COMPOSED_TIERS
        enough = enough if slow else 0.0
        if (found.delta if per_round is None else found.epsilon) > enough:
            beside = _other_bound(curve, group, randomizer, target, choice)
        blanket = beside
        if isinstance(beside, NoAmplification):
            line = f"{line}; {name}: {beside.reason}"
        else:
            tolerance = BLANKET_TOLERANCE if name == "blanket" else SLOW_TOLERANCE if slow else EXCHANGE_TOLERANCE
            if isinstance(beside, ExchangeCoreProfile):
                tolerance = CORE_TOLERANCE
            floor = LOWEST * enough
            sharper = _sharper(beside, found, delta=per_round, epsilon=at, tolerance=tolerance, floor=floor)
            if sharper is None:
                line, beside = f"{line}; {name}: no less", NoAmplification("no less")
            else:
                line = f"{line}; {_said(name, sharper, delta, started)}"
                found = replace(sharper, steps=(*found.steps, *sharper.steps))
        if not isinstance(curve, SpanProfile):
            # The blanket, which is quick, is kept beside a worst case that is less here: between points it may not be.
            curve = _to_compose(curve, blanket if isinstance(curve, WorstCase) else beside, group, target)
        found = replace(found, steps=(*found.steps, line))
    alone = found.delta if per_round is None else found.epsilon
    found = _basic(found, rounds)
    found = replace(found, epsilon=max(found.epsilon, epsilon or 0.0), delta=max(found.delta, delta or 0.0))
    if rounds > 1 and not isinstance(curve, NoAmplification | SpanProfile):
        other = _composed(curve, victim, delta, epsilon, rounds, found)
        found = min(found, other, key=lambda reached: reached.delta if delta is None else reached.epsilon)
    tier = TierCertificate(
        local_epsilon=group.victim.local_epsilon,
        local_delta=victim.local_delta,
        count=group.count,
        epsilon=found.epsilon,
        delta=found.delta,
        grouped=group.several,
        privacy_profile=None if isinstance(curve, NoAmplification | SpanProfile) else curve,
    )
    return _Answer(tier, alone, found.slack, found.method, found.steps)


def _other_bound(
    curve: PrivacyProfile, group: Group, randomizer: Randomizer, delta: float | None, choice: _Choice
) -> PrivacyProfile | NoAmplification:
    """The exchange bound beside the blanket's, and the blanket's beside a worst case, which tiny budgets round away."""
    if choice.blanket_only:
        return NoAmplification("not asked for")
    if isinstance(curve, WorstCase):
        return randomizer.profile(group.victim, replace(group.others, blanket_only=True), delta)
    if time.monotonic() > choice.deadline:
        return NoAmplification("the time is over")
    return randomizer.exchange_profile(group.victim, group.others, delta)


def _sharper(
    curve: PrivacyProfile, found: _Reached, *, delta: float | None, epsilon: float, tolerance: float, floor: float
) -> _Reached | None:
    """What the curve gives in one round where that is less than what has been found, else None.

    floor: below it no epsilon is looked for where that takes long.
    """
    if delta is None:
        bound = curve.delta(epsilon)
        if bound.value >= found.delta:
            return None
        return replace(found, delta=bound.value, slack=bound.slack, method=curve.method, steps=curve.explain())
    if isinstance(curve, ExchangeCoreProfile):
        inverse = curve.smallest_epsilon(delta, found.epsilon, tolerance)
    elif isinstance(curve, ExchangeSpanProfile | ExchangeLatticeProfile):
        inverse = curve.smallest_epsilon(delta, found.epsilon, tolerance, floor)
    else:
        inverse = smallest_epsilon(curve, delta, found.epsilon, tolerance)
    if inverse.reached is None or inverse.epsilon >= found.epsilon:
        return None
    return _Reached(inverse.epsilon, delta, inverse.reached.slack, curve.method, curve.explain())


def _target(delta: float) -> float:
    """A delta that bounds can be made for."""
    return min(max(delta, 1e-250), 0.5)


def _to_compose(
    curve: PrivacyProfile, other: PrivacyProfile | NoAmplification, group: Group, delta: float
) -> PrivacyProfile:
    """The curve of a round, to compose and to record: the least of all where that takes no more than seconds."""
    most = group.victim.local_epsilon
    if isinstance(curve, WorstCase):
        return LeastProfile(curve, delta, most, None if isinstance(other, NoAmplification) else other)
    if isinstance(other, NoAmplification) or group.others.count.size > MAX_COMPOSED_TIERS:
        return curve
    return LeastProfile(other.plain if isinstance(other, NOISE) else other, delta, most, curve)


def _said(name: str, found: _Reached, delta: float | None, started: float) -> str:
    number = f"epsilon {round_up(found.epsilon)}" if delta is not None else f"delta {round_up(found.delta)}"
    return f"{name}: {number} ({found.method}) in {time.perf_counter() - started:.3f} s"


def _basic(one: _Reached, rounds: int) -> _Reached:
    """Basic composition: the epsilons and the deltas add."""
    if rounds == 1:
        return one
    return replace(
        one,
        epsilon=_times(one.epsilon, rounds),
        delta=min(1.0, _times(one.delta, rounds)),
        slack=min(1.0, one.slack * rounds),
        method=f"{one.method}; basic composition over {rounds} rounds",
    )


def _share(total: float, rounds: int) -> float:
    """The part of one round, rounded down: all rounds together have no more than the total."""
    part = total / rounds
    return part if Fraction(part) * rounds <= Fraction(total) else math.nextafter(part, 0.0)


def _times(value: float, rounds: int) -> float:
    """The product, rounded up."""
    product = value * rounds
    return product if Fraction(product) >= Fraction(value) * rounds else math.nextafter(product, math.inf)


def _composed(
    curve: PrivacyProfile, victim: Victim, delta: float | None, epsilon: float | None, rounds: int, basic: _Reached
) -> _Reached:
    """Composition of privacy loss distributions, or `basic` where it is of no use."""
    from accountant.composition import LEAST_DELTA, ComposedProfile, Round

    target = basic.delta if delta is None else delta
    if rounds > MAX_COMPOSED_ROUNDS:
        return replace(basic, steps=(*basic.steps, f"more than {MAX_COMPOSED_ROUNDS:,} rounds: basic composition only"))
    if not LEAST_DELTA <= target < 1:
        return replace(basic, steps=(*basic.steps, f"delta below {LEAST_DELTA:g}: basic composition only"))
    together = ComposedProfile([Round(curve, victim.local_epsilon, rounds)], target)
    if delta is None:
        bound = together.delta(epsilon or 0.0)
        while target > LEAST_DELTA and bound.value < target / 10:  # far below what the tails were cut for
            target = max(LEAST_DELTA, bound.value / 2)
            together = ComposedProfile([Round(curve, victim.local_epsilon, rounds)], target)
            bound = together.delta(epsilon or 0.0)
        return _Reached(epsilon or 0.0, bound.value, bound.slack, together.method, together.explain())
    inverse = smallest_epsilon(together, delta, basic.epsilon)
    if inverse.reached is None:
        return basic
    reached = round_up(inverse.reached.value, 9)
    line = f"epsilon {round_up(inverse.epsilon, 9)} reaches delta {reached} over {rounds} rounds"
    return _Reached(inverse.epsilon, delta, inverse.reached.slack, together.method, (*together.explain(), line))


def _epsilon_at(curve: PrivacyProfile | NoAmplification, victim: Victim, delta: float, spends: bool) -> _Reached:
    # Without amplification a victim has its local budget, whose delta may be more than what was asked for.
    local_delta = max(delta, victim.local_delta) if spends else delta
    if isinstance(curve, NoAmplification):
        return _Reached(victim.local_epsilon, local_delta, 0.0, LOCAL, curve.explain())
    inverse = _search(curve, delta, victim)
    if inverse.reached is None:
        steps = (*curve.explain(), "no amplification: the local budget")
        return _Reached(victim.local_epsilon, local_delta, 0.0, LOCAL, steps)
    line = (
        f"epsilon {round_up(inverse.epsilon, 9)} reaches delta {round_up(inverse.reached.value, 9)}, "
        f"of which {round_up(inverse.reached.slack, 3)} is slack, after {inverse.evaluations} evaluations"
    )
    return _Reached(inverse.epsilon, delta, inverse.reached.slack, curve.method, (*curve.explain(), line))


def _search(curve: PrivacyProfile, delta: float, victim: Victim) -> Inverse:
    if isinstance(curve, WorstCase):
        return curve.smallest_epsilon(delta)
    if isinstance(curve, SpanProfile):
        return curve.smallest_epsilon(delta, victim.local_epsilon)
    return smallest_epsilon(curve, delta, victim.local_epsilon)


def _delta_at(curve: PrivacyProfile | NoAmplification, victim: Victim, epsilon: float, spends: bool) -> _Reached:
    # All that is known without amplification: the hockey-stick of the local budget itself.
    local = victim.local_delta if spends else 0.0
    if epsilon < victim.local_epsilon:
        local = min(1.0, (local + (1 - local) * _pure_delta(victim.local_epsilon, epsilon)) * (1 + 1e-15))
    steps = curve.explain()
    if not isinstance(curve, NoAmplification) and epsilon < victim.local_epsilon:
        bound = curve.delta(epsilon)
        if bound.value < local:
            return _Reached(epsilon, bound.value, bound.slack, curve.method, steps)
    return _Reached(epsilon, min(1.0, local), 0.0, LOCAL, (*steps, "no amplification: the local budget"))


def _pure_delta(local_epsilon: float, epsilon: float) -> float:
    """The largest H_{e^epsilon} of any local_epsilon-DP pair: (e^v - e^epsilon)/(e^v + 1), attained by RR."""
    decay = np.exp(-local_epsilon)
    return float(-np.expm1(epsilon - local_epsilon) / (1 + decay)) * (1 + 1e-14)


def _local(budgets: Budgets, randomizer: Randomizer, rounds: int) -> Guarantee:
    return Guarantee(
        epsilon=_times(randomizer.shown(float(budgets.local_epsilon[-1])), rounds),
        delta=min(1.0, _times(float(budgets.local_delta.max()), rounds)) if randomizer.spends_local_delta else 0.0,
        grade=Grade.CERTIFIED,
        method=_of_unit(LOCAL if rounds == 1 else f"{LOCAL}, basic composition", randomizer),
        assumptions=("every party but the client itself may be dishonest",),
    )


def _of_unit(method: str, randomizer: Randomizer) -> str:
    """The method, and whose data it is about where that is less than a user's."""
    return method if randomizer.unit == "user" else f"{method} of one {randomizer.unit}, not of a user"


def _assumptions(
    randomizer: Randomizer, dishonest: int, linkage: str, rounds: int, budgets: Budgets, adaptive_order: bool
) -> tuple[str, ...]:
    together = f"every round has fresh randomness, and one client takes part in at most {rounds}"
    if randomizer.local_assumptions:
        return (*randomizer.local_assumptions, *((together,) if rounds > 1 else ()))
    lines = [
        "neighbouring data sets differ in the value of one user (replace-one)",
        randomizer.statement,
        UNIFORM_ORDER,
        f"at most {dishonest} of the other clients are dishonest, lie about their budget or collude",
        "the multiset of local budgets is public and does not depend on the data",
    ]
    if adaptive_order:
        lines.append("clients answer in a secret uniform order; what they are asked may depend on earlier answers")
    else:
        lines.append("no report depends on the report of another user")
    if linkage == "separate":
        lines.append("nothing links a report to the budget it was made with")
    else:
        lines.append("a report shows its tier: only the victim's own tier hides it")
    if rounds > 1:
        lines.append(
            f"every round is a fresh shuffle of fresh randomness, and one client takes part in at most {rounds}"
        )
    if bool((budgets.local_delta > 0).any()) and not randomizer.spends_local_delta:
        lines.append("the declared local deltas are not spent: this randomizer is pure")
    return tuple(lines)


def _lower_bound(
    budgets: Budgets,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    dishonest: int,
    linkage: str,
    rounds: int,
) -> LowerBound | None:
    from accountant.attacks.lower_bound import is_attackable, lower_bound

    if not is_attackable(randomizer) or (delta is not None and delta >= 1):
        return None
    found = lower_bound(budgets, randomizer, delta=delta, epsilon=epsilon, dishonest=dishonest, linkage=linkage)
    return found if rounds == 1 else replace(found, attack=f"in one of {rounds} rounds: {found.attack}")


def _comparison(
    budgets: Budgets,
    randomizer: Randomizer,
    reached: float,
    delta: float | None,
    lower: LowerBound | None,
    everything: bool,
) -> tuple[Comparison, ...]:
    """The published bounds, which are about one round; what an attack at the same delta exceeds is refuted."""
    from accountant.published import compare

    if not 0 < reached < 1:
        return ()
    attack = lower.epsilon if lower is not None and delta == reached else None
    return compare(budgets, randomizer, reached, attack=attack, only=None if everything else ("GSPA Thm 2",))


def _in_this_deployment(row: Comparison, dishonest: int, linkage: str) -> Comparison:
    """A published theorem is none where its assumptions fail: all users honest, no report linked to its budget."""
    if row.grade is not Grade.CERTIFIED or (dishonest == 0 and linkage == "separate"):
        return row
    missing = "a report shows its tier" if linkage == "stratified" else f"{dishonest} of the others may be dishonest"
    return replace(row, grade=Grade.HEURISTIC, note=f"{row.note}; it does not allow for this: {missing}")
