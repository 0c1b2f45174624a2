"""The exchange bound for a victim with Laplace noise in two groups of hosts, most of whom may have larger budgets.

What the victim shows is cut in two: a core near its values, and tails (`core_case`). Here it is chosen which hosts hide
which of them. Where nobody has a larger budget than the victim, hosts with the largest one may be told apart by which
of the victim's values they are nearer to: those near one of them hide the core, the others help with the tails, and
cases by how many they are cover all data (docs/exchange-bound.md, section 6). The shares are chosen in `core_shares`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accountant.bounds.core_case import COARSEST, LONGEST, CoreCase, Hosts, one_distance
from accountant.bounds.core_laws import Cut, Side
from accountant.bounds.core_shares import best_shares, whole
from accountant.bounds.exchange import LEAST, TUNING_DELTA
from accountant.bounds.exchange_laplace import (
    FEW_TIERS,
    MAX_LOCAL_EPSILON,
    MAX_TIERS,
    ExchangeLaplaceProfile,
)
from accountant.bounds.profile import Bounded, Inverse, Others, Victim, smallest_epsilon
from accountant.numerics.binomial import UNIT, Floats
from accountant.ranges import check_epsilon

__all__ = ["ExchangeCoreProfile", "in_core"]

CURVE_TIERS = 4
"""With more budgets of hosts every point takes too long for a curve of many."""
LEAST_TUNED = 0.1
"""Cuts are tried at the epsilon that the largest budget has, or, where that is 0, at this part of that of section 5."""
DISTANCES = (1.0, 0.87, 0.75, 0.64, 0.54, 0.45, 0.37, 0.3, 0.23, 0.17, 0.11, 0.05, 0.0)
"""Between each of them and the next one there is a cut."""
FEWER_DISTANCES = (1.0, 0.9, 0.75, 0.6, 0.42, 0.29, 0.15)
"""By which cases are compared."""
TRIED = (1.0, 0.6, 0.29, 0.15)
"""What a way is worth is told by these."""
PROMISING = 3
"""So many pairs of groups are tried, those with the smallest deviations."""
MOST_UNHEARD = 0.03
"""The chance that no clock rings, as a part of delta: cuts are chosen so that it can be that small."""
SHOWN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""What is shown of the tails where no host hides them, as a part of delta: tried."""
LEAST_TOLD = 6.0
"""How many times the smallest budget the victim's has to be for sides to be told apart: below, little is won."""
WORTH, WORTH_OF_SIDES = 0.015, 0.02
"""Where no one has a larger budget, the least part of the standard deviation that has to be won: of section 5's by two
groups, and of theirs by telling sides apart."""
PARTS, FEWER_PARTS = (0.0, 0.035, 0.09, 0.155, 0.235, 0.32, 0.41, 0.5), (0.0, 0.05, 0.13, 0.23, 0.35, 0.5)
"""What part of them lies away from the core: ends of the cases, with two budgets of hosts and with three."""
FLATTER = (1.0, 0.6, 0.35)
"""Powers of the best psi that are tried, until clocks are heard often enough."""


@dataclass(frozen=True, eq=False)
class ExchangeCoreProfile:
    """The least of the bound of section 5 and, where its steps are few enough, of that of section 6.

    See `PrivacyProfile`.
    """

    local_epsilon: float
    """The victim's; from there on delta is 0."""
    own: ExchangeLaplaceProfile | None
    """The bound of section 5, among the hosts of smaller budgets; None where there is none."""
    cases: tuple[CoreCase, ...]
    """Ways in which the others may lie; every data set is one of them."""
    quick: bool = False
    """Whether few knots and distances will do."""

    @property
    def method(self) -> str:
        """For the certificate."""
        return "exchange bound, what the others' own randomness hides"

    @property
    def plain(self) -> ExchangeLaplaceProfile | ExchangeCoreProfile:
        """Quicker, for curves of many points; that of section 5 where it is nearly as good, or budgets are many."""
        case = self.cases[0]
        if self.own is not None and (case.tiers > CURVE_TIERS or case.core.rates.max() <= self.local_epsilon):
            return self.own.plain
        return replace(self, own=None if self.own is None else self.own.plain, quick=True)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local = min(1.0, -math.expm1((epsilon - self.local_epsilon) / 2) * (1 + 8 * UNIT) + LEAST)
        bounds = [Bounded(local, min(local, local * 8 * UNIT + LEAST))]
        value = self.in_core(epsilon)
        if value < local:
            bounds.append(Bounded(value, min(value, 1e-6 * value + LEAST)))
        # That of section 5 takes longer, and can be less only from its Gaussian limit on.
        if self.own is not None and not (0 < value < 1 and self.own.guess(value) > epsilon):
            bounds.append(self.own.delta(epsilon))
        return min(bounds, key=lambda bound: bound.value)

    def in_core(self, epsilon: float) -> float:
        """The bound of section 6: the largest of all cases."""
        found = 0.0
        for case in self.cases:
            found = max(found, case.bound(epsilon, found, quick=self.quick))
        return found

    def smallest_epsilon(self, delta: float, ceiling: float, tolerance: float) -> Inverse:
        """The largest that a case needs, the first one's first, or section 5's. See `profile.smallest_epsilon`."""
        found = Inverse(0.0, Bounded(1.0, 0.0), 0)
        for case in self.cases:
            if found.epsilon == 0 or case.bound(found.epsilon, delta) > delta:
                # A bound need not fall everywhere; the cases before this one need what has been found for them.
                found = case.smallest_epsilon(delta, ceiling, found.epsilon)
            if found.reached is None:
                break
        if self.own is None or self.own.guess(delta) >= found.epsilon:
            return found
        own = smallest_epsilon(self.own, delta, found.epsilon, tolerance)
        return found if own.reached is None else own

    def guess(self, delta: float) -> float:
        """Returns the largest guess of any case."""
        return max(case.guess(delta) for case in self.cases)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        case = str(self.cases[0])
        if len(self.cases) > 1:
            case += f"; so in the worst of {len(self.cases)} cases, by which side the largest budgets lie on"
        return (*(() if self.own is None else self.own.explain()), case)


def in_core(
    curve: ExchangeLaplaceProfile | None, victim: Victim, others: Others, delta: float | None
) -> ExchangeCoreProfile | None:
    """The least of the curve and of the bound of section 6, where that promises to be of use; otherwise None."""
    v, most = victim.local_epsilon, MAX_LOCAL_EPSILON
    rates = others.local_epsilon
    if victim.span is not None or v > most or rates.size > MAX_TIERS:
        return None
    order = np.argsort(rates, kind="stable")
    rates, count = rates[order], np.maximum(others.count[order] - others.dishonest, 0).astype(np.float64)
    rates, count = rates[(count > 0) & (rates <= most)], count[(count > 0) & (rates <= most)]
    if rates.size == 0:
        return None
    target = TUNING_DELTA if delta is None else delta
    own = min(v, math.inf if curve is None else curve.guess(target))
    if rates[-1] <= v:
        if curve is None or not 2 <= rates.size <= FEW_TIERS or not 0 < own < v:
            return None
        choice = _Choice(v, rates, count, delta, own)
        cases = choice.best((1 - WORTH) * curve.deviation_at(own))
        return ExchangeCoreProfile(v, curve, cases) if cases else None
    # What the largest budget has, about: a victim with less decides nothing.
    largest = ExchangeLaplaceProfile.among(float(rates[-1]), rates, np.ones_like(rates), count, target).guess(target)
    if own <= largest:
        return None
    choice = _Choice(v, rates, count, delta, largest if largest > 0 else LEAST_TUNED * own)
    case = choice.anywhere(math.inf) or choice.shown()
    return ExchangeCoreProfile(v, curve, (case,))


@dataclass(frozen=True, eq=False)
class _Choice:
    """Of groups and cuts, for a victim among hosts of these rates, increasing, and numbers, (T,)."""

    victim: float
    rates: Floats
    count: Floats
    delta: float | None
    epsilon: float
    """About what will be found."""

    def best(self, worth: float) -> tuple[CoreCase, ...]:
        """Of the next two, that with the smallest bound; none where no deviation is below `worth`."""
        one = self.anywhere(worth)
        cases = self.by_sides(worth if one is None else (1 - WORTH_OF_SIDES) * one.deviation)
        if one is None or (cases and self._most(cases[0], FEWER_DISTANCES) < self._most(one, FEWER_DISTANCES)):
            return cases
        return (one,)

    def anywhere(self, worth: float) -> CoreCase | None:
        """With the groups that serve best wherever hosts lie, a deviation below `worth`; None without any."""
        found: list[tuple[float, tuple[Hosts, Hosts]]] = []
        for low in range(1, int(np.searchsorted(self.rates, self.victim, "right")) + 1):
            for top in range(low + 1, self.rates.size + 1):
                core, tails = (Hosts(self.rates[x], self.count[x], self.delta) for x in (slice(low, top), slice(low)))
                found.append((best_shares(self.victim, DISTANCES[0], self.epsilon, (core, tails))[0], (core, tails)))
        found.sort(key=lambda one: one[0])
        ways = [way for _, groups in found[:PROMISING] if (way := self._way(groups)) is not None]
        best = self._with_cuts(min(ways, key=lambda way: way.bound), worth) if ways else None
        return None if best is None else self._with_room([best])[0]

    def by_sides(self, worth: float) -> tuple[CoreCase, ...]:
        """Cases by how many hosts with the largest budget lie on either side, those that lie with the core in the core.

        Every deviation is below `worth`, and the first bound the largest; none where that cannot be.
        """
        if self.rates[0] * LEAST_TOLD > self.victim:
            return ()
        parts = list(itertools.pairwise(FEWER_PARTS if self.rates.size > 2 else PARTS))
        lows = range(1, self.rates.size)
        ways = [(way, low) for low in lows if (way := self._way(self._on(low, Side.LOW, *parts[0]))) is not None]
        if not ways:
            return ()
        way, low = min(ways, key=lambda one: one[0].bound)
        cases: list[CoreCase] = []
        for side, part in itertools.product((Side.LOW, Side.HIGH), parts):
            case = self._with_cuts(replace(way, groups=self._on(low, side, *part)), worth)
            if case is None:
                return ()
            cases.append(case)
        return self._with_room(cases)

    def _with_room(self, cases: list[CoreCase]) -> tuple[CoreCase, ...]:
        """With what may be lost at every distance before it is the worst of all; the case with the worst first."""
        found = [self._tried(case, FEWER_DISTANCES) for case in cases]
        order = sorted(range(len(cases)), key=lambda k: -float(found[k].max()))
        logarithms = np.log(np.clip(found, 1e-300, 0.99))
        # ln delta is about -epsilon^2/2, in units of a deviation.
        lost = 1 - np.sqrt(logarithms.max() / logarithms)
        return tuple(replace(cases[k], room=_room(FEWER_DISTANCES, lost[k])) for k in order)

    def _on(self, low: int, side: Side, few: float, many: float) -> tuple[Hosts, Hosts]:
        """At least and at most such parts of the largest budget's hosts lie away from the core; more is revealed."""
        n, rates, count = float(self.count[-1]), self.rates, self.count
        near, far = n - math.ceil(many * n), math.floor(few * n)
        anywhere = (Side.ANY,) * rates.size
        core = Hosts(rates[low:], np.append(count[low:-1], near), self.delta, (*anywhere[low:-1], side))
        if far == 0:
            return core, Hosts(rates[:low], count[:low], self.delta, anywhere[:low])
        with_far = np.append(rates[:low], rates[-1]), np.append(count[:low], far)
        return core, Hosts(*with_far, self.delta, (*anywhere[:low], side.other))

    def _way(self, groups: tuple[Hosts, Hosts]) -> _Way | None:
        """The best way for these groups to be heard; None where their clocks might stay silent."""
        if float(groups[0].count.min()) <= 0:
            return None
        for flat in FLATTER:
            ways = [_Way(groups, shared, flat, math.inf) for shared in (False, True)]
            found = [self._cut(way, TRIED) for way in ways]
            heard = [replace(way, bound=self._most(case, TRIED)) for way, case in zip(ways, found, strict=True) if case]
            if heard:
                return min(heard, key=lambda way: way.bound)
        return None

    def _with_cuts(self, way: _Way, worth: float) -> CoreCase | None:
        """With the best shares for all distances; None where its deviation is not below `worth`."""
        case = self._cut(way, DISTANCES[:-1])
        return case if case is not None and case.deviation < worth else None

    def _cut(self, way: _Way, distances: Sequence[float]) -> CoreCase | None:
        """With the best shares for these distances, from 1 down; None where clocks might stay silent."""
        core, tails = way.groups
        case, found = CoreCase(self.victim, core, tails, (), math.inf, shared=way.shared), []
        for distance in distances:
            deviation, cut = best_shares(self.victim, distance, self.epsilon, way.groups, way.flat)
            heard = _heard(case, cut, distance)
            if heard < -math.log(MOST_UNHEARD * self._target) / LONGEST:
                return None
            found.append((distance, deviation * math.sqrt(1 + 1 / heard), cut))
        worst = max(deviation for _, deviation, _ in found)
        ends = [*(distance for distance, _, _ in found[1:]), 0.0]
        cuts = tuple((least, cut) for least, (_, _, cut) in zip(ends, found, strict=True))
        return replace(case, cuts=cuts, deviation=worst)

    def _tried(self, case: CoreCase, distances: Sequence[float]) -> Floats:
        """Bounds for these distances, with few knots; 0 where the divergence is."""
        places = np.array(distances)
        some = one_distance(self.victim, places, np.zeros(places.size), self.epsilon)
        return np.where(places * self.victim > self.epsilon, case.bounds(some, *COARSEST), 0.0)

    def _most(self, case: CoreCase, distances: Sequence[float]) -> float:
        """The largest of these."""
        return float(self._tried(case, distances).max())

    @property
    def _target(self) -> float:
        return TUNING_DELTA if self.delta is None else self.delta

    def shown(self) -> CoreCase:
        """With tails that no host hides, of about the best size."""
        tried: list[tuple[float, CoreCase]] = []
        v, one = self.victim, one_distance(self.victim, np.ones(1), np.zeros(1), self.epsilon)
        for top in range(int(np.searchsorted(self.rates, v, "right")) + 1, self.rates.size + 1):
            core = Hosts(self.rates[:top], self.count[:top], self.delta)
            for share in SHOWN:
                cut = whole(-math.log(share * self._target) / v, v + float(self.rates[top - 1]))
                case = CoreCase(v, core, None, ((0.0, cut),), 1.0)
                case = replace(case, deviation=float(case.clocks(core, one, cut, tails=False).deviation[0]))
                tried.append((float(case.bounds(one, *COARSEST)[0]), case))
        return min(tried, key=lambda pair: pair[0])[1]


@dataclass(frozen=True, eq=False)
class _Way:
    """How two groups may be heard."""

    groups: tuple[Hosts, Hosts]
    """Of the core and of the tails."""
    shared: bool
    """See `CoreCase`."""
    flat: float
    """See `best_shares`."""
    bound: float
    """The largest, for a few distances."""


def _room(distances: Sequence[float], lost: Floats) -> tuple[tuple[float, float], ...]:
    """See `CoreCase`; both from the largest distance down."""
    pairs = zip(reversed(distances), lost[::-1].tolist(), strict=True)
    return ((0.0, 1.0), *pairs)


def _heard(case: CoreCase, cut: Cut, distance: float) -> float:
    """What gamma adds up to in the group whose clock is heard less."""
    assert case.tails is not None
    at = one_distance(case.victim, np.array([distance]), np.zeros(1), 0.0)
    giver, other = (case.core, case.tails) if case.shared else (case.tails, case.core)
    gamma = np.array([cut.blanket(at, rate, side)[0] for rate, side in giver.tiers])
    return min(float(giver.count @ gamma), float(other.count @ other.blanket_of(at)))
