"""The largest point at which something that grows is still at most a target, in few evaluations.

For searches of which every step is dear: the planner's, where each is a certificate. What is found was evaluated; that
no larger point would do is not proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

MOST_STEPS = 60
"""Points of one search, of which there are hardly ever more than six."""
MOST_GROWTH = 64.0
"""How much larger or smaller the next point may be."""
MARGIN = 0.4
"""How far before the target a step is to end, in parts of the tolerance."""
STEEP = 12.0
"""With a larger power of the point nothing grows that does not jump."""


class Points(Protocol):
    """The points > 0 that there are."""

    @property
    def least(self) -> float:
        """The least of them."""

    @property
    def most(self) -> float:
        """The largest."""

    def nearest(self, point: float) -> float:
        """The one nearest to any point between them."""


class Objective(NamedTuple):
    """Where a search has ended."""

    point: float
    value: float
    slope: float
    """d ln value / d ln point there, about."""
    bend: float = 0.0
    """Half of d slope / d ln point, about."""


def largest_point(
    reached: Callable[[float], float],
    target: float,
    among: Points,
    start: Objective,
    tolerance: float,
) -> Objective:
    """About the largest point with reached(point) <= target; the least of all points where there is none.

    reached need not be monotone, and hardly ever falls. It was evaluated at the point found; the next one that could be
    had is at most about `tolerance` further, as a straight line between logarithms has it, or was too far; or as far as
    what is reached was seen to fall where it should grow.

    Steps are along the parabola through the nearest points. After one too far the next keep more distance:
    else all steps may end a little beyond the target. From where 0 or infinity is reached there is no line: points
    grow, or fall, ever faster, and then are halved in between, as they are where lines lead nowhere.
    """
    low = low_reached = 0.0
    high = high_reached = math.inf
    margin, growth, slow = MARGIN * tolerance, 1.5, 0
    slope, bend, second = start.slope, start.bend, math.nan
    seen: list[tuple[float, float]] = []
    point = among.nearest(min(max(start.point, among.least), among.most))
    for _ in range(MOST_STEPS):
        at_point, before = reached(point), math.log(high / low) if 0 < low < high < math.inf else math.inf
        if before < math.inf:  # what falls where it should grow is not known any better than that
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
        if point == low:  # points are few: the next one may be where the step was to end but for its margin
            point = among.nearest(min(max(aimed, among.least), among.most))
        if point in (low, high):
            point = among.nearest(math.sqrt(low * high)) if between else low
        if point in (low, high):
            break
    return Objective(low, low_reached, slope, bend) if low > 0 else Objective(high, high_reached, slope, bend)


def _bend(three: list[tuple[float, float]]) -> float:
    """Half of the second derivative, by three places and values."""
    (a, at_a), (b, at_b), (c, at_c) = sorted(three)
    return ((at_c - at_b) / (c - b) - (at_b - at_a) / (b - a)) / (c - a) if a < b < c else 0.0


def _step(ratio: float, slope: float, bend: float, from_second: float) -> float:
    """The factor on a point that makes this ratio of what is reached.

    from_second: how far the point lies, in logarithms, from the other one that the slope was found by; nan: from none.
    The bend moves the step by a quarter of it at most.
    """
    straight = math.log(ratio) / slope
    moved = bend * (straight + (0.0 if math.isnan(from_second) else from_second)) / slope
    most = math.log(MOST_GROWTH)
    return math.exp(min(max(straight * (1 - min(max(moved, -0.25), 0.25)), -most), most))
