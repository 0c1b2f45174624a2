"""The rounding error of a fast Fourier transform: the constant that every bound on such a sum uses.

Statement (docs/numerics.md, section 3.1, with the proof). A transform of length n, n a product of 2, 3, 5, 7 and 11,
of numbers x has an error of at most STAGE log2(n) |Fx|_2 in the 2-norm, and of at most STAGE log2(n) |x|_1
in every entry. Assumption: sines and cosines from the C library have an error of at most one ulp on [0, pi/4].
"""

from __future__ import annotations

import bisect
from functools import cache

from croupier.accountant.numerics.binomial import UNIT

STAGE = 10 * UNIT
"""A bound on the relative error per factor of 2 in the length: 20 unit round-offs."""
LONGEST = 2**62
"""More than any window that can be transformed."""


def smooth_odd_length(least: int) -> int:
    """Returns the least odd number >= least whose prime factors are 3, 5 and 7. Raises ValueError beyond 2^62."""
    lengths = _smooth_odd_lengths()
    place = bisect.bisect_left(lengths, least)
    if place == len(lengths):
        raise ValueError(f"length is {least!r}; it must be at most {LONGEST}")
    return lengths[place]


@cache
def _smooth_odd_lengths() -> tuple[int, ...]:
    lengths = [1]
    for factor in (3, 5, 7):
        powers = [factor**power for power in range(41) if factor**power <= LONGEST]
        lengths = [length * power for length in lengths for power in powers if length * power <= LONGEST]
    return tuple(sorted(lengths))
