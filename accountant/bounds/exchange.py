"""The integrals of the exchange bound in floats, of many sums at once, over-estimated cell by cell with their tails.

A host is an honest user with whom the victim may have exchanged slots. The divergence is at most E[Y]_+ for a weighted
sum Y = sum_i alpha_i X_i over the hosts, and E[Y]_+ is at most an integral along a line in the complex plane of a
product with one factor per host (docs/paper, section 1). The factors are in `noise_sums`. Bits have an integral in
balls (`exchange_bits`).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from croupier.accountant.bounds.profile import UNDERFLOW
from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.accountant.privacy_curve import Bounded

UNHEARD = 1e-9
"""The chance that no clock rings before the horizon, as a part of delta. It is charged, and is too small to matter."""
TUNING_DELTA = 1e-12
"""The delta for which a bound is tuned if no target is given: the smallest usual one."""
SMOOTHING = tuple(2.0**power for power in range(-3, 8))
"""Variances of the Gaussian that is added to Y, in units of Var(Y)/hosts: each gives a bound, and the least is kept."""
BULK = 7.0
"""Standard deviations of a Gaussian integrand that get narrow cells; e^-24 of it lies beyond them."""
EXPONENT = 512 * UNIT
"""The relative rounding of an exponent in units of its terms: far more than its operations lose (section 3)."""
SLACK = 1e-6
"""Rounding and the tail of the integral add less than this to a useful bound, relatively."""


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


def edges_of(step: float, hosts: float) -> Floats:
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


def rounded_up(value: float) -> Bounded:
    """Returns a computed bound > 0 with its slack; at most 1."""
    value = min(1.0, value * (1 + 4 * UNIT))
    return Bounded(value, min(value, SLACK * value))
