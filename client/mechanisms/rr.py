"""`rr`: a bit, flipped by the local budget (Warner 1965)."""

from __future__ import annotations

import secrets

from croupier.client.mechanisms.base import ScalarRandomizer, randomize_bit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.randomness import RandomSource


class _Bit(ScalarRandomizer[RandomizedResponse]):
    def report(self, mechanism: RandomizedResponse, value: float, epsilon: float, source: RandomSource) -> int:
        return randomize_bit(int(value), epsilon, source)

    def any_value(self, mechanism: RandomizedResponse) -> int:
        return secrets.randbelow(2)


RANDOMIZER = _Bit()
