"""How numbers on ordered levels are distributed."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class SharesView(TypedDict):
    """Shares of people by level, in the order of the levels; "projected" are possible and agree with each other."""

    estimate: list[float]
    projected: list[float]
    standard_error: list[float]
    confidence_interval: list[list[float]]
    population_interval: list[list[float]]


class NumberWithIntervalsView(TypedDict):
    """A standard deviation."""

    estimate: float
    standard_error: float
    confidence_interval: list[float]
    population_interval: list[float]


class QuantileView(TypedDict):
    """The number that the part q of the people do not exceed."""

    q: float
    estimate: float
    confidence_interval: list[float]
    population_interval: list[float]


class DistributionView(TypedDict):
    """How numbers on ordered levels are distributed: shares on each level, and on it or below."""

    levels: list[float]
    shares: SharesView
    cumulative: SharesView
    standard_deviation: NumberWithIntervalsView
    quantiles: NotRequired[list[QuantileView]]
    hop_influence: float | None
