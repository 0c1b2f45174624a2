"""The numbers of a published result, one by one."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from croupier.protocol.names import JsonObject


class Precision(StrEnum):
    """Whether a result can be used: against its range, or against its largest share."""

    USABLE = "USABLE"
    COVERS_RANGE = "COVERS_RANGE"
    HIDES_SHARES = "HIDES_SHARES"


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
    return [view_of(value, value["label"])._replace(is_share=bool(value["label"])) for value in result["values"]]


def labels_of(result: JsonObject) -> list[str]:
    """Returns the categories of a histogram; none of another result, or of one that cannot be read."""
    return [value["label"] for value in result["values"] if value["label"]]


def view_of(value: JsonObject, label: str) -> NumberView:
    """Returns an estimate of a result."""
    own, whole = ([value[name]["low"], value[name]["high"]] for name in ("confidence_interval", "population_interval"))
    return NumberView(label, value["estimate"], value["projected"], value["standard_error"], own, whole)


def level_of(result: JsonObject) -> float:
    """Returns the level of a result's intervals; 0 if it is sealed or refused, and has none."""
    return result["confidence_level"] or 0.0
