"""A number on k ordered levels: rounded at random to a neighbouring level, then randomised response of k values.

Rounding comes before the randomizer and does not depend on the budget, so every bound on `krr` holds as it is. What
differs is what the reports are read for: a mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.mechanisms.base import uneven
from croupier.accountant.mechanisms.krr import KaryRandomizedResponse
from croupier.accountant.numerics.binomial import Floats


@dataclass(frozen=True)
class LevelsMean(KaryRandomizedResponse):
    """A number in [0, 1] on the levels j/(k-1), reported as the level with probability e^v/(e^v+k-1).

    Certificate: common blanket; with k = 2 also the docs/exchange-bound.md.
    Attack: as `krr`.
    """

    kind: ClassVar[str] = "levels"

    @property
    def fakes_weight(self) -> float:
        """k(k+1)/(12(k-1)), the sum of the squared distances of the levels from their middle; 1 for two levels."""
        return 1.0 if self.k == 2 else self.k * self.uniform_variance

    @property
    def uniform_variance(self) -> float:
        """The variance of a uniformly drawn level: (k+1)/(12(k-1))."""
        return (self.k + 1) / (12 * (self.k - 1))

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """See `Randomizer.signal`: w = (e^v-1)/(e^v+k-1), and the largest variance of a report.

        A value at the distance h/(k-1) from an end has w h(1-h)/(k-1)^2 + (1-w) U + w(1-w) (1/2 - h/(k-1))^2, with U
        the `uniform_variance`. In h it is a parabola, and no value further inside has more.
        """
        gain, _ = super().signal(local_epsilon, local_delta)
        step = 1 / (self.k - 1)
        h = np.clip((step - (1 - gain)) / (2 * gain * step), 0.0, 1.0)
        rounding = gain * h * (1 - h) * step**2
        return gain, rounding + (1 - gain) * (self.uniform_variance + gain * (0.5 - h * step) ** 2)

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`; of a population the largest is at both ends of the range."""
        gain, variance = self.signal(local_epsilon, local_delta)
        widest = (1 - gain) * self.uniform_variance + gain / 4
        return float(variance @ count) + uneven(gain, count) / 4, float(widest @ count)


RANDOMIZER = LevelsMean
