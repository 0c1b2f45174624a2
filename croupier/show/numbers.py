"""The numbers of a published result, one by one."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, NamedTuple

from croupier.protocol.names import JsonObject


class Precision(StrEnum):
    """Whether a result can be used: against its range, or against its largest share."""

    USABLE = "usable"
    COVERS_RANGE = "covers range"
    HIDES_SHARES = "hides shares"


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
    population: list[float]
    is_share: bool = False

    @property
    def shown(self) -> float:
        """The estimate if it is possible by itself, else the nearest end of its range."""
        return min(max(self.estimate, 0.0), 1.0) if self.is_share else self.projected

    @property
    def is_possible(self) -> bool:
        """Whether the estimate lies within its range."""
        return math.isclose(self.estimate, self.shown, rel_tol=1e-9, abs_tol=1e-9)


def numbers_of(result: JsonObject) -> list[NumberView]:
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


def level_of(result: JsonObject) -> float:
    """Returns the level of a result's intervals; 0 if it is sealed or refused, and has none."""
    return result["confidence_level"] or 0.0
