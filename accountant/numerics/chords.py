"""Chords of a convex function of e^epsilon, through points above it: they are above it too, rounding included.

Shares are computed from differences of epsilons. These distinguish budgets near 0 where e^epsilon itself cannot, and
budgets of many rounds beyond 709, where e^epsilon exceeds a float.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.accountant.numerics.binomial import UNIT

LEAST = 5e-324
"""The least float above 0, a bound on the rounding of a product below the range of floats."""


def crossing(low: float, high: float, share: float) -> float:
    """Returns about the epsilon at which e^epsilon is this share of the way from e^low to e^high; 0 < share < 1."""
    if high - low < 1:
        return low + math.log1p(math.expm1(high - low) * share)
    return high + math.log(share + (1 - share) * math.exp(low - high))


@dataclass(frozen=True, eq=False)
class Chords:
    """The chords between points of a bound on a function that is convex in e^epsilon and does not increase.

    epsilons: increasing, >= 0. values: at least the function there, non-negative and not increasing. Before the first
    point the value is 1, beyond the last point the last value.
    """

    epsilons: Sequence[float]
    values: Sequence[float]

    def above(self, epsilon: float) -> float:
        """Returns an upper bound on the function at this epsilon."""
        if epsilon >= self.epsilons[-1]:
            return float(self.values[-1])
        if epsilon < self.epsilons[0]:
            return 1.0
        left = bisect.bisect_right(self.epsilons, epsilon) - 1
        more, less = float(self.values[left]), float(self.values[left + 1])
        end = self.epsilons[left + 1]
        share = math.expm1(epsilon - end) / math.expm1(self.epsilons[left] - end)
        # All roundings are relative, because both parts of the sum are >= 0: six units in the last place.
        return min(more, (less + (more - less) * share) * (1 + 16 * UNIT) + LEAST)
