"""The exchange bound for a victim with Laplace noise in two groups of hosts, most of whom may have larger budgets.

What the victim shows is cut in two: a core near its values, hidden among hosts whose budgets may be larger than its
own, and the rest, hidden among others with smaller ones. A clock rings in both groups, so that which part it was stays
hidden too: what the first group leaves is a convex function of what the second one says, and is covered by chords
(docs/exchange-bound.md, section 6). Finitely many distances of the victim's values stand for all. The laws are in
`core_laws`, the integrals in `exchange_rows`, the choice of a cut in `core_limit`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from accountant.bounds.core_laws import TERMS, Apart, Cut, shared_blanket, shared_mass, split_family, split_mean
from accountant.bounds.core_limit import CutLimit, limit_of
from accountant.bounds.exchange import LEAST, TUNING_DELTA, horizon, stages
from accountant.bounds.exchange_laplace import (
    FEW_TIERS,
    MAX_LOCAL_EPSILON,
    MAX_TIERS,
    MOST_SPENT,
    ExchangeLaplaceProfile,
    left_of_host,
    spread,
)
from accountant.bounds.exchange_rows import HostSums
from accountant.bounds.laplace_laws import Family
from accountant.bounds.profile import Bounded, Others, Victim
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.gaussian import gaussian_epsilon
from accountant.ranges import check_epsilon

__all__ = ["ExchangeCoreProfile", "in_core"]

STAGES, FEWER_STAGES, MANY_HOSTS = 12, 4, 2_000.0
"""Of the clocks; fewer are enough where what all hosts could give is more than the last number."""
NEAREST_COST, WIDE_COST, COST = 0.002, 0.005, 0.3
"""What part of epsilon a step from one distance d of the victim's values to the next may cost: for the mean that is
lost, and for hosts further away, about; and how much more, of what there is room for."""
MOST_COST = 0.6
"""Of the first kind, at most."""
CURVE_TIERS = 4
"""With more budgets of hosts every point takes too long for a curve of many."""
LEVELS = ((8, 0.06), (16, 0.04), (32, 0.02))
"""Knots of the chords, and the step of the integrals: for all distances, for those that matter, and for the worst."""
REACH = 2.4
"""Knots are at quantiles of a normal law, so many of its standard deviations to either side."""
REFINED, NEAR = 24, (0.7, 0.93)
"""So many distances at a time come to the next level, of those whose bounds are at least such a part of the largest."""
MANY_DISTANCES = 120
"""With more of them, or more budgets of hosts than three, there is no third level."""
STEPS = ((0.25, 120), (1.0, 200), (3.0, 200))
"""Steps that cost so many times as much, if they are so many at most; otherwise the next ones, and then nothing is
claimed."""
QUICK_STEPS, COARSER_STEPS = 4.0, 3.0
"""How many times as much they may cost where few will do, and with more budgets of hosts than three."""
LEAST_STEEP = 1.05
"""The core falls at least so much faster outside of C than the victim's noise."""
LEAST_TUNED = 0.1
"""Cuts are tried at the epsilon that the largest budget has, or, where that is 0, at this part of that of section 5."""
DISTANCES = (1.0, 0.8, 0.6, 0.4, 0.25, 0.15, 0.08, 0.03, 0.0)
"""Between each of them and the next one there is a cut."""
MOST_UNHEARD = 0.03
"""The chance that no clock rings, as a part of delta: cuts are chosen so that it can be that small."""
SHOWN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""What is shown of the tails where no host hides them, as a part of delta: tried."""
WORTH = 0.015
"""Where no one has a larger budget, the least part of the standard deviation of section 5 that has to be won."""
ROUNDING = 512 * UNIT


@dataclass(frozen=True, eq=False)
class _Hosts:
    """Hosts with their rates and numbers, (T,), and until when their clocks run at most."""

    rates: Floats
    count: Floats
    delta: float | None

    @property
    def described(self) -> str:
        """In words."""
        return f"{int(self.count.sum())} users with budgets up to {self.rates.max():.6g}"

    @cached_property
    def blanket(self) -> Floats:
        """Gamma, (T,), of T4 for these budgets; rounded down."""
        return ExchangeLaplaceProfile(1.0, 1.0, self.rates, np.ones_like(self.rates), self.count).blanket

    def clocks(self, blanket: Floats, second: Floats) -> _Clocks:
        """For hosts with these gamma and about these second moments, (K, T)."""
        weights, left, log_mass, ends = [], [], [], []
        number = STAGES if float((blanket @ self.count).min()) < MANY_HOSTS else FEWER_STAGES
        for gamma, one in zip(blanket, second, strict=True):
            until = horizon(self.delta, float(gamma @ self.count) * (MOST_SPENT / 2))
            alpha = spread(1 / one, self.count, gamma, until)
            end, mass = stages(until, number)
            weights.append(alpha)
            left.append(np.stack([left_of_host(alpha, gamma, t) for t in end.tolist()], axis=1))
            log_mass.append(mass)
            ends.append(until)
        return _Clocks(np.stack(weights), np.stack(left), np.stack(log_mass), np.exp(-np.array(ends)))


@dataclass(frozen=True, eq=False)
class _Clocks:
    """Of a group, for K distances: alpha (K, T); what is left of hosts (K, T, S); ln of the stages' chances (K, S)."""

    weights: Floats
    left: Floats
    log_mass: Floats
    silent: Floats
    """The chance that none rings, (K,)."""


@dataclass(frozen=True, eq=False)
class ExchangeCoreProfile:
    """The least of the bound of section 5 and, where its steps are few enough, of that of section 6.

    See `PrivacyProfile`.
    """

    local_epsilon: float
    """The victim's; from there on delta is 0."""
    own: ExchangeLaplaceProfile | None
    """The bound of section 5, among the hosts of smaller budgets; None where there is none."""
    core: _Hosts
    """Those that hide the core."""
    tails: _Hosts | None
    """Those that hide the rest, with budgets up to the victim's, and none of the core's. None: it is not hidden."""
    cuts: tuple[tuple[float, Cut], ...]
    """Each with the least distance that it is for, the first for the largest distances."""
    deviation: float
    """That of the Gaussian limit, about."""
    room: tuple[tuple[float, float], ...] = ((0.0, 1.0), (1.0, 0.0))
    """Distances, increasing, and what part of epsilon may be lost there, about, before they are the worst."""
    shared: bool = False
    """Whether it is the core's hosts that give omega near the victim's values, and not those of the tails."""
    quick: bool = False
    """Whether few knots and distances will do."""

    @property
    def method(self) -> str:
        """For the certificate."""
        return "exchange bound, what the others' own randomness hides"

    @property
    def plain(self) -> ExchangeLaplaceProfile | ExchangeCoreProfile:
        """Quicker, for curves of many points; that of section 5 where it is nearly as good, or budgets are many."""
        if self.own is not None and (self._tiers > CURVE_TIERS or self.core.rates.max() <= self.local_epsilon):
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

    def guess(self, delta: float) -> float:
        """The Gaussian limit: a little too small."""
        return gaussian_epsilon(self.deviation, delta)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        cut = self.cuts[0][1]
        rest = "not hidden" if self.tails is None else f"hidden among {self.tails.described}"
        return (
            *(() if self.own is None else self.own.explain()),
            f"{cut.kept:.6g} of the victim's noise within {cut.radius:.6g} of its values is hidden among "
            f"{self.core.described}, the rest is {rest}",
        )

    def in_core(self, epsilon: float) -> float:
        """The bound of section 6, rounded up; infinite where it is not proved."""
        few = self._tiers <= FEW_TIERS
        coarse = QUICK_STEPS if self.quick else 1.0 if few else COARSER_STEPS
        apart = distances(self.local_epsilon, epsilon, float(self.core.rates.max()), self.room, coarse)
        if apart is None:
            return math.inf
        found = self._bounds(apart, *LEVELS[0])
        level, last = np.zeros(found.size, dtype=np.int64), 2 if few and found.size <= MANY_DISTANCES else 1
        # The largest are refined, until the largest is one that cannot be.
        while not self.quick and (now := int(level[int(np.argmax(found))])) < last:
            order = np.argsort(-np.where(level == now, found, 0.0))[:REFINED]
            order = order[(level[order] == now) & (found[order] >= NEAR[now] * found.max())]
            found[order] = np.minimum(found[order], self._bounds(_some(apart, order), *LEVELS[now + 1]))
            level[order] = now + 1
        return float(found.max()) * (1 + 1e-8) + LEAST

    @property
    def _tiers(self) -> int:
        return self.core.rates.size + (0 if self.tails is None else self.tails.rates.size)

    def _bounds(self, apart: Apart, number: int, step: float) -> Floats:
        """Upper bounds for every distance, (K,), with so many knots and integrals of this step."""
        found, left = np.empty(apart.distance.size), np.ones(apart.distance.size, dtype=np.bool_)
        for least, cut in self.cuts:
            own = np.flatnonzero(left & (apart.distance >= least))
            left[own] = False
            if own.size:
                some = _some(apart, own)
                if self.tails is None:
                    found[own] = self._alone_in_core(some, cut, step)
                else:
                    found[own] = self._joint(some, cut, number, step)
        return np.where(np.isnan(found), math.inf, found)

    def _alone_in_core(self, apart: Apart, cut: Cut, step: float) -> Floats:
        """With all of the positive part of the tails, and what is shown if no clock rings."""
        v, hosts = self.local_epsilon, self.core
        if cut.shares != (1.0, 1.0) or cut.inner(v) != v:
            raise ValueError(f"the shares are {cut.shares}; without tails the core has all of the difference on C")
        _, clocks = self._clocks(hosts, apart, cut, tails=False)
        which = np.arange(apart.distance.size)
        positive = np.maximum(-np.expm1(apart.log_gain - v * apart.distance), 0.0)
        rest = positive * (math.exp(-v * cut.radius) / 2 * (1 - v / cut.steep) * (1 + 16 * UNIT))
        heard = self._positive_parts(hosts, clocks, apart, which, cut, step, tails=False)
        found: Floats = heard + clocks.silent * self._alone(apart) + rest
        return found

    def _joint(self, apart: Apart, cut: Cut, number: int, step: float) -> Floats:
        """The bound by chords."""
        assert self.tails is not None
        (dev_one, one), (dev_two, two) = (
            self._clocks(hosts, apart, cut, tails=tails) for hosts, tails in ((self.core, False), (self.tails, True))
        )
        mean_one, mean_two = (split_mean(apart, cut, tails=tails)[0] for tails in (False, True))
        mass, total = shared_mass(apart, cut), np.hypot(dev_one, dev_two)
        middle = mean_two - (mean_one + mean_two) * (dev_two / total) ** 2
        width = math.sqrt(3) * dev_one * dev_two / total
        knots = (middle[:, None] + width[:, None] * _quantiles(number)) / mass[:, None]
        which = np.repeat(np.arange(apart.distance.size), number)
        rows, moved = _some(apart, which), replace(cut, moved=knots.ravel())
        heights = self._positive_parts(self.core, one, rows, which, moved, step, tails=False).reshape(knots.shape)
        corners = self._positive_parts(self.tails, two, rows, which, moved, step, tails=True).reshape(knots.shape)
        silent = (one.silent + two.silent) * self._alone(apart)
        return np.array(
            [
                _chords(*of) + lost
                for *of, lost in zip(knots, mass.tolist(), heights, corners, silent.tolist(), strict=True)
            ]
        )

    def _alone(self, apart: Apart) -> Floats:
        """What the victim's report shows by itself, (K,), rounded up."""
        v = self.local_epsilon
        shown: Floats = np.maximum(-np.expm1((apart.log_gain - v * apart.distance) / 2), 0.0) * (1 + 16 * UNIT)
        return shown

    def _clocks(self, hosts: _Hosts, apart: Apart, cut: Cut, *, tails: bool) -> tuple[Floats, _Clocks]:
        """About the standard deviation of what a group says, (K,), and its clocks."""
        number = apart.distance.size
        families = [split_family(apart, rate, cut, tails=tails, terms=3) for rate in hosts.rates.tolist()]
        worst = [
            np.ones(number) if f is None else (f.scale**2 * f.moments[:, 0]).reshape(number, -1).max(1)
            for f in families
        ]
        second = np.maximum(np.stack(worst, axis=1), 1e-300)
        if tails != self.shared and self.tails is not None:
            blanket = np.stack([shared_blanket(apart, cut, rate) for rate in hosts.rates.tolist()], axis=1)
        else:
            blanket = np.tile(hosts.blanket, (number, 1))
        clocks = hosts.clocks(blanket, second)
        return np.sqrt((hosts.count * clocks.weights**2 * second).sum(1)), clocks

    def _positive_parts(
        self, hosts: _Hosts, clocks: _Clocks, rows: Apart, which: Ints, cut: Cut, step: float, *, tails: bool
    ) -> Floats:
        """Upper bounds on E[Y]_+ for the distances and knots of all rows; infinite where there is none."""
        families = [split_family(rows, rate, cut, tails=tails, terms=TERMS) for rate in hosts.rates.tolist()]
        known: list[Family] = [family for family in families if family is not None]
        if len(known) < len(families):
            return np.full(rows.distance.shape, math.inf)
        mean, terms = split_mean(rows, cut, tails=tails)
        return HostSums(
            hosts.count,
            clocks.weights[which],
            clocks.left[which],
            clocks.log_mass[which],
            tuple(known),
            mean,
            terms,
        ).positive_parts(step)


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


def _some(apart: Apart, which: Ints) -> Apart:
    """These of the distances, with repetitions."""
    return Apart(apart.victim, apart.distance[which], apart.log_gain[which], apart.nearest[which])


def _apart(victim: float, distance: Floats, width: Floats, epsilon: float) -> Apart:
    """The distances, each an end of cells that are at most so wide; hosts are on all of [-1, 1]."""
    log_kept = -((victim * width) ** 2) / 8 * (1 + 16 * UNIT)
    gain = (epsilon + log_kept) - 4 * UNIT * (epsilon + np.abs(log_kept))
    return Apart(victim, distance, gain, np.maximum(0.0, distance - width))


def distances(
    victim: float, epsilon: float, steep: float, room: tuple[tuple[float, float], ...], coarse: float = 1.0
) -> Apart | None:
    """From 1 down to epsilon/v, below which the divergence is 0; None where that takes too many.

    steep: the largest budget of a host. room: see `ExchangeCoreProfile`. coarse: how many times as much steps may cost.
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
            return _apart(victim, np.array(found), np.maximum([*widths, 0.0], [0.0, *widths]), epsilon)
    return None


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
        worth = (1 - WORTH) * curve.deviation_at(own)
        return _tuned(v, curve, rates, count, delta, own, worth)
    # What the largest budget has, about: a victim with less decides nothing.
    largest = ExchangeLaplaceProfile(float(rates[-1]), 1.0, rates, np.ones_like(rates), count).guess(target)
    if own <= largest:
        return None
    epsilon = largest if largest > 0 else LEAST_TUNED * own
    found = _tuned(v, curve, rates, count, delta, epsilon, math.inf)
    return found or _shown(v, curve, rates, count, delta, epsilon)


def _tuned(
    v: float,
    curve: ExchangeLaplaceProfile | None,
    rates: Floats,
    count: Floats,
    delta: float | None,
    epsilon: float,
    worth: float,
) -> ExchangeCoreProfile | None:
    """With the groups and cuts that promise the least at this epsilon, a deviation below `worth`; None without any."""
    heard = -math.log(MOST_UNHEARD * (TUNING_DELTA if delta is None else delta)) / (MOST_SPENT / 2)
    best: ExchangeCoreProfile | None = None
    for low in range(1, int(np.searchsorted(rates, v, "right")) + 1):
        for top, shared in itertools.product(range(low + 1, rates.size + 1), (False, True)):
            core, tails = (_Hosts(rates[part], count[part], delta) for part in (slice(low, top), slice(0, low)))
            groups, steepest = [(one.rates, one.count) for one in (core, tails)], max(rates[top - 1], LEAST_STEEP * v)
            found: list[CutLimit] = []
            for most, least in itertools.pairwise(DISTANCES):
                found.append(limit_of(v, (least, most), epsilon, groups, float(steepest), shared, heard))
                if found[0].heard < heard or found[-1].deviation >= worth:
                    break
            else:
                worth = max(one.deviation for one in found)
                cuts = tuple(
                    (least, Cut(one.radius, one.steep, 0.0, one.kept, one.bent))
                    for least, one in zip(DISTANCES[1:], found, strict=True)
                )
                room = [(most, 1 - one.deviation / worth) for most, one in zip(DISTANCES, found, strict=False)]
                places = ((0.0, 1.0), *reversed(room))
                best = ExchangeCoreProfile(v, curve, core, tails, cuts, worth, places, shared)
    return best


def _shown(
    v: float,
    curve: ExchangeLaplaceProfile | None,
    rates: Floats,
    count: Floats,
    delta: float | None,
    epsilon: float,
) -> ExchangeCoreProfile:
    """With tails that no host hides, of about the best size."""
    tried: list[tuple[float, ExchangeCoreProfile]] = []
    one = _apart(v, np.ones(1), np.zeros(1), epsilon)
    for top in range(int(np.searchsorted(rates, v, "right")) + 1, rates.size + 1):
        core, steep = _Hosts(rates[:top], count[:top], delta), max(float(rates[top - 1]), LEAST_STEEP * v)
        for share in SHOWN:
            cut = Cut(-math.log(share * (TUNING_DELTA if delta is None else delta)) / v, steep, 0.0)
            found = ExchangeCoreProfile(v, curve, core, None, ((0.0, cut),), 1.0)
            deviation = float(found._clocks(core, one, cut, tails=False)[0][0])
            tried.append((float(found._bounds(one, *LEVELS[0])[0]), replace(found, deviation=deviation)))
    return min(tried, key=lambda pair: pair[0])[1]
