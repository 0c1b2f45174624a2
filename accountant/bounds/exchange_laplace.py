"""The exchange bound for Laplace noise on values in [0, 1]: all pairs of values, all data, personal budgets.

All users whose budget is at most the victim's are hosts, with all of their own noise but for a little that goes to the
common blanket omega, flat around [0, 1] and then proportional to e^(-a distance). The lemmas that reduce all data to a
few laws per budget, T1 to T3, L1 and L2, are in docs/exchange-bound.md. Laws are put on few atoms with the mean kept,
which makes them larger in convex order; masses are sums of positive numbers. The theorem is in `exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.bounds.exchange import (
    FEW_STAGES,
    MANY_STAGES,
    ExchangeProfile,
    StagedProduct,
    horizon,
    stages,
)
from croupier.accountant.bounds.laplace_laws import Family, family_of
from croupier.accountant.bounds.profile import (
    Bounded,
    Curve,
    Inverse,
    NoAmplification,
    Others,
    Victim,
    smallest_epsilon,
)
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.privacy_curve import Proof
from croupier.protocol.codes import Step
from croupier.protocol.statements import Statement, state

Complexes = NDArray[np.complex128]

__all__ = [
    "FEW_TIERS",
    "MOST_SPENT",
    "ExchangeLaplaceProfile",
    "ExchangeSpanProfile",
    "NoiseProduct",
    "exchange_laplace_profile",
    "left_of_host",
    "log_squared",
    "spread",
]

MAX_LOCAL_EPSILON = 30.0
"""Above it likelihood ratios leave the range in which they are evaluated; there is nothing to gain either."""
FEW_TIERS = 3
"""With at most so many the integral has narrower cells."""
MAX_TIERS, GROUPS = 8, 48
"""More budgets of the others than the first number are taken together in so many groups."""
FIRST_PART, WIDENING = 0.03, 1.6
"""The parts of a span of victims: the first one's relative width, and how much wider each is than the one before."""
RAISE = 1.003
"""Where a part needs a larger epsilon than those before it, one that much larger is tried before it is searched for."""
PLATEAUS = (0.5, 0.65, 0.8, 1.0, 1.2)
"""How far from the middle the blanket may stay flat."""
MOST_SPENT = 0.5
"""What part of its smallest density, in units of omega, a host may give to the blanket, at most."""
NEAR, STRIDE = 0.3, 4
"""Laws whose product is within e^NEAR of the largest at u = 0 are evaluated in every cell, others in one of STRIDE."""
INEXACT = 1e-12
"""Relative to the largest |X|, more than the rounding of every value of X, and of its mean over a cell."""


@dataclass(frozen=True, eq=False)
class NoiseProduct:
    """See `HostProduct`. weights: alpha, of each host, proportional to 1/variance where the blanket allows it."""

    families: tuple[Family, ...]
    count: Floats
    weights: Floats
    drift: float

    @property
    def deviation(self) -> float:
        """See `HostProduct`."""
        return math.sqrt(
            sum(n * w * w * f.variance for n, w, f in zip(self.count, self.weights, self.families, strict=True))
        )

    @property
    def hosts(self) -> float:
        """See `HostProduct`."""
        return float(1 / self.weights.max()) / 4

    @cached_property
    def _laws(self) -> tuple[Family, Floats, Ints]:
        """The laws of all tiers, one after the other; the weight of each; and where those of each tier begin."""
        sizes = [family.scale.size for family in self.families]
        laws = Family(
            *(np.concatenate(part) for part in zip(*((f.scale, f.moments) for f in self.families), strict=True))
        )
        return laws, np.repeat(self.weights, sizes), np.cumsum([0, *sizes[:-1]])

    def at(self, theta: Floats) -> Floats:
        """See `HostProduct`."""
        laws, weights, first = self._laws
        squared = log_squared(laws, (weights[:, None] * theta).astype(np.complex128), self.drift)
        total: Floats = self.count / 2 @ np.maximum.reduceat(squared, first)
        return total

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """See `HostProduct`. Beyond the bulk the value at its last edge serves."""
        laws, weights, first = self._laws
        tier = np.repeat(np.arange(first.size), np.diff(first, append=weights.size))
        at_rest = log_squared(laws, (weights[:, None] * theta).astype(np.complex128), self.drift)
        near = self.count[tier] / 2 * (np.maximum.reduceat(at_rest, first)[tier] - at_rest)[:, 0] < NEAR
        factor = np.empty((weights.size, edges.size - 1))
        for which, stride in ((near, 1), (~near, STRIDE)):
            part = np.flatnonzero(which)
            factor[part] = self._falling(laws.only(part), theta * weights[part], edges, bulk, stride, at_rest[part])
        factor = np.maximum.reduceat(factor, first)
        rounding = (128 + self.count.size) * UNIT
        return self.count / 2 @ factor + self.count / 2 @ np.abs(factor) * rounding, UNIT * 8192

    def _falling(self, laws: Family, w: Floats, edges: Floats, bulk: int, stride: int, at_rest: Floats) -> Floats:
        """Upper bounds on ln |phi(w (1 + ir))|^2 over every cell of r, for the w of each law: (F, L).

        It falls while the range of w r X is at most pi: the value at an earlier edge serves, one of every `stride` of
        the first `bulk`. Further out it is at most `at_rest`, (F, 1), that at r = 0.
        """
        left = np.minimum(np.arange(edges.size - 1), bulk - 1) // stride
        # |phi|^2 = E e^{w (X + X')} cos(w r (X - X'))
        last = math.pi / (2 * np.maximum(w, 1e-300) * laws.scale) * (1 - 1e-9)
        squared = log_squared(laws, w[:, None] * (1 + 1j * edges[:bulk:stride]), self.drift)
        return np.where(edges[None, 1:] <= last[:, None], squared[:, left], at_rest)


def log_squared(laws: Family, z: Complexes, drift: float) -> Floats:
    """Upper bounds on ln |phi(z)|^2, rounding and the terms left out included, for the z of each law: (F, L)."""
    ratio = z * laws.scale[:, None]
    size = np.abs(ratio)
    second = laws.moments[:, :1]
    most = laws.moments.shape[1] + 1
    largest = min(float(size.max(initial=0.0)), most / 5)
    terms = 4
    while terms < most and 2 * largest ** (terms - 1) / math.factorial(terms + 1) > 1e-14:
        terms += 1
    total = np.zeros(ratio.shape, dtype=np.complex128)
    for k in range(terms, 1, -1):
        total = total * ratio + laws.moments[:, k - 2 : k - 1] / math.factorial(k)
    change = total * ratio * ratio - drift * z
    growth = np.exp(size) * second
    inexact = INEXACT / np.sqrt(second) * (abs(drift) * np.abs(z) + growth * size * size)
    inexact += growth * size ** (terms + 1) / math.factorial(terms + 1)
    squared = 2 * change.real + change.real**2 + change.imag**2
    squared += 2 * inexact * (1 + np.abs(change)) + inexact * inexact
    logarithm: Floats = np.log1p(np.maximum(squared, -1 + 1e-15))
    return logarithm


@dataclass(frozen=True, eq=False)
class ExchangeLaplaceProfile(ExchangeProfile):
    """The exchange bound of a victim with Laplace noise."""

    rates: Floats
    """Budgets of the hosts, (T,): the largest of each group."""
    kept: Floats
    """The smallest of each group, in units of the largest."""
    count: Floats

    @classmethod
    def among(
        cls, victim: float, rates: Floats, kept: Floats, count: Floats, delta: float | None
    ) -> ExchangeLaplaceProfile:
        """The bound with clocks that run until a horizon which these hosts can pay for: nothing is left of none."""
        curve = cls(victim, math.inf, rates, kept, count)
        most = float(curve.blanket @ count) * (MOST_SPENT / 2)
        return replace(curve, horizon=horizon(delta, most))

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`: with many budgets every evaluation takes a tenth of a second or more."""
        return 1e-3 if self.count.size > MAX_TIERS else super().tolerance

    def guess(self, delta: float) -> float:
        """The Gaussian limit, as if all hosts were the worst at epsilon = 0."""
        return gaussian_epsilon(self.deviation_at(0.0), delta)

    def deviation_at(self, epsilon: float) -> float:
        """About the standard deviation of Y."""
        return self._product(epsilon).deviation

    @property
    def plateau(self) -> float:
        """The m of `PLATEAUS` that costs least, about: omega is flat while max(z, 1-z) <= m, then e^(-a distance)."""
        share = self.rates * np.exp(-self.rates)  # about in proportion to the weights; any m is sound
        return min(PLATEAUS, key=lambda m: float(self.count @ (share**2 / self._blanket(m))))

    @property
    def blanket(self) -> Floats:
        """Gamma, (T,): every host's density is at least this times omega, whatever its value; rounded down."""
        return self._blanket(self.plateau)

    def _blanket(self, m: float) -> Floats:
        """T4: gamma = (e/2) (2m - 1 + 2/a) e^(-em), a the rate of the largest host, is least at an end of a group."""
        area = 2 * m - 1 + 2 / float(self.rates.max())
        ends = [e / 2 * area * np.exp(-e * m) for e in (self.rates * self.kept, self.rates)]
        gamma: Floats = np.minimum(*ends) * (1 - 64 * UNIT)
        return gamma

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        return (
            state(Step.HOSTS, users=int(self.count.sum()), tiers=self.count.size),
            state(Step.CLOCKS, horizon=self.horizon),
        )

    @property
    def _step(self) -> float:
        if self.count.size > MAX_TIERS:
            return 0.05
        return 0.012 if self.count.size <= FEW_TIERS else 0.03

    def _alone(self, epsilon: float) -> Bounded:
        """1 - e^((epsilon - v)/2), rounded up."""
        value = min(1.0, -math.expm1((epsilon - self.local_epsilon) / 2) * (1 + 8 * UNIT) + 5e-324)
        return Bounded(value, min(value, value * 8 * UNIT + 5e-324))

    def _product(self, epsilon: float) -> StagedProduct:
        families = tuple(
            family_of(self.local_epsilon, epsilon, rate, kept, self.count.size > MAX_TIERS)
            for rate, kept in zip(self.rates.tolist(), self.kept.tolist(), strict=True)
        )
        blanket, drift = self.blanket, math.expm1(epsilon)
        precision = np.array([1 / family.variance for family in families])
        weights = spread(precision, self.count, blanket, self.horizon)
        ends, log_mass = stages(self.horizon, MANY_STAGES if self.count.size <= MAX_TIERS else FEW_STAGES)
        products = []
        for end in ends.tolist():
            thin = left_of_host(weights, blanket, end)
            left = tuple(family.thinned(share) for family, share in zip(families, thin.tolist(), strict=True))
            products.append(NoiseProduct(left, self.count, weights, drift))
        return StagedProduct(tuple(products), log_mass)


def spread(precision: Floats, count: Floats, blanket: Floats, horizon: float, spent: float = MOST_SPENT) -> Floats:
    """alpha, proportional to `precision` but where the horizon would take more than this part of the blanket."""
    most = blanket * (spent / horizon)
    free = np.ones(most.size, dtype=np.bool_)
    for _ in range(most.size):
        room = 1 - float(count[~free] @ most[~free])
        weights = np.where(free, precision * room / max(float(count[free] @ precision[free]), 1e-300), most)
        if (weights <= most).all():
            break
        free &= weights <= most
    weights = np.minimum(weights, most)
    return weights / float(count @ weights)


def left_of_host(weights: Floats, blanket: Floats, end: float) -> Floats:
    """What is left of a host's density when its clock has not rung by `end`, rounded down; to a few ulp."""
    left: Floats = (1 + np.expm1(-end * weights) / blanket) * np.exp(end * weights) * (1 - 64 * UNIT)
    return left


def exchange_laplace_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeLaplaceProfile | ExchangeSpanProfile | NoAmplification:
    """The exchange bound for a victim among the others, or for all victims of a span; or the reason for none.

    Hosts are those whose budget is at most the victim's; larger ones are given away. The f dishonest may be any: f
    users are left out of every budget, or of every group where budgets are many. delta decides how long clocks run.
    """
    if victim.local_epsilon > MAX_LOCAL_EPSILON:
        return NoAmplification(
            state(Step.EXCHANGE_BUDGET_LARGE, local_epsilon=victim.local_epsilon, most=MAX_LOCAL_EPSILON)
        )
    order = np.argsort(others.local_epsilon, kind="stable")
    crowd = _Crowd(others.local_epsilon[order], others.count[order], others.dishonest)
    if victim.span is None:
        found = crowd.hosts(victim.local_epsilon, victim.local_epsilon, delta)
        return found or NoAmplification(state(Step.EXCHANGE_NO_SMALL_BUDGETS))
    low, high = sorted(epsilon for epsilon, _ in victim.span)
    leader = crowd.hosts(high, max(low, high * (1 - FIRST_PART)), delta)
    if leader is None:
        return NoAmplification(state(Step.EXCHANGE_NO_SMALL_BUDGETS))
    return ExchangeSpanProfile(leader, low, high, crowd, delta)


@dataclass(frozen=True, eq=False)
class _Crowd:
    """The others by increasing budget, rates and count (T,); any `dishonest` of them are of no use."""

    rates: Floats
    count: Ints
    dishonest: int

    def hosts(self, victim: float, least: float, delta: float | None) -> ExchangeLaplaceProfile | None:
        """Those of all victims from `least` to `victim` (T5); None where there is none."""
        used = int(np.searchsorted(self.rates, least, "right"))
        rates, count, dishonest = self.rates[:used], self.count[:used], self.dishonest
        if count.size == 0:
            return None
        first = _groups(rates, count)
        hosts, kept = rates[np.append(first[1:], rates.size) - 1], rates[first]
        number = np.maximum(np.add.reduceat(count, first) - dishonest, 0)
        hosts, kept, number = hosts[number > 0], kept[number > 0], number[number > 0].astype(np.float64)
        if hosts.size == 0:
            return None
        kept = np.where(kept == hosts, 1.0, kept / hosts * (1 - 2 * UNIT))
        return ExchangeLaplaceProfile.among(victim, hosts, kept, number, delta)


def _groups(rates: Floats, count: Ints) -> Ints:
    """Where each group of neighbouring budgets begins, at most GROUPS of them; every budget by itself if they are few.

    A user counts for about its budget and a group loses its relative width: sqrt(rate * users per unit of ln rate)
    is spread evenly.
    """
    if rates.size <= MAX_TIERS:
        return np.arange(rates.size)
    log = np.log(rates)
    bins = np.minimum(((log - log[0]) / max(float(log[-1] - log[0]), 1e-300) * 4096).astype(np.int64), 4095)
    density = np.sqrt(np.bincount(bins, weights=rates * count, minlength=4096))
    before = np.cumsum(density) - density / 2
    full = np.flatnonzero(density)
    group = (before[full] / density.sum() * GROUPS).astype(np.int64)
    starts: Ints = np.searchsorted(bins, full[np.diff(group, prepend=-1) > 0])
    return starts


@dataclass(frozen=True, eq=False)
class ExchangeSpanProfile(Curve):
    """An upper bound for every victim with a budget in [least, most]. See `PrivacyProfile`.

    The victims are covered in parts. Hosts of a part are those below all of it; its largest victim speaks for it (T5).
    """

    title: ClassVar[str] = "exchange"
    leader: ExchangeLaplaceProfile
    """That of the first part, up to `most`."""
    least: float
    most: float
    crowd: _Crowd
    target: float | None

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return self.leader.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        bounds = [self.leader.delta(epsilon)]
        for low, high in self._parts(epsilon):
            part = self.crowd.hosts(high, low, self.target)
            bounds.append(Bounded(1.0, 0.0) if part is None else part.delta(epsilon))
        return max(bounds, key=lambda bound: bound.value)

    def to_compose(self, delta: float, ceiling: float) -> None:
        """See `Curve.to_compose`: none, because the span of a curve says nothing about one victim."""

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """The largest that a part needs, the leader's first; none below `floor`. See `Curve.smallest_epsilon`."""
        found = Inverse(floor, self.leader.delta(floor) if floor > 0 else Bounded(1.0, 0.0), 1)
        if found.reached is None or found.reached.value > delta:
            found = smallest_epsilon(self.leader, delta, ceiling, self.leader.tolerance)
        for low, high in self._parts(found.epsilon):
            if found.reached is None or high <= found.epsilon:
                break
            part = self.crowd.hosts(high, low, self.target)
            if part is None:
                return Inverse(ceiling, None, found.evaluations)
            for point in (found.epsilon, min(ceiling, found.epsilon * RAISE)):
                bound = part.delta(point)
                if bound.value <= delta:
                    found = Inverse(point, bound, found.evaluations)
                    break
            else:
                own = smallest_epsilon(part, delta, ceiling, self.leader.tolerance)
                # A bound need not fall everywhere; the parts before this one need what has been found for them.
                found = replace(own, epsilon=max(own.epsilon, found.epsilon))
        return found

    def guess(self, delta: float) -> float:
        """The leader's."""
        return self.leader.guess(delta)

    def explain(self) -> tuple[Statement[Step], ...]:
        """The leader's steps, and the span."""
        return (*self.leader.explain(), state(Step.BUDGETS_COVERED, least=self.least, most=self.most))

    def _parts(self, epsilon: float) -> Iterator[tuple[float, float]]:
        """The parts below the leader's, from the largest budgets down to epsilon, from where on delta is 0."""
        high, width = self.most * (1 - FIRST_PART), FIRST_PART
        while high > max(self.least, epsilon):
            width = min(0.5, WIDENING * width)
            low = max(self.least, high * (1 - width))
            yield low, high
            high = low
