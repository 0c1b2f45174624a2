"""Means of vectors: the estimates of `analyzer.vectors` with the errors of noised counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from croupier.analyzer.base import Estimator, Floats, Tiers, tiers_of_reports
from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.vectors import VectorEstimate
from croupier.protocol.mechanisms.vector import VectorMechanism

InSpace = TypeVar("InSpace", bound=VectorMechanism)


class VectorMean(Estimator[InSpace]):
    """Estimates a mean of vectors from the sum of the reports."""

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
        """Returns the mean with its standard error; vectors have no intervals."""
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
