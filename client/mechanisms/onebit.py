"""`onebit`: a number that is rounded at random to a bit, which is then reported as in `rr`."""

from __future__ import annotations

from croupier.client.mechanisms.base import NumberRandomizer, randomize_bit, round_stochastically
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.randomness import RandomSource


class _OneBit(NumberRandomizer[OneBit]):
    def report(self, mechanism: OneBit, value: float, epsilon: float, source: RandomSource) -> int:
        return randomize_bit(round_stochastically(self.position(mechanism, value), source), epsilon, source)


RANDOMIZER = _OneBit()
