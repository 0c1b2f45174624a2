"""`laplace`: the mean from discrete Laplace noise."""

from __future__ import annotations

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.lattice_means import LatticeMean
from croupier.protocol.mechanisms.laplace import Laplace


class _Laplace(LatticeMean[Laplace]):
    def variances(self, mechanism: Laplace, epsilons: Floats) -> Floats:
        """2e^(−1/b)/(1 − e^(−1/b))² for discrete noise of scale b."""
        rate = epsilons / mechanism.lattice
        return np.asarray(2 * np.exp(-rate) / np.expm1(-rate) ** 2)

    def fourth_cumulants(self, mechanism: Laplace, epsilons: Floats) -> Floats:
        """2r(1 + 4r + r²)/(1 − r)⁴, r = e^(−1/b): twice that of a geometric law."""
        rate = epsilons / mechanism.lattice
        r = np.exp(-rate)
        return np.asarray(2 * r * (1 + 4 * r + r**2) / np.expm1(-rate) ** 4)

    def excess(self, mechanism: Laplace, epsilons: Floats, margin: int) -> Floats:
        """Σ P(K ≥ m) over m > margin, with P(K ≥ m) = r^m/(1 + r), r = e^(−1/b)."""
        rate = epsilons / mechanism.lattice
        return np.asarray(np.exp(-rate * (margin + 1)) / -np.expm1(-2 * rate))


ESTIMATOR = _Laplace()
