"""Shares: of a bit, and of the categories of a question."""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.analyzer.base import Estimator, Floats
from croupier.analyzer.choices import ChoicesEstimator
from croupier.analyzer.estimates import Fakes
from croupier.analyzer.laws import Laws, count_laws
from croupier.analyzer.levels import fakes_in_sum
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.projective import point_laws, point_weights
from croupier.analyzer.scalars import Reports, ScalarEstimator
from croupier.protocol.mechanisms import KaryResponse, ProjectiveResponse, RandomizedResponse


class _Bit(ScalarEstimator[RandomizedResponse]):
    def laws(self, mechanism: RandomizedResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """GSPA, Algorithm 2."""
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=False)


class _Category(ScalarEstimator[KaryResponse]):
    def laws(self, mechanism: KaryResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """Matrix inversion with personal budgets."""
        hits = np.bincount(reports, minlength=mechanism.k).astype(np.float64)
        return count_laws(hits, mechanism.k, epsilons, counts, rounded=False)


class _Projective(ScalarEstimator[ProjectiveResponse]):
    def laws(self, mechanism: ProjectiveResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """How many reports are on the hyperplane of each category."""
        return point_laws(mechanism.space, mechanism.k, reports, epsilons, counts)

    def with_noised_tiers(
        self, mechanism: ProjectiveResponse, laws: Laws, epsilons: Floats, counts: Floats, errors: TierErrors
    ) -> Laws:
        """A uniform report says as much of every point, of which there are K instead of k."""
        weights = point_weights(mechanism.space, epsilons)[1]
        return TierNoise.of(errors, weights, counts, 1 - 1 / mechanism.space.num_points).on(laws)

    def noise_of(self, mechanism: ProjectiveResponse, fakes: Fakes) -> tuple[float, float, float]:
        space = mechanism.space
        return fakes_in_sum(fakes, np.arange(space.num_points) < space.block)


SHARES: dict[str, Estimator[Any]] = {
    "rr": _Bit(),
    "krr": _Category(),
    "pgr": _Projective(),
    "choices": ChoicesEstimator(),
}
"""The estimators of shares, by the kind of mechanism."""
