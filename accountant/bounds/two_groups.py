"""The exchange bound for a victim with Laplace noise if others have larger budgets: two groups of hosts.

The difference of the victim's two laws is split into a core near its values, hidden among hosts whose budgets may be
larger than its own, and tails, hidden among others with smaller ones. A clock rings in both groups, which hides whether
the report was the core's or the tails': the remaining divergence of the first group is a convex function of the second
group's sum, and chords cover it (docs/paper, section 6). Finitely many distances of the victim's values are enough. The
laws are in `split_laws`, the integrals in `exchange`; `group_choice` chooses groups and splits.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.best_split import HostGroup
from croupier.accountant.bounds.exchange import EXPONENT, horizon, rounded_up
from croupier.accountant.bounds.exchange_laplace import STEP, gamma_of, shown_by_noise
from croupier.accountant.bounds.laplace_laws import Family
from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.noise_sums import LONGEST, Clocks, NoiseSums
from croupier.accountant.bounds.profile import Curve
from croupier.accountant.bounds.split_laws import Distances, Split
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

KNOTS = 24
"""Knots of the chords. A third of them, as in curves of many points, makes epsilon up to 3 % larger; the time is in
proportion to them."""
COSTS = tuple(0.004 * 2.0**power for power in range(6))
"""Allowed costs of a step between distances of the victim's values, as a fraction of epsilon; the first one with few
enough distances is taken. Half of the first takes a third longer, for up to 0.5 % of the smallest budgets' epsilon."""
MOST_DISTANCES = 40
"""The most distances. Three times as many make epsilon at most 2 % smaller, and take three times as long."""
MANY_TIERS = 4
"""Hosts of more budgets than this get no curve of many points, because each point would take about a second."""


@dataclass(frozen=True, eq=False)
class TwoGroupProfile(Curve):
    """The bound of section 6 with two given groups of hosts and a given split. See `PrivacyProfile`."""

    proved_by: ClassVar[Method] = Method.EXCHANGE
    local_epsilon: float
    """The victim's local budget; delta is 0 from there on."""
    core: HostGroup
    """The hosts that hide the core."""
    tails: HostGroup
    """The hosts that hide the tails, with budgets up to the victim's; disjoint from the core's."""
    split: Split
    """The split, which does not depend on the distance of the victim's values."""
    target: float
    """The delta that decides how long the clocks run."""
    deviation: float = 1.0
    """About the standard deviation of the Gaussian limit, which decides where to evaluate."""
    knots: int = KNOTS
    """The number of knots of the chords."""

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (
            Statement.of(
                ProofStep.TWO_GROUPS,
                share=self.split.share.max(),
                distance=self.split.outside[-1],
                core_users=self.core.count.sum(),
                core_epsilon=self.core.rates.max(),
                other_users=self.tails.count.sum(),
                other_epsilon=self.tails.rates.max(),
            ),
        )

    def guess(self, delta: float) -> float:
        """Returns the Gaussian limit, which is close to the bound and may lie on either side of it."""
        return gaussian_epsilon(self.deviation, delta)

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """See `Curve.to_compose`: chords of a bound with fewer knots; None with many budgets."""
        tiers = self.core.rates.size + self.tails.rates.size
        return None if tiers > MANY_TIERS else ChordProfile(replace(self, knots=KNOTS // 3), delta, ceiling)

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`: every evaluation takes up to a second."""
        return 1e-3

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local, value = shown_by_noise(self.local_epsilon, epsilon), self.bound(epsilon)
        return rounded_up(value) if value < local.value else local

    def bound(self, epsilon: float) -> float:
        """Returns an upper bound on the divergence for all distances, rounded up; infinite if there is no proof."""
        at = covering(self.local_epsilon, epsilon, float(self.core.rates.max()))
        return math.inf if at is None else float(self.bounds(at).max()) * (1 + 1e-8)

    def bounds(self, at: Distances) -> Floats:
        """Returns the theorem of section 6 for every distance, (K,)."""
        split = self.split
        mass, (alone, _) = split.mass(at), split.mean(at, tails=False)
        even = -alone / mass  # gives the core no mass, and the tails all of the mean
        core, tails = (
            GroupSums.of(self, hosts, at, replace(split, moved=even), tails=tails)
            for hosts, tails in ((self.core, False), (self.tails, True))
        )
        total = np.hypot(core.deviation, tails.deviation)
        middle = -np.expm1(at.log_gain) * (core.deviation / total) ** 2
        width = math.sqrt(3) * core.deviation * tails.deviation / total
        knots = even[:, None] + (middle[:, None] + width[:, None] * _quantiles(self.knots)) / mass[:, None]
        which = np.repeat(np.arange(at.distance.size), self.knots)
        rows, moved = at.take(which), replace(split, moved=knots.ravel())
        heights = core.positive_parts(rows, which, moved).reshape(knots.shape)
        corners = tails.positive_parts(rows, which, moved).reshape(knots.shape)
        silent = (core.clocks.silent + tails.clocks.silent) * self._alone(at)
        chords = zip(knots, mass.tolist(), heights, corners, silent.tolist(), strict=True)
        bounds = np.array([chord_bound(*points) + lost for *points, lost in chords])
        return np.where(np.isnan(bounds), math.inf, bounds)

    def _alone(self, at: Distances) -> Floats:
        """Returns the divergence of the victim's report alone, (K,), rounded up."""
        shown: Floats = -np.expm1((at.log_gain - self.local_epsilon * at.distance) / 2) * (1 + 16 * UNIT)
        return np.maximum(shown, 0.0)

    def _gamma(self, hosts: HostGroup, at: Distances) -> Floats:
        """Returns gamma of every budget, (K, T): for psi/Z of the tails' hosts, for the omega of T4 of the core's."""
        if hosts is self.core:
            return np.tile(gamma_of(hosts.rates), (at.distance.size, 1))
        return np.stack([self.split.gamma(at, rate) for rate in hosts.rates.tolist()], axis=1)


@dataclass(frozen=True, eq=False)
class GroupSums:
    """One of the groups at K distances: its clocks, which are the same at all knots."""

    hosts: HostGroup
    tails: bool
    clocks: Clocks
    deviation: Floats
    """About the standard deviation of the group's sum, (K,)."""

    @classmethod
    def of(cls, curve: TwoGroupProfile, hosts: HostGroup, at: Distances, split: Split, *, tails: bool) -> GroupSums:
        """Returns the sums over `hosts` for distances and knots (K,); see `Split` for `tails`."""
        number = at.distance.size
        families = [split.family(at, rate, tails=tails) for rate in hosts.rates.tolist()]
        second = np.stack([np.ones(number) if f is None else f.largest_second(number) for f in families], axis=1)
        gamma, second = curve._gamma(hosts, at), np.maximum(second, 1e-300)
        horizons = np.array([horizon(curve.target, most) for most in (gamma @ hosts.count * LONGEST).tolist()])
        clocks = Clocks.of(hosts.count, gamma, second, horizons)
        deviation = np.sqrt((hosts.count * clocks.weights**2 * second).sum(1))
        return cls(hosts, tails, clocks, deviation)

    def positive_parts(self, rows: Distances, which: Ints, split: Split) -> Floats:
        """Returns upper bounds on E[Y]_+ for the distances and knots of all rows; infinite if there is no proof."""
        families = [split.family(rows, e, tails=self.tails) for e in self.hosts.rates.tolist()]
        known: list[Family] = [family for family in families if family is not None]
        if len(known) < len(families):
            return np.full(rows.distance.shape, math.inf)
        mean, terms = split.mean(rows, tails=self.tails)
        weights, log_mass, left = (x[which] for x in (self.clocks.weights, self.clocks.log_mass, self.clocks.left))
        return NoiseSums(self.hosts.count, weights, log_mass, mean, terms, left, tuple(known)).positive_parts(STEP)


def _quantiles(number: int) -> Floats:
    """Returns the knots in standard deviations of a normal law; beyond them there is hardly any mass."""
    from scipy.special import ndtri

    edge = 1 / (4 * KNOTS)
    quantiles: Floats = ndtri(np.linspace(edge, 1 - edge, number))
    return quantiles


def chord_bound(places: Floats, mass: float, heights: Floats, corners: Floats) -> float:
    """Returns Phi_0 + sum_k c_k E[U_2 - s_k A_2]_+ for the lower hull of the points (s_k, Phi_k); rounded up.

    The last inequality of section 6's theorem. places: s_k / mass. mass: that of psi, good to 16 ulp.
    """
    if not (np.isfinite(heights).all() and np.isfinite(corners).all()):
        return math.inf

    def slope(a: int, b: int) -> float:
        return float((heights[b] - heights[a]) / (places[b] - places[a]) / mass)

    hull: list[int] = []
    for k in range(places.size):
        while hull and heights[hull[-1]] >= heights[k]:
            hull.pop()  # Phi does not decrease, so a point above a later one is useless
        while len(hull) > 1 and slope(hull[-2], hull[-1]) >= slope(hull[-1], k):
            hull.pop()
        hull.append(k)
    total, before = float(heights[hull[0]]), 0.0
    for k, rise in zip(hull, [*itertools.starmap(slope, itertools.pairwise(hull)), 1.0], strict=True):
        total += (max(rise - before, 0.0) + EXPONENT * max(rise, 0.0)) * float(corners[k])
        before = max(rise, before)
    return total * (1 + 1e-12)


def covering(victim: float, epsilon: float, steepest: float) -> Distances | None:
    """Returns distances from 1 down to epsilon/v, below which the divergence is 0; None if that takes too many.

    "All distances", section 6. steepest: the largest budget of a host.
    """
    if not 0 < epsilon < victim:
        return None
    span = 1 - epsilon / victim
    for cost in COSTS:
        steps = math.ceil(span / min(math.sqrt(8 * cost * epsilon) / victim, 4 * cost / steepest))
        if steps < MOST_DISTANCES:
            break
    else:
        return None
    # Each is an end of two cells. The last one is rounded to at most epsilon/v.
    distances = 1 - span * (1 + 4 * UNIT) * np.arange(steps + 1) / steps
    widths = np.append(-np.diff(distances), 0.0)
    return Distances.at(victim, np.maximum(distances, 0.0), np.maximum(widths, np.roll(widths, 1)), epsilon)
