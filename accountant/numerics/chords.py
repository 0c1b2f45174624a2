"""Chords of a convex function of e^epsilon, through points above it: above it too, rounding included.

Shares are computed from differences of epsilons, which tells budgets near 0 apart where e^epsilon itself cannot, and
those beyond 709, of many rounds, where e^epsilon exceeds a float.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.accountant.numerics.binomial import UNIT

LEAST = 5e-324
"""The least float above 0: more than a product loses that is below the range of floats."""


def crossing(low: float, high: float, share: float) -> float:
    """About the epsilon at which e^epsilon has come this share of the way from e^low to e^high; 0 < share < 1."""
    if high - low < 1:
        return low + math.log1p(math.expm1(high - low) * share)
    return high + math.log(share + (1 - share) * math.exp(low - high))


@dataclass(frozen=True, eq=False)
class Chords:
    """The chords between points of a bound on a function that is convex in e^epsilon and does not increase.

    epsilons: increasing, >= 0. values: at least the function there, non-negative and not increasing. Before the first
    point the value is 1, beyond the last one that of the last.
    """

    epsilons: Sequence[float]
    values: Sequence[float]

    def above(self, epsilon: float) -> float:
        """At least the function at this epsilon."""
        if epsilon >= self.epsilons[-1]:
            return float(self.values[-1])
        if epsilon < self.epsilons[0]:
            return 1.0
        left = bisect.bisect_right(self.epsilons, epsilon) - 1
        more, less = float(self.values[left]), float(self.values[left + 1])
        end = self.epsilons[left + 1]
        share = math.expm1(epsilon - end) / math.expm1(self.epsilons[left] - end)
        # Every rounding of the share and of the sum of two parts >= 0 is relative: six units in the last place in all.
        return min(more, (less + (more - less) * share) * (1 + 16 * UNIT) + LEAST)
