"""The exchange bound for Laplace noise among budgets that differ much: the victim's noise in two parts.

One part is noise of a larger rate and hidden among the others with large budgets, the rest among those with small ones
(docs/exchange-bound.md, section 6). Which part it was stays hidden too: a clock rings in both groups, and a report
that looks like the first part stands where the victim does not. What the first group leaves is a convex function of
what the second one says, so that it is covered by chords, and each corner of these is a sum over the second group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from accountant.bounds.exchange import TUNING_DELTA, StagedProduct, exchange_bound, horizon, stages
from accountant.bounds.exchange_laplace import (
    FEW_TIERS,
    MORE_TERMS,
    MOST_SPENT,
    ExchangeLaplaceProfile,
    FollowedProduct,
    left_of_host,
    spread,
)
from accountant.bounds.laplace_laws import (
    Family,
    Pair,
    family_of,
    grid_family,
    members,
    pair_family,
    pair_variance,
    second_moments,
)
from accountant.bounds.profile import Bounded
from accountant.numerics.binomial import UNIT, Floats

__all__ = ["ExchangePartsProfile", "in_parts"]

LEAST_APART = (0.86, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3)
"""Two values of the victim that are nearer to each other have the bound of section 5, which is smaller there."""
CLOSER = 0.003
"""By what part of the standard deviation that bound may be above what is promised further apart."""
FASTER = (1.1, 1.15, 1.2, 1.25, 1.35, 1.45, 1.55, 1.65)
"""Rates of the first part that are tried, in units of the victim's."""
SHARES = tuple(0.02 * k for k in range(1, 46))
"""Chances of the first part that are tried, where the rest of the noise is not negative."""
WORTH = 0.015
"""The least part of the standard deviation that has to be won."""
MOST_FAR = 0.6
"""Budgets that hide the second part are below this, in units of the victim's."""
WINDOW = 30.0
"""Parts are tried where the plain bound is within this factor of the target."""
MOST_LOST = 1e-3
"""The most that may be lost because no clock has rung, as a part of delta."""
STEP, STAGES, POWER = 0.02, (12, 8), 3
"""Of the integrals; of the clocks of either group."""
FEWER_STAGES, MANY_HOSTS = 4, 2_000.0
"""So many stages are enough where what all hosts could give to the blanket is more than this."""
KNOTS = (-4.0, -3.0, -2.0, -1.5, -1.0, -0.6, -0.3, *(0.2 * k for k in range(26)), 5.5, 6.0, 6.5, 7.0)
"""Corners of the chords: ln of the first group's E, in units of its standard deviation."""
NEGLIGIBLE = 1e-4
"""A corner that cannot count for more than this part of what has been found is not evaluated."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Hosts of one group: their rates and numbers, (T,), and their clocks, which run until `horizon`."""

    hidden: float
    """About the rate of the noise that it hides."""
    rates: Floats
    count: Floats
    blanket: Floats
    """Gamma, (T,): R_i >= gamma times what a report is drawn from when its clock has rung; rounded down."""
    horizon: float

    @cached_property
    def weights(self) -> Floats:
        """alpha, (T,): the same in every expectation over the group, as the theorem is about one set of clocks."""
        precision = np.array([1 / max(second_moments(self.hidden, 0.0, rate, 1.0)) for rate in self.rates.tolist()])
        return spread(precision, self.count, self.blanket, self.horizon)

    def tilts(self, variance: Floats, drift: float) -> Floats:
        """About theta alpha, (T,), for X_i of these variances and of mean -drift."""
        deviation = math.sqrt(float(self.count @ (self.weights**2 * variance)))
        mean = drift / deviation
        tilts: Floats = self.weights * (mean + math.hypot(mean, math.sqrt(8))) / (2 * deviation)
        return tilts

    def bound(self, families: tuple[Family, ...], drift: float, number: int) -> Bounded:
        """E[Y]_+ for Y = sum_i alpha_i X_i, X_i in `families` by tier and of mean -drift, averaged over the clock."""
        number = min(number, FEWER_STAGES) if float(self.blanket @ self.count) > MANY_HOSTS else number
        ends, log_mass = stages(self.horizon, number, POWER)
        products = []
        for end in ends.tolist():
            thin = left_of_host(self.weights, self.blanket, end)
            left = tuple(family.thinned(share) for family, share in zip(families, thin.tolist(), strict=True))
            products.append(FollowedProduct(left, self.count, self.weights, drift))
        return exchange_bound(StagedProduct(tuple(products), log_mass), STEP)


@dataclass(frozen=True, eq=False)
class ExchangePartsProfile(ExchangeLaplaceProfile):
    """The least of the bound of section 5 and, near `target`, of that of section 6."""

    target: float | None = None
    fast: float = math.inf
    """The rate of the first part of the victim's noise; larger than the victim's."""
    share: float = 0.0
    """Its chance."""
    split: int = 0
    """So many tiers, from the smallest budgets, hide the second part."""
    least: float = LEAST_APART[0]
    """Nearer to each other than this the victim's two values have the bound of section 5."""

    @property
    def plain(self) -> ExchangeLaplaceProfile:
        """That of section 5 alone, a point of which takes a tenth of the time: for curves of many points."""
        own = {at.name: getattr(self, at.name) for at in fields(ExchangeLaplaceProfile)}
        return ExchangeLaplaceProfile(**{**own, "followed": False})

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        plain = super().delta(epsilon)
        target = plain.value if self.target is None else self.target
        if plain.value == 0 or not target / WINDOW <= plain.value <= target * WINDOW:
            return plain
        return min(plain, self._in_parts(epsilon), key=lambda bound: bound.value)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        return (
            *super().explain(),
            f"{self.share:.6g} of the victim's noise as noise of rate {self.fast:.6g}, among the others with budgets "
            f"from {self.rates[self.split]:.6g}; the rest among those with smaller ones",
        )

    @property
    def _wide(self) -> bool:
        """Whether the victim's values are so far apart that T3 has no wide cells, those of hosts not between them."""
        return self.least >= LEAST_APART[0]

    @cached_property
    def _close(self) -> ExchangeLaplaceProfile:
        """For two values of the victim that are less than `least` from each other."""
        own = (self.local_epsilon, self.horizon, self.rates, self.kept, self.count)
        return ExchangeLaplaceProfile(*own, widest=self.least, followed=self.followed)

    @cached_property
    def _groups(self) -> tuple[_Group, _Group]:
        """That of the first part, and that of the rest."""
        near, far = slice(self.split, None), slice(None, self.split)
        others = ExchangeLaplaceProfile(self.local_epsilon, 1.0, self.rates[far], self.kept[far], self.count[far])
        groups = []
        for hidden, tiers, blanket in (
            (self.fast, near, _blanket(self.rates[near], self.fast, self.least)),
            (self.local_epsilon, far, others.blanket),
        ):
            group = _Group(hidden, self.rates[tiers], self.count[tiers], blanket, 1.0)
            most = float(group.blanket @ group.count) * MOST_SPENT * (1 - 1e-6)
            groups.append(replace(group, horizon=horizon(self.target, most)))
        return groups[0], groups[1]

    @cached_property
    def _first(self) -> list[tuple[float, float]]:
        """Pairs of ln E', increasing, and an upper bound on E[U_0 - E' U_1]_+ over the first group, for all data."""
        group = self._groups[0]
        rates = group.rates.tolist()
        variance = np.array([self._between(0.0, rate).variance for rate in rates])
        unit = math.sqrt(1 / float(group.count @ (1 / variance)))
        found: dict[float, float] = {}
        for knot in KNOTS:
            epsilon = abs(knot) * unit
            if epsilon not in found:
                tilts = group.tilts(variance, math.expm1(epsilon)).tolist()
                families = tuple(self._near(epsilon, *of) for of in zip(rates, tilts, strict=True))
                found[epsilon] = group.bound(families, math.expm1(epsilon), STAGES[0]).value
            # For E' < 1 by H_E'(P||Q) = 1 - E' + E' H_1/E'(Q||P); all pairs are covered in both directions.
            if knot < 0:
                found[-epsilon] = (-math.expm1(-epsilon) + math.exp(-epsilon) * found[epsilon]) * (1 + 16 * UNIT)
        return sorted(found.items())

    def _near(self, epsilon: float, rate: float, tilt: float) -> Family:
        if not self._wide:
            half = self.fast / 2
            pair = Pair(self.fast, self.fast, (half, 0.0), (math.exp(epsilon) * half, 0.0))
            family = grid_family(pair, rate, self.least, MORE_TERMS, tilt)
            if family is not None:
                return family
        return self._between(epsilon, rate)

    def _between(self, epsilon: float, rate: float) -> Family:
        return family_of(self.fast, epsilon, rate, apart=(self.least, 1.0), terms=MORE_TERMS)

    def _in_parts(self, epsilon: float) -> Bounded:
        """The bound of section 6, or 1 where it is not proved."""
        useless = Bounded(1.0, 0.0)
        groups = self._groups
        unheard = sum(math.exp(-group.horizon) for group in groups) * (1 + 64 * UNIT)
        if self.target is not None and unheard > MOST_LOST * self.target:
            return useless
        if epsilon > self.local_epsilon * self.least / 2 or self._first[-1][0] >= self.fast * self.least:
            return useless
        close = self._close.delta(epsilon)
        corners = list(self._corners(epsilon))
        total = corners[0][1] + unheard
        slack, slope, second = corners[0][1], 0.0, groups[1]
        rises = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(corners)]
        last = 2.0  # E[V - s A]_+ <= 1 - share + max(-s, 0), and s >= -2 share
        for (place, _), rise in zip(corners, [*rises, 1.0], strict=True):
            weight, rest = max(rise - slope, 0.0) + 512 * UNIT * max(rise, 0.0), max(1 - slope, 0.0)
            if rest * last <= NEGLIGIBLE * total:  # E[V - s A]_+ falls in s, and the rest of the slopes add up to this
                total += rest * last
                break
            slope = max(rise, slope)
            if weight * last <= NEGLIGIBLE * total:
                total += weight * last
                continue
            bound = self._corner(second, epsilon, place)
            if bound is None or bound.value >= 1:
                return useless
            last = min(last, bound.value)
            total += weight * last
            slack += weight * bound.slack
        total = total * (1 + 1e-12) + 5e-324
        far = Bounded(min(1.0, total), min(1.0, total, slack + unheard + 1e-12 * total))
        return max(far, close, key=lambda bound: bound.value)

    def _corners(self, epsilon: float) -> list[tuple[float, float]]:
        """(s, Phi(s)): a convex chain above Phi, by increasing s; beyond its ends Phi is constant, or has slope 1."""
        points: list[tuple[float, float]] = []
        gain = math.exp(epsilon)
        for log_gain, value in reversed(self._first):
            other = math.exp(log_gain)
            place = 2 * self.share * (gain - other) / (1 + other)
            # Phi does not fall, with slope at most 1: what the place is off by is added.
            height = self.share * (1 + gain) / (1 + other) * value * (1 + 32 * UNIT) + 32 * UNIT * self.share * gain
            while len(points) > 1 and _bends_down(points[-2], points[-1], (place, height)):
                points.pop()
            points.append((place, height))
        return points

    def _corner(self, group: _Group, epsilon: float, place: float) -> Bounded | None:
        """E[V - s A]_+ over the second group, s = place; None where it is not proved."""
        pair = _pair(self.local_epsilon, self.fast, self.share, epsilon, place)
        drift = (1 - self.share) * math.expm1(epsilon) + place
        rates = group.rates.tolist()
        tilts = group.tilts(np.array([pair_variance(pair, rate) for rate in rates]), drift)
        families = []
        for rate, tilt in zip(rates, tilts.tolist(), strict=True):
            if self._wide and pair.proper(rate, self.least):
                found = members(self.local_epsilon, epsilon, rate, apart=(self.least, 1.0))
                family = pair_family(pair, rate, found, MORE_TERMS)
            else:
                family = grid_family(pair, rate, self.least, MORE_TERMS, tilt)
            if family is None:
                return None
            families.append(family)
        return group.bound(tuple(families), drift, STAGES[1])


def _blanket(rates: Floats, fast: float, least: float) -> Floats:
    """Gamma, (T,): R_i >= gamma omega, which is half of the first part at each of two values; rounded down."""
    gamma: Floats = 2 * rates * np.exp(-rates) / (fast * (1 + math.exp(-fast * least)))
    return gamma * (1 - 64 * UNIT)


def _bends_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0])


def _pair(slow: float, fast: float, share: float, epsilon: float, place: float) -> Pair:
    """V - s A for s = place: the rest of the victim's noise, less s times omega."""
    taken, shown, gain = share * fast / 2, place * fast / 4, math.exp(epsilon)
    return Pair(slow, fast, (slow / 2, taken + shown), (gain * slow / 2, gain * taken - shown))


def in_parts(curve: ExchangeLaplaceProfile, target: float | None) -> ExchangeLaplaceProfile:
    """The curve, or the least of it and of the bound in two parts where that promises to be worth its time."""
    if not 2 <= curve.count.size <= FEW_TIERS or (curve.kept != 1).any():
        return curve
    epsilon = curve.guess(TUNING_DELTA if target is None else target)
    if not 0 < epsilon < curve.local_epsilon / 4:
        return curve
    most, best = (1 - WORTH) * curve.deviation_at(epsilon), None
    for split, factor in itertools.product(range(1, curve.count.size), FASTER):
        fast = factor * curve.local_epsilon
        if curve.rates[split - 1] >= MOST_FAR * curve.local_epsilon:
            continue
        for share, deviation in _limits(curve, epsilon, split, fast):
            if deviation < most and share * factor < 1 - 1e-9:
                most, best = deviation, (fast, share, split)
    if best is None:
        return curve
    for least in LEAST_APART:
        close = replace(curve, widest=least)
        if close.deviation_at(epsilon) <= (1 + CLOSER) * most:
            break
    else:
        return curve
    own = {at.name: getattr(curve, at.name) for at in fields(ExchangeLaplaceProfile)}
    fast, share, split = best
    return ExchangePartsProfile(**own, target=target, fast=fast, share=share, split=split, least=least)


def _limits(curve: ExchangeLaplaceProfile, epsilon: float, split: int, fast: float) -> Iterator[tuple[float, float]]:
    """The shares to try, and about the standard deviation of S_1 A_2 + A_1 S_2 for each."""
    rates, count, slow = curve.rates.tolist(), curve.count, curve.local_epsilon
    found = [((0.0, 1.0, 0.0), 1.0), ((0.0, 1.0, 1.0), 1.0)]
    near = float(
        count[split:] @ np.array([1 / max(second_moments(fast, epsilon, rate, 1.0)) for rate in rates[split:]])
    )
    tried = np.array([0.0, 0.2, 0.4])
    seconds = np.empty((split, 2, tried.size))
    for tier, rate in enumerate(rates[:split]):
        for k, share in enumerate(tried.tolist()):
            family = pair_family(_pair(slow, fast, share, epsilon, 0.0), rate, found, 2)
            if family is None:
                return
            seconds[tier, :, k] = family.scale**2 * family.moments[:, 0]
    given = float(count[split:] @ _blanket(curve.rates[split:], fast, LEAST_APART[0]))
    near *= max(1 - 1 / given, 1e-3)  # what the clock takes, about
    to_parabola = np.linalg.inv(np.vander(tried, 3))
    for share in SHARES:
        far = (seconds @ to_parabola.T @ np.array([share**2, share, 1.0])).max(1)
        yield share, math.sqrt(share**2 / near + 1 / float(count[:split] @ (1 / np.maximum(far, 1e-300))))
