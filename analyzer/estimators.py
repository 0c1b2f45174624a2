"""Estimators: from the shuffled multiset of reports and the public multiset of budgets to numbers with their errors.

It is not known which report had which budget, so every estimator uses sums over the budgets only. With w_i the weight
of user i's value in its report (1 − 2q_i for a bit, 1 − kq_i for a category), the estimate is Σ_i(report_i − q_i)/Σw_i.

Each kind of mechanism gives two laws of the sum of its reports (`analyzer.intervals`), from which estimates, errors and
intervals are computed. The first is about the truth of these very users: the randomizers' noise, plus what comes from
values being weighted by w_i when budgets are independent of values. The second is about a population that the users are
drawn from. `ESTIMATORS` has an estimator for each kind of mechanism.

The range of a share is [0, 1], that of a mean its interval. Estimates are unbiased and may leave the range, so the
nearest possible value is published, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from croupier.analyzer.estimates import Clamping, Estimate, Fakes, Intervals, Merged, Noised, Precision, precision_of
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, count_laws, weights_of
from croupier.analyzer.levels import distribution_of, fakes_in_sum, mean_laws
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.projective import point_laws, point_weights
from croupier.analyzer.vectors import (
    VectorEstimate,
    decode_gaussian_vector,
    decode_unit_vector,
    gaussian_mean,
    hemisphere_mean,
    longest_gaussian_report,
)
from croupier.protocol.codes import Note
from croupier.protocol.hop_noise import num_report_values
from croupier.protocol.mechanisms import (
    Gaussian,
    GaussianVector,
    Hemisphere,
    KaryResponse,
    Laplace,
    LatticeMechanism,
    Levels,
    OneBit,
    ProjectiveResponse,
    RandomizedResponse,
    ScalarMechanism,
    VectorMechanism,
)
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement, state

__all__ = [
    "ESTIMATORS",
    "Clamping",
    "Estimate",
    "Estimator",
    "Laws",
    "Merged",
    "Noised",
    "Precision",
    "decoder",
    "estimate",
    "project_on_simplex",
    "tiers_of_reports",
]

M = TypeVar("M")
Scalar = TypeVar("Scalar", bound=ScalarMechanism)
Lattice = TypeVar("Lattice", bound=LatticeMechanism)
InSpace = TypeVar("InSpace", bound=VectorMechanism)

Floats = npt.NDArray[np.float64]
Reports = npt.NDArray[np.int64]
Tiers = Sequence[tuple[float, int]]


def tiers_of_reports(
    tiers: Tiers, num_reports: int, noised: Noised | None = None
) -> tuple[list[tuple[float, float]], tuple[Statement[Note], ...]]:
    """Returns (local epsilon, number of reports), whose numbers add up to that of the reports, and notes.

    Reports and budgets travel in separate lanes, so after a drop in one of them their numbers may differ a little. The
    counts are then scaled, since it is not known whose report is missing; estimates of noised counts are always.
    Raises ValueError for no reports or budgets.
    """
    users = [(epsilon, float(count)) for epsilon, count in tiers] if noised is None else noised.users(tiers)
    total = sum(count for _, count in users)
    budgets = int(total) if noised is None else noised.num_users
    if not num_reports or not budgets:
        raise ValueError(f"{num_reports} reports and {budgets} budgets; at least one of each is needed")
    notes = () if num_reports == budgets else (state(Note.TIERS_SCALED, reports=num_reports, budgets=budgets),)
    if num_reports == total:
        return users, notes
    return [(epsilon, count * (num_reports / total)) for epsilon, count in users], notes


def _remarks(values: Floats, domain: tuple[float, float]) -> tuple[Statement[Note], ...]:
    """Returns what has to be said of estimates that are impossible."""
    least, most = domain
    rounding = 1e-9 * (most - least)
    outside = int(((values < least - rounding) | (values > most + rounding)).sum())
    if not outside:
        return ()
    if len(values) == 1:
        return (state(Note.OUTSIDE_RANGE, low=least, high=most),)
    return (state(Note.SOME_OUTSIDE_RANGE, outside=outside, estimates=len(values), low=least, high=most),)


def _merging(
    categories: int, epsilons: Floats, counts: Floats, hidden: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Returns what users with smaller budgets than their tier's do to a share: its bias and variance, at most.

    hidden: as `Merged.hidden` has it. Derivation: docs/estimators.md, Merged tiers.
    """
    smallest, users = np.array(hidden, dtype=np.float64).T
    weights, least = weights_of(categories, epsilons)[1], weights_of(categories, smallest)[1]
    n, total = float(counts.sum()), float(np.dot(weights, counts))
    bias = (1 - 1 / categories) * float(np.dot(users, weights - least)) / total
    uneven = float(np.dot(users, (least / total - 1 / n) ** 2)) * n / max(n - 1, 1)
    return bias, (float(users.sum()) / total**2 + uneven) / 4


def project_on_simplex(shares: Floats) -> Floats:
    """Returns the nearest probability vector in Euclidean distance (Duchi et al., ICML 2008, Figure 1)."""
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.nonzero(descending > excess)[0][-1])
    return np.asarray(np.maximum(shares - excess[last], 0.0), dtype=np.float64)


class Estimator(ABC, Generic[M]):
    """How the analyzer reads and counts the reports of one kind of mechanism."""

    @abstractmethod
    def decoder(self, mechanism: M, least_epsilon: float) -> Callable[[bytes], Any]:
        """Returns what makes a report of opened bytes; it raises ValueError where no honest client has sent them.

        least_epsilon: the smallest budget of the round, with which any report may have been made.
        """

    @abstractmethod
    def estimate(
        self,
        mechanism: M,
        reports: Sequence[Any],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        merged: Merged | None,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> Any:
        """See `estimate`."""


class _Scalar(Estimator[Scalar]):
    weighs_by_budget: ClassVar[bool] = True
    """Whether a report tells the more of its value the larger its budget: then dependent budgets bias the estimate."""

    def decoder(self, mechanism: Scalar, least_epsilon: float) -> Callable[[bytes], int]:
        return mechanism.decode_report

    def estimate(
        self,
        mechanism: Scalar,
        reports: Sequence[int],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        merged: Merged | None,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> Estimate:
        num_reports = len(reports) - (fakes.total if fakes is not None else 0)
        scaled, notes = tiers_of_reports(tiers, num_reports, noised)
        errors_of_tiers = TierErrors.of(noised, tiers, num_reports)
        epsilons, counts = np.array(scaled, dtype=np.float64).T
        as_sent = np.asarray(reports, dtype=np.int64)
        found, clamping = self.clamped(mechanism, as_sent, epsilons, counts, least_epsilon, errors_of_tiers)
        laws = self.laws(mechanism, found, epsilons, counts)
        if errors_of_tiers is not None:
            laws = self.with_noised_tiers(mechanism, laws, epsilons, counts, errors_of_tiers)
        if fakes is not None:
            laws = laws.with_noise(*self.noise_of(mechanism, fakes))
        (least, most), merging_bias = self.domain(mechanism), 0.0
        width = most - least
        if clamping is not None:
            laws = laws.widened(clamping.bias / width, 0.0)
        if merged is not None:
            scale = max(1.0, num_reports / sum(count for _, count in tiers))
            hidden = [(smallest, users * scale) for smallest, users in merged.hidden(tiers)]
            moved, variance = _merging(len(mechanism.categories) or 2, epsilons, counts, hidden)
            merging_bias, laws = width * moved, laws.widened(moved, variance)
        shares = laws.participants.estimate(laws.totals)
        possible = project_on_simplex(shares) if mechanism.categories else np.clip(shares, 0.0, 1.0)
        values, projected = least + width * shares, least + width * possible
        errors = width * laws.participants.standard_error(shares)
        cut = np.clip(shares, 0.0, 1.0)
        samplings = width * np.sqrt(cut * (1 - cut) / float(counts.sum()))

        def intervals(law: SumLaw) -> Intervals:
            low, high = law.interval(laws.totals, confidence)
            ends = np.minimum(low, possible), np.maximum(high, possible)
            return tuple(zip(*((least + width * end).tolist() for end in ends), strict=True))

        if self.weighs_by_budget and (len(epsilons) > 1 or merging_bias):
            notes = (*notes, state(Note.DEPENDENT_BUDGETS))
        of_participants = intervals(laws.participants)
        return Estimate(
            values=tuple(values.tolist()),
            projected=tuple(projected.tolist()),
            standard_errors=tuple(errors.tolist()),
            confidence_intervals=of_participants,
            population_intervals=intervals(laws.population),
            confidence_level=confidence,
            sampling_standard_errors=tuple(samplings.tolist()),
            notes=(*notes, *_remarks(values, (least, most))),
            precision=precision_of(
                projected.tolist(), errors.tolist(), of_participants, width, shares=bool(mechanism.categories)
            ),
            categories=mechanism.categories,
            clamping=clamping,
            merging_bias=merging_bias,
            hop_influence=(
                0.0 if fakes is None else width * self.influence_of(mechanism, fakes) / laws.participants.weight
            ),
        )

    def noise_of(self, mechanism: Scalar, fakes: Fakes) -> tuple[float, float, float]:
        """Returns mean, variance and fourth cumulant of what the fakes add to a sum of reports."""
        return fakes.mean, fakes.variance, fakes.fourth_cumulant

    def influence_of(self, mechanism: Scalar, fakes: Fakes) -> float:
        """Returns by how much one dishonest hop can move a sum of reports with its fakes, beyond their noise."""
        return fakes.influence

    def domain(self, mechanism: Scalar) -> tuple[float, float]:
        """Returns the range of what is asked for: of shares, unless it is that of a number."""
        return 0.0, 1.0

    def clamped(
        self,
        mechanism: Scalar,
        reports: Reports,
        epsilons: Floats,
        counts: Floats,
        least_epsilon: float,
        errors: TierErrors | None = None,
    ) -> tuple[Reports, Clamping | None]:
        """Returns the reports as they are counted, and what that does; none is changed where none can be large."""
        return reports, None

    def with_noised_tiers(
        self, mechanism: Scalar, laws: Laws, epsilons: Floats, counts: Floats, errors: TierErrors
    ) -> Laws:
        """Returns the laws with what the errors of the counts do to them."""
        k = len(mechanism.categories) or 2
        return TierNoise.of(errors, weights_of(k, epsilons)[1], counts, 1 - 1 / k).on(laws)

    @abstractmethod
    def laws(self, mechanism: Scalar, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """Returns the sums of the reports with their laws; epsilons and counts (T,) are the tiers."""


class _Bit(_Scalar[RandomizedResponse]):
    def laws(self, mechanism: RandomizedResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """GSPA, Algorithm 2."""
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=False)


class _Category(_Scalar[KaryResponse]):
    def laws(self, mechanism: KaryResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        """Matrix inversion with personal budgets."""
        hits = np.bincount(reports, minlength=mechanism.k).astype(np.float64)
        return count_laws(hits, mechanism.k, epsilons, counts, rounded=False)


class _Projective(_Scalar[ProjectiveResponse]):
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


class _OneBit(_Scalar[OneBit]):
    def domain(self, mechanism: OneBit) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def laws(self, mechanism: OneBit, reports: Reports, epsilons: Floats, counts: Floats) -> Laws:
        return count_laws(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=True)


class _Levels(_Scalar[Levels]):
    def estimate(
        self,
        mechanism: Levels,
        reports: Sequence[int],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        merged: Merged | None,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> Estimate:
        """The mean, and beside it the distribution that it is the mean of."""
        found = super().estimate(mechanism, reports, tiers, confidence, least_epsilon, merged, fakes, noised)
        num_reports = len(reports) - (fakes.total if fakes is not None else 0)
        scaled, _ = tiers_of_reports(tiers, num_reports, noised)
        hits = np.bincount(np.asarray(reports, dtype=np.int64), minlength=mechanism.k).astype(np.float64)
        errors = TierErrors.of(noised, tiers, num_reports)
        return replace(found, distribution=distribution_of(mechanism, hits, scaled, confidence, fakes, errors))

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


class _Lattice(_Scalar[Lattice]):
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
        found = np.clip(reports, -margin, mechanism.lattice + margin)
        step = (mechanism.high - mechanism.low) / mechanism.lattice
        return found, Clamping(
            low=mechanism.low - step * margin,
            high=mechanism.high + step * margin,
            num_clamped=int((found != reports).sum()),
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
        normal, found = NormalDist(), []
        for epsilon in epsilons.tolist():
            sigma = mechanism.sigma_steps(epsilon)
            t = (margin - 1) / sigma
            found.append(sigma * (normal.pdf(t) - t * normal.cdf(-t)))
        return np.array(found)


class _Vector(Estimator[InSpace]):
    def estimate(
        self,
        mechanism: InSpace,
        reports: Sequence[Any],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        merged: Merged | None,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> VectorEstimate:
        scaled, notes = tiers_of_reports(tiers, len(reports), noised)
        total = np.stack(reports).sum(axis=0, dtype=np.float64)
        found = replace(self.mean(mechanism, total, scaled), notes=notes)
        errors = TierErrors.of(noised, tiers, len(reports))
        if errors is None:
            return found
        epsilons, counts = np.array(scaled, dtype=np.float64).T
        more = self.error_of_tiers(mechanism, epsilons, counts, errors)
        return replace(found, standard_error=math.hypot(found.standard_error, more))

    @abstractmethod
    def mean(self, mechanism: InSpace, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        """Returns the mean from the sum of the reports, (d,), and (local epsilon, number of reports)."""

    @abstractmethod
    def error_of_tiers(self, mechanism: InSpace, epsilons: Floats, counts: Floats, errors: TierErrors) -> float:
        """Returns the standard error that the errors of the counts add to a coordinate, at most."""


class _Hemisphere(_Vector[Hemisphere]):
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


class _GaussianVector(_Vector[GaussianVector]):
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


ESTIMATORS: dict[str, Estimator[Any]] = {
    "rr": _Bit(),
    "krr": _Category(),
    "pgr": _Projective(),
    "onebit": _OneBit(),
    "levels": _Levels(),
    "laplace": _Laplace(),
    "gaussian": _Gaussian(),
    "hemisphere": _Hemisphere(),
    "gaussian_vector": _GaussianVector(),
}
"""How reports are read and counted, for every kind of mechanism."""


def decoder(question: Question, least_epsilon: float) -> Callable[[bytes], Any]:
    """Returns what makes a report of opened bytes; see `Estimator.decoder`."""
    return ESTIMATORS[question.mechanism.kind].decoder(question.mechanism, least_epsilon)


def estimate(
    question: Question,
    reports: Any,
    tiers: Tiers,
    confidence: float = 0.95,
    *,
    least_epsilon: float | None = None,
    merged: Merged | None = None,
    fakes: Fakes | None = None,
    noised: Noised | None = None,
) -> Any:
    """Answers a question.

    Args:
        question: what was asked; its mechanism says how reports are read.
        reports: decoded reports in any order, a sequence or an array.
        tiers: (local epsilon, number of users) as the certificate states them.
        confidence: level of the intervals, 0 < confidence < 1; vectors have none.
        least_epsilon: the smallest budget of the round's grid, with which any report may have been made; the smallest
            of the tiers if not given.
        merged: how rare budgets are counted with larger ones in these tiers; None where they are not. For `rr`, `krr`
            and `onebit`.
        fakes: the fake reports of the hops that are among `reports`; None where the round has no hop noise.
        noised: how the counts of these tiers, which are then of every budget of the grid, were noised; None where they
            are exact.

    Returns:
        An `Estimate`, or, where vectors are asked for, a `VectorEstimate`. Derivations: docs/estimators.md.

    Raises:
        ValueError: no reports, no budgets, a level out of range, or merged tiers with another kind of mechanism.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be in (0, 1)")
    if merged is not None and not question.mechanism.tiers_merge:
        raise ValueError(f"tiers are merged with {question.mechanism.kind}; its estimates need the exact ones")
    num_values = num_report_values(question.mechanism)
    if fakes is not None and fakes.law.num_values != num_values:
        raise ValueError(f"fakes have {fakes.law.num_values} values; {question.mechanism.kind} has {num_values}")
    least = least_epsilon or min((epsilon for epsilon, _ in tiers), default=1.0)
    estimator = ESTIMATORS[question.mechanism.kind]
    return estimator.estimate(question.mechanism, reports, tiers, confidence, least, merged, fakes, noised)
