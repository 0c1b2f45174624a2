"""The largest allowed number, and roots that need not be exact: a tilt, a first guess, a printed asymptotic figure.

Guarantees do not rest on the roots: `inversion.smallest_epsilon` returns an epsilon whose delta was evaluated, and
`protocol.calibration.unit_sigma` a noise scale whose delta was evaluated.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable


def root_between(function: Callable[[float], float], low: float, high: float, bits: int = 30) -> float:
    """Returns the sign change of an increasing function, to 2^-bits of the range, or the end nearest to it.

    It uses the standard library's binary search: these functions are quick, and importing scipy.optimize takes longer
    than finding all roots of a certificate.
    """
    step = (high - low) / (1 << bits)
    return low + step * bisect.bisect_left(range(1 << bits), 0.0, key=lambda place: function(low + step * place))


def largest_allowed(allowed: Callable[[int], bool], most: int) -> int:
    """Returns the largest allowed number up to `most`, if every smaller one is allowed, too; 0 if none is.

    Numbers are doubled first: to ask about a large one costs more.
    """
    high = 1
    while high <= most and allowed(high):
        high *= 2
    between = range(high // 2 + 1, min(high, most + 1))
    return high // 2 + bisect.bisect_left(between, True, key=lambda number: not allowed(number))
