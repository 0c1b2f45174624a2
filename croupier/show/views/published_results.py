"""Published results, and their numbers one by one."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, NamedTuple, NotRequired, TypedDict

from croupier.protocol.certificate_views import RoundCertificateView, StatementView
from croupier.protocol.names import RoundId
from croupier.show.views.cross_tables import CrossTableView, SumView
from croupier.show.views.distributions import DistributionView
from croupier.show.views.questions import QuestionView


class ClampingView(TypedDict):
    """The interval to which reports are clamped, and the effect on an estimate."""

    low: float
    high: float
    num_clamped: int
    bias: float
    influence: float


class Precision(StrEnum):
    """Whether a result can be used: against its range, or against its largest share."""

    USABLE = "usable"
    COVERS_RANGE = "covers range"
    HIDES_SHARES = "hides shares"


class ResultView(TypedDict):
    """A published result: a number for a share or mean, a list for a histogram, None if sealed or refused.

    "asked" and a population interval are None in a result of an earlier version. "precision" says whether the result
    can be used. "distribution" is beside a mean of numbers on ordered levels, "table" and "sums" beside the shares of
    categories on request. "data_notes" are about the file of a demonstration or simulation: clamped or omitted values.
    """

    round_id: RoundId
    asked: QuestionView | None
    sealed: bool
    labels: list[str] | None
    estimate: float | list[float] | None
    projected: float | list[float] | None
    standard_error: float | list[float] | None
    confidence_interval: list[float] | list[list[float]] | None
    confidence_level: float | None
    sampling_standard_error: float | list[float] | None
    population_interval: list[float] | list[list[float] | None] | None
    precision: Precision | None
    num_reports: int
    clamping: ClampingView | None
    hop_influence: float | None
    distribution: NotRequired[DistributionView | None]
    table: NotRequired[CrossTableView]
    sums: NotRequired[list[SumView]]
    drops: dict[str, int]
    notes: list[StatementView]
    data_notes: NotRequired[list[str]]
    certificate: RoundCertificateView


class NumberView(NamedTuple):
    """One number of a result; the label is "" for a share or mean.

    `projected` is the nearest possible value of all numbers together: with negative ones among them, shares that are
    possible by themselves are lowered, so that they add up to 1.
    """

    label: str
    estimate: float
    projected: float
    standard_error: float
    interval: list[float]
    population: list[float] | None
    is_share: bool = False

    @property
    def shown(self) -> float:
        """The estimate if it is possible by itself, else the nearest end of its range."""
        return min(max(self.estimate, 0.0), 1.0) if self.is_share else self.projected

    @property
    def is_possible(self) -> bool:
        """Whether the estimate lies within its range."""
        return math.isclose(self.estimate, self.shown, rel_tol=1e-9, abs_tol=1e-9)


def numbers_of(result: ResultView) -> list[NumberView]:
    """Returns every number of a result; none if it is sealed or refused."""
    labels = result["labels"]
    columns: list[Any] = [
        result["estimate"],
        result["projected"],
        result["standard_error"],
        result["confidence_interval"],
        result["population_interval"],
    ]
    if result["estimate"] is None:
        return []
    if labels is None:
        return [NumberView("", *columns)]
    return [
        NumberView(*row)._replace(is_share=bool(row[0])) for row in zip(labels, *columns, strict=True)
    ]  # a vector has none


def level_of(result: ResultView) -> float:
    """Returns the level of a result's intervals; 0 if it is sealed or refused, and has none."""
    return result["confidence_level"] or 0.0
