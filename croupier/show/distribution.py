"""Quantiles of numbers that were asked for on ordered levels, from the published cumulative shares (docs/levels.md).

Every quantile is computed from the same published numbers, so any reader can compute another one and none contradicts
the histogram. Needs no library: clients use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from croupier.protocol.names import JsonObject
from croupier.show.language import number, say
from croupier.show.numbers import Number, number_of

MEDIAN = 0.5
QUANTILES = (0.05, 0.1, 0.25, MEDIAN, 0.75, 0.9, 0.95)
"""The quantiles that a result shows by default."""


def quantile(distribution: JsonObject, q: float) -> JsonObject:
    """Returns the smallest number that at least the part q of the people do not exceed, with its intervals.

    The estimate is read off a line through the smoothed cumulative shares: the share below level j or on it is taken
    for the share of numbers up to the middle between level j and the next, because a number between two levels counts
    on both. An interval ends at levels. A number between two levels counts on the lower one in part, so an interval
    reaches one level further up than the tests of the cumulative shares say.

    Raises:
        ValueError: q is not above 0 and below 1.
    """
    if not 0 < q < 1:
        raise ValueError(f"q is {q}; a quantile must be above 0 and below 1")
    levels = [level["value"] for level in distribution["levels"]]
    below = [number_of(level["cumulative"]) for level in distribution["levels"]]
    return {
        "q": q,
        "estimate": _at(levels, [share.projected for share in below], q),
        "confidence_interval": _between(levels, [share.participants for share in below], q),
        "population_interval": _between(levels, [share.population for share in below], q),
    }


def _at(levels: Sequence[float], shares: Sequence[float], q: float) -> float:
    last = len(levels) - 1
    places = [*((levels[at] + levels[at + 1]) / 2 for at in range(last)), levels[last]]
    place, share = levels[0], 0.0
    for next_place, next_share in zip(places, shares, strict=True):
        if next_share >= q:
            return place + (next_place - place) * (q - share) / (next_share - share)
        place, share = next_place, next_share
    return levels[last]


def _between(levels: Sequence[float], intervals: Sequence[Sequence[float]], q: float) -> JsonObject:
    """Returns the levels between which the quantile is: each end is wrong at most as often as an end of an interval.

    A lower end above the quantile needs the test of the one cumulative share that is the first to reach q to be wrong,
    whatever the tests of the others say, and the upper end likewise.
    """
    last = len(levels) - 1
    first = 0
    while first < last and intervals[first][1] < q:
        first += 1
    end = last
    while end > 0 and intervals[end - 1][0] >= q:
        end -= 1
    return {"low": levels[max(0, first - 1)], "high": levels[min(last, end + 1)]}


def quantile_name(q: float) -> str:
    """Returns the name of a quantile: the median, or its part in per cent."""
    return say("median") if q == MEDIAN else say("{part} quantile", part=number(f"{100 * q:.10g} %"))


def statistics_of(result: JsonObject) -> list[Number]:
    """Returns the standard deviation and the quantiles beside the mean of a result; none if it has none.

    A quantile has no standard error: it is NaN.
    """
    distribution = result.get("distribution")
    if distribution is None:
        return []
    deviation = distribution["standard_deviation"]
    numbers = [number_of(deviation | {"projected": deviation["estimate"]}, say("standard deviation"))]
    for stated in distribution.get("quantiles", []):
        value = stated | {"projected": stated["estimate"], "standard_error": math.nan}
        numbers.append(number_of(value, quantile_name(stated["q"])))
    return numbers


def shares_of(result: JsonObject) -> list[Number]:
    """Returns the share of people on each level, labelled with the level; none for numbers without levels."""
    distribution = result.get("distribution")
    levels = [] if distribution is None else distribution["levels"]
    return [number_of(level["share"], f"{level['value']:.6g}") for level in levels]


def with_quantiles(result: JsonObject, further: Sequence[float]) -> JsonObject:
    """Returns a result with further quantiles, in ascending order.

    Raises:
        ValueError: a quantile is out of range, or the result has none.
    """
    if not further:
        return result
    distribution = result.get("distribution")
    if distribution is None:
        raise ValueError(
            "quantiles are asked for; only an open result of a question on levels (randomizer levels) has them"
        )
    asked = sorted({*further, *(stated["q"] for stated in distribution.get("quantiles", []))})
    return result | {"distribution": distribution | {"quantiles": [quantile(distribution, q) for q in asked]}}
