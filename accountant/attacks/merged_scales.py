"""Merging of many noise scales into few: the change of a sum over users when each bin becomes two scales.

A sum of g(ln scale) over the users of a bin is replaced by one over two scales with real counts that have the users'
first moments, up to the third (Gauss quadrature). For the logarithm of a report's generating function the difference
is bounded by Cauchy's estimates, as the noise is analytic in its scale: docs/lower-bounds.md, section 6.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints

RADIUS = 9e-4
"""Half the width of a bin of ln scale."""
MAX_BINS = 8192
"""The most bins; if the scales span more, the bins are wider."""


@dataclass(frozen=True)
class Merging:
    """The size of a merging and the bounds on its effect.

    users: their number. radius: half the width of a bin. gap: the largest difference of the moments of a bin, in units
    of its radius and per user, summed over k = 1, 2, 3. variation: see `IntervalProbabilities.variation`.
    """

    users: float
    radius: float
    gap: float
    variation: float

    def log_error(self, tilt: float, turn: Floats) -> Floats:
        """Returns a bound on the error of the logarithm of the product of all generating functions; inf for none.

        Args:
            tilt: |tilt| times the largest score.
            turn: angles times the largest score; any shape.
        """
        if not tilt <= 1:
            return np.full(turn.shape, math.inf)
        ratio = 2 * math.exp(tilt) * (math.expm1(tilt) + math.exp(tilt) * turn)
        reach = np.minimum(0.5, 0.5 / (self.variation * np.maximum(ratio, 1e-300)))
        change = 1.4 * self.variation * ratio * (self.radius * self.gap + 2.3 * self.radius**4 / reach**3)
        return np.where((turn <= 1) & (self.radius <= 0.1 * reach), self.users * (change + 8 * UNIT), math.inf)

    def unlike(self, tilt: float) -> float:
        """Returns a bound on the excess of the users' mean of |phi|^2 over that of the merged scales, at any angle."""
        if not tilt <= 1:
            return math.inf
        share = self.radius * 3 * self.variation * math.exp(2 * tilt)
        return 5 * (share * self.gap + 2.3 * share**4) + 8 * UNIT if share <= 0.1 else math.inf


def merged_scales(scales: Floats, count: Ints, variation: float) -> tuple[Floats, Floats, Merging]:
    """Returns at most two scales for each bin, the number of users of each, and the effect of merging.

    Args:
        scales: float64 (T,), > 0.
        count: int64 (T,), users of each scale, >= 1.
        variation: see `IntervalProbabilities.variation`.
    """
    place, weight = np.log(scales), count.astype(np.float64)
    low, high = float(place.min()), float(place.max())
    radius = max(RADIUS, (high - low) / (2 * MAX_BINS) * (1 + 1e-9))
    label = ((place - low) / (2 * radius)).astype(np.int64)
    inside = (place - low) / radius - (2 * label + 1)
    users = np.bincount(label, weights=weight)
    moments, power = [], weight
    for _ in range(3):
        power = power * inside
        moments.append(np.bincount(label, weights=power))
    full = users > 0
    users, middle = users[full], low + radius * (2 * np.flatnonzero(full) + 1)
    first, second, third = (moment[full] / users for moment in moments)
    variance = second - first**2
    wide = variance > 1e-9
    skew = np.where(wide, third - 3 * first * second + 2 * first**3, 0.0) / np.where(wide, 2 * variance, 1.0)
    half = np.where(wide, np.sqrt(np.maximum(variance, 0.0) + skew**2), 0.0)
    above = users * np.where(wide, (1 - skew / np.where(wide, half, 1.0)) / 2, 0.0)
    nodes, share = np.clip([first + skew - half, first + skew + half], -1.0, 1.0), np.stack([users - above, above])
    gap = sum(
        float(np.abs((share * nodes**k).sum(0) - users * moment).sum())
        for k, moment in enumerate((first, second, third), 1)
    )
    # Errors of places in their bins, and of sums over a bin.
    rounding = 64 * UNIT * ((max(abs(low), abs(high)) + 1) / radius + int(np.bincount(label).max()))
    merging = Merging(float(users.sum()), radius * (1 + 1e-6), gap / float(users.sum()) + rounding, variation)
    used = share > 0
    return np.exp(middle + radius * nodes)[used], share[used], merging
