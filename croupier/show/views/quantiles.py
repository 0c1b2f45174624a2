"""A quantile that was searched for in a large range."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.views import GuaranteeView

__all__ = ["QuantileStepView", "SearchedQuantileView"]


class QuantileStepView(TypedDict):
    """What one group of a quantile search was asked and has answered."""

    round_id: str
    threshold: float
    share: float
    standard_error: float
    interval: list[float]
    people: int


class SearchedQuantileView(TypedDict):
    """A quantile of the numbers called "name", and what all rounds of its search together guarantee each person."""

    name: str
    q: float
    estimate: float
    interval: list[float]
    confidence_level: float
    steps: list[QuantileStepView]
    guarantee: GuaranteeView
