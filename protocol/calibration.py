"""How much Gaussian noise a local budget asks for: the one number that client, accountant and analyzer must agree on.

Reports live on a lattice, so the noise is the discrete Gaussian, and its (epsilon, delta) is summed exactly on the
lattice instead of being taken from the continuous mechanism. Needs nothing but the standard library, as clients do.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["gaussian_local_delta", "gaussian_sigma_steps"]

_MAX_SIGMA_STEPS = 1e6


def _normal_delta(mu: float, epsilon: float) -> float:
    """The continuous mechanism: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) (Balle and Wang 2018)."""

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return below(-epsilon / mu + mu / 2) - math.exp(epsilon) * below(-epsilon / mu - mu / 2)


def gaussian_local_delta(sigma: float, epsilon: float, steps: int) -> float:
    """Returns the hockey-stick divergence at e^epsilon of two discrete Gaussians `steps` lattice points apart.

    The discrete Gaussian of `sigma` lattice steps has masses proportional to exp(-z^2/(2 sigma^2)); smaller distances
    diverge less (docs/accounting.md, section 2.3). Rounded up by more than the rounding of the sum.

    Raises:
        ValueError: sigma outside (0, 10^6], epsilon not above 0, or steps below 1.
    """
    if not 0 < sigma <= _MAX_SIGMA_STEPS:
        raise ValueError(f"sigma is {sigma} lattice steps; allowed is 0 < sigma ≤ {_MAX_SIGMA_STEPS:g}")
    if not epsilon > 0 or steps < 1:
        raise ValueError(f"epsilon is {epsilon} and steps {steps}; allowed are epsilon > 0 and steps ≥ 1")
    scale = 1 / (2 * sigma * sigma)
    # p0 exceeds e^epsilon p1 exactly below this point, and falls from there on, faster than geometrically.
    top = math.ceil(steps / 2 - sigma * sigma * epsilon / steps) - 1
    terms, z = [], top
    while True:
        first = math.exp(-z * z * scale)
        terms.append(first - math.exp(epsilon - (z - steps) ** 2 * scale))
        if z < 0 and first < 1e-22 * max(terms[0], 1e-290):
            break
        z -= 1
    reach = math.ceil(12 * sigma) + 1
    total = 1 + 2 * math.fsum(math.exp(-j * j * scale) for j in range(1, reach))
    return math.fsum(terms) / total * (1 + 1e-9)


@lru_cache(maxsize=4096)
def gaussian_sigma_steps(epsilon: float, delta: float, steps: int) -> float:
    """Returns a noise scale, in lattice steps, with which values `steps` apart are (epsilon, delta)-indistinguishable.

    The analytic calibration of the continuous mechanism, raised until the discrete one is checked to hold.

    Raises:
        ValueError: epsilon or delta out of range, or so little privacy per lattice step that sigma exceeds 10^6 steps.
    """
    if not 0 < epsilon <= 20 or not 1e-15 <= delta < 1:
        raise ValueError(f"local budget is ({epsilon}, {delta}); allowed are 0 < epsilon ≤ 20 and 1e-15 ≤ delta < 1")
    low, high = 0.0, 1.0
    while _normal_delta(1 / high, epsilon) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _normal_delta(1 / middle, epsilon) > delta else (low, middle)
    sigma, margin = high * steps, 1e-9
    while gaussian_local_delta(sigma, epsilon, steps) > delta:
        sigma, margin = sigma * (1 + margin), 4 * margin
    return sigma
