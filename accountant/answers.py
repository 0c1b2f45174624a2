"""What one group of victims is certified: (epsilon, delta) over all rounds, and the curve behind it.

Asks the randomizer for the group's curves, inverts them where a delta is given, takes the local budget wherever that is
smaller, and composes rounds. The groups, and the certificate of all of them, are left to `certification`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from accountant.bounds.density_blanket import SpanProfile
from accountant.bounds.exact_binary import ExactBinaryProfile
from accountant.bounds.exchange_core import ExchangeCoreProfile
from accountant.bounds.exchange_laplace import ExchangeSpanProfile
from accountant.bounds.exchange_lattice import ExchangeLatticeProfile
from accountant.bounds.least import LeastProfile
from accountant.bounds.profile import Inverse, NoAmplification, PrivacyProfile, Victim, smallest_epsilon
from accountant.mechanisms.base import Randomizer
from accountant.results import TierCertificate, round_up
from accountant.victims import Group

__all__ = [
    "LOCAL",
    "MAX_COMPOSED_ROUNDS",
    "MAX_COMPOSED_TIERS",
    "Answer",
    "Choice",
    "WorstCase",
    "answer_of",
    "other_bound",
    "times",
    "to_compose",
]

MAX_COMPOSED_TIERS = 8
"""With more budgets the exchange bound gives the number of one round only, and the blanket's curve is composed."""
EXCHANGE_TOLERANCE, SLOW_TOLERANCE, CORE_TOLERANCE, BLANKET_TOLERANCE = 1e-4, 1e-3, 5e-4, 1e-6
"""Relative width at which the search for epsilon on these bounds stops: the first is that loose by itself, the second
is for noise with many budgets, the third where every point takes a second."""
LOWEST = 0.8
"""Of many budgets, the epsilon of a group is not looked for below this part of another group's."""
MAX_COMPOSED_ROUNDS = 1_000_000
"""More rounds are only added up: their loss distribution would take gigabytes."""


@dataclass(frozen=True)
class Answer:
    """What a group has over all rounds, with the curve it was read from."""

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
NOISE = (ExchangeCoreProfile, ExchangeLatticeProfile)
"""Curves with a quicker one for many points."""
WorstCase = ExactBinaryProfile
"""Curves with a search of their own, and slow to evaluate."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Which bounds to try, and until when."""

    blanket_only: bool = False
    deadline: float = math.inf
    """By time.monotonic()."""
    composed_only: bool = False
    """Several rounds are composed, and what one of them comes to is not looked for on slow bounds: the result may be
    larger, and is only a step towards one."""


def answer_of(
    group: Group,
    randomizer: Randomizer,
    delta: float | None,
    epsilon: float | None,
    rounds: int,
    choice: Choice,
    enough: float,
    about: float | None = None,
) -> Answer:
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
            beside = other_bound(curve, group, randomizer, target, choice)
        blanket = beside
        if isinstance(beside, NoAmplification):
            line = f"{line}; {name}: {beside.reason}"
        elif not (choice.composed_only and rounds > 1):
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
            curve = to_compose(curve, blanket if isinstance(curve, WorstCase) else beside, group, target)
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
    return Answer(tier, alone, found.slack, found.method, found.steps)


def other_bound(
    curve: PrivacyProfile, group: Group, randomizer: Randomizer, delta: float | None, choice: Choice
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


def to_compose(
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
        epsilon=times(one.epsilon, rounds),
        delta=min(1.0, times(one.delta, rounds)),
        slack=min(1.0, one.slack * rounds),
        method=f"{one.method}; basic composition over {rounds} rounds",
    )


def _share(total: float, rounds: int) -> float:
    """The part of one round, rounded down: all rounds together have no more than the total."""
    part = total / rounds
    return part if Fraction(part) * rounds <= Fraction(total) else math.nextafter(part, 0.0)


def times(value: float, rounds: int) -> float:
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
