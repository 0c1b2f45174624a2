"""The effect of noised tier counts on estimates (docs/estimators.md, Noised tiers): the counts' errors, and the change.

How counts are noised is in `protocol.tier_counts`; the estimate of each count is `estimates.Noised`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from croupier.analyzer.estimates import Noised
from croupier.analyzer.laws import Laws

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TierErrors:
    """Errors of the numbers of reports that count as each tier's.

    Attributes:
        noise: the standard deviation of the noise of each.
        fourth_cumulant: of the noise of each.
        doubt: the largest error of each apart from the noise. Shape (T,).
        most_missing: the largest error of each below the truth, noise included. Shape (T,).
    """

    noise: float
    fourth_cumulant: float
    doubt: Floats
    most_missing: Floats

    @classmethod
    def of(cls, noised: Noised | None, tiers: Sequence[tuple[float, float]], num_reports: int) -> Self | None:
        """Returns the errors after counts are scaled to the number of reports; None if they are exact."""
        if noised is None:
            return None
        scale, law = max(1.0, num_reports / noised.num_users), noised.privacy.law
        return cls(
            scale * law.variance**0.5,
            scale**4 * law.fourth_cumulant,
            scale * np.array(noised.doubt(tiers)),
            scale * np.array(noised.most_missing(tiers)),
        )


@dataclass(frozen=True)
class TierNoise:
    """The largest effect of the errors on a share or mean c whose reports have a mean of constant + w c.

    Attributes:
        variance, fourth_cumulant: their addition to a sum of reports, in the unit of a report.
        bias: of c.
        other_variance: of c, because users in another tier have another variance.
    """

    variance: float
    fourth_cumulant: float
    bias: float
    other_variance: float

    @classmethod
    def of(cls, errors: TierErrors, weights: Floats, counts: Floats, apart: float) -> Self:
        """Returns the effect of errors if c is at most `apart` from the value of a uniform report.

        weights: w of each tier, (T,); counts: of reports, (T,).
        """
        n, total = float(counts.sum()), float(np.dot(weights, counts))
        away = apart * np.abs(weights - total / n)
        moved = 2 * (errors.noise + errors.doubt)
        uneven = float(np.dot(moved, (weights / total - 1 / n) ** 2)) * n / max(n - 1, 1)
        return cls(
            variance=float((away**2).sum()) * errors.noise**2,
            fourth_cumulant=float((away**4).sum()) * errors.fourth_cumulant,
            bias=float(np.dot(away, errors.doubt)) / total,
            other_variance=(float(moved.sum()) / total**2 + uneven) / 4,
        )

    def on(self, laws: Laws, unit: float | Floats = 1.0) -> Laws:
        """Returns the laws with the noise; unit: of the sums, in reports; one for each, or for all."""
        noisy = laws.with_noise(0.0, unit**2 * self.variance, unit**4 * self.fourth_cumulant)
        return noisy.widened(self.bias, self.other_variance)
