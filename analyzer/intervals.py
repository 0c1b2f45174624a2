"""Confidence intervals for a share or mean by inverting a score test: they are never empty, and never a point.

The sum of the reports has a law whose mean and variance follow from the hypothesised value c. The interval holds every
c that the test does not reject, with the variance at that c and not at the estimate. So it stays wide near the ends of
the range, where a normal interval around the estimate collapses. The coverage is proved in docs/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SumLaw:
    """The law of a sum of integer reports under the hypothesis that the share or mean is c, 0 <= c <= 1.

    One law for several sums, or numbers with one for each, (k,).

    Its mean is offset + weight c; its variance is at most (1 - c) variance_at_0 + c variance_at_1 + spread c (1 - c).

    Attributes:
        offset: the mean at c = 0.
        weight: the increase of the mean from c = 0 to c = 1; above 0.
        variance_at_0, variance_at_1: the variance if all values are the same.
        spread: the addition for differences between the values.
        step: the third cumulant is at most this many times the variance, in absolute value.
        excess_kurtosis: at least that of the law.
        bias: the largest distance of the mean from offset + weight c: by clamped reports, or noised tier counts.
    """

    offset: float | Floats
    weight: float | Floats
    variance_at_0: float | Floats
    variance_at_1: float | Floats
    spread: float | Floats
    step: float = 1.0
    excess_kurtosis: float | Floats = 0.0
    bias: float | Floats = 0.0

    def widened(self, bias: float, variance: float) -> SumLaw:
        """Returns the law with another bias and variance of the estimated c added."""
        added = variance * self.weight**2
        return replace(
            self,
            bias=self.bias + bias * self.weight,
            variance_at_0=self.variance_at_0 + added,
            variance_at_1=self.variance_at_1 + added,
        )

    def with_noise(self, mean: float | Floats, variance: float | Floats, fourth_cumulant: float | Floats) -> SumLaw:
        """Returns the law of the sum with independent noise added to it, whose skewness is 0."""
        least = np.minimum(self.variance_at_0, self.variance_at_1)  # `spread` only adds to them
        cumulants = np.maximum(self.excess_kurtosis * least**2 + fourth_cumulant, 0.0)
        whole = np.maximum(least + variance, 1e-300)
        return replace(
            self,
            offset=self.offset + mean,
            variance_at_0=self.variance_at_0 + variance,
            variance_at_1=self.variance_at_1 + variance,
            excess_kurtosis=np.asarray(cumulants / whole**2),
        )

    def estimate(self, total: Floats) -> Floats:
        """Returns the unbiased estimate of c, which may leave [0, 1], for every sum. Shape (k,)."""
        return (total - self.offset) / self.weight

    def standard_error(self, c: Floats) -> Floats:
        """Returns the standard error of the estimate if c, cut to [0, 1], is the truth. Shape (k,)."""
        c = np.clip(c, 0.0, 1.0)
        variance = (1 - c) * self.variance_at_0 + c * self.variance_at_1 + self.spread * c * (1 - c)
        return np.asarray(np.sqrt(variance) / self.weight)

    def interval(self, total: Floats, confidence: float) -> tuple[Floats, Floats]:
        """Returns the lowest and the highest c in [0, 1] that the test does not reject, for every sum. Shapes (k,).

        A sum beyond the mean for every c counts as the nearest such mean, which only lengthens intervals.
        """
        normal = NormalDist().inv_cdf((1 + confidence) / 2)
        # Half a report, as sums are integers; Cornish and Fisher's terms for skewness and kurtosis where they widen.
        margin = 0.5 + self.step * max(0.0, normal**2 - 1) / 6 + self.bias
        z = normal + self.excess_kurtosis * max(0.0, normal**3 - 3 * normal) / 24
        above = np.clip(total - self.offset, 0.0, self.weight)
        low = 1 - self._highest(self.weight - above + margin, z, self.variance_at_1, self.variance_at_0)
        return low, self._highest(above + margin, z, self.variance_at_0, self.variance_at_1)

    def _highest(self, reach: Floats, z: float | Floats, at_0: float | Floats, at_1: float | Floats) -> Floats:
        """Returns the largest c in [0, 1] with weight c - reach <= z sqrt(variance at c), for reach > 0."""
        square = self.weight**2 + z**2 * self.spread
        linear = self.weight * reach + z**2 * (at_1 - at_0 + self.spread) / 2
        root = np.sqrt(np.maximum(linear**2 - square * (reach**2 - z**2 * at_0), 0.0))
        return np.where(reach >= self.weight, 1.0, np.minimum((linear + root) / square, 1.0))
