"""The exchange bound for a victim with Laplace noise of whom others have larger budgets: two groups of hosts.

The difference of the victim's two laws is split into a core near its values and tails (`core_case`). The hosts are put
into two groups: those of the smallest budgets hide the tails, others, whose budgets may be above the victim's, hide the
core (docs/exchange-bound.md, section 6). Here it is chosen which hosts are in which group; the shares of the split are
chosen in `core_shares`. Nothing certified rests on either choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.core_case import COARSEST, LONGEST, CoreCase, Hosts, one_distance
from croupier.accountant.bounds.core_shares import best_shares
from croupier.accountant.bounds.exchange import LEAST, TUNING_DELTA
from croupier.accountant.bounds.exchange_laplace import MAX_LOCAL_EPSILON, MAX_TIERS, ExchangeLaplaceProfile
from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.profile import Bounded, Curve, Inverse, Others, Victim
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, Step
from croupier.protocol.statements import Statement, state

__all__ = ["ExchangeCoreProfile", "in_core"]

CURVE_TIERS = 4
"""With hosts of more budgets than this a point takes seconds, and the curve that is composed is that of section 5."""
LEAST_TUNED = 0.1
"""The split is chosen for the epsilon that the victims of the largest budget have, because a smaller one decides
nothing. Where they have 0, it is chosen for this part of the epsilon of section 5."""
COMPARED = (1.0, 0.9, 0.75, 0.6, 0.42, 0.29, 0.15)
"""Distances of the victim's values at which pairs of groups are compared: enough to find the worst to 2 %."""
PROMISING = 3
"""How many pairs of groups are compared by their bound, those of the smallest deviation first. With one, epsilon is up
to 20 % larger; with three, a choice takes a third of the time that every pair would."""
MOST_UNHEARD = 0.03
"""The most that the chance of silent clocks may be, as a part of delta: it is charged in full."""


@dataclass(frozen=True, eq=False)
class ExchangeCoreProfile(Curve):
    """The smaller one of the bounds of section 5 and of section 6. See `PrivacyProfile`."""

    title: ClassVar[str] = "exchange"
    local_epsilon: float
    """The victim's; from there on delta is 0."""
    own: ExchangeLaplaceProfile | None
    """The bound of section 5, among the hosts of smaller budgets; None where the victim has no such hosts."""
    case: CoreCase
    quick: bool = False
    """Whether few knots and distances are enough."""

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.EXCHANGE),)

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords of a quicker bound."""
        slow = self.own if self.own is not None and self.case.tiers > CURVE_TIERS else replace(self, quick=True)
        return ChordProfile(slow, delta, ceiling)

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
        # The bound of section 5 takes longer, and can be smaller only beyond its Gaussian limit.
        if self.own is not None and not (0 < value < 1 and self.own.guess(value) > epsilon):
            bounds.append(self.own.delta(epsilon))
        return min(bounds, key=lambda bound: bound.value)

    def in_core(self, epsilon: float) -> float:
        """The bound of section 6."""
        return self.case.bound(epsilon, quick=self.quick)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """The smaller epsilon of both sections. See `Curve.smallest_epsilon`."""
        found = self.case.smallest_epsilon(delta, ceiling)
        if self.own is None or self.own.guess(delta) >= found.epsilon:
            return found
        own = self.own.smallest_epsilon(delta, found.epsilon)
        return found if own.reached is None else own

    def guess(self, delta: float) -> float:
        """The Gaussian limit of section 6."""
        return self.case.guess(delta)

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        return (*(() if self.own is None else self.own.explain()), self.case.step)


def in_core(
    curve: ExchangeLaplaceProfile | None, victim: Victim, others: Others, delta: float | None
) -> ExchangeCoreProfile | None:
    """The bound of section 6 beside the curve of section 5; None where nobody has a larger budget than the victim.

    None, too, where the victim's epsilon is below that of the largest budget anyway, for more budgets than MAX_TIERS,
    and where no pair of groups has clocks that are surely heard.
    """
    v, most = victim.local_epsilon, MAX_LOCAL_EPSILON
    rates = others.local_epsilon
    if victim.span is not None or v > most or rates.size > MAX_TIERS:
        return None
    order = np.argsort(rates, kind="stable")
    rates, count = rates[order], np.maximum(others.count[order] - others.dishonest, 0).astype(np.float64)
    rates, count = rates[(count > 0) & (rates <= most)], count[(count > 0) & (rates <= most)]
    if rates.size == 0 or rates[-1] <= v:
        return None
    target = TUNING_DELTA if delta is None else delta
    own = min(v, math.inf if curve is None else curve.guess(target))
    largest = ExchangeLaplaceProfile.among(float(rates[-1]), rates, np.ones_like(rates), count, target).guess(target)
    if own <= largest:
        return None
    choice = _Choice(v, rates, count, target, largest if largest > 0 else LEAST_TUNED * own)
    case = choice.best()
    return None if case is None else ExchangeCoreProfile(v, curve, case)


@dataclass(frozen=True, eq=False)
class _Choice:
    """The choice of groups and split, for a victim among hosts of these rates, increasing, and numbers, (T,)."""

    victim: float
    rates: Floats
    count: Floats
    delta: float
    epsilon: float
    """About what will be found."""

    def best(self) -> CoreCase | None:
        """The best pair of groups with its split; None without any whose clocks are heard."""
        found: list[tuple[float, tuple[Hosts, Hosts]]] = []
        for low in range(1, int(np.searchsorted(self.rates, self.victim, "right")) + 1):
            for top in range(low + 1, self.rates.size + 1):
                core, tails = (Hosts(self.rates[x], self.count[x], self.delta) for x in (slice(low, top), slice(low)))
                found.append((best_shares(self.victim, 1.0, self.epsilon, (core, tails))[0], (core, tails)))
        found.sort(key=lambda pair: pair[0])
        cases = [
            case
            for _, groups in found[:PROMISING]
            for shared in (False, True)
            if (case := self._split(groups, shared=shared)) is not None
        ]
        if not cases:
            return None
        bounds = [self._bounds(case) for case in cases]
        best = min(range(len(cases)), key=lambda k: float(bounds[k].max()))
        logarithms = np.log(np.clip(bounds[best], 1e-300, 0.99))
        # ln delta is about -epsilon^2/2, in units of a deviation.
        spare = 1 - np.sqrt(logarithms.max() / logarithms)
        return replace(cases[best], room=_room(COMPARED, spare))

    def _split(self, groups: tuple[Hosts, Hosts], *, shared: bool) -> CoreCase | None:
        """The best split for these groups; None where their clocks may stay silent."""
        core, tails = groups
        deviation, split = best_shares(self.victim, 1.0, self.epsilon, groups)
        case = CoreCase(self.victim, core, tails, split, math.inf, shared=shared)
        heard = case.heard()
        if heard < -math.log(MOST_UNHEARD * self.delta) / LONGEST:
            return None
        return replace(case, deviation=deviation * math.sqrt(1 + 1 / heard))

    def _bounds(self, case: CoreCase) -> Floats:
        """Rough bounds at the compared distances; 0 where the divergence is 0."""
        places = np.array(COMPARED)
        some = one_distance(self.victim, places, np.zeros(places.size), self.epsilon)
        return np.where(places * self.victim > self.epsilon, case.bounds(some, *COARSEST), 0.0)


def _room(distances: Sequence[float], spare: Floats) -> tuple[tuple[float, float], ...]:
    """See `CoreCase`; both from the largest distance down."""
    pairs = zip(reversed(distances), spare[::-1].tolist(), strict=True)
    return ((0.0, 1.0), *pairs)
