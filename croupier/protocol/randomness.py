"""Randomness that protects someone: from the operating system, and exactly uniform.

Everything that draws takes a `RandomSource`, so that tests can inject a seeded one (`tests.support.randomness`).
"""

from __future__ import annotations

import os
from typing import Protocol


class RandomSource(Protocol):
    """Independent uniform draws."""

    def bits64(self) -> int:
        """Returns an integer that is uniform on 0 .. 2^64 − 1."""
        ...

    def below(self, bound: int) -> int:
        """Returns an integer that is exactly uniform on 0 .. bound − 1, for 1 ≤ bound ≤ 2^64."""
        ...

    def block(self, length: int) -> bytes:
        """Returns that many uniform bytes."""
        ...


class SystemRandom:
    """The operating system's generator."""

    def __init__(self) -> None:
        self._block = b""
        self._used = 0

    def bits64(self) -> int:
        """See `RandomSource.bits64`."""
        if self._used >= len(self._block):
            self._block, self._used = os.urandom(8 * 512), 0
        self._used += 8
        return int.from_bytes(self._block[self._used - 8 : self._used], "big")

    def below(self, bound: int) -> int:
        """See `RandomSource.below`."""
        return below(self, bound)

    def block(self, length: int) -> bytes:
        """See `RandomSource.block`."""
        return os.urandom(length)


def below(source: RandomSource, bound: int) -> int:
    """Returns `RandomSource.below` from draws of 64 bits.

    It rejects the draws above the largest multiple of `bound`, so that every residue is equally likely.
    """
    if not 1 <= bound <= 1 << 64:
        raise ValueError(f"bound is {bound}; it must be 1 ≤ bound ≤ 2^64")
    limit = (1 << 64) - (1 << 64) % bound
    while (draw := source.bits64()) >= limit:
        pass
    return draw % bound


def uniform_permutation(count: int, source: RandomSource) -> list[int]:
    """Returns a permutation of 0 .. count − 1, each of the count! equally likely (Fisher–Yates, exact draws)."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = source.below(last + 1)
        order[last], order[other] = order[other], order[last]
    return order
