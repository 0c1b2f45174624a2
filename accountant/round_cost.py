"""The cost of one round for a privacy filter: a certified pair, a Gaussian variance, and moments at fixed Renyi orders.

All three are upper bounds from points of a certified privacy profile. `privacy_filter` adds them up over rounds. The
proofs are in docs/composition.md, section 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from croupier.accountant.composition import PairProfile
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.numerics.chords import Chords
from croupier.accountant.numerics.gaussian import gaussian_error
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import PrivacyProfile
from croupier.accountant.ranges import check_epsilon

ORDERS: Floats = 1.0 + 2.0 ** (np.arange(-8, 73) / 4)
"""Renyi orders, from 1.25 to 262,145: the best order is about 1 + 2 ln(1/delta)/epsilon, and one within a factor of
2^(1/8) of it loses less than 1 % of epsilon."""
_POINTS = 48
"""Evaluations of a curve: the chords between them are about 1 % above it."""
_MARGIN = 1e-9
"""Far above the relative error of a tangent's slope and of e^epsilon, which are about 1e-13."""
_LEAST_MU, _MOST_MU = 1e-9, 100.0
"""The Gaussian releases with which a curve is compared. One of mu = 100 protects nobody."""
_MOST_EPSILON = 500.0
"""Curves that reach further are not compared with a Gaussian release, because e^epsilon would not be a float."""
_MU_TOLERANCE = 1e-5
"""The relative width at which the search for the least mu stops."""
_TAILS = 2**16
"""The number of curves whose costs are cached, about 3 KB each: 10,000 rounds with three tiers and two cuts. A ledger
with more finds none in the cache, and each takes a millisecond."""
_CANDIDATES = 16
"""Values of mu that are compared with a curve at a time."""

Points = tuple[tuple[float, float], ...]
"""Points (epsilon, delta) of a bound on a privacy profile: epsilon increases, delta does not increase."""


@dataclass(frozen=True)
class RoundCost:
    """The known bounds on one round: a certified pair, and points of a certified curve for every tier.

    Attributes:
        epsilon, delta: the certified pair, of the worst tier.
        tiers: points of each tier's curve; chords between them are above it. The last epsilon is the tier's ceiling, at
            which its delta is lost with certainty.
        budgets: local epsilons, which people wrote as decimals; basic composition adds them up as they were written.
    """

    epsilon: float
    delta: float
    tiers: tuple[Points, ...]
    budgets: frozenset[float] = frozenset()

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.epsilon)
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta is {self.delta!r}; it must be 0 <= delta <= 1")
        if not self.tiers or not all(self.tiers):
            raise ValueError("tiers is empty; it must hold at least one tier with at least one point")

    @classmethod
    def of_pair(cls, epsilon: float, delta: float) -> RoundCost:
        """Returns the cost of any (epsilon, delta)-private release without a known curve."""
        return cls(epsilon, delta, (((epsilon, delta),),))

    @property
    def basic(self) -> tuple[float, float]:
        """The summands of basic composition: the ceiling and the loss there, or the certified pair if it is less."""
        ceiling, lost = max(points[-1][0] for points in self.tiers), max(points[-1][1] for points in self.tiers)
        return (ceiling, lost) if ceiling <= self.epsilon else (self.epsilon, self.delta)

    def above(self, epsilon: float) -> float:
        """Returns an upper bound on the delta of the worst tier at this epsilon: the largest of the tiers' chords."""
        return max(Chords([e for e, _ in points], [d for _, d in points]).above(epsilon) for points in self.tiers)

    def tail(self, cut: float) -> Tail:
        """Returns the cost of the worst tier if the part of its curve whose delta is at most `cut` counts as lost."""
        tiers = [_tail(points, cut) for points in dict.fromkeys(self.tiers)]
        return Tail(
            lost=max(tier.lost for tier in tiers),
            variance=max(tier.variance for tier in tiers),
            moments=np.max([tier.moments for tier in tiers], axis=0),
        )


@dataclass(frozen=True, eq=False)
class Tail:
    """Upper bounds for the part p' of a round's law P that remains without the mass `lost`.

    Attributes:
        lost: that mass, in [0, 1].
        variance: mu^2 of a Gaussian release whose profile is nowhere below that of p' against Q; infinite if unknown.
        moments: at every order a of `ORDERS`, ln E_Q[(p'/q)^a].
    """

    lost: float
    variance: float
    moments: Floats


def curve_points(curve: PrivacyProfile, local: tuple[float, float], least: float) -> Points:
    """Returns points of a curve from epsilon = 0 to where its delta is `least`, and the local budget.

    Args:
        curve: certified.
        local: the local budget (epsilon, delta), which holds without any curve.
        least: the delta below which the curve is ignored, in (0, 1).
    """
    ceiling, lost = local
    if not ceiling:
        return (local,)
    inverse = smallest_epsilon(curve, least, ceiling, tolerance=0.02)
    if inverse.reached is None:  # a certain loss, as behind hop noise: followed to where little else is lost
        inverse = smallest_epsilon(curve, curve.delta(ceiling).value + least, ceiling, tolerance=0.02)
    reach = inverse.epsilon
    grid = np.linspace(0.0, min(reach, ceiling * (1 - 1e-9)), _POINTS)
    values = np.minimum.accumulate([curve.delta(float(point)).value for point in grid])
    return (*zip(grid.tolist(), values.tolist(), strict=True), (ceiling, min(float(values[-1]), lost)))


@lru_cache(maxsize=_TAILS)
def _tail(points: Points, cut: float) -> Tail:
    first, at_first = points[0]
    if first > 0:  # the profile of any release with this pair, which is one chord down to the pair
        points = ((0.0, max(at_first, PairProfile(first, at_first).delta(0.0).value)), *points)
    end = next(index for index, (_, value) in enumerate(points) if value <= max(cut, points[-1][1]))
    epsilons, values = np.array(points[: end + 1]).T
    lost = float(values[-1])
    return Tail(lost, _variance(epsilons, values), _moments(epsilons, values))


def _moments(epsilons: Floats, values: Floats) -> Floats:
    """Returns ln of the moment at every order, from the chords of these points; beyond the last all mass is lost.

    E_Q[(p'/q)^a] <= 1 + a (a - 1) [int_1^inf u^(a-2) (h(u) - lost) du + int_1^inf u^(-a-1) h(u) du], where h are the
    chords as a function of u = e^epsilon. Each integral is in closed form between points. Direction of error: above.
    """
    lost = float(values[-1])
    orders = ORDERS[:, np.newaxis]
    logs = [np.full(ORDERS.size, -math.inf)]
    if epsilons.size > 1:
        gaps = np.diff(epsilons)
        left, right = values[:-1], values[1:]
        with np.errstate(divide="ignore", over="ignore"):  # e^(a gap of 710) is infinity, and quotients by it are 0
            # Relative to u^(order - 1) at the right end of every gap.
            whole, more = _mean_power(orders - 1, gaps), _mean_power(orders, gaps)
            to_left = (whole - more) / -np.expm1(-gaps)
            error = 16 * UNIT * whole / -np.expm1(-gaps)
            part = (left - lost) * (to_left + error) + (right - lost) * (whole - to_left + error)
            logs.append(_log_sum(np.log(part) + (orders - 1) * epsilons[1:]))
            # Relative to u^(-order) at the left end of every gap.
            whole, less = _mean_power(orders, gaps), _mean_power(orders - 1, gaps)
            to_right = (less - whole) / np.expm1(gaps)
            error = 16 * UNIT * less / np.expm1(gaps)
            part = left * (whole - to_right + error) + right * (to_right + error)
            logs.append(_log_sum(np.log(part) - orders * epsilons[:-1]))
    if lost:
        logs.append(math.log(lost) - ORDERS * epsilons[-1] - np.log(ORDERS))
    excess = _log_sum(np.stack(logs, axis=1)) + np.log(ORDERS * (ORDERS - 1))
    moments = np.logaddexp(0.0, excess) * (1 + 1e-12) + 1e-13
    return np.asarray(np.minimum(moments, (ORDERS - 1) * epsilons[-1] * (1 + 4 * UNIT)))  # p' <= e^(last epsilon) q


def _variance(epsilons: Floats, values: Floats) -> float:
    """Returns about the least mu^2 whose Gaussian profile, plus the lost mass, is nowhere below the chords.

    The returned profile was compared with every chord. Direction of error: above.
    """
    lost = float(values[-1])
    if lost >= 1 or epsilons[-1] == 0:
        return 0.0
    if epsilons[-1] > _MOST_EPSILON:
        return math.inf
    low, high = _LEAST_MU, _MOST_MU
    while high > low * (1 + _MU_TOLERANCE):
        candidates = np.geomspace(low, high, _CANDIDATES)
        above = _above_chords(candidates[:, np.newaxis], epsilons, values, lost)
        if not above[-1]:
            return math.inf
        first = int(np.argmax(above))  # a compared one, even if rounding hides another
        if not first:
            break
        low, high = float(candidates[first - 1]), float(candidates[first])
    return high * high * (1 + 2 * UNIT)


def _above_chords(mu: Floats, epsilons: Floats, values: Floats, lost: float) -> Any:
    """Says whether the profile of each mu, convex in u = e^epsilon, plus the lost mass is above every chord.

    It is above its tangents; the tangent parallel to a chord is compared with the chord's two ends.

    Args:
        mu: as a column, shape (K, 1).
        epsilons: the ends of the chords, shape (J,).
        values: the bound there, shape (J,).
        lost: the lost mass.

    Returns:
        K booleans.
    """
    from scipy.special import ndtr, ndtri

    slopes = np.diff(values) / (np.exp(epsilons[1:]) * -np.expm1(-np.diff(epsilons)))
    with np.errstate(all="ignore"):
        touching = mu * (-ndtri(np.clip(-slopes, 0.0, 1.0)) - mu / 2)
    touching = np.clip(np.nan_to_num(touching, nan=0.0), epsilons[:-1], epsilons[1:])
    falls = -ndtr(-touching / mu - mu / 2)
    at_touching = _gaussian_profile(mu, touching)
    above = np.ones(mu.shape[0], dtype=bool)
    for ends, bounds in ((epsilons[:-1], values[:-1]), (epsilons[1:], values[1:])):
        tangent = at_touching + falls * np.exp(touching) * np.expm1(ends - touching)
        reached = bounds * (1 + _MARGIN) - lost * (1 - _MARGIN) + gaussian_error(mu) * at_touching
        above &= np.all(reached <= tangent, axis=1)
    return above


def _gaussian_profile(mu: Floats, epsilons: Floats) -> Floats:
    from scipy.special import log_ndtr

    first, second = log_ndtr(-epsilons / mu + mu / 2), epsilons + log_ndtr(-epsilons / mu - mu / 2)
    return np.asarray(np.exp(first) * -np.expm1(np.minimum(0.0, second - first)))


def _mean_power(order: Any, gaps: Any) -> Any:
    """Returns the integral of e^(-order x) over x from 0 to each gap; order > 0."""
    return -np.expm1(-order * gaps) / order


def _log_sum(logs: Floats) -> Floats:
    """Returns the logarithm of the sum of the exponentials along the last axis."""
    most = np.max(logs, axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.sum(np.exp(logs - most), axis=-1)) + most[..., 0])
