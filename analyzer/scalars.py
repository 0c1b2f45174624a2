"""Estimates of shares and of means of numbers, from two laws of the sum of the reports.

With w_i the weight of user i's value in its report (1 − 2q_i for a bit, 1 − kq_i for a category), the estimate is
Σ_i(report_i − q_i)/Σw_i. Each kind of mechanism gives two laws of the sum (`analyzer.intervals`), from which estimates,
errors and intervals are computed. The first is about the truth of these very users: the randomizers' noise, plus what
comes from values being weighted by w_i when budgets are independent of values. The second is about a population that
the users are drawn from.

The range of a share is [0, 1], that of a mean its interval. Estimates are unbiased and may leave the range, so the
nearest possible value is published, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from croupier.analyzer.base import Batch, Estimator, Floats
from croupier.analyzer.estimates import Estimate, Fakes, Intervals, precision_of
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, weights_of
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.protocol.codes import Note
from croupier.protocol.mechanisms.base import ScalarMechanism
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb

Scalar = TypeVar("Scalar", bound=ScalarMechanism)


def _remarks(values: Floats, domain: tuple[float, float]) -> tuple[Statement[Note], ...]:
    """Returns what has to be said of estimates that are impossible."""
    least, most = domain
    rounding = 1e-9 * (most - least)
    outside = int(((values < least - rounding) | (values > most + rounding)).sum())
    if not outside:
        return ()
    if len(values) == 1:
        return (Statement.of(Note.OUTSIDE_RANGE, low=least, high=most),)
    return (Statement.of(Note.SOME_OUTSIDE_RANGE, outside=outside, estimates=len(values), low=least, high=most),)


def project_on_simplex(shares: Floats) -> Floats:
    """Returns the nearest probability vector in Euclidean distance (Duchi et al., ICML 2008, Figure 1)."""
    descending = np.sort(shares)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.nonzero(descending > excess)[0][-1])
    return np.asarray(np.maximum(shares - excess[last], 0.0), dtype=np.float64)


def fakes_apart(fakes: Fakes, weights: Floats) -> Floats:
    """Returns the weights of the independent parts of one hop's fakes in a sum of the weights of reports.

    weights: of each value of a report, (..., k). Of two values one has more fakes where the other one has less: the
    shape is then (..., 1).
    """
    return (
        weights[..., 1:] - weights[..., :1] if fakes.law.is_paired else weights - weights.mean(axis=-1, keepdims=True)
    )


def fakes_in_sum(fakes: Fakes, weights: npt.ArrayLike) -> tuple[float, float, float]:
    """Returns mean, variance and fourth cumulant of the sum of the weights of all fakes, whose total is known.

    weights: of each value of a report, (k,).
    """
    given = np.asarray(weights, dtype=np.float64)
    mean, apart = fakes.total * float(given.mean()), fakes_apart(fakes, given)
    variance = fakes.hops * fakes.law.variance * float((apart**2).sum())
    return mean, variance, fakes.hops * fakes.law.fourth_cumulant * float((apart**4).sum())


class ScalarEstimator(Estimator[Scalar]):
    """Estimates shares or the mean of a number from the laws of the sum of the reports, which each mechanism gives."""

    weighs_by_budget: ClassVar[bool] = True
    """Whether a report tells the more of its value the larger its budget: then dependent budgets bias the estimate."""
    shares_add_up: ClassVar[bool] = True
    """Whether the shares of a mechanism with categories add up to 1."""

    def decoder(self, mechanism: Scalar, least_epsilon: float) -> Callable[[bytes], int]:
        """Returns the mechanism's own decoder: no report of a number depends on the smallest budget."""
        return mechanism.decode_report

    def estimate(self, batch: Batch[Scalar]) -> Estimate:
        """Returns the estimate with its intervals for these users and for a population; see `analyzer.estimators`."""
        mechanism, fakes = batch.mechanism, batch.fakes
        batch, clamping = self.clamped(replace(batch, reports=np.asarray(batch.reports, dtype=np.int64)))
        laws, counts = self.laws(batch), batch.counts
        if batch.errors is not None:
            laws = self.with_noised_tiers(batch, laws, batch.errors)
        if fakes is not None:
            laws = laws.with_noise(*self.noise_of(mechanism, fakes))
        least, most = self.domain(mechanism)
        width = most - least
        if clamping is not None:
            laws = laws.widened(clamping.bias / width, 0.0)
        shares = laws.participants.estimate(laws.totals)
        add_up = bool(mechanism.categories) and self.shares_add_up
        possible = project_on_simplex(shares) if add_up else np.clip(shares, 0.0, 1.0)
        values, projected = least + width * shares, least + width * possible
        errors = width * laws.participants.standard_error(shares)
        cut = np.clip(shares, 0.0, 1.0)
        samplings = width * np.sqrt(cut * (1 - cut) / float(counts.sum()))

        def intervals(law: SumLaw) -> Intervals:
            low, high = law.interval(laws.totals, batch.confidence)
            ends = np.minimum(low, possible), np.maximum(high, possible)
            return tuple(zip(*((least + width * end).tolist() for end in ends), strict=True))

        depend = (Statement.of(Note.DEPENDENT_BUDGETS),) if self.weighs_by_budget and len(counts) > 1 else ()
        of_participants = intervals(laws.participants)
        return Estimate(
            values=tuple(values.tolist()),
            projected=tuple(projected.tolist()),
            standard_errors=tuple(errors.tolist()),
            confidence_intervals=of_participants,
            population_intervals=intervals(laws.population),
            confidence_level=batch.confidence,
            sampling_standard_errors=tuple(samplings.tolist()),
            notes=(*batch.scaled[1], *depend, *_remarks(values, (least, most))),
            precision=precision_of(
                projected.tolist(), errors.tolist(), of_participants, width, shares=bool(mechanism.categories)
            ),
            categories=mechanism.categories,
            clamping=clamping,
            hop_influence=(
                0.0
                if fakes is None
                else width * self.influence_of(mechanism, fakes) / float(np.min(laws.participants.weight))
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
        return (mechanism.low, mechanism.high) if isinstance(mechanism, IntervalMechanism) else (0.0, 1.0)

    def clamped(self, batch: Batch[Scalar]) -> tuple[Batch[Scalar], pb.Clamping | None]:
        """Returns the reports as they are counted, and what that does; none is changed where none can be large."""
        return batch, None

    def with_noised_tiers(self, batch: Batch[Scalar], laws: Laws, errors: TierErrors) -> Laws:
        """Returns the laws with what the errors of the counts do to them."""
        k = len(batch.mechanism.categories) or 2
        return TierNoise.of(errors, weights_of(k, batch.epsilons)[1], batch.counts, 1 - 1 / k).on(laws)

    @abstractmethod
    def laws(self, batch: Batch[Scalar]) -> Laws:
        """Returns the sums of the reports, int64 (n,), with their laws."""
