"""Roots where nothing rests on the last digit: which tilt to take, where to look first, a printed asymptotic figure.

What a guarantee rests on is not searched for here: `bounds.profile.smallest_epsilon` returns an epsilon whose delta was
evaluated, and `protocol.calibration.unit_sigma` a noise scale of which the same is true.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["root_between"]


def root_between(
    function: Callable[[float], float], low: float, high: float, absolute: float = 1e-9, relative: float = 1e-9
) -> float:
    """Returns about where an increasing function changes its sign, or the end of the range nearest to that."""
    at_low, at_high = function(low), function(high)
    if at_low >= 0:
        return low
    if at_high <= 0:
        return high
    # Ridders' method: a secant through three values that a factor of exponential growth puts on a line. (That of scipy
    # would take longer to import than all of the roots of a certificate to find.)
    point = math.inf
    for _ in range(200):
        middle = (low + high) / 2
        value, before = function(middle), point
        point = middle - (middle - low) * value / math.hypot(value, math.sqrt(-at_low) * math.sqrt(at_high))
        if value == 0 or abs(point - before) <= absolute + relative * abs(point):
            break
        for place, here in sorted(((middle, value), (point, function(point)))):
            if low < place < high:
                if here < 0:
                    low, at_low = place, here
                else:
                    high, at_high = place, here
    return point
