"""`choices`: the bit of one option that is drawn, as in `rr`."""

from __future__ import annotations

import secrets

from croupier.client.mechanisms.base import ScalarRandomizer, randomize_bit
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.randomness import RandomSource


class _Choices(ScalarRandomizer[MultipleChoice]):
    def report(self, mechanism: MultipleChoice, value: float, epsilon: float, source: RandomSource) -> int:
        option = source.below(mechanism.k)
        return 2 * option + randomize_bit(int(value) >> option & 1, epsilon, source)

    def any_value(self, mechanism: MultipleChoice) -> int:
        return secrets.randbelow(1 << mechanism.k)


RANDOMIZER = _Choices()
