"""Roots that need not be exact: the choice of a tilt, a first guess, a printed asymptotic figure.

Guarantees do not rest on them: `inversion.smallest_epsilon` returns an epsilon whose delta was evaluated, and
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
