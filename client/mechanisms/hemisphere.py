"""`hemisphere`: a random point on the side of a vector, or on the other side (`client.vectors`)."""

from __future__ import annotations

from typing import Any

from croupier.client.mechanisms.base import LocalRandomizer, zero
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.randomness import RandomSource


class _Hemisphere(LocalRandomizer[Hemisphere]):
    def randomize(self, mechanism: Hemisphere, value: Any, epsilon: float, source: RandomSource) -> Any:
        from croupier.client.vectors import hemisphere

        task = mechanism.vector
        if len(value) != task.dimension:
            raise ValueError(f"the gradient has {len(value)} entries; this round takes {task.dimension}")
        return hemisphere(value, task.clipping_norm, epsilon, source)

    def any_value(self, mechanism: Hemisphere) -> Any:
        return zero(mechanism)


RANDOMIZER = _Hemisphere()
