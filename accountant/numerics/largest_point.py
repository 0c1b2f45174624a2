"""The largest point at which a growing function is still at most a target, in few evaluations.

For searches with expensive steps, such as the planner's, whose steps are certificates. The point found was evaluated;
the search does not prove that every larger point is above the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

MOST_STEPS = 60
"""The most points of one search, which rarely has more than six."""
MOST_GROWTH = 64.0
"""The largest ratio of successive points, or of their inverse."""
MARGIN = 0.4
"""The distance from the target at which a step aims to end, in units of the tolerance."""
STEEP = 12.0
"""A larger exponent of growth indicates a jump."""


class Points(Protocol):
    """The allowed points, all > 0."""

    @property
    def least(self) -> float:
        """The smallest point."""

    @property
    def most(self) -> float:
        """The largest point."""

    def nearest(self, point: float) -> float:
        """Returns the allowed point nearest to a number between the smallest and the largest."""


class Objective(NamedTuple):
    """The end of a search."""

    point: float
    value: float
    slope: float
    """About d ln value / d ln point there."""
    bend: float = 0.0
    """About half of d slope / d ln point there."""


def largest_point(
    reached: Callable[[float], float],
    target: float,
    among: Points,
    start: Objective,
    tolerance: float,
) -> Objective:
    """Returns about the largest point with reached(point) <= target, or the smallest of all points if there is none.

    reached is usually increasing, but need not be. It was evaluated at the point returned. The true optimum is at most
    about `tolerance` further on (log-linear interpolation), or as much further as the function was seen to decrease.

    Steps follow the parabola through the nearest points. After a point above the target the next ones keep more
    distance, or all of them might end slightly above it. At values of 0 or infinity there is no interpolation: points
    grow or shrink ever faster and are then bisected, as they are if interpolation fails.
    """
    low = low_reached = 0.0
    high = high_reached = math.inf
    margin, growth, slow = MARGIN * tolerance, 1.5, 0
    slope, bend, second = start.slope, start.bend, math.nan
    seen: list[tuple[float, float]] = []
    point = among.nearest(min(max(start.point, among.least), among.most))
    for _ in range(MOST_STEPS):
        at_point, before = reached(point), math.log(high / low) if 0 < low < high < math.inf else math.inf
        if before < math.inf:  # a decrease limits the precision of the result
            falls = max(low_reached - at_point, at_point - high_reached) / target
            tolerance = max(tolerance, falls / slope)
        if 0 < at_point < math.inf:
            seen.append((math.log(point), math.log(at_point)))
            bend = _bend(seen[-3:]) if len(seen) > 2 else bend
        if at_point <= target:
            if 0 < low_reached < at_point and point > low:
                slope, second = max(math.log(at_point / low_reached) / math.log(point / low), slope / 4), low
            low, low_reached, margin = point, at_point, MARGIN * tolerance
        else:
            if target < at_point < high_reached < math.inf and point < high:
                slope, second = max(math.log(high_reached / at_point) / math.log(high / point), slope / 4), high
            high, high_reached = point, at_point
            margin = min(2 * margin if margin < tolerance / 2 else 4 * margin, 0.75)
        if low >= among.most or high <= among.least or high <= low * (1 + tolerance):
            break
        if low_reached > 0 and high_reached < math.inf:
            slope, second = max(math.log(high_reached / low_reached) / math.log(high / low), 1e-3), high
        between = 0 < low < high < math.inf
        slow = slow + 1 if between and math.log(high / low) > before / 2 else 0
        if low_reached > 0:
            point = low * _step(target / low_reached, slope, bend, math.log(low / second))
            if point <= low * (1 + tolerance) and (slope < STEEP or not between):
                break
            aimed, point = point, point * (1 - margin)
        elif low > 0:
            aimed = point = low * growth
            growth = min(growth**2, MOST_GROWTH)
        elif high_reached < math.inf:
            aimed = high * _step(target / high_reached, slope, bend, math.log(high / second))
            point = aimed * (1 - margin)
        else:
            aimed = point = high / growth
            growth = min(growth**2, MOST_GROWTH)
        jumps = low_reached <= 0 or high_reached == math.inf or slope > STEEP
        if between and (slow >= 2 or jumps or not low < point < high):
            point, slow = math.sqrt(low * high), 0
        point = among.nearest(min(max(point, among.least), among.most))
        if point == low:  # few points: the next one may be the aim without its margin
            point = among.nearest(min(max(aimed, among.least), among.most))
        if point in (low, high):
            point = among.nearest(math.sqrt(low * high)) if between else low
        if point in (low, high):
            break
    return Objective(low, low_reached, slope, bend) if low > 0 else Objective(high, high_reached, slope, bend)


def _bend(three: list[tuple[float, float]]) -> float:
    """Returns half of the second derivative from three places and values."""
    (a, at_a), (b, at_b), (c, at_c) = sorted(three)
    return ((at_c - at_b) / (c - b) - (at_b - at_a) / (b - a)) / (c - a) if a < b < c else 0.0


def _step(ratio: float, slope: float, bend: float, from_second: float) -> float:
    """Returns the factor on a point that changes the function by this ratio.

    from_second: the distance in logarithms to the other point of the slope; nan for none. The bend changes the step by
    at most a quarter.
    """
    straight = math.log(ratio) / slope
    moved = bend * (straight + (0.0 if math.isnan(from_second) else from_second)) / slope
    most = math.log(MOST_GROWTH)
    return math.exp(min(max(straight * (1 - min(max(moved, -0.25), 0.25)), -most), most))
