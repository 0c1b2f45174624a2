"""A reproducible source of randomness, with which nothing of real people is randomized."""

from __future__ import annotations

import random

from croupier.protocol.randomness import below


class SeededRandom:
    """See `RandomSource`; drawn from Python's generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bits64(self) -> int:
        return self._random.getrandbits(64)

    def below(self, bound: int) -> int:
        return below(self, bound)

    def block(self, length: int) -> bytes:
        return self._random.randbytes(length)
