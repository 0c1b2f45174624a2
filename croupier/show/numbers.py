"""The numbers of a published result, one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from croupier.protocol.names import JsonObject
from croupier.show.blocks import Interval


class Precision(StrEnum):
    """Whether a result can be used: against its range, or against its largest share."""

    USABLE = "USABLE"
    COVERS_RANGE = "COVERS_RANGE"
    HIDES_SHARES = "HIDES_SHARES"


@dataclass(frozen=True)
class Number:
    """A number of a result.

    Attributes:
        label: "" for the only share or the mean, else the answer of a share or the name of the number, such as
            "median".
        estimate: as the noise has left it; it may be outside the possible range.
        projected: the nearest possible value of all numbers together: with negative ones among them, shares that are
            possible by themselves are lowered, so that they add up to 1.
        standard_error: of the estimate; NaN for a quantile, which has none.
        participants: the interval for the people who took part.
        population: the interval for a population of which they are a random sample.
        is_share: one of several shares.
        truth: the true number of the people who took part, which only a demonstration knows.
    """

    label: str
    estimate: float
    projected: float
    standard_error: float
    participants: Interval
    population: Interval
    is_share: bool = False
    truth: float | None = None

    @property
    def shown(self) -> float:
        """The estimate if it is possible by itself, else the nearest end of its range."""
        return min(max(self.estimate, 0.0), 1.0) if self.is_share else self.projected

    @property
    def is_possible(self) -> bool:
        """Whether the estimate lies within its range."""
        return math.isclose(self.estimate, self.shown, rel_tol=1e-9, abs_tol=1e-9)


def numbers_of(result: JsonObject) -> list[Number]:
    """Returns every number of a result; none if it is sealed or refused."""
    truth = result.get("truth", [])
    pairs = zip_longest(result["values"], truth if isinstance(truth, list) else [truth])
    return [number_of(value, value["label"], is_share=bool(value["label"]), truth=true) for value, true in pairs]


def labels_of(result: JsonObject) -> list[str]:
    """Returns the categories of a histogram; none of another result, or of one that cannot be read."""
    return [value["label"] for value in result["values"] if value["label"]]


def number_of(value: JsonObject, label: str = "", *, is_share: bool = False, truth: Any = None) -> Number:
    """Returns an estimate of a result.

    Raises:
        ValueError: it is not finite.
    """
    own, whole = (value[name] for name in ("confidence_interval", "population_interval"))
    estimate, projected, *ends = map(float, (value["estimate"], value["projected"], *_ends(own), *_ends(whole)))
    error = float(value["standard_error"])
    if not all(map(math.isfinite, (estimate, projected, *ends))) or math.isinf(error):
        raise ValueError(f"a number of the result is {[estimate, projected, *ends]}; every one must be finite")
    low, high, least, most = ends
    true = None if truth is None else float(truth)
    return Number(str(label), estimate, projected, error, (low, high), (least, most), is_share, true)


def _ends(interval: JsonObject) -> tuple[Any, Any]:
    return interval["low"], interval["high"]


def level_of(result: JsonObject) -> float:
    """Returns the level of a result's intervals; 0 if it is sealed or refused, and has none."""
    return result["confidence_level"] or 0.0
