"""`gaussian_vector`: the mean of the vectors of a client's records plus Gaussian noise (`client.vectors`)."""

from __future__ import annotations

import itertools
from typing import Any

from croupier.client.mechanisms.base import LocalRandomizer, zero
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.randomness import RandomSource


class _GaussianVector(LocalRandomizer[GaussianVector]):
    def randomize(self, mechanism: GaussianVector, value: Any, epsilon: float, source: RandomSource) -> Any:
        from croupier.client.vectors import gaussian_mean_of_records

        return gaussian_mean_of_records(mechanism, value, epsilon)

    def any_value(self, mechanism: GaussianVector) -> Any:
        return itertools.repeat(zero(mechanism), mechanism.records_per_client)

    def load(self) -> None:
        from croupier.client.vectors import load_noise

        load_noise()


RANDOMIZER = _GaussianVector()
