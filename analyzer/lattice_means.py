"""Means of numbers from noise on a lattice."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np

from croupier.analyzer.base import Batch, Floats
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.scalars import ScalarEstimator
from croupier.protocol.mechanisms.interval import LatticeMechanism
from croupier.protocol.v1 import messages_pb2 as pb

Lattice = TypeVar("Lattice", bound=LatticeMechanism)


class LatticeMean(ScalarEstimator[Lattice]):
    """Estimates a mean from the sum of reports that are lattice positions plus noise."""

    weighs_by_budget: ClassVar[bool] = False
    """No: every report has the whole value."""

    def clamped(self, batch: Batch[Lattice]) -> tuple[Batch[Lattice], pb.Clamping | None]:
        """A report is clamped to a margin around its interval that the smallest budget of the grid fixes.

        It is pulled towards the interval only: the variance does not grow, and a mean moves by at most the excess.
        """
        mechanism, counts = batch.mechanism, batch.counts
        margin, n = mechanism.margin(batch.least_epsilon), float(counts.sum())
        most = counts if batch.errors is None else counts + batch.errors.most_missing
        clamped = np.clip(batch.reports, -margin, mechanism.lattice + margin)
        step = (mechanism.high - mechanism.low) / mechanism.lattice
        return replace(batch, reports=clamped), pb.Clamping(
            low=mechanism.low - step * margin,
            high=mechanism.high + step * margin,
            num_clamped=int((clamped != batch.reports).sum()),
            bias=step * float(np.dot(self.excess(mechanism, batch.epsilons, margin), most)) / n,
            influence=step * (mechanism.lattice + 2 * margin) / n,
        )

    def with_noised_tiers(self, batch: Batch[Lattice], laws: Laws, errors: TierErrors) -> Laws:
        """The sum of the reports needs no counts: only its variance does, which is raised by two deviations of each."""
        variances = self.variances(batch.mechanism, batch.epsilons)
        return laws.with_noise(0.0, float(np.dot(variances + 0.25, 2 * errors.noise + errors.doubt)), 0.0)

    def laws(self, batch: Batch[Lattice]) -> Laws:
        """The sum of the reports in steps; stochastic rounding adds at most 1/4 to the variance of each noise.

        Values in [0, lattice] with the mean c lattice have a variance of at most c (1 − c) lattice².
        """
        mechanism, epsilons, counts = batch.mechanism, batch.epsilons, batch.counts
        n, lattice = float(counts.sum()), float(mechanism.lattice)
        variances = self.variances(mechanism, epsilons)
        variance = float(np.dot(variances + 0.25, counts))
        law = SumLaw(
            offset=0.0,
            weight=n * lattice,
            variance_at_0=variance,
            variance_at_1=variance,
            spread=0.0,
            excess_kurtosis=float(np.dot(self.fourth_cumulants(mechanism, epsilons), counts)) / variance**2,
        )
        population = replace(law, spread=n * lattice**2, step=lattice + 1)
        return Laws(np.array([float(batch.reports.sum())]), law, population)

    @abstractmethod
    def variances(self, mechanism: Lattice, epsilons: Floats) -> Floats:
        """Returns the variance of the noise of each budget in squared lattice steps, or more. Shape (T,)."""

    @abstractmethod
    def fourth_cumulants(self, mechanism: Lattice, epsilons: Floats) -> Floats:
        """Returns the fourth cumulant of the noise of each budget in steps, or more. Shape (T,)."""

    @abstractmethod
    def excess(self, mechanism: Lattice, epsilons: Floats, margin: int) -> Floats:
        """Returns by how many steps the noise of each budget exceeds a margin on average, or more. Shape (T,)."""
