"""The least of two certified curves of one victim: one that is quick to evaluate, and one that is sharper and slow.

Each is an upper bound on the same divergence, so the smaller one is too. The slow curve is evaluated at a few epsilons
only and joined by chords, so that composing and recording a profile takes little longer than with the quick one alone.
Which of the two gives the number of a certificate is left to `certify`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accountant.bounds.profile import Bounded, PrivacyProfile, smallest_epsilon
from accountant.numerics.binomial import UNIT, Floats
from accountant.numerics.chords import Chords
from accountant.ranges import check_epsilon

__all__ = ["LeastProfile"]

POINTS = 32
"""Epsilons at which the slow curve is evaluated."""
BEYOND = 1e-4
"""They end about where it has fallen to this part of the target."""


@dataclass(frozen=True, eq=False)
class LeastProfile:
    """min(quick, chords of slow). See `PrivacyProfile`.

    The true divergence is a convex function of e^epsilon below every point of `slow`, so it is below the chords
    between them; it does not increase, so beyond the last point it is below that.

    target: the delta that will be asked for, about; only for where to put the points. ceiling: the local budget.
    """

    quick: PrivacyProfile
    slow: PrivacyProfile
    target: float
    ceiling: float

    @property
    def method(self) -> str:
        """That of the sharper curve."""
        return self.slow.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        first = self.quick.delta(epsilon)
        if first.value == 0:
            return first
        chords, slacks = self._points
        value = min(1.0, chords.above(epsilon) + 5e-324)
        if value >= first.value:
            return first
        slack = float(np.interp(epsilon, np.asarray(chords.epsilons), slacks))
        return Bounded(value, min(value, slack + 64 * UNIT * value))

    def guess(self, delta: float) -> float:
        """The slow curve's."""
        return self.slow.guess(delta)

    def explain(self) -> tuple[str, ...]:
        """The steps of both."""
        return (*self.quick.explain(), *self.slow.explain())

    @cached_property
    def _points(self) -> tuple[Chords, Floats]:
        """The chords of the slow curve, and its slack at their ends."""
        far = smallest_epsilon(self.slow, max(BEYOND * self.target, 1e-300), self.ceiling, tolerance=0.05).epsilon
        epsilons = np.linspace(0.0, far, POINTS) if far > 0 else np.zeros(1)
        bounds = [self.slow.delta(float(epsilon)) for epsilon in epsilons]
        values = np.minimum.accumulate([bound.value for bound in bounds])
        return Chords(epsilons.tolist(), values.tolist()), np.array([bound.slack for bound in bounds])
