"""Estimators: from the shuffled multiset of reports and the public multiset of budgets to numbers with their errors.

It is not known which report had which budget, so every estimator uses sums over the budgets only. With w_i the weight
of user i's value in its report (1 − 2q_i for a bit, 1 − kq_i for a category), the estimate is Σ_i(report_i − q_i)/Σw_i.

Two errors are given apart. `standard_error` is around the truth of these very users: the randomizers' noise, plus
what comes from values being weighted by w_i when budgets are independent of values. `sampling_standard_error` is what
another draw of users from a population would add. `ESTIMATORS` has an estimator for each kind of mechanism.

What is asked for lies in a range: a share in [0, 1], a mean in its interval. Estimates are unbiased and may leave it,
so the nearest possible value stands beside each; an interval is cut to it, which loses no coverage.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from analyzer.vectors import (
    VectorEstimate,
    decode_gaussian_vector,
    decode_unit_vector,
    gaussian_mean,
    hemisphere_mean,
    longest_gaussian_report,
)
from protocol.mechanisms import (
    Gaussian,
    GaussianVector,
    Hemisphere,
    KaryResponse,
    Laplace,
    LatticeMechanism,
    OneBit,
    RandomizedResponse,
    ScalarMechanism,
    VectorMechanism,
)
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb

__all__ = [
    "ESTIMATORS",
    "Clamping",
    "Estimate",
    "Estimator",
    "Merged",
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
Numbers = tuple[Floats, Floats, Floats]
Merging = tuple[float, float]

_DEPENDENT = (
    "if budgets depend on values this estimate is biased: reports weigh more the larger their owner's budget, "
    "and the shuffle hides whose they are"
)


@dataclass(frozen=True)
class Clamping:
    """Reports outside [low, high] count as its ends (protocol.mechanisms.LatticeMechanism.margin).

    Attributes:
        low, high: in the units of the mean.
        num_clamped: how many reports lay outside.
        bias: what it moves the mean by, at most, where all clients are honest; the confidence interval allows for it.
        influence: what one false report can move the mean by, at most.
    """

    low: float
    high: float
    num_clamped: int
    bias: float
    influence: float


@dataclass(frozen=True)
class Merged:
    """In the tiers, budgets used by fewer than `min_tier_size` clients are counted with the next larger one used.

    Attributes:
        budget_grid: the local epsilons that a client may have used, ascending.
        min_tier_size: at least 2; see `RoundTerms.smallest_tier`.
    """

    budget_grid: Sequence[float]
    min_tier_size: int

    def hidden(self, tiers: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Returns the smallest budget that each tier may hide, and how many of its users, at most, have a smaller one.

        What is merged is shown as soon as there are `min_tier_size` of them, so fewer have been merged into a tier.
        """
        found, before = [], 0.0
        for epsilon, count in tiers:
            smallest = min((own for own in self.budget_grid if before < own < epsilon), default=epsilon)
            found.append((smallest, min(self.min_tier_size, count) - 1.0 if smallest < epsilon else 0.0))
            before = epsilon
        return found


@dataclass(frozen=True)
class Estimate:
    """Estimated numbers, one for a share or mean, k for a histogram; all tuples have that length.

    Attributes:
        categories: histogram only: the names of what is counted.
        values: unbiased (before any projection), so they may leave their natural range.
        projected: the nearest possible: of a histogram the point of the simplex (Euclidean), else the end of the range.
        standard_errors: around the truth of these users.
        confidence_intervals: normal, at `confidence_level`, from `standard_errors`, cut to the range.
        sampling_standard_errors: of drawing these users from a population; not included in the others.
        clamping: what limits one report's influence; None where no report can be large.
        merging_bias: what merged tiers move a value by, at most; the confidence intervals allow for it.
    """

    values: tuple[float, ...]
    projected: tuple[float, ...]
    standard_errors: tuple[float, ...]
    confidence_intervals: tuple[tuple[float, float], ...]
    confidence_level: float
    sampling_standard_errors: tuple[float, ...]
    notes: tuple[str, ...]
    categories: tuple[str, ...] = ()
    clamping: Clamping | None = None
    merging_bias: float = 0.0

    def publish(self, publication: pb.Publication) -> None:
        """Writes the estimate into a publication."""
        publication.confidence_level = self.confidence_level
        publication.notes.extend(self.notes)
        publication.merging_bias = self.merging_bias
        if self.clamping is not None:
            publication.clamping.CopyFrom(pb.Clamping(**asdict(self.clamping)))
        for index, value in enumerate(self.values):
            low, high = self.confidence_intervals[index]
            publication.values.add(
                label=self.categories[index] if self.categories else "",
                estimate=value,
                projected=self.projected[index],
                standard_error=self.standard_errors[index],
                confidence_interval=pb.Interval(low=low, high=high),
                sampling_standard_error=self.sampling_standard_errors[index],
            )


def tiers_of_reports(tiers: Tiers, num_reports: int) -> tuple[list[tuple[float, float]], tuple[str, ...]]:
    """Returns (local epsilon, number of reports), whose numbers add up to that of the reports, and notes.

    Reports and budgets travel in separate lanes, so after a drop in one of them their numbers may differ a little. The
    counts are then scaled, since it is not known whose report is missing. Raises ValueError for no reports or budgets.
    """
    total = sum(count for _, count in tiers)
    if not num_reports or not total:
        raise ValueError(f"{num_reports} reports and {total} budgets; at least one of each is needed")
    if num_reports == total:
        return [(epsilon, float(count)) for epsilon, count in tiers], ()
    note = f"{num_reports:,} reports stand beside {total:,} budgets; the tier counts are scaled to the reports"
    return [(epsilon, count * (num_reports / total)) for epsilon, count in tiers], (note,)


def _interval(
    value: float, standard_error: float, confidence: float, bias: float, domain: tuple[float, float]
) -> tuple[float, float]:
    """Returns the normal interval, as much longer as the bias may be, and cut to the domain."""
    half = NormalDist().inv_cdf((1 + confidence) / 2) * standard_error + bias
    least, most = domain
    return min(max(value - half, least), most), max(min(value + half, most), least)


def _remarks(values: Floats, intervals: Sequence[tuple[float, float]], domain: tuple[float, float]) -> tuple[str, ...]:
    """Returns what has to be said of estimates that are impossible, and of intervals that were cut."""
    least, most = domain
    rounding = 1e-9 * (most - least)
    outside = int(((values < least - rounding) | (values > most + rounding)).sum())
    remarks = []
    if outside:
        which = "the estimate is" if len(values) == 1 else f"{outside} of {len(values)} estimates are"
        remarks.append(
            f"{which} outside [{least:g}, {most:g}], where the truth lies: the noise has carried it there; "
            "the nearest possible value stands beside it"
        )
    if any(low == least or high == most for low, high in intervals):
        remarks.append(f"intervals are cut to [{least:g}, {most:g}]")
    return tuple(remarks)


def _uneven(weights: Floats, counts: Floats) -> float:
    """Returns Σ(w_i/Σw − 1/n)²·n/(n−1): what uneven weights add per unit of variance between the users' values."""
    n, total = float(counts.sum()), float(np.dot(weights, counts))
    if n < 2:
        return 0.0
    return float(np.dot(counts, (weights / total - 1 / n) ** 2)) * n / (n - 1)


def _weights(categories: int, epsilons: Floats) -> tuple[Floats, Floats]:
    """Returns q and w = 1 − kq of each budget. Shape (T,) each."""
    q = 1 / (np.expm1(epsilons) + categories)
    return q, -np.expm1(-epsilons) * np.exp(epsilons) * q


def _merging(categories: int, epsilons: Floats, counts: Floats, hidden: Sequence[tuple[float, float]]) -> Merging:
    """Returns what users with smaller budgets than their tier's do to a share: its bias and variance, at most.

    hidden: as `Merged.hidden` has it. Derivation: docs/estimators.md, Merged tiers.
    """
    smallest, users = np.array(hidden, dtype=np.float64).T
    weights, least = _weights(categories, epsilons)[1], _weights(categories, smallest)[1]
    n, total = float(counts.sum()), float(np.dot(weights, counts))
    bias = (1 - 1 / categories) * float(np.dot(users, weights - least)) / total
    uneven = float(np.dot(users, (least / total - 1 / n) ** 2)) * n / max(n - 1, 1)
    return bias, (float(users.sum()) / total**2 + uneven) / 4


def _from_counts(hits: Floats, categories: int, epsilons: Floats, counts: Floats, *, rounded: bool) -> Numbers:
    """Returns estimates, standard errors and sampling standard errors from how often each category was reported.

    A report hits category j with probability q_i + w_i·c, q_i = 1/(e^ε_i + k − 1), w_i = 1 − kq_i; c is 1 or 0 for
    a category and in between for a value that is `rounded` to a bit first. The plug-in variance uses the estimate,
    clipped to [0, 1]; for rounded values it is an upper bound, because π(1 − π) is concave.
    """
    n = float(counts.sum())
    q, weights = _weights(categories, epsilons)
    total = float(np.dot(weights, counts))
    shares = (hits - np.dot(q, counts)) / total
    c = np.clip(shares, 0.0, 1.0)[:, None]
    hit, miss = q + weights, q
    if rounded:
        pi = miss + weights * c
        noise = pi * (1 - pi) @ counts
    else:
        noise = (c * hit * (1 - hit) + (1 - c) * miss * (1 - miss)) @ counts
    between = (c * (1 - c))[:, 0]
    errors = np.sqrt(noise / total**2 + between * _uneven(weights, counts))
    return shares, errors, np.sqrt(between / n)


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
    ) -> Estimate:
        scaled, notes = tiers_of_reports(tiers, len(reports))
        epsilons, counts = np.array(scaled, dtype=np.float64).T
        as_sent = np.asarray(reports, dtype=np.int64)
        found, clamping = self.clamped(mechanism, as_sent, epsilons, counts, least_epsilon)
        values, errors, samplings = self.numbers(mechanism, found, epsilons, counts)
        domain, bias = self.domain(mechanism), 0.0 if clamping is None else clamping.bias
        merging_bias = 0.0
        if merged is not None:
            scale, width = max(1.0, len(reports) / sum(count for _, count in tiers)), domain[1] - domain[0]
            hidden = [(smallest, users * scale) for smallest, users in merged.hidden(tiers)]
            moved, variance = _merging(len(mechanism.categories) or 2, epsilons, counts, hidden)
            merging_bias, errors = width * moved, np.sqrt(errors**2 + width**2 * variance)
            bias += merging_bias
        intervals = tuple(
            _interval(value, error, confidence, bias, domain)
            for value, error in zip(values.tolist(), errors.tolist(), strict=True)
        )
        if self.weighs_by_budget and (len(epsilons) > 1 or merging_bias):
            notes = (*notes, _DEPENDENT)
        projected = project_on_simplex(values) if mechanism.categories else np.clip(values, *domain)
        return Estimate(
            values=tuple(values.tolist()),
            projected=tuple(projected.tolist()),
            standard_errors=tuple(errors.tolist()),
            confidence_intervals=intervals,
            confidence_level=confidence,
            sampling_standard_errors=tuple(samplings.tolist()),
            notes=(*notes, *_remarks(values, intervals, domain)),
            categories=mechanism.categories,
            clamping=clamping,
            merging_bias=merging_bias,
        )

    def domain(self, mechanism: Scalar) -> tuple[float, float]:
        """Returns the range of what is asked for: of shares, unless it is that of a number."""
        return 0.0, 1.0

    def clamped(
        self, mechanism: Scalar, reports: Reports, epsilons: Floats, counts: Floats, least_epsilon: float
    ) -> tuple[Reports, Clamping | None]:
        """Returns the reports as they are counted, and what that does; none is changed where none can be large."""
        return reports, None

    @abstractmethod
    def numbers(self, mechanism: Scalar, reports: Reports, epsilons: Floats, counts: Floats) -> Numbers:
        """Returns estimates, standard errors and sampling standard errors; epsilons and counts (T,) are the tiers."""


class _Bit(_Scalar[RandomizedResponse]):
    def numbers(self, mechanism: RandomizedResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Numbers:
        """GSPA, Algorithm 2."""
        return _from_counts(np.array([float(reports.sum())]), 2, epsilons, counts, rounded=False)


class _Category(_Scalar[KaryResponse]):
    def numbers(self, mechanism: KaryResponse, reports: Reports, epsilons: Floats, counts: Floats) -> Numbers:
        """Matrix inversion with personal budgets."""
        hits = np.bincount(reports, minlength=mechanism.k).astype(np.float64)
        return _from_counts(hits, mechanism.k, epsilons, counts, rounded=False)


class _OneBit(_Scalar[OneBit]):
    def domain(self, mechanism: OneBit) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def numbers(self, mechanism: OneBit, reports: Reports, epsilons: Floats, counts: Floats) -> Numbers:
        hits = np.array([float(reports.sum())])
        shares, errors, samplings = _from_counts(hits, 2, epsilons, counts, rounded=True)
        width = mechanism.high - mechanism.low
        return mechanism.low + width * shares, width * errors, width * samplings


class _Lattice(_Scalar[Lattice]):
    weighs_by_budget: ClassVar[bool] = False

    def domain(self, mechanism: Lattice) -> tuple[float, float]:
        return mechanism.low, mechanism.high

    def clamped(
        self, mechanism: Lattice, reports: Reports, epsilons: Floats, counts: Floats, least_epsilon: float
    ) -> tuple[Reports, Clamping | None]:
        """A report is clamped to a margin around its interval that the smallest budget of the grid fixes.

        It is pulled towards the interval only: the variance does not grow, and a mean moves by at most the excess.
        """
        margin, n = mechanism.margin(least_epsilon), float(counts.sum())
        found = np.clip(reports, -margin, mechanism.lattice + margin)
        step = (mechanism.high - mechanism.low) / mechanism.lattice
        return found, Clamping(
            low=mechanism.low - step * margin,
            high=mechanism.high + step * margin,
            num_clamped=int((found != reports).sum()),
            bias=step * float(np.dot(self.excess(mechanism, epsilons, margin), counts)) / n,
            influence=step * (mechanism.lattice + 2 * margin) / n,
        )

    def numbers(self, mechanism: Lattice, reports: Reports, epsilons: Floats, counts: Floats) -> Numbers:
        """The average of the reports; stochastic rounding adds at most 1/4 to the variance of each report's noise."""
        n, lattice, width = float(counts.sum()), mechanism.lattice, mechanism.high - mechanism.low
        noise = self.variances(mechanism, epsilons) + 0.25
        mean = float(reports.mean()) / lattice
        c = min(max(mean, 0.0), 1.0)
        error, sampling = math.sqrt(float(np.dot(noise, counts))) / (n * lattice), math.sqrt(c * (1 - c) / n)
        return np.array([mechanism.low + width * mean]), np.array([width * error]), np.array([width * sampling])

    @abstractmethod
    def variances(self, mechanism: Lattice, epsilons: Floats) -> Floats:
        """Returns the variance of the noise of each budget in squared lattice steps, or more. Shape (T,)."""

    @abstractmethod
    def excess(self, mechanism: Lattice, epsilons: Floats, margin: int) -> Floats:
        """Returns by how many steps the noise of each budget exceeds a margin on average, or more. Shape (T,)."""


class _Laplace(_Lattice[Laplace]):
    def variances(self, mechanism: Laplace, epsilons: Floats) -> Floats:
        """2e^(−1/b)/(1 − e^(−1/b))² for discrete noise of scale b."""
        rate = epsilons / mechanism.lattice
        return np.asarray(2 * np.exp(-rate) / np.expm1(-rate) ** 2)

    def excess(self, mechanism: Laplace, epsilons: Floats, margin: int) -> Floats:
        """Σ P(K ≥ m) over m > margin, with P(K ≥ m) = r^m/(1 + r), r = e^(−1/b)."""
        rate = epsilons / mechanism.lattice
        return np.asarray(np.exp(-rate * (margin + 1)) / -np.expm1(-2 * rate))


class _Gaussian(_Lattice[Gaussian]):
    def variances(self, mechanism: Gaussian, epsilons: Floats) -> Floats:
        """At most σ² (Canonne, Kamath, Steinke 2020, Corollary 9)."""
        return np.square([mechanism.sigma_steps(epsilon) for epsilon in epsilons.tolist()])

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
    ) -> VectorEstimate:
        scaled, notes = tiers_of_reports(tiers, len(reports))
        total = np.stack(reports).sum(axis=0, dtype=np.float64)
        return replace(self.mean(mechanism, total, scaled), notes=notes)

    @abstractmethod
    def mean(self, mechanism: InSpace, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        """Returns the mean from the sum of the reports, (d,), and (local epsilon, number of reports)."""


class _Hemisphere(_Vector[Hemisphere]):
    def decoder(self, mechanism: Hemisphere, least_epsilon: float) -> Callable[[bytes], Any]:
        return partial(decode_unit_vector, mechanism.vector.dimension)

    def mean(self, mechanism: Hemisphere, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        return hemisphere_mean(total, tiers, mechanism.vector.clipping_norm)


class _GaussianVector(_Vector[GaussianVector]):
    def decoder(self, mechanism: GaussianVector, least_epsilon: float) -> Callable[[bytes], Any]:
        task = mechanism.vector
        longest = longest_gaussian_report(task.dimension, task.clipping_norm, mechanism.sigma(least_epsilon))
        return partial(decode_gaussian_vector, task.dimension, longest)

    def mean(self, mechanism: GaussianVector, total: Floats, tiers: Sequence[tuple[float, float]]) -> VectorEstimate:
        return gaussian_mean(total, [(mechanism.sigma(epsilon), count) for epsilon, count in tiers])


ESTIMATORS: dict[str, Estimator[Any]] = {
    "rr": _Bit(),
    "krr": _Category(),
    "onebit": _OneBit(),
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

    Returns:
        An `Estimate`, or, where vectors are asked for, a `VectorEstimate`. Derivations: docs/estimators.md.

    Raises:
        ValueError: no reports, no budgets, a level out of range, or merged tiers with another kind of mechanism.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be in (0, 1)")
    if merged is not None and not question.mechanism.tiers_merge:
        raise ValueError(f"tiers are merged with {question.mechanism.kind}; its estimates need the exact ones")
    least = least_epsilon or min((epsilon for epsilon, _ in tiers), default=1.0)
    return ESTIMATORS[question.mechanism.kind].estimate(question.mechanism, reports, tiers, confidence, least, merged)
