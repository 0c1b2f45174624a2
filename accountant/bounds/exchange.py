"""The engine of the exchange bound: amplification by the others' own randomness, for any randomizer.

A host is an honest user with whom the victim may have exchanged slots. The divergence is at most E[Y]_+ for a weighted
sum Y = sum_i alpha_i X_i over the hosts, and E[Y]_+ is at most an integral along a line in the complex plane of a
product with one factor per host (docs/paper, section 1). This file has the stages of the hosts' clocks, the choice of
theta, the smoothing, and the integrals of many sums at once, over-estimated cell by cell with their tails. The factors
are in `exchange_binary` and `noise_sums`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from croupier.accountant.bounds.least import ChordProfile
from croupier.accountant.bounds.profile import UNDERFLOW, Curve
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.privacy_curve import Bounded
from croupier.accountant.ranges import check_epsilon
from croupier.protocol.codes import Method

UNHEARD = 1e-9
"""The chance that no clock rings before the horizon, as a part of delta. It is charged, and is too small to matter."""
TUNING_DELTA = 1e-12
"""The delta for which a bound is tuned if no target is given: the smallest usual one."""
SMOOTHING = tuple(2.0**power for power in range(-3, 8))
"""Variances of the Gaussian that is added to Y, in units of Var(Y)/hosts: each gives a bound, and the least is kept."""
BULK = 7.0
"""Standard deviations of a Gaussian integrand that get narrow cells; e^-24 of it lies beyond them."""
TILTS = ((0.7, 9, 6), (0.2, 9, 1), (0.04, 7, 1))
"""The stages of the search for theta: the distance from the best theta so far, in ln theta; the number of places; and
the largest number of moves. A theta 10 % from the best one costs less than 0.1 % of epsilon."""
EXPONENT = 512 * UNIT
"""The relative rounding of an exponent in units of its terms: far more than its operations lose (section 3)."""
SLACK = 1e-6
"""Rounding and the tail of the integral add less than this to a useful bound, relatively."""


@dataclass(frozen=True, eq=False)
class HostSums(ABC):
    """N sums Y over the same T tiers of hosts, for the worst data, and the S stages of their clocks."""

    count: Floats
    """Hosts of every tier, (T,)."""
    weights: Floats
    """alpha, (N, T), which adds up to 1 over the hosts."""
    log_mass: Floats
    """ln of the chance of every stage, (N, S): see `stages`."""
    mean: Floats
    """E[Y], (N,)."""

    @property
    @abstractmethod
    def deviation(self) -> Floats:
        """The approximate standard deviation of every sum, (N,), which decides where to evaluate."""

    @property
    @abstractmethod
    def largest_theta(self) -> Floats | float:
        """The largest theta at which the factors can be evaluated, (N,)."""

    @abstractmethod
    def at_rest(self, rows: Ints, theta: Floats) -> Floats:
        """Returns about ln of the product at theta, (R, M), for these rows, (R,), to decide where to evaluate."""

    @abstractmethod
    def logarithms(self, theta: Floats, edges: Floats) -> Floats:
        """Returns upper bounds on ln of the product of |phi(theta (1 + ir))| over every cell of r: (N, S, L).

        theta: (N,). edges: (N, L+1), increasing from 0. The bound of the first cell holds for every r >= 0.
        """

    def positive_parts(self, step: float) -> Floats:
        """Returns upper bounds on E[Y]_+, averaged over the stages: the theorem's integral, section 1, (3).

        step: the cells are as good as cells whose width is this many standard deviations of the integrand; the bound
        exceeds the integral by a fraction of about 0.4 step. (N,), infinite if there is no proof.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            theta = self.tilt()
            spread = theta * self.deviation
            hosts = np.maximum(1 / self.weights.max(1) / 4, 1.0)
            edges = _edges(step, float(hosts.max())) / spread[:, None]
            stage = self.logarithms(theta, edges) + self.log_mass[..., None]
            top = stage.max(1)
            exponent = top + np.log(np.exp(stage - top[:, None]).sum(1))
            exponent += EXPONENT * (1 + np.abs(top) + float(np.abs(self.log_mass).max()))
            return integral(theta, spread, hosts, edges, exponent)

    def tilt(self) -> Floats:
        """Returns about the best theta of each row, where the integrand is least at r = 0; any theta is sound."""
        deviation = self.deviation
        drift = -self.mean / deviation
        most = np.broadcast_to(self.largest_theta, drift.shape)
        theta: Floats = np.minimum(
            (drift + np.hypot(drift, math.sqrt(8))) / (2 * deviation), most
        )  # best for Gaussian Y
        for reach, places, moves in TILTS:
            rows = np.arange(theta.size)
            for _ in range(moves):
                thetas = np.minimum(theta[rows, None] * np.exp(np.linspace(-reach, reach, places)), most[rows, None])
                height = self.at_rest(rows, thetas) - 2 * np.log(thetas)
                best = np.argmin(np.where(np.isfinite(height), height, math.inf), axis=1)
                theta[rows] = thetas[np.arange(rows.size), best]
                rows = rows[(best == 0) | (best == places - 1)]  # skewed laws have their best theta further off
                if rows.size == 0:
                    break
        return theta


def integral(theta: Floats, spread: Floats, hosts: Floats, edges: Floats, exponent: Floats) -> Floats:
    """(1/pi theta) e^(theta^2 s^2/2) times the integral of e^(-theta^2 s^2 r^2/2)/(1 + r^2) e^exponent dr, rounded up.

    Each cell is charged at its left end for the two explicit factors, which decrease; beyond the last cell the product
    is bounded by its value at r = 0.
    """
    left, end = edges[:, :-1], edges[:, -1]
    top = exponent.max(1)
    body = np.exp(exponent - top[:, None]) * np.diff(edges, axis=1) / (1 + left * left)
    rest = np.exp(exponent[:, 0] - top) / end
    best = np.full(theta.shape, math.inf)
    for variance in SMOOTHING:
        rate = variance / hosts * spread * spread / 2
        total = (body * np.exp(-rate[:, None] * left * left)).sum(1) + rest * np.exp(-rate * end * end)
        best = np.minimum(best, rate + np.log(total) + EXPONENT * (1 + rate))
    logarithm = best + top - np.log(math.pi * theta)
    logarithm += EXPONENT * (1 + np.abs(best) + np.abs(top) + np.abs(np.log(theta))) + 2 * edges.shape[1] * UNIT
    bounds: Floats = np.where(np.isfinite(logarithm), np.exp(logarithm) + UNDERFLOW, math.inf)
    return bounds


@lru_cache(maxsize=16)
def _bulk(step: float) -> Floats:
    """Returns edges from 0 to BULK of cells in which the integrand is over-estimated by about the same amount.

    A cell of width h costs h^2 times the slope. For e^(-u^2/2) the cells are narrowest near u = 1, which halves their
    number.
    """
    places = np.linspace(0.0, BULK, 4096)
    density = np.sqrt(places) * np.exp(-places * places / 4) + 0.01
    below = np.cumsum(density) - density[0]
    edges: Floats = np.interp(np.linspace(0.0, below[-1], math.ceil(3.2 / step) + 1), below, places)
    return edges


def _edges(step: float, hosts: float) -> Floats:
    """Returns edges in standard deviations of the integrand: `_bulk`, then wider cells up to 40 (hosts + 1)^.5.

    Beyond the bulk the widths grow in proportion to the distance; the least smoothing leaves e^-100 at the last edge.
    """
    bulk = _bulk(step)
    growth = BULK / float(bulk[-2])
    more = math.ceil(math.log(40 * math.sqrt(hosts + 1) / BULK) / math.log(growth))
    return np.concatenate([bulk, BULK * growth ** np.arange(1, more + 1)])


def horizon(delta: float | None, most: float) -> float:
    """Returns the time at which the clocks stop; at most `most`. Any time > 0 is sound."""
    return min(-math.log(UNHEARD) - math.log(TUNING_DELTA if delta is None else delta), most)


@dataclass(frozen=True, eq=False)
class ExchangeProfile(Curve):
    """The common part of the exchange bounds of all randomizers: the theorem of section 1. See `PrivacyProfile`."""

    proved_by: ClassVar[Method] = Method.EXCHANGE
    step: ClassVar[float]
    """See `HostSums.positive_parts`."""
    local_epsilon: float
    """The victim's local budget; delta is 0 from there on."""
    horizon: float
    """The time at which the hosts' clocks stop; the victim counts as exposed if none has rung by then."""

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        local = self._alone(epsilon)
        lost = math.exp(-self.horizon) * local.value * (1 + 64 * UNIT)
        value = float(self.sums(epsilon).positive_parts(self.step)[0]) + lost
        return rounded_up(value) if value < local.value else local

    @property
    def tolerance(self) -> float:
        """See `Curve.tolerance`: the bound exceeds its integral by about this fraction."""
        return 1e-4

    def to_compose(self, delta: float, ceiling: float) -> Curve:
        """See `Curve.to_compose`: chords."""
        return ChordProfile(self, delta, ceiling)

    @abstractmethod
    def _alone(self, epsilon: float) -> Bounded:
        """Returns the divergence of the victim's report alone, for epsilon below its local one."""

    @abstractmethod
    def sums(self, epsilon: float) -> HostSums:
        """Returns the hosts' factors, in one row."""


def rounded_up(value: float) -> Bounded:
    """Returns a computed bound > 0 with its slack; at most 1."""
    value = min(1.0, value * (1 + 4 * UNIT))
    return Bounded(value, min(value, SLACK * value))
