"""Roots where nothing rests on the last digit: which tilt to take, where to look first, a printed asymptotic figure.

What a guarantee rests on is not searched for here: `bounds.profile.smallest_epsilon` returns an epsilon whose delta was
evaluated, and `protocol.calibration.unit_sigma` a noise scale of which the same is true.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["root_between"]


def root_between(
    function: Callable[[float], float], low: float, high: float, absolute: float = 1e-9, relative: float = 1e-9
) -> float:
    """Returns about where an increasing function changes its sign, or the end of the range nearest to that."""
    from scipy.optimize import brentq

    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(brentq(function, low, high, xtol=absolute, rtol=relative))
