"""`laplace`: a number plus discrete Laplace noise (Ghosh, Roughgarden, Sundararajan 2012)."""

from __future__ import annotations

import math
from typing import Any

from croupier.client.mechanisms.base import LatticeRandomizer, discrete_noise
from croupier.protocol.mechanisms.laplace import Laplace


class _Laplace(LatticeRandomizer[Laplace]):
    def noise(self, mechanism: Laplace, epsilon: float) -> Any:
        return discrete_noise("laplace", math.nextafter(mechanism.lattice / epsilon, math.inf))


RANDOMIZER = _Laplace()
