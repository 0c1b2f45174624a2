"""The exchange bound for a victim with Laplace noise most of whose hosts have larger budgets.

What the victim shows is cut in two: a core near its values, hidden among hosts of all budgets, and the tails, where the
noise of a larger budget is too thin, hidden among those with budgets up to the victim's (docs/exchange-bound.md,
section 7). Each part is bounded by its moment generating function alone, at finitely many distances of the victim's
values that stand for all. The laws are in `core_laws`, clocks and their weights in `exchange_laplace`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from accountant.bounds.core_laws import TERMS, Apart, Cut, split_family, split_mean
from accountant.bounds.exchange import LEAST, TUNING_DELTA, StagedProduct, exchange_bound, horizon, stages
from accountant.bounds.exchange_laplace import (
    INEXACT,
    MAX_LOCAL_EPSILON,
    MAX_TIERS,
    MORE_TERMS,
    MOST_SPENT,
    ExchangeLaplaceProfile,
    FollowedProduct,
    left_of_host,
    spread,
)
from accountant.bounds.laplace_laws import Family
from accountant.bounds.profile import Bounded, Others, Victim
from accountant.numerics.binomial import UNIT, Floats
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.ranges import check_epsilon

__all__ = ["ExchangeCoreProfile", "in_core"]

STAGES = 8
"""Of the clocks."""
NEAREST_COST, COST, CURVED = 0.002, 0.12, 0.3
"""What part of epsilon a step from one distance d of the victim's values to the next may cost: at d = 1, and how much
more of it for every 1 - d and (1 - d)^2."""
MOST_COST = 0.6
"""At most; the rest is more than what is moved to the tails."""
CURVE_TIERS = 4
"""With more budgets of hosts every point takes too long for a curve of many."""
STEP, MOST_REFINED = 0.03, 16
"""Of the integral; how many distances have it, at most."""
STEPS = ((0.2, 20), (1.0, 96), (3.0, 96))
"""Steps that cost so many times as much, if they are so many at most; otherwise the next ones, and then nothing is
claimed."""
REACHES, SHARE = (1.5, 3.0, 5.0), 0.08
"""How far the core reaches, in units of the length on which D/R grows by a factor e: tried for each set of hosts; and
what part of epsilon is moved from its mean to that of the tails."""
FINER = (((0.5, 0.7, 1.0, 1.35, 1.8), (0.35, 1.0, 1.8, 3.0)), ((0.85, 1.0, 1.18), (0.8, 1.0, 1.25)))
"""Either is tried again around the best one, twice."""
MOST_REACH = 36.0
"""The largest radius, in units of 1/(the victim's budget)."""
LEAST_TUNED = 0.1
"""Cuts are tried at the epsilon that the largest budget has, or, where that is 0, at this part of that of section 5."""
INTEGRAL = 0.25
"""About what part of the bound by one moment the whole integral is."""
LEAST_STEEP = 1.05
"""The core falls at least so much faster outside of C than the victim's noise."""
TILTS = ((0.7, 9), (0.12, 7))
"""The tilt is looked for so far around the best one so far, in ln theta, in so many places."""
LARGEST, SMALLEST = 3.0, 100.0
"""The tilt starts where |theta alpha X| is at most the first number, and theta |E[Y]| and theta^2 Var(Y) are at most
the second."""
EXPONENT = 512 * UNIT
"""Of the sizes of its terms, and one of every logarithm's, an exponent is good to this."""


@dataclass(frozen=True, eq=False)
class _Hosts:
    """Hosts with their rates and numbers, (T,), and their clocks, which run until `horizon`."""

    rates: Floats
    count: Floats
    blanket: Floats
    """Gamma, (T,), of T4 for these budgets; rounded down."""
    horizon: float

    @classmethod
    def of(cls, rates: Floats, count: Floats, delta: float | None) -> _Hosts:
        curve = ExchangeLaplaceProfile(1.0, 1.0, rates, np.ones_like(rates), count)
        most = float(curve.blanket @ count) * (MOST_SPENT / 2)
        return cls(rates, count, curve.blanket, horizon(delta, most))

    def log_bounds(self, families: list[Family], mean: Floats, terms: Floats) -> Floats:
        """Upper bounds on ln E[Y]_+, (K,), of Y = sum_i alpha_i X_i, X_i below the laws of its tier for each distance.

        families: of every tier, K J laws each. mean: of all of X_i, and the sum of the sizes of its terms; (K,).
        """
        number = mean.size
        second = [(f.scale**2 * f.moments[:, 0]).reshape(number, -1).max(1) for f in families]
        weights = spread(np.array([1 / x[0] for x in second]), self.count, self.blanket, self.horizon)
        variance = sum(n * w * w * x for n, w, x in zip(self.count, weights, second, strict=True))
        theta = (np.hypot(mean, 2 * np.sqrt(variance)) - mean) / (2 * variance)
        # Further out the series ends too early, or so little is left that it does not matter.
        largest = [w * f.scale.reshape(number, -1).max(1) for w, f in zip(weights, families, strict=True)]
        room = np.minimum(LARGEST / np.max(largest, axis=0), np.sqrt(SMALLEST / variance))
        theta = np.minimum(theta, np.minimum(room, SMALLEST / terms))
        # Where to look is found with hosts at the two ends only.
        few = []
        for family in families:
            laws = np.arange(family.scale.size).reshape(number, -1)
            few.append(family.only(laws[:, [0, -1]].ravel()))
        rows = _Rows(self.count, weights, few, mean, terms)
        for reach, places in TILTS:
            thetas = theta[:, None] * np.exp(np.linspace(-reach, reach, places))
            height = rows.exponent(thetas, np.ones((weights.size, places))) - np.log(thetas)
            best = np.argmin(np.where(np.isfinite(height), height, math.inf), axis=1)
            theta = thetas[np.arange(number), best]
        ends, log_mass = stages(self.horizon, STAGES)
        thin = np.stack([left_of_host(weights, self.blanket, end) for end in ends.tolist()], axis=1)
        rows = replace(rows, families=families)
        found = rows.exponent(np.repeat(theta[:, None], ends.size, axis=1), thin) + log_mass
        top = found.max(1)
        total = top + np.log(np.exp(found - top[:, None]).sum(1)) - np.log(theta) - 1
        total = total + EXPONENT * (1 + self.horizon + np.abs(top) + np.abs(np.log(theta)))
        return np.where(np.isfinite(total), total, math.inf)

    def integral(self, families: list[Family], mean: float) -> float:
        """The integral of section 1 for one distance: an upper bound on E[Y]_+."""
        weights = spread(np.array([1 / f.variance for f in families]), self.count, self.blanket, self.horizon)
        ends, log_mass = stages(self.horizon, STAGES)
        products = []
        for end in ends.tolist():
            thin = left_of_host(weights, self.blanket, end)
            left = tuple(family.thinned(share) for family, share in zip(families, thin.tolist(), strict=True))
            products.append(FollowedProduct(left, self.count, weights, -mean))
        return exchange_bound(StagedProduct(tuple(products), log_mass), STEP).value


@dataclass(frozen=True, eq=False)
class _Rows:
    """The exponents sum_t n_t ln phi_t(theta alpha_t) for each distance, the worst law of each tier."""

    count: Floats
    weights: Floats
    families: list[Family]
    mean: Floats
    terms: Floats

    def exponent(self, theta: Floats, thin: Floats) -> Floats:
        """Upper bounds for theta > 0, (K, W), hosts of tier t thinned by thin[t], (T, W); not finite on overflow."""
        number = self.mean.size
        laws = [family.scale.size // number for family in self.families]  # of a tier, for each distance
        distance = np.concatenate([np.repeat(np.arange(number), n) for n in laws])
        tier = np.repeat(np.arange(len(laws)), [family.scale.size for family in self.families])
        first = np.concatenate([[0], np.cumsum(np.repeat(laws, number))[:-1]])
        together = Family(
            np.concatenate([family.scale for family in self.families]),
            np.concatenate([family.moments for family in self.families]),
        )
        w = theta[distance] * self.weights[tier, None]
        log_phi, size = _log_phi(together, self.mean[distance], self.terms[distance], w, thin[tier])
        shape = (len(laws), number, theta.shape[1])
        total, sizes = (np.maximum.reduceat(x, first, axis=0).reshape(shape) for x in (log_phi, size))
        exponent: Floats = np.tensordot(self.count, total + EXPONENT * sizes, axes=1)
        return exponent


def _log_phi(laws: Family, mean: Floats, terms: Floats, w: Floats, thin: Floats) -> tuple[Floats, Floats]:
    """Upper bounds on ln E e^(wX), w > 0, (F, W), rounding and the terms left out included; the sizes of its terms.

    thin: (F, W), X/thin with that probability, otherwise 0.
    """
    size = w / thin * (1 + 4 * UNIT) * laws.scale[:, None]
    second = thin * laws.moments[:, :1]
    most = laws.moments.shape[1] + 1
    total = np.zeros_like(size)
    for k in range(most, 1, -1):
        total = total * size + laws.moments[:, k - 2 : k - 1] / math.factorial(k)
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.exp(size) * second
        drift = w * terms[:, None]
        inexact = INEXACT / np.sqrt(second) * growth * size * size + 32 * UNIT * drift
        inexact += growth * size ** (most + 1) / math.factorial(most + 1)
        change = thin * total * size * size + w * mean[:, None] + inexact
        return np.log1p(np.maximum(change, -1 + 1e-15)), drift + growth * size * size


@dataclass(frozen=True, eq=False)
class ExchangeCoreProfile:
    """The least of the bound of section 5 and, where its steps are few enough, of that of section 7.

    See `PrivacyProfile`.
    """

    local_epsilon: float
    """The victim's; from there on delta is 0."""
    own: ExchangeLaplaceProfile | None
    """The bound of section 5, among the hosts of smaller budgets; None where there is none."""
    core: _Hosts
    """Those that hide the core."""
    tails: _Hosts | None
    """Those that hide the tails, with budgets up to the victim's; None where there is none."""
    radius: float = 1.0
    """How far the core reaches beyond the victim's values."""
    share: float = 0.0
    """What part of epsilon is moved from the mean of the core to that of the tails."""
    refined: bool = True
    """Whether the distances that matter have the whole integral."""

    @property
    def method(self) -> str:
        """For the certificate."""
        return "exchange bound, what the others' own randomness hides"

    @property
    def plain(self) -> ExchangeLaplaceProfile | ExchangeCoreProfile:
        """Quicker, for curves of many points: without integrals; with more budgets than CURVE_TIERS section 5 alone."""
        if self.own is not None and self.core.rates.size > CURVE_TIERS:
            return self.own.plain
        return replace(self, own=None if self.own is None else self.own.plain, refined=False)

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

    def guess(self, delta: float) -> float:
        """The Gaussian limit for the core, and what is moved to the tails: a little too small."""
        return (1 + self.share) * gaussian_epsilon(self._deviation, delta)

    @cached_property
    def _deviation(self) -> float:
        """About the standard deviation of Y for the core at epsilon = 0."""
        apart = _apart(self.local_epsilon, np.ones(1), np.zeros(1), 0.0)
        families = [split_family(apart, rate, self._cut(0.0), tails=False) for rate in self.core.rates.tolist()]
        worst = [1.0 if f is None else float((f.scale**2 * f.moments[:, 0]).max()) for f in families]
        return 1 / math.sqrt(float(self.core.count @ (1 / np.array(worst))))

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        return (
            *(() if self.own is None else self.own.explain()),
            f"within {self.radius:.6g} of its values the victim's noise is hidden among {int(self.core.count.sum())} "
            f"users with budgets up to {self.core.rates.max():.6g}, those above its own as well",
        )

    def in_core(self, epsilon: float) -> float:
        """The bound of section 7, rounded up; infinite where it is not proved."""
        apart = distances(self.local_epsilon, epsilon)
        if apart is None:
            return math.inf
        cut = self._cut(epsilon)
        core, rest = self._core(apart, cut), self._rest(apart, cut)
        refined: set[int] = set()
        while self.refined:  # the largest, until it is one that has been refined
            worst = int(np.argmax(core + rest))
            if worst in refined or len(refined) == MOST_REFINED:
                break
            refined.add(worst)
            core[worst] = min(core[worst], self._integral(apart.only(worst), cut))
        return float((core + rest).max()) * (1 + 1e-8) + LEAST

    def at_distance_one(self, epsilon: float) -> float:
        """About the bound for two values at distance 1; to compare cuts."""
        apart, cut = _apart(self.local_epsilon, np.ones(1), np.zeros(1), epsilon), self._cut(epsilon)
        return float(INTEGRAL * self._core(apart, cut)[0] + self._rest(apart, cut)[0])

    def _core(self, apart: Apart, cut: Cut) -> Floats:
        """Upper bounds on what the hosts of the core leave of it, (K,), rounded up by 1e-8 of themselves later."""
        families = self._families(self.core, apart, cut, tails=False)
        if families is None:
            return np.full(apart.distance.shape, math.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.exp(self.core.log_bounds(families, *split_mean(apart, cut, tails=False)))
        return found + self._unheard(cut)

    def _integral(self, apart: Apart, cut: Cut) -> float:
        """The same for one distance, by the whole integral."""
        families = self._families(self.core, apart, cut, tails=False, terms=MORE_TERMS)
        if families is None:
            return math.inf
        mean, _ = split_mean(apart, cut, tails=False)
        return self.core.integral(families, float(mean[0])) + self._unheard(cut)

    def _unheard(self, cut: Cut) -> float:
        """All of the core's positive part, if no clock rings."""
        return math.exp(-self.core.horizon) * (-math.expm1(-self.local_epsilon / 2) + float(np.max(cut.moved)))

    def _rest(self, apart: Apart, cut: Cut) -> Floats:
        """All of the tails' positive part, or what their hosts leave of it; as in `_core`."""
        v = self.local_epsilon
        positive = np.maximum(-np.expm1(apart.log_gain - v * apart.distance), 0.0)
        whole: Floats = positive * (math.exp(-v * self.radius) / 2 * (1 - v / cut.steep) * (1 + 16 * UNIT))
        families = None if self.tails is None else self._families(self.tails, apart, cut, tails=True)
        if self.tails is None or families is None:
            return whole
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.exp(self.tails.log_bounds(families, *split_mean(apart, cut, tails=True)))
        return np.minimum(whole, found + math.exp(-self.tails.horizon) * whole)

    def _cut(self, epsilon: float) -> Cut:
        steep = max(float(self.core.rates.max()), LEAST_STEEP * self.local_epsilon)
        return Cut(self.radius, steep, self.share * epsilon)

    def _families(
        self, hosts: _Hosts, apart: Apart, cut: Cut, *, tails: bool, terms: int = TERMS
    ) -> list[Family] | None:
        """Of every tier; None where one has none."""
        families = [split_family(apart, rate, cut, tails=tails, terms=terms) for rate in hosts.rates.tolist()]
        known = [family for family in families if family is not None]
        return known if len(known) == len(families) else None


def _apart(victim: float, distance: Floats, width: Floats, epsilon: float) -> Apart:
    """The distances, each an end of cells that are at most so wide; hosts are on all of [-1, 1]."""
    log_kept = -((victim * width) ** 2) / 8 * (1 + 16 * UNIT)
    gain = (epsilon + log_kept) - 4 * UNIT * (epsilon + np.abs(log_kept))
    return Apart(victim, distance, gain, log_kept, np.maximum(0.0, distance - width))


def distances(victim: float, epsilon: float) -> Apart | None:
    """From 1 down to epsilon/v, below which the divergence is 0; None where that takes too many."""
    if not 0 < epsilon < victim:
        return None
    for times, most in STEPS:
        found, widths = [1.0], []
        while found[-1] > epsilon / victim and len(found) < most:
            below = 1 - found[-1]
            cost = min(times * (NEAREST_COST + COST * below + CURVED * below**2), MOST_COST)
            widths.append(math.sqrt(8 * cost * epsilon) / victim)
            found.append(max(found[-1] - widths[-1], 0.0))
        if found[-1] <= epsilon / victim:
            # Each is an end of two cells, of which the lower one is wider.
            return _apart(victim, np.array(found), np.array([*widths, widths[-1]]), epsilon)
    return None


def in_core(
    curve: ExchangeLaplaceProfile | None, victim: Victim, others: Others, delta: float | None
) -> ExchangeCoreProfile | None:
    """The least of the curve and of the bound of section 7, if larger budgets promise to be of use; otherwise None."""
    v, most = victim.local_epsilon, MAX_LOCAL_EPSILON
    rates = others.local_epsilon
    if victim.span is not None or v > most or rates.size > MAX_TIERS:
        return None
    order = np.argsort(rates, kind="stable")
    rates, count = rates[order], np.maximum(others.count[order] - others.dishonest, 0).astype(np.float64)
    rates, count = rates[(count > 0) & (rates <= most)], count[(count > 0) & (rates <= most)]
    small = int(np.searchsorted(rates, v, "right"))
    if small == rates.size:
        return None
    target = TUNING_DELTA if delta is None else delta
    own = min(v, math.inf if curve is None else curve.guess(target))
    # What the largest budget has, about: a victim with less decides nothing.
    largest = ExchangeLaplaceProfile(float(rates[-1]), 1.0, rates, np.ones_like(rates), count).guess(target)
    if own <= largest:
        return None
    tails = _Hosts.of(rates[:small], count[:small], delta) if small else None
    tried: list[ExchangeCoreProfile] = []
    for top in range(small + 1, rates.size + 1):
        core, length = _Hosts.of(rates[:top], count[:top], delta), 1 / float(rates[top - 1] - v)
        radii = (min(reach * length, MOST_REACH / v) for reach in REACHES)
        tried.extend(ExchangeCoreProfile(v, curve, core, tails, radius, SHARE) for radius in radii)
    return _best(tried, largest if largest > 0 else LEAST_TUNED * own)


def _best(tried: list[ExchangeCoreProfile], epsilon: float) -> ExchangeCoreProfile:
    """About the best of them at this epsilon, or one near it."""
    best = min(tried, key=lambda one: one.at_distance_one(epsilon))
    furthest = MOST_REACH / best.local_epsilon
    for factors, shares in FINER:
        around = [
            replace(best, radius=min(factor * best.radius, furthest), share=share * best.share)
            for factor in factors
            for share in shares
        ]
        best = min(around, key=lambda one: one.at_distance_one(epsilon))
    return best
