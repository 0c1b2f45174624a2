"""Means of vectors: what `analyzer.vectors` computes from reports, with the errors of noised counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from croupier.analyzer.base import Estimator, Floats, Tiers, tiers_of_reports
from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.vectors import (
    VectorEstimate,
    decode_gaussian_vector,
    decode_unit_vector,
    gaussian_mean,
    hemisphere_mean,
    longest_gaussian_report,
)
from croupier.protocol.mechanisms import GaussianVector, Hemisphere, VectorMechanism

InSpace = TypeVar("InSpace", bound=VectorMechanism)


class _VectorMean(Estimator[InSpace]):
    def estimate(
        self,
        mechanism: InSpace,
        reports: Sequence[Any],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> VectorEstimate:
        scaled, notes = tiers_of_reports(tiers, len(reports), noised)
        total = np.stack(reports).sum(axis=0, dtype=np.float64)
        mean = replace(self.mean(mechanism, total, scaled), notes=notes)
        errors = TierErrors.of(noised, tiers, len(reports))
        if errors is None:
            return mean
        epsilons, counts = np.array(scaled, dtype=np.float64).T
        more = self.error_of_tiers(mechanism, epsilons, counts, errors)
        return replace(mean, standard_error=math.hypot(mean.standard_error, more))

    @abstractmethod
    def mean(self, mechanism: InSpace, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        """Returns the mean from the sum of the reports, (d,), and (local epsilon, number of reports)."""

    @abstractmethod
    def error_of_tiers(self, mechanism: InSpace, epsilons: Floats, counts: Floats, errors: TierErrors) -> float:
        """Returns the standard error that the errors of the counts add to a coordinate, at most."""


class _Hemisphere(_VectorMean[Hemisphere]):
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


class _GaussianVector(_VectorMean[GaussianVector]):
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


VECTOR_MEANS: dict[str, Estimator[Any]] = {
    "hemisphere": _Hemisphere(),
    "gaussian_vector": _GaussianVector(),
}
"""The estimators of means of vectors, by the kind of mechanism."""
