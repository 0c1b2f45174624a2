"""Chords of a convex function of e^epsilon, through points above it: above it too, rounding included.

Positions are e^epsilon - 1, which tells budgets near 0 apart where e^epsilon itself cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from accountant.numerics.binomial import UNIT, Floats

__all__ = ["Chords"]

MOST_EPSILON = 700.0
"""Beyond it e^epsilon leaves the range of floats; the value there serves."""


@dataclass(frozen=True, eq=False)
class Chords:
    """The chords between points of a bound on a function that is convex in e^epsilon and does not increase.

    epsilons: increasing, >= 0. values: at least the function there, non-negative and not increasing. Before the first
    point the value is 1, beyond the last one that of the last.
    """

    epsilons: Sequence[float]
    values: Sequence[float]
    _positions: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_positions", np.expm1(np.minimum(self.epsilons, MOST_EPSILON)))

    def above(self, epsilon: float) -> float:
        """At least the function at this epsilon. Rounded up: a position is taken further to the left than it can be."""
        if epsilon >= self.epsilons[-1]:
            return float(self.values[-1])
        if epsilon < self.epsilons[0]:
            return 1.0
        positions = self._positions
        at = max(math.expm1(min(epsilon, MOST_EPSILON)) * (1 - 64 * UNIT), float(positions[0]))
        left = min(int(np.searchsorted(positions, at, side="right")), positions.size - 1) - 1
        low, high = float(positions[left]), float(positions[left + 1])
        if not low < high:
            return float(self.values[left])
        share = (high - at) / (high - low)
        value = self.values[left] * share + self.values[left + 1] * ((at - low) / (high - low))
        return min(float(self.values[left]), value * (1 + 8 * UNIT))
