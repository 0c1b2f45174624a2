"""Means of numbers: from bits, from levels with their distribution, and from noise on a lattice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, ClassVar, TypeVar

import numpy as np

from croupier.analyzer.base import Estimator, Floats, Tiers, tiers_of_reports
from croupier.analyzer.estimates import Clamping, Estimate, Fakes, Noised
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, count_laws, weights_of
from croupier.analyzer.levels import distribution_of, fakes_in_sum, mean_laws
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.scalars import Reports, ScalarEstimator
from croupier.protocol.mechanisms import Gaussian, Laplace, LatticeMechanism, Levels, OneBit

Lattice = TypeVar("Lattice", bound=LatticeMechanism)


class _OneBit(ScalarEstimator[OneBit]):
    def domain(self, mechanism: OneBit) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def laws(self, mechanism: OneBit, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=True)


class _Levels(ScalarEstimator[Levels]):
    def estimate(
        self,
        mechanism: Levels,
        reports: Sequence[int],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> Estimate:
        """The mean, and beside it the distribution that it is the mean of."""
        estimate = super().estimate(mechanism, reports, tiers, confidence, least_epsilon, fakes, noised)
        num_reports = len(reports) - (fakes.total if fakes is not None else 0)
        scaled, _ = tiers_of_reports(tiers, num_reports, noised)
        hits = np.bincount(np.asarray(reports, dtype=np.int64), minlength=mechanism.k).astype(np.float64)
        errors = TierErrors.of(noised, tiers, num_reports)
        return replace(estimate, distribution=distribution_of(mechanism, hits, scaled, confidence, fakes, errors))

    def with_noised_tiers(
        self, mechanism: Levels, laws: Laws, epsilons: Floats, counts: Floats, errors: TierErrors
    ) -> Laws:
        """A uniform report stands for the middle of the range; the sum counts levels."""
        weights = weights_of(mechanism.k, epsilons)[1]
        return TierNoise.of(errors, weights, counts, 0.5).on(laws, mechanism.k - 1.0)

    def domain(self, mechanism: Levels) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def laws(self, mechanism: Levels, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """The sum of the numbers of the levels."""
        return mean_laws(np.bincount(reports, minlength=mechanism.k).astype(np.float64), epsilons, counts)

    def noise_of(self, mechanism: Levels, fakes: Fakes) -> tuple[float, float, float]:
        return fakes_in_sum(fakes, np.arange(mechanism.k))

    def influence_of(self, mechanism: Levels, fakes: Fakes) -> float:
        """Each report that a hop moves in a count, it can move from the first level to the last."""
        return fakes.influence * (mechanism.k - 1)


class _Lattice(ScalarEstimator[Lattice]):
    weighs_by_budget: ClassVar[bool] = False

    def domain(self, mechanism: Lattice) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def clamped(
        self,
        mechanism: Lattice,
        reports: Reports,
        epsilons: Floats,
        counts: Floats,
        least_epsilon: float,
        errors: TierErrors | None = None,
    ) -> tuple[Reports, Clamping | None]:
        """A report is clamped to a margin around its interval that the smallest budget of the grid fixes.

        It is pulled towards the interval only: the variance does not grow, and a mean moves by at most the excess.
        """
        margin, n = mechanism.margin(least_epsilon), float(counts.sum())
        most = counts if errors is None else counts + errors.most_missing
        clamped = np.clip(reports, -margin, mechanism.lattice + margin)
        step = (mechanism.high - mechanism.low) / mechanism.lattice
        return clamped, Clamping(
            low=mechanism.low - step * margin,
            high=mechanism.high + step * margin,
            num_clamped=int((clamped != reports).sum()),
            bias=step * float(np.dot(self.excess(mechanism, epsilons, margin), most)) / n,
            influence=step * (mechanism.lattice + 2 * margin) / n,
        )

    def with_noised_tiers(
        self, mechanism: Lattice, laws: Laws, epsilons: Floats, counts: Floats, errors: TierErrors
    ) -> Laws:
        """The sum of the reports needs no counts: only its variance does, which is raised by two deviations of each."""
        more = float(np.dot(self.variances(mechanism, epsilons) + 0.25, 2 * errors.noise + errors.doubt))
        return laws.with_noise(0.0, more, 0.0)

    def laws(self, mechanism: Lattice, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """The sum of the reports in steps; stochastic rounding adds at most 1/4 to the variance of each noise.

        Values in [0, lattice] with the mean c lattice have a variance of at most c (1 − c) lattice².
        """
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
        return Laws(np.array([float(reports.sum())]), law, population)

    @abstractmethod
    def variances(self, mechanism: Lattice, epsilons: Floats) -> Floats:
        """Returns the variance of the noise of each budget in squared lattice steps, or more. Shape (T,)."""

    @abstractmethod
    def fourth_cumulants(self, mechanism: Lattice, epsilons: Floats) -> Floats:
        """Returns the fourth cumulant of the noise of each budget in steps, or more. Shape (T,)."""

    @abstractmethod
    def excess(self, mechanism: Lattice, epsilons: Floats, margin: int) -> Floats:
        """Returns by how many steps the noise of each budget exceeds a margin on average, or more. Shape (T,)."""


class _Laplace(_Lattice[Laplace]):
    def variances(self, mechanism: Laplace, epsilons: Floats) -> Floats:
        """2e^(−1/b)/(1 − e^(−1/b))² for discrete noise of scale b."""
        rate = epsilons / mechanism.lattice
        return np.asarray(2 * np.exp(-rate) / np.expm1(-rate) ** 2)

    def fourth_cumulants(self, mechanism: Laplace, epsilons: Floats) -> Floats:
        """2r(1 + 4r + r²)/(1 − r)⁴, r = e^(−1/b): twice that of a geometric law."""
        rate = epsilons / mechanism.lattice
        r = np.exp(-rate)
        return np.asarray(2 * r * (1 + 4 * r + r**2) / np.expm1(-rate) ** 4)

    def excess(self, mechanism: Laplace, epsilons: Floats, margin: int) -> Floats:
        """Σ P(K ≥ m) over m > margin, with P(K ≥ m) = r^m/(1 + r), r = e^(−1/b)."""
        rate = epsilons / mechanism.lattice
        return np.asarray(np.exp(-rate * (margin + 1)) / -np.expm1(-2 * rate))


class _Gaussian(_Lattice[Gaussian]):
    def variances(self, mechanism: Gaussian, epsilons: Floats) -> Floats:
        """At most σ² (Canonne, Kamath, Steinke 2020, Corollary 9)."""
        return np.square([mechanism.sigma_steps(epsilon) for epsilon in epsilons.tolist()])

    def fourth_cumulants(self, mechanism: Gaussian, epsilons: Floats) -> Floats:
        """0 for a normal law, from which the discrete one differs by far less than a step."""
        return np.zeros(epsilons.size)

    def excess(self, mechanism: Gaussian, epsilons: Floats, margin: int) -> Floats:
        """At most σ(φ(t) − t(1 − Φ(t))), t = (margin − 1)/σ, as P(K ≥ m) ≤ P(N(0, σ²) ≥ m − 1) (there, Prop. 25)."""
        normal, excesses = NormalDist(), []
        for epsilon in epsilons.tolist():
            sigma = mechanism.sigma_steps(epsilon)
            t = (margin - 1) / sigma
            excesses.append(sigma * (normal.pdf(t) - t * normal.cdf(-t)))
        return np.array(excesses)


MEANS: dict[str, Estimator[Any]] = {
    "onebit": _OneBit(),
    "levels": _Levels(),
    "laplace": _Laplace(),
    "gaussian": _Gaussian(),
}
"""The estimators of means of numbers, by the kind of mechanism."""
