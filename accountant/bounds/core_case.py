"""The bound for a victim with Laplace noise in two groups of hosts, with groups and cuts that are given.

What the victim shows is cut in two: a core near its values, hidden among hosts whose budgets may be larger than its
own, and the rest, hidden among others with smaller ones. A clock rings in both groups, so that which part it was stays
hidden too: what the first group leaves is a convex function of what the second one says, and is covered by chords
(docs/exchange-bound.md, section 6). Finitely many distances of the victim's values stand for all. The laws are in
`core_laws`, the integrals in `exchange_rows`; groups and cuts are chosen in `exchange_core`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from croupier.accountant.bounds.core_laws import TERMS, Apart, Cut
from croupier.accountant.bounds.exchange import LEAST, horizon, stages
from croupier.accountant.bounds.exchange_laplace import (
    FEW_TIERS,
    ExchangeLaplaceProfile,
    left_of_host,
    spread,
)
from croupier.accountant.bounds.exchange_rows import HostSums, terms_needed
from croupier.accountant.bounds.laplace_laws import Family
from croupier.accountant.bounds.profile import Bounded, Inverse, smallest_epsilon
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.protocol.codes import Step
from croupier.protocol.statements import Statement, state

__all__ = ["COARSEST", "LONGEST", "CoreCase", "Hosts", "distances", "one_distance"]

STAGES, FEWER_STAGES, MANY_HOSTS = 12, 4, 2_000.0
"""Stages of the clocks: more are sharper and take longer. The second number serves where gamma adds up to more than the
third: a host then gives so little that its stage hardly matters."""
NEAREST_COST, WIDE_COST, COST = 0.002, 0.005, 0.3
"""What a step from one distance of the victim's values to the next may cost, as a part of epsilon: for the mean that is
lost, and for hosts that may be further away. The third is the part of a distance's room that a step may use up."""
MOST_COST = 0.6
"""The most that a step may cost for the mean, however much room there is."""
COARSEST = (8, 0.06)
LEVELS = (COARSEST, (16, 0.04), (32, 0.02))
"""Knots of the chords, and the step of the integrals: for all distances, for those that matter, and for the worst."""
REACH = 2.4
"""Knots are at quantiles of a normal law, up to this many of its standard deviations to either side."""
REFINED, NEAR = 24, (0.7, 0.93)
"""How many distances at a time are computed at the next level, of those whose bounds are at least such a part of the
largest: a larger batch wastes work on distances that do not matter, a smaller one evaluates more often."""
MANY_DISTANCES = 120
"""With more distances, or with hosts of more than three budgets, there is no third level: it would take minutes."""
STEPS = ((0.25, 120), (1.0, 200), (3.0, 200))
"""How many times as much as above steps may cost, and the most steps for which that is used; beyond the last one
nothing is claimed. The first costs epsilon 0.2 %, the last 2 %."""
QUICK_STEPS, COARSER_STEPS = 4.0, 3.0
"""How many times as much steps may cost for curves of many points, and with hosts of more than three budgets."""
LEADING = 8
"""How many of the worst distances stand for all between two evaluations of a bound that is inverted."""
LEAST_REACHED, TOLERANCE, MOST_TRIES = 0.995, 1e-5, 8
"""The search for epsilon ends where the bound reaches this part of its target, 0.02 % of epsilon; the relative width
of the search at the worst distances; and how often the bound of all distances is evaluated at most."""
SPENT, LONGEST = 0.7, 0.5
"""What part of its gamma a host gives at most, and a group until its clocks stop: more would leave hosts so little of
their own law that their moments grow."""
MOST_TILT = 16.0
"""theta times the standard deviation of a sum is about this at most; it decides how many moments are computed."""
ROUNDING = 512 * UNIT
"""What is added to the slopes of the chords, relatively: far more than their rounding (section 6, Numerics)."""


@dataclass(frozen=True, eq=False)
class Hosts:
    """Hosts with their rates and numbers, (T,), and the target that decides how long their clocks run."""

    rates: Floats
    count: Floats
    delta: float

    @cached_property
    def blanket(self) -> Floats:
        """Gamma, (T,), of T4 for these budgets; rounded down."""
        return ExchangeLaplaceProfile(1.0, 1.0, self.rates, np.ones_like(self.rates), self.count).blanket

    def clocks(self, blanket: Floats, second: Floats, scale: Floats) -> Clocks:
        """For hosts with these gamma, about these second moments and these largest values, (K, T)."""
        weights, left, log_mass, ends = [], [], [], []
        number = STAGES if float((blanket @ self.count).min()) < MANY_HOSTS else FEWER_STAGES
        for gamma, one in zip(blanket, second, strict=True):
            until = horizon(self.delta, float(gamma @ self.count) * LONGEST)
            alpha = spread(1 / one, self.count, gamma, until, SPENT)
            end, mass = stages(until, number)
            weights.append(alpha)
            left.append(np.stack([left_of_host(alpha, gamma, t) for t in end.tolist()], axis=1))
            log_mass.append(mass)
            ends.append(until)
        alpha = np.stack(weights)
        deviation = np.sqrt((self.count * alpha**2 * second).sum(1))
        terms = terms_needed(MOST_TILT * float(((alpha * scale).max(1) / deviation).max()), TERMS)
        return Clocks(alpha, np.stack(left), np.stack(log_mass), np.exp(-np.array(ends)), deviation, terms)


@dataclass(frozen=True, eq=False)
class Clocks:
    """Of a group, for K distances: alpha (K, T); what is left of hosts (K, T, S); ln of the stages' chances (K, S)."""

    weights: Floats
    left: Floats
    log_mass: Floats
    silent: Floats
    """The chance that none rings, (K,)."""
    deviation: Floats
    """About the standard deviation of what the group says, (K,)."""
    terms: int
    """So many of a power series will do."""


@dataclass(frozen=True, eq=False)
class CoreCase:
    """The bound with two given groups of hosts and a given split."""

    victim: float
    """Its local epsilon."""
    core: Hosts
    """Those that hide the core."""
    tails: Hosts
    """Those that hide the rest, with budgets up to the victim's; none of them is among the core's."""
    cut: Cut
    """The same split for all distances of the victim's values."""
    deviation: float
    """That of the Gaussian limit, about."""
    room: tuple[tuple[float, float], ...] = ((0.0, 1.0), (1.0, 0.0))
    """Distances, increasing, and what part of epsilon may be lost there, about, before they are the worst."""
    shared: bool = False
    """Whether it is the core's hosts that give omega near the victim's values, and not those of the tails."""

    @property
    def step(self) -> Statement[Step]:
        """How the victim's noise is split between the two groups."""
        cut = self.cut
        return state(
            Step.TWO_GROUPS,
            share=cut.share.max(),
            distance=cut.outside[-1],
            core_users=self.core.count.sum(),
            core_epsilon=self.core.rates.max(),
            other_users=self.tails.count.sum(),
            other_epsilon=self.tails.rates.max(),
        )

    def bound(self, epsilon: float, *, quick: bool = False) -> float:
        """An upper bound on the divergence, rounded up; infinite where it is not proved.

        quick: whether few knots and distances are enough.
        """
        return self._worst(epsilon, quick=quick).bound

    def smallest_epsilon(self, delta: float, ceiling: float) -> Inverse:
        """About the least epsilon with this bound; the search starts at the Gaussian limit.

        Returns the ceiling, with nothing reached, where no smaller epsilon is found. Between two evaluations of the
        bound the search goes on at its worst distances only.
        """
        best = Inverse(ceiling, None, 0)
        point = min(self.guess(delta), ceiling * (1 - TOLERANCE))
        for tries in range(1, MOST_TRIES):
            if not 0 < point < best.epsilon:
                break
            worst = self._worst(point)
            if worst.bound <= delta:
                best = Inverse(point, Bounded(worst.bound, min(worst.bound, 1e-6 * worst.bound + LEAST)), tries)
                if worst.bound >= delta * LEAST_REACHED:
                    break
            elif not worst.bound < 1:
                break
            point = smallest_epsilon(worst, delta * math.sqrt(LEAST_REACHED), best.epsilon, TOLERANCE).epsilon
        return best

    def heard(self) -> float:
        """What gamma adds up to, at the distance 1, in the group whose clock is heard less."""
        at = one_distance(self.victim, np.ones(1), np.zeros(1), 0.0)
        giver, other = (self.core, self.tails) if self.shared else (self.tails, self.core)
        gamma = np.array([self.cut.blanket(at, rate)[0] for rate in giver.rates.tolist()])
        return min(float(giver.count @ gamma), float(other.count @ other.blanket))

    def _worst(self, epsilon: float, *, quick: bool = False) -> _Worst:
        """The bound, and the distances at which it is largest."""
        few = self.tiers <= FEW_TIERS
        coarse = QUICK_STEPS if quick else 1.0 if few else COARSER_STEPS
        apart = distances(self.victim, epsilon, float(self.core.rates.max()), self.room, coarse)
        if apart is None:
            return _Worst(self, math.inf, np.ones(1), np.zeros(1), COARSEST)
        found = self.bounds(apart, *COARSEST)
        level, last = np.zeros(found.size, dtype=np.int64), 2 if few and found.size <= MANY_DISTANCES else 1
        # The largest are refined, until the largest is one that cannot be.
        while not quick and (now := int(level[int(np.argmax(found))])) < last:
            order = np.argsort(-np.where(level == now, found, 0.0))[:REFINED]
            order = order[(level[order] == now) & (found[order] >= NEAR[now] * found.max())]
            found[order] = np.minimum(found[order], self.bounds(apart.some(order), *LEVELS[now + 1]))
            level[order] = now + 1
        order = np.argsort(-found)[:LEADING]
        width = apart.distance - apart.nearest
        most = float(found.max()) * (1 + 1e-8) + LEAST
        return _Worst(self, most, apart.distance[order], width[order], LEVELS[level[order[0]]])

    def guess(self, delta: float) -> float:
        """Returns the epsilon of the Gaussian limit, which is close to the bound and may lie on either side of it."""
        return gaussian_epsilon(self.deviation, delta)

    @property
    def tiers(self) -> int:
        """Of hosts."""
        return self.core.rates.size + self.tails.rates.size

    def bounds(self, apart: Apart, number: int, step: float) -> Floats:
        """Upper bounds for every distance, (K,), with so many knots and integrals of this step."""
        cut = self.cut
        mass, (alone, _) = cut.mass(apart), cut.mean(apart, tails=False)
        even = -alone / mass  # so that the core has no mass, and all of the mean is the tails'
        one, two = (
            self.clocks(hosts, apart, cut.with_moved(even), tails=tails)
            for hosts, tails in ((self.core, False), (self.tails, True))
        )
        total = np.hypot(one.deviation, two.deviation)
        middle = -np.expm1(apart.log_gain) * (one.deviation / total) ** 2
        width = math.sqrt(3) * one.deviation * two.deviation / total
        knots = even[:, None] + (middle[:, None] + width[:, None] * _quantiles(number)) / mass[:, None]
        which = np.repeat(np.arange(apart.distance.size), number)
        rows, moved = apart.some(which), cut.with_moved(knots.ravel())
        heights = self._positive_parts(self.core, one, rows, which, moved, step, tails=False).reshape(knots.shape)
        corners = self._positive_parts(self.tails, two, rows, which, moved, step, tails=True).reshape(knots.shape)
        silent = (one.silent + two.silent) * self._alone(apart)
        found = np.array(
            [
                _chords(*of) + lost
                for *of, lost in zip(knots, mass.tolist(), heights, corners, silent.tolist(), strict=True)
            ]
        )
        return np.where(np.isnan(found), math.inf, found)

    def _alone(self, apart: Apart) -> Floats:
        """What the victim's report shows by itself, (K,), rounded up."""
        v = self.victim
        shown: Floats = np.maximum(-np.expm1((apart.log_gain - v * apart.distance) / 2), 0.0) * (1 + 16 * UNIT)
        return shown

    def clocks(self, hosts: Hosts, apart: Apart, cut: Cut, *, tails: bool) -> Clocks:
        """The clocks of a group."""
        number = apart.distance.size
        families = [cut.family(apart, rate, tails=tails, terms=3) for rate in hosts.rates.tolist()]
        worst = [
            np.ones(number) if f is None else (f.scale**2 * f.moments[:, 0]).reshape(number, -1).max(1)
            for f in families
        ]
        second = np.maximum(np.stack(worst, axis=1), 1e-300)
        if tails != self.shared:
            blanket = np.stack([cut.blanket(apart, rate) for rate in hosts.rates.tolist()], axis=1)
        else:
            blanket = np.tile(hosts.blanket, (number, 1))
        scale = np.stack([np.ones(number) if f is None else f.scale.reshape(number, -1).max(1) for f in families], 1)
        return hosts.clocks(blanket, second, scale)

    def _positive_parts(
        self, hosts: Hosts, clocks: Clocks, rows: Apart, which: Ints, cut: Cut, step: float, *, tails: bool
    ) -> Floats:
        """Upper bounds on E[Y]_+ for the distances and knots of all rows; infinite where there is none."""
        families = [cut.family(rows, rate, tails=tails, terms=clocks.terms) for rate in hosts.rates.tolist()]
        known: list[Family] = [family for family in families if family is not None]
        if len(known) < len(families):
            return np.full(rows.distance.shape, math.inf)
        mean, terms = cut.mean(rows, tails=tails)
        return HostSums(
            hosts.count,
            clocks.weights[which],
            clocks.left[which],
            clocks.log_mass[which],
            tuple(known),
            mean,
            terms,
        ).positive_parts(step)


@dataclass(frozen=True, eq=False)
class _Worst:
    """Where a bound is largest; what it is there for other epsilons tells where to look for the least one."""

    case: CoreCase
    bound: float
    distance: Floats
    width: Floats
    """Of the cells beside each of them."""
    level: tuple[int, float]
    """See `LEVELS`."""

    def delta(self, epsilon: float) -> Bounded:
        """For these distances only: no bound for all of them."""
        some = one_distance(self.case.victim, self.distance, self.width, epsilon)
        found = float(self.case.bounds(some, *self.level).max())
        return Bounded(min(1.0, found), 0.0)

    def guess(self, delta: float) -> float:
        """See `CoreCase`."""
        return self.case.guess(delta)


@lru_cache
def _quantiles(number: int) -> Floats:
    """Where knots are, in standard deviations of a normal law."""
    from scipy.special import ndtri

    edge = 0.5 * math.erfc(REACH / math.sqrt(2))
    found: Floats = ndtri(np.linspace(edge, 1 - edge, number))
    return found


def _chords(places: Floats, mass: float, heights: Floats, corners: Floats) -> float:
    """Phi_0 + sum_k c_k E[U_2 - s_k A_2]_+ for the lower hull of the points (s_k, Phi_k); rounded up.

    places: s_k / mass. mass: that of psi, good to 16 ulp.
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
        total += (max(rise - slope, 0.0) + ROUNDING * max(rise, 0.0)) * float(corners[k])
        slope = max(rise, slope)
    return total * (1 + 1e-12)


def _bends_down(x: Floats, y: Floats, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[b]) >= (y[c] - y[b]) * (x[b] - x[a]))


def one_distance(victim: float, distance: Floats, width: Floats, epsilon: float) -> Apart:
    """The distances, each an end of cells that are at most so wide; hosts are on all of [-1, 1]."""
    log_kept = -((victim * (width + UNIT)) ** 2) / 8 * (1 + 16 * UNIT)  # differences of distances are rounded
    gain = (epsilon + log_kept) - 4 * UNIT * (epsilon + np.abs(log_kept))
    return Apart(victim, distance, gain, np.maximum(0.0, distance - width))


def distances(
    victim: float,
    epsilon: float,
    steep: float,
    room: tuple[tuple[float, float], ...],
    coarse: float = 1.0,
) -> Apart | None:
    """From 1 down to epsilon/v, below which the divergence is 0; None where that takes too many.

    steep: the largest budget of a host. room: see `CoreCase`. coarse: how many times as much steps may cost.
    """
    if not 0 < epsilon < victim:
        return None
    places, parts = np.array(room).T
    for times, most in STEPS:
        times *= coarse
        found, widths = [1.0], []
        while found[-1] > epsilon / victim and len(found) < most:
            more = COST * float(np.interp(found[-1], places, parts))
            width = math.sqrt(8 * min(times * NEAREST_COST + more, MOST_COST) * epsilon) / victim
            widths.append(min(width, 4 * (times * WIDE_COST + more) / steep))
            found.append(max(found[-1] - widths[-1], 0.0))
        if found[-1] <= epsilon / victim:
            # Each is an end of two cells.
            return one_distance(victim, np.array(found), np.maximum([*widths, 0.0], [0.0, *widths]), epsilon)
    return None
