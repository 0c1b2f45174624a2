"""A number that is rounded at random to a bit, then binary randomised response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.mechanisms.binary import BitReports
from croupier.accountant.numerics.binomial import Floats


@dataclass(frozen=True)
class OneBitMean(BitReports):
    """A value clipped to [lo, hi], rounded at random to one of the two ends, then binary randomised response.

    Certificate: as `rr`.
    Attack: count of ones.
    """

    kind: ClassVar[str] = "onebit"
    attacked: ClassVar[tuple[str, ...]] = ("values, at the ends of the interval,",)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2), and 1/4, the variance at the middle of the interval."""
        return np.tanh(local_epsilon / 2), np.full(local_epsilon.shape, 0.25)

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`: a bit's variance, however it came about."""
        return float(count.sum()) / 4, float(count.sum()) / 4


RANDOMIZER = OneBitMean
