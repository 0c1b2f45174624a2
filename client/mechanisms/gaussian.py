"""`gaussian`: a number plus discrete Gaussian noise."""

from __future__ import annotations

from typing import Any

from croupier.client.mechanisms.base import LatticeRandomizer, discrete_noise
from croupier.protocol.mechanisms.gaussian import Gaussian


class _Gaussian(LatticeRandomizer[Gaussian]):
    def noise(self, mechanism: Gaussian, epsilon: float) -> Any:
        return discrete_noise("gaussian", mechanism.sigma_steps(epsilon))


RANDOMIZER = _Gaussian()
