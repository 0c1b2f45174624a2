"""Estimators: from the shuffled multiset of reports and the public multiset of budgets to numbers with their errors.

Nobody knows which report had which budget, so every estimator uses sums over the budgets only. With w_i the weight that
user i's value has in its report (1 − 2q_i for a bit, 1 − kq_i for a letter) the estimate is Σ_i(report_i − q_i)/Σw_i.

Two errors are given apart. `standard_error` is around the truth of these very users: the randomizers' noise, plus
what comes from values being weighted by w_i when budgets are independent of values. `sampling_standard_error` is what
another draw of users from a population would add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from protocol.calibration import gaussian_sigma_steps
from protocol.questions import Question

__all__ = ["Estimate", "estimate", "project_on_simplex", "tiers_of_reports"]

Floats = npt.NDArray[np.float64]
Reports = npt.NDArray[np.int64]
Tiers = Sequence[tuple[float, int]]

_DEPENDENT = (
    "if budgets depend on values this estimate is biased: reports weigh more the larger their owner's budget, "
    "and the shuffle hides whose they are"
)


@dataclass(frozen=True)
class Estimate:
    """Estimated numbers, one for a share or mean, k for a histogram; all tuples have that length.

    Attributes:
        values: unbiased (before any projection), so they may leave their natural range.
        projected: histogram only: the nearest point of the simplex (Euclidean).
        standard_errors: around the truth of these users.
        confidence_intervals: normal, at `confidence_level`, from `standard_errors`.
        sampling_standard_errors: of drawing these users from a population; not included in the others.
    """

    values: tuple[float, ...]
    projected: tuple[float, ...]
    standard_errors: tuple[float, ...]
    confidence_intervals: tuple[tuple[float, float], ...]
    confidence_level: float
    sampling_standard_errors: tuple[float, ...]
    notes: tuple[str, ...]


def tiers_of_reports(tiers: Tiers, num_reports: int) -> tuple[list[tuple[float, float]], tuple[str, ...]]:
    """Returns (local epsilon, number of reports), whose numbers add up to that of the reports, and notes.

    Reports and budgets travel in separate lanes, so after a drop in one of them their numbers may differ a little. The
    counts are then scaled, since nobody can tell whose report is missing. Raises ValueError for no reports or budgets.
    """
    total = sum(count for _, count in tiers)
    if not num_reports or not total:
        raise ValueError(f"{num_reports} reports and {total} budgets; at least one of each is needed")
    if num_reports == total:
        return [(epsilon, float(count)) for epsilon, count in tiers], ()
    note = f"{num_reports} reports stand beside {total} budgets; the tier counts are scaled to the reports"
    return [(epsilon, count * (num_reports / total)) for epsilon, count in tiers], (note,)


def _interval(value: float, standard_error: float, confidence: float) -> tuple[float, float]:
    half = NormalDist().inv_cdf((1 + confidence) / 2) * standard_error
    return value - half, value + half


def _uneven(weights: Floats, counts: Floats) -> float:
    """Returns Σ(w_i/Σw − 1/n)²·n/(n−1): what uneven weights add per unit of variance between the users' values."""
    n, total = float(counts.sum()), float(np.dot(weights, counts))
    if n < 2:
        return 0.0
    return float(np.dot(counts, (weights / total - 1 / n) ** 2)) * n / (n - 1)


def _from_counts(
    hits: Floats, letters: int, epsilons: Floats, counts: Floats, *, rounded: bool
) -> tuple[Floats, Floats, Floats]:
    """Returns estimates, standard errors and sampling standard errors from how often each letter was reported.

    A report hits letter j with probability q_i + w_i·c, q_i = 1/(e^ε_i + k − 1), w_i = 1 − kq_i, where c is 1 or 0 for
    a letter and in between for a value that is `rounded` to a bit first. The plug-in variance uses the estimate,
    clipped to [0, 1]; for rounded values it is an upper bound, because π(1 − π) is concave.
    """
    n = float(counts.sum())
    q = 1 / (np.expm1(epsilons) + letters)
    weights = -np.expm1(-epsilons) * np.exp(epsilons) * q
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


def _lattice_mean(
    reports: Reports, lattice: int, epsilons: Floats, counts: Floats, local_delta: float | None
) -> tuple[float, float, float]:
    """Returns mean, standard error and sampling standard error as fractions of the interval (average of reports).

    Discrete Laplace noise of scale b has variance 2e^(−1/b)/(1 − e^(−1/b))²; stochastic rounding adds at most ¼.
    Discrete Gaussian noise has a variance of at most σ² (Canonne, Kamath, Steinke 2020, Corollary 9).
    """
    n = float(counts.sum())
    rate = epsilons / lattice
    noise = 2 * np.exp(-rate) / np.expm1(-rate) ** 2 + 0.25
    if local_delta is not None:
        sigmas = [gaussian_sigma_steps(epsilon, local_delta, lattice) for epsilon in epsilons.tolist()]
        noise = np.square(sigmas) + 0.25
    mean = float(reports.mean()) / lattice
    c = min(max(mean, 0.0), 1.0)
    return mean, math.sqrt(float(np.dot(noise, counts))) / (n * lattice), math.sqrt(c * (1 - c) / n)


def project_on_simplex(shares: Floats) -> Floats:
    """Returns the nearest probability vector in Euclidean distance (Duchi et al., ICML 2008, Figure 1)."""
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.nonzero(descending > excess)[0][-1])
    return np.asarray(np.maximum(shares - excess[last], 0.0), dtype=np.float64)


def estimate(question: Question, reports: Reports, tiers: Tiers, confidence: float = 0.95) -> Estimate:
    """Answers a question.

    Args:
        reports: decoded reports in any order, shape (n,).
        tiers: (local epsilon, number of users) as the certificate states them.
        confidence: level of the intervals, 0 < confidence < 1.

    Sources: GSPA Algorithm 2 for bits; matrix inversion (k-RR) with personal budgets for letters; docs/estimators.md.

    Raises:
        ValueError: no reports, no budgets, or a level out of range.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; allowed is 0 < confidence < 1")
    scaled, notes = tiers_of_reports(tiers, len(reports))
    epsilons, counts = np.array(scaled, dtype=np.float64).T
    projected: Floats = np.array([])
    if question.randomizer in ("laplace", "gaussian"):
        lattice = question.lattice or 1
        mean, error, sampling = _lattice_mean(reports, lattice, epsilons, counts, question.local_delta)
        values, errors, samplings = np.array([mean]), np.array([error]), np.array([sampling])
    elif question.randomizer == "krr":
        k = question.k or 2
        hits = np.bincount(reports, minlength=k).astype(np.float64)
        values, errors, samplings = _from_counts(hits, k, epsilons, counts, rounded=False)
        projected = project_on_simplex(values)
    else:
        hits = np.array([float(reports.sum())])
        values, errors, samplings = _from_counts(hits, 2, epsilons, counts, rounded=question.randomizer == "onebit")
    if question.randomizer in ("onebit", "laplace", "gaussian"):
        low, high = question.interval
        values, errors, samplings = low + (high - low) * values, (high - low) * errors, (high - low) * samplings
    if question.randomizer not in ("laplace", "gaussian") and len(epsilons) > 1:
        notes = (*notes, _DEPENDENT)
    return Estimate(
        values=tuple(values.tolist()),
        projected=tuple(projected.tolist()),
        standard_errors=tuple(errors.tolist()),
        confidence_intervals=tuple(
            _interval(value, error, confidence) for value, error in zip(values.tolist(), errors.tolist(), strict=True)
        ),
        confidence_level=confidence,
        sampling_standard_errors=tuple(samplings.tolist()),
        notes=notes,
    )
