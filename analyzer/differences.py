"""Intervals of differences of two estimates, each of which has an interval that ends at its possible range.

An end that is the range's is no bound on the estimate's error: an interval of a difference needs the distances to ends
that are not cut (docs/estimators.md, Differences). Needs no library.
"""

from __future__ import annotations

import math
from typing import NamedTuple

Interval = tuple[float, float]


class Reach(NamedTuple):
    """An estimate, and the distances below and above it within which the truth may be.

    Attributes:
        estimate: unbiased; because of the noise it may be outside the possible range.
        down, up: the distances to the ends of its interval; above 0.
        known: whether the data bound the number at all; else the distances are those to the ends of the range.
    """

    estimate: float
    down: float
    up: float
    known: bool = True

    @property
    def longest(self) -> float:
        """The larger distance."""
        return max(self.down, self.up)


def reach(estimate: float, interval: Interval, margin: float, scale: Interval) -> Reach:
    """Returns the distances of an estimate from an interval that was cut to the possible range.

    Distances are measured from the nearest possible value, whose error the interval has. On a side where the interval
    ends at the range, the distance is that of the other side, or `margin` if this is larger: the variance differs
    little between them. An interval that is the whole range bounds nothing.

    Args:
        estimate: unbiased.
        interval: within the range.
        margin: the standard error of the nearest possible value times the quantile of the level.
        scale: the possible range.
    """
    (low, high), (least, most) = interval, scale
    possible = min(max(estimate, least), most)
    rounding = 1e-9 * (high - low)
    cut_low, cut_high = low <= least + rounding, high >= most - rounding
    down, up = possible - low, high - possible
    if cut_low and cut_high:
        return Reach(possible, down, up, known=False)
    if cut_low:
        down = max(down, up, margin)
    if cut_high:
        up = max(up, down, margin)
    return Reach(estimate, down, up)


def apart(first: Reach, second: Reach, width: float, shared: float = 0.0) -> Interval:
    """Returns the interval of first - second (Zou and Donner 2008), within [-width, width].

    Errors add as squares: the distance of each end combines the distances of two ends. For a number without a bound in
    its range, the whole range is added.

    shared: the product of the parts of both distances that may have one cause and opposite signs; they add linearly.
    """
    difference = first.estimate - second.estimate
    if first.known and second.known:
        down, up = (
            math.sqrt(x * x + y * y + 2 * shared) for x, y in ((first.down, second.up), (first.up, second.down))
        )
    else:
        down, up = first.down + second.up, first.up + second.down
    low, high = (min(max(end, -width), width) for end in (difference - down, difference + up))
    return low, high
