"""The curve of a round that is composed or recorded: chords through a few points of one that is slow to evaluate.

The slow curve is an exact worst case or the exchange bound. A quick and looser one of the same victim may stand beside
it: each is an upper bound on the same divergence, so the smaller of both is too. Which of them gives the number of a
certificate is left to `certify`.
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

POINTS = 24
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

    slow: PrivacyProfile
    target: float
    ceiling: float
    quick: PrivacyProfile | None = None

    @property
    def method(self) -> str:
        """That of the sharper curve."""
        return self.slow.method

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.ceiling:
            return self.slow.delta(epsilon)
        chords, slacks = self._points
        value = min(1.0, chords.above(epsilon) + 5e-324)
        slack = float(np.interp(epsilon, np.asarray(chords.epsilons), slacks))
        found = Bounded(value, min(value, slack + 64 * UNIT * value))
        return found if self.quick is None else min(found, self.quick.delta(epsilon), key=lambda bound: bound.value)

    def guess(self, delta: float) -> float:
        """The slow curve's."""
        return self.slow.guess(delta)

    def explain(self) -> tuple[str, ...]:
        """The steps of all."""
        return (*(() if self.quick is None else self.quick.explain()), *self.slow.explain())

    @cached_property
    def _points(self) -> tuple[Chords, Floats]:
        """The chords of the slow curve, and its slack at their ends."""
        end = max(BEYOND * self.target, 1e-300)
        far = min(1.05 * self.slow.guess(end), self.ceiling)
        if self.slow.delta(far).value > 10 * end:  # the guess was poor
            far = smallest_epsilon(self.slow, end, self.ceiling, tolerance=0.05).epsilon
        epsilons = np.linspace(0.0, far, POINTS) if far > 0 else np.zeros(1)
        bounds = [self.slow.delta(float(epsilon)) for epsilon in epsilons]
        values = np.minimum.accumulate([bound.value for bound in bounds])
        return Chords(epsilons.tolist(), values.tolist()), np.array([bound.slack for bound in bounds])
