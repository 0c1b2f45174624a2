"""`gaussian`: the mean from discrete Gaussian noise."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from croupier.analyzer.base import Floats
from croupier.analyzer.lattice_means import LatticeMean
from croupier.protocol.mechanisms.gaussian import Gaussian


class _Gaussian(LatticeMean[Gaussian]):
    def variances(self, mechanism: Gaussian, epsilons: Floats) -> Floats:
        """At most σ² (Canonne, Kamath, Steinke 2020, Corollary 9)."""
        return np.square([mechanism.sigma_steps(epsilon) for epsilon in epsilons.tolist()])

    def fourth_cumulants(self, mechanism: Gaussian, epsilons: Floats) -> Floats:
        """0 for a normal law, from which the discrete one differs by far less than a step."""
        return np.zeros(epsilons.size)

    def excess(self, mechanism: Gaussian, epsilons: Floats, margin: int) -> Floats:
        """At most σ(φ(t) − t(1 − Φ(t))), t = (margin − 1)/σ, as P(K ≥ m) ≤ P(N(0, σ²) ≥ m − 1) (there, Prop. 25)."""
        normal, excesses = NormalDist(), []
        for epsilon in epsilons.tolist():
            sigma = mechanism.sigma_steps(epsilon)
            t = (margin - 1) / sigma
            excesses.append(sigma * (normal.pdf(t) - t * normal.cdf(-t)))
        return np.array(excesses)


ESTIMATOR = _Gaussian()
