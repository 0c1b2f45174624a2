"""`levels`: a number that is rounded at random to a level, which is then reported as in `krr`."""

from __future__ import annotations

from croupier.client.mechanisms.base import NumberRandomizer, randomize_category, round_stochastically
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.randomness import RandomSource


class _Levels(NumberRandomizer[Levels]):
    def report(self, mechanism: Levels, value: float, epsilon: float, source: RandomSource) -> int:
        position = self.position(mechanism, value) * (mechanism.k - 1)
        return randomize_category(round_stochastically(position, source), mechanism.k, epsilon, source)


RANDOMIZER = _Levels()
