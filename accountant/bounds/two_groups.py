"""The exchange bound for a victim with Laplace noise of whom others have larger budgets: two groups of hosts.

The difference of the victim's two laws is split into a core near its values, hidden among hosts whose budgets may be
larger than its own, and tails, hidden among others with smaller ones. A clock rings in both groups, so that which part
it was stays hidden too: what the first group leaves is a convex function of what the second one says, and is covered
by chords (docs/exchange-bound.md, section 6). Finitely many distances of the victim's values are enough. The laws are
in `split_laws`, the integrals in `exchange`; groups and splits are chosen in `group_choice`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.exchange import EXPONENT, horizon, rounded_up
from croupier.accountant.bounds.exchange_laplace import gamma_of, shown_by_noise
from croupier.accountant.bounds.laplace_laws import TERMS, Family
from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.noise_sums import LONGEST, Clocks, NoiseSums, terms_needed
from croupier.accountant.bounds.profile import Bounded, BoundKind, Curve, Inverse, smallest_epsilon
from croupier.accountant.bounds.split_laws import Distances, Split
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, Step
from croupier.protocol.statements import Statement, state

__all__ = ["LEVELS", "HostGroup", "TwoGroupProfile", "covering"]

LEVELS = ((8, 0.06), (32, 0.02))
"""Knots of the chords, and the step of the integrals: for all distances, and for those with the largest bounds. The
first alone costs 1 to 2 % of epsilon, and 12 % where delta is large; the second for all takes three times as long."""
WORST = 8
"""How many distances are refined at a time, and are enough between two evaluations of a bound that is inverted."""
COST = 0.004
"""What a step from one distance of the victim's values to the next may cost, as a part of epsilon: doubled until there
are few enough distances, up to a quarter. Half of it takes a third longer, for up to 0.5 % of the smallest budgets'."""
MOST_DISTANCES, MANY_TIERS = 120, 4
"""The most distances; a third of them for curves of many points, and with hosts of this many budgets or more: a
certificate takes up to some seconds, a third of the distances costs up to 1 % of epsilon."""
TOLERANCE, MOST_TRIES = 1e-3, 8
"""The relative width at which the search for epsilon ends, and how often it evaluates the bound of all distances."""
MOST_TILT = 16.0
"""theta times the standard deviation of a sum is about this at most; it decides how many moments are computed."""


@dataclass(frozen=True, eq=False)
class HostGroup:
    """Hosts with their rates and numbers, (T,)."""

    rates: Floats
    count: Floats


@dataclass(frozen=True, eq=False)
class TwoGroupProfile(Curve):
    """The bound of section 6 with two given groups of hosts and a given split. See `PrivacyProfile`."""

    kind: ClassVar[BoundKind] = BoundKind.EXCHANGE
    local_epsilon: float
    """The victim's; from there on delta is 0."""
    core: HostGroup
    """Those that hide the core."""
    tails: HostGroup
    """Those that hide the tails, with budgets up to the victim's; none of them is among the core's."""
    split: Split
    """The same for all distances of the victim's values."""
    target: float
    """The delta that decides how long the clocks run."""
    deviation: float = 1.0
    """That of the Gaussian limit, about; it decides where to look."""
    quick: bool = False
    """Whether few knots and distances are enough."""

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.EXCHANGE),)

    @property
    def tiers(self) -> int:
        """How many budgets the hosts have."""
        return self.core.rates.size + self.tails.rates.size

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        return (
            state(
                Step.TWO_GROUPS,
                share=self.split.share.max(),
                distance=self.split.outside[-1],
                core_users=self.core.count.sum(),
                core_epsilon=self.core.rates.max(),
                other_users=self.tails.count.sum(),
                other_epsilon=self.tails.rates.max(),
            ),
        )

    def guess(self, delta: float) -> float:
        """The Gaussian limit, which is close to the bound and may lie on either side of it."""
        return gaussian_epsilon(self.deviation, delta)

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """See `Curve.to_compose`: chords of a quicker bound; None with many budgets, where a point takes seconds."""
        return None if self.tiers > MANY_TIERS else ChordProfile(replace(self, quick=True), delta, ceiling)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local, value = shown_by_noise(self.local_epsilon, epsilon), self.bound(epsilon)
        return rounded_up(value) if value < local.value else local

    def bound(self, epsilon: float) -> float:
        """An upper bound on the divergence, rounded up; infinite where it is not proved."""
        return self._worst(epsilon).bound

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See `Curve.smallest_epsilon`. Between two evaluations the search goes on at the worst distances only."""
        best = Inverse(ceiling, None, 0)
        point = min(self.guess(delta), ceiling * (1 - TOLERANCE))
        for tries in range(1, MOST_TRIES):
            if not 0 < point < best.epsilon:
                break
            worst = self._worst(point)
            if worst.bound <= delta:
                best = Inverse(point, rounded_up(worst.bound), tries)
                if worst.bound >= delta * (1 - 4 * TOLERANCE):
                    break
            elif not worst.bound < 1:
                break
            point = smallest_epsilon(worst, delta * (1 - 2 * TOLERANCE), best.epsilon, TOLERANCE / 100).epsilon
        return best

    def rings(self) -> float:
        """What gamma adds up to, at the distance 1, in the group whose clocks ring less often."""
        at = Distances.at(self.local_epsilon, np.ones(1), np.zeros(1), 0.0)
        return min(float(self._gamma(hosts, at)[0] @ hosts.count) for hosts in (self.core, self.tails))

    def _worst(self, epsilon: float) -> _Worst:
        """The bound for all distances, and the distances at which it is largest: those are refined."""
        few = self.quick or self.tiers >= MANY_TIERS
        most = MOST_DISTANCES // 3 if few else MOST_DISTANCES
        at = covering(self.local_epsilon, epsilon, float(self.core.rates.max()), most)
        if at is None:
            return _Worst(self, math.inf, np.ones(1), np.zeros(1))
        found = self.bounds(at, *LEVELS[0])
        fine = np.full(found.size, self.quick)
        while not fine[int(np.argmax(found))]:
            worst = np.argsort(np.where(fine, 0.0, -found))[:WORST]
            found[worst] = np.minimum(found[worst], self.bounds(at.take(worst), *LEVELS[1]))
            fine[worst] = True
        worst, width = np.argsort(-found)[:WORST], at.distance - at.nearest
        return _Worst(self, float(found.max()) * (1 + 1e-8), at.distance[worst], width[worst])

    def bounds(self, at: Distances, number: int, step: float) -> Floats:
        """The theorem of section 6 for every distance, (K,), with this many knots and integrals of this step."""
        split = self.split
        mass, (alone, _) = split.mass(at), split.mean(at, tails=False)
        even = -alone / mass  # so that the core has no mass, and all of the mean is the tails'
        one, two = (
            GroupSums.of(self, hosts, at, split.with_moved(even), tails=tails)
            for hosts, tails in ((self.core, False), (self.tails, True))
        )
        total = np.hypot(one.deviation, two.deviation)
        middle = -np.expm1(at.log_gain) * (one.deviation / total) ** 2
        width = math.sqrt(3) * one.deviation * two.deviation / total
        knots = even[:, None] + (middle[:, None] + width[:, None] * _quantiles(number)) / mass[:, None]
        which = np.repeat(np.arange(at.distance.size), number)
        rows, moved = at.take(which), split.with_moved(knots.ravel())
        heights = one.positive_parts(rows, which, moved, step).reshape(knots.shape)
        corners = two.positive_parts(rows, which, moved, step).reshape(knots.shape)
        silent = (one.clocks.silent + two.clocks.silent) * self._alone(at)
        chords = zip(knots, mass.tolist(), heights, corners, silent.tolist(), strict=True)
        found = np.array([_chords(*points) + lost for *points, lost in chords])
        return np.where(np.isnan(found), math.inf, found)

    def _alone(self, at: Distances) -> Floats:
        """What the victim's report shows by itself, (K,), rounded up."""
        shown: Floats = -np.expm1((at.log_gain - self.local_epsilon * at.distance) / 2) * (1 + 16 * UNIT)
        return np.maximum(shown, 0.0)

    def _gamma(self, hosts: HostGroup, at: Distances) -> Floats:
        """What a host of every budget gives, (K, T): the tails' hosts psi/Z, the core's the omega of T4."""
        if hosts is self.core:
            return np.tile(gamma_of(hosts.rates), (at.distance.size, 1))
        return np.stack([self.split.gamma(at, rate) for rate in hosts.rates.tolist()], axis=1)


@dataclass(frozen=True, eq=False)
class _Worst:
    """Where a bound is largest; what it is there for other epsilons tells where to look for the least one."""

    curve: TwoGroupProfile
    bound: float
    distance: Floats
    width: Floats
    """Of the cells beside each of them."""

    def delta(self, epsilon: float) -> Bounded:
        """For these distances only: no bound for all of them."""
        at = Distances.at(self.curve.local_epsilon, self.distance, self.width, epsilon)
        return Bounded(min(1.0, float(self.curve.bounds(at, *LEVELS[not self.curve.quick]).max())), 0.0)

    def guess(self, delta: float) -> float:
        """See `TwoGroupProfile`."""
        return self.curve.guess(delta)


@dataclass(frozen=True, eq=False)
class GroupSums:
    """One of the groups at K distances: its clocks, which are the same at all knots."""

    hosts: HostGroup
    tails: bool
    clocks: Clocks
    deviation: Floats
    """About the standard deviation of what the group says, (K,)."""
    terms: int
    """How many terms of a power series are enough."""

    @classmethod
    def of(cls, curve: TwoGroupProfile, hosts: HostGroup, at: Distances, split: Split, *, tails: bool) -> GroupSums:
        number = at.distance.size
        families = [split.family(at, rate, tails=tails, terms=3) for rate in hosts.rates.tolist()]
        scale = np.stack([np.ones(number) if f is None else f.largest(number, 0) for f in families], axis=1)
        second = np.stack([np.ones(number) if f is None else f.largest(number, 2) for f in families], axis=1)
        gamma, second = curve._gamma(hosts, at), np.maximum(second, 1e-300)
        horizons = np.array([horizon(curve.target, most) for most in (gamma @ hosts.count * LONGEST).tolist()])
        clocks = Clocks.of(hosts.count, gamma, second, horizons)
        deviation = np.sqrt((hosts.count * clocks.weights**2 * second).sum(1))
        size = MOST_TILT * float(((clocks.weights * scale).max(1) / deviation).max())
        return cls(hosts, tails, clocks, deviation, terms_needed(size, TERMS))

    def positive_parts(self, rows: Distances, which: Ints, split: Split, step: float) -> Floats:
        """Upper bounds on E[Y]_+ for the distances and knots of all rows; infinite where there is none."""
        families = [split.family(rows, e, tails=self.tails, terms=self.terms) for e in self.hosts.rates.tolist()]
        known: list[Family] = [family for family in families if family is not None]
        if len(known) < len(families):
            return np.full(rows.distance.shape, math.inf)
        mean, terms = split.mean(rows, tails=self.tails)
        weights, log_mass, left = (x[which] for x in (self.clocks.weights, self.clocks.log_mass, self.clocks.left))
        return NoiseSums(self.hosts.count, weights, log_mass, mean, terms, left, tuple(known)).positive_parts(step)


def _quantiles(number: int) -> Floats:
    """Where knots are, in standard deviations of a normal law: further out they would find hardly any mass."""
    from scipy.special import ndtri

    edge = 1 / (4 * LEVELS[-1][0])
    found: Floats = ndtri(np.linspace(edge, 1 - edge, number))
    return found


def _chords(places: Floats, mass: float, heights: Floats, corners: Floats) -> float:
    """Phi_0 + sum_k c_k E[U_2 - s_k A_2]_+ for the lower hull of the points (s_k, Phi_k); rounded up.

    The last inequality of section 6's theorem. places: s_k / mass. mass: that of psi, good to 16 ulp.
    """
    if not (np.isfinite(heights).all() and np.isfinite(corners).all()):
        return math.inf
    hull: list[int] = []
    for k in range(places.size):
        while hull and heights[hull[-1]] >= heights[k]:
            hull.pop()  # Phi does not fall: what is above a later one is of no use
        while len(hull) > 1 and _bends_down(places, heights, hull[-2], hull[-1], k):
            hull.pop()
        hull.append(k)
    total, slope = float(heights[hull[0]]), 0.0
    rises = [(heights[b] - heights[a]) / (places[b] - places[a]) / mass for a, b in itertools.pairwise(hull)]
    for k, rise in zip(hull, [*rises, 1.0], strict=True):
        total += (max(rise - slope, 0.0) + EXPONENT * max(rise, 0.0)) * float(corners[k])
        slope = max(rise, slope)
    return total * (1 + 1e-12)


def _bends_down(x: Floats, y: Floats, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[b]) >= (y[c] - y[b]) * (x[b] - x[a]))


def covering(victim: float, epsilon: float, steepest: float, most: int) -> Distances | None:
    """Distances from 1 down to epsilon/v, below which the divergence is 0; None where that takes too many.

    "All distances", section 6. steepest: the largest budget of a host. most: how many distances there may be.
    """
    if not 0 < epsilon < victim:
        return None
    span, cost = 1 - epsilon / victim, COST
    while (steps := math.ceil(span / min(math.sqrt(8 * cost * epsilon) / victim, 4 * cost / steepest))) >= most:
        cost *= 2
        if cost > 1 / 4:
            return None
    # Each is an end of two cells. The last one is rounded to at most epsilon/v.
    found = 1 - span * (1 + 4 * UNIT) * np.arange(steps + 1) / steps
    widths = np.append(-np.diff(found), 0.0)
    return Distances.at(victim, np.maximum(found, 0.0), np.maximum(widths, np.roll(widths, 1)), epsilon)
