"""The parts of an estimate and their form in a publication: numbers, errors, and the limits of their influence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from croupier.protocol.codes import Note
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.histograms import MOST_SINGLE, columns_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.tier_counts import BudgetPrivacy, counts_of
from croupier.protocol.v1 import messages_pb2 as pb

Intervals = tuple[tuple[float, float], ...]


def precision_of(
    projected: Sequence[float], standard_errors: Sequence[float], intervals: Intervals, width: float, *, shares: bool
) -> pb.Precision.ValueType:
    """Returns whether a result can be used.

    A number cannot be used if its interval is longer than half of its range (of length `width`). A histogram cannot be
    used if twice the standard error exceeds the largest share; nor if every interval begins at 0, so that no category
    can be told from an absent one.
    """
    if shares:
        hidden = 2 * max(standard_errors) > max(projected) or all(low <= 0 for low, _ in intervals)
        return pb.PRECISION_HIDES_SHARES if hidden else pb.PRECISION_USABLE
    ((low, high),) = intervals
    return pb.PRECISION_COVERS_RANGE if high - low > width / 2 else pb.PRECISION_USABLE


@dataclass(frozen=True)
class Noised:
    """In the tiers, budget privacy has noised how many clients used each budget (protocol.tier_counts).

    A tier of m > 0 has m + radius - Z users, Z the noise: m + radius is unbiased, with the error Z. A tier of 0 has
    between 0 and radius - Z users: radius / 2 is wrong by at most radius / 2, apart from the noise.

    Attributes:
        privacy: the epsilon and delta in the certificate.
        num_users: the number of users in all tiers together, which is not noised.
    """

    privacy: BudgetPrivacy
    num_users: int

    @classmethod
    def of(cls, certificate: pb.Certificate) -> Self | None:
        """Returns the noise of a certificate's tiers; None where they are exact."""
        privacy = counts_of(certificate).privacy
        return None if privacy is None else cls(privacy, certificate.num_users)

    def users(self, tiers: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Returns tiers with an estimate of their number of users."""
        radius = self.privacy.radius
        return [(epsilon, count + radius if count else radius / 2) for epsilon, count in tiers]

    def doubt(self, tiers: Sequence[tuple[float, float]]) -> list[float]:
        """Returns the largest error of each estimate apart from the noise. Shape (T,)."""
        return [0.0 if count else self.privacy.radius / 2 for _, count in tiers]

    def most_missing(self, tiers: Sequence[tuple[float, float]]) -> list[float]:
        """Returns the largest error of each estimate below the truth, noise included. Shape (T,)."""
        return [self.privacy.radius + doubt for doubt in self.doubt(tiers)]


@dataclass(frozen=True)
class Fakes:
    """The fake reports of all hops among the reports of a round with hop noise.

    Attributes:
        law: of each hop's fakes.
        hops: the number of hops that added fakes.
        total: the number of fakes of all hops together, according to their commitments.
        tickets: the largest number of tickets for the fakes of one hop, according to the certificate.
    """

    law: FakeLaw
    hops: int
    total: int
    tickets: int

    @classmethod
    def of(cls, terms: RoundTerms, certificate: pb.Certificate) -> Self | None:
        """Returns the fakes of a round, as the commitments in its certificate state them; None without hop noise."""
        if terms.fakes is None:
            return None
        stated = [pb.Commitment.FromString(signed.payload) for signed in certificate.commitments]
        total = sum(commitment.num_fakes for commitment in stated if commitment.lane == pb.LANE_REPORT)
        law = terms.fakes.law
        return cls(law, terms.fakes.hops, total, max(certificate.fake_tickets, default=law.most))

    @property
    def mean(self) -> float:
        """The mean number of fakes of one value, given the total."""
        return self.total / self.law.num_values

    @property
    def variance(self) -> float:
        """The variance of the number of fakes of one value, given the total."""
        known = 0.0 if self.law.is_paired else 1 / self.law.num_values
        return self.hops * self.law.variance * (1 - known)

    @property
    def fourth_cumulant(self) -> float:
        """The fourth cumulant of the number of fakes of one value, or more."""
        return self.hops * self.law.fourth_cumulant

    @property
    def influence(self) -> int:
        """The largest change of a count by one dishonest hop's fakes, in reports (`FakeLaw.influence`)."""
        return self.law.influence(self.tickets)


@dataclass(frozen=True)
class Value:
    """One estimated number beside the main ones, with the attributes that `Estimate` has for each of those."""

    estimate: float
    projected: float
    standard_error: float
    confidence_interval: tuple[float, float]
    sampling_standard_error: float
    population_interval: tuple[float, float]

    def message(self, label: str = "") -> pb.EstimatedValue:
        """Returns the value in its published form."""
        (low, high), (least, most) = self.confidence_interval, self.population_interval
        return pb.EstimatedValue(
            label=label,
            estimate=self.estimate,
            projected=self.projected,
            standard_error=self.standard_error,
            confidence_interval=pb.Interval(low=low, high=high),
            sampling_standard_error=self.sampling_standard_error,
            population_interval=pb.Interval(low=least, high=most),
        )


@dataclass(frozen=True)
class Estimate:
    """Estimated numbers, one for a share or mean, k for a histogram; all tuples have that length.

    Attributes:
        categories: histogram only: their names.
        values: unbiased (before any projection), so they may leave their natural range.
        projected: the nearest possible: of a histogram the point of the simplex (Euclidean), else the end of the range.
        standard_errors: around the truth of these users.
        confidence_intervals: for the truth of these users, at `confidence_level` (analyzer.intervals); never a point,
            within the range, and with the projected value inside.
        population_intervals: the same for the population of which these users are a random sample.
        sampling_standard_errors: of drawing these users from a population; not included in `standard_errors`.
        clamping: the limit on one report's influence (`LatticeMechanism.margin`); None if no report can be large.
        precision: whether the result can be used at all.
        hop_influence: the largest change of a value by one dishonest hop's fake reports; 0 without hop noise.
        distribution: beside a mean of numbers on ordered levels.
    """

    values: tuple[float, ...]
    projected: tuple[float, ...]
    standard_errors: tuple[float, ...]
    confidence_intervals: Intervals
    population_intervals: Intervals
    confidence_level: float
    sampling_standard_errors: tuple[float, ...]
    notes: tuple[Statement[Note], ...]
    precision: pb.Precision.ValueType
    categories: tuple[str, ...] = ()
    clamping: pb.Clamping | None = None
    hop_influence: float = 0.0
    distribution: pb.Distribution | None = None

    def publish(self, publication: pb.Publication) -> None:
        """Writes the estimate into a publication."""
        publication.confidence_level = self.confidence_level
        publication.notes.extend(messages_of(self.notes))
        publication.hop_influence = self.hop_influence
        publication.precision = self.precision
        if self.distribution is not None:
            publication.distribution.CopyFrom(self.distribution)
        if self.clamping is not None:
            publication.clamping.CopyFrom(self.clamping)
        values = []
        for index, value in enumerate(self.values):
            label = self.categories[index] if self.categories else ""
            number = Value(
                value,
                self.projected[index],
                self.standard_errors[index],
                self.confidence_intervals[index],
                self.sampling_standard_errors[index],
                self.population_intervals[index],
            )
            values.append(number.message(label))
        if len(values) > MOST_SINGLE:
            publication.shares.CopyFrom(columns_of(values))
        else:
            publication.values.extend(values)
