"""Means of vectors: the estimates of `analyzer.vectors` with the errors of noised counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from croupier.analyzer.base import Batch, Estimator, Floats
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.vectors import VectorEstimate
from croupier.protocol.mechanisms.vector import VectorMechanism

InSpace = TypeVar("InSpace", bound=VectorMechanism)


class VectorMean(Estimator[InSpace]):
    """Estimates a mean of vectors from the sum of the reports."""

    def estimate(self, batch: Batch[InSpace]) -> VectorEstimate:
        """Returns the mean with its standard error; vectors have no intervals."""
        scaled, notes = batch.scaled
        total = np.stack(batch.reports).sum(axis=0, dtype=np.float64)
        mean = replace(self.mean(batch.mechanism, total, scaled), notes=notes)
        if batch.errors is None:
            return mean
        more = self.error_of_tiers(batch.mechanism, batch.epsilons, batch.counts, batch.errors)
        return replace(mean, standard_error=math.hypot(mean.standard_error, more))

    @abstractmethod
    def mean(self, mechanism: InSpace, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        """Returns the mean from the sum of the reports, (d,), and (local epsilon, number of reports)."""

    @abstractmethod
    def error_of_tiers(self, mechanism: InSpace, epsilons: Floats, counts: Floats, errors: TierErrors) -> float:
        """Returns the standard error that the errors of the counts add to a coordinate, at most."""
