"""`gaussian_vector`: the mean of vectors from Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.vector_means import VectorMean
from croupier.analyzer.vectors import (
    VectorEstimate,
    decode_gaussian_vector,
    gaussian_mean,
    longest_gaussian_report,
)
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector


class _GaussianVector(VectorMean[GaussianVector]):
    def decoder(self, mechanism: GaussianVector, least_epsilon: float) -> Callable[[bytes], Any]:
        task = mechanism.vector
        longest = longest_gaussian_report(task.dimension, task.clipping_norm, mechanism.sigma(least_epsilon))
        return partial(decode_gaussian_vector, task.dimension, longest)

    def mean(self, mechanism: GaussianVector, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        return gaussian_mean(total, [(mechanism.sigma(epsilon), count) for epsilon, count in tiers])

    def error_of_tiers(self, mechanism: GaussianVector, epsilons: Floats, counts: Floats, errors: TierErrors) -> float:
        """Only the variance of the noise needs counts; it is raised by two deviations of each."""
        variances = np.array([mechanism.sigma(epsilon) ** 2 for epsilon in epsilons.tolist()])
        return math.sqrt(float(np.dot(variances, 2 * errors.noise + errors.doubt))) / float(counts.sum())


ESTIMATOR = _GaussianVector()
