"""`hemisphere`: the mean of vectors from points of half spheres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.vector_means import VectorMean
from croupier.analyzer.vectors import VectorEstimate, decode_unit_vector, hemisphere_mean
from croupier.protocol.mechanisms.hemisphere import Hemisphere


class _Hemisphere(VectorMean[Hemisphere]):
    def decoder(self, mechanism: Hemisphere, least_epsilon: float) -> Callable[[bytes], Any]:
        return partial(decode_unit_vector, mechanism.vector.dimension)

    def mean(self, mechanism: Hemisphere, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        return hemisphere_mean(total, tiers, mechanism.vector.clipping_norm)

    def error_of_tiers(self, mechanism: Hemisphere, epsilons: Floats, counts: Floats, errors: TierErrors) -> float:
        """The sum of the weights is wrong by some part, and so is the mean, which is no longer than the norm."""
        weights = np.tanh(epsilons / 2)
        total = float(np.dot(weights, counts))
        away = np.abs(weights - total / float(counts.sum()))
        wrong = errors.noise * float(np.linalg.norm(away)) + float(np.dot(away, errors.doubt))
        return mechanism.vector.clipping_norm * wrong / total


ESTIMATOR = _Hemisphere()
