"""Roots where nothing rests on the last digit: which tilt to take, where to look first, a printed asymptotic figure.

What a guarantee rests on is not searched for here: `inversion.smallest_epsilon` returns an epsilon whose delta was
evaluated, and `protocol.calibration.unit_sigma` a noise scale of which the same is true.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable


def root_between(function: Callable[[float], float], low: float, high: float, bits: int = 30) -> float:
    """Returns where an increasing function changes its sign, to 2^-bits of the range, or the end nearest to that.

    The standard library's binary search: these functions are quick, and scipy.optimize takes longer to import than all
    roots of a certificate to find.
    """
    step = (high - low) / (1 << bits)
    return low + step * bisect.bisect_left(range(1 << bits), 0.0, key=lambda place: function(low + step * place))
