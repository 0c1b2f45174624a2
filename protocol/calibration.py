"""How much Gaussian noise a local budget asks for: the one number that client, accountant and analyzer must agree on.

Numbers live on a lattice, so their noise is the discrete Gaussian, and its (epsilon, delta) is summed exactly on the
lattice instead of being taken from the continuous mechanism. Vectors live on so fine a lattice (2^-1074) that it is
not. Needs nothing but the standard library, as clients do.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["ROUNDING", "gaussian_local_delta", "gaussian_sigma_steps", "unit_delta", "unit_sigma"]

ROUNDING = 1e-6
"""What rounding may add to the length of a clipped vector and to the sensitivity of a mean, as a share of either."""
_MAX_SIGMA_STEPS = 1e6
_MAX_UNIT_SIGMA = 1e9
_DELTA_ERROR = 1e-12


def _normal_terms(mu: float, epsilon: float) -> tuple[float, float]:
    """The continuous mechanism: delta is Phi(-eps/mu + mu/2) less e^eps Phi(-eps/mu - mu/2) (Balle and Wang 2018)."""

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    return below(-epsilon / mu + mu / 2), math.exp(epsilon) * below(-epsilon / mu - mu / 2)


def _normal_delta(mu: float, epsilon: float) -> float:
    first, second = _normal_terms(mu, epsilon)
    return first - second


def unit_delta(sigma: float, epsilon: float) -> float:
    """Returns the delta at epsilon of Gaussian noise on a vector of sensitivity 1, rounded up.

    Exact in any dimension, with the 2-norm (Balle and Wang, ICML 2018, Theorem 8). Either term is good to 10^-12 of
    itself, which is added: where delta is at least 10^-16 the argument x of erfc is at most 10, good to 4 ulp of 10,
    and moves erfc by at most 2x + 1.2 times its own error.
    """
    first, second = _normal_terms(1 / sigma, epsilon)
    return first - second + _DELTA_ERROR * (first + second)


@lru_cache(maxsize=8192)
def unit_sigma(epsilon: float, delta: float) -> float:
    """Returns a noise scale with which Gaussian noise makes a vector of sensitivity 1 (epsilon, delta)-private.

    Analytic calibration, rounded up: `unit_delta` was evaluated at the scale that is returned.

    Raises:
        ValueError: epsilon outside (0, 20], delta outside [1e-15, 0.1], or a scale above 10^9.
    """
    if not 0 < epsilon <= 20 or not 1e-15 <= delta <= 0.1:
        raise ValueError(f"local budget is ({epsilon}, {delta}); allowed are 0 < epsilon ≤ 20 and 1e-15 ≤ delta ≤ 0.1")
    low, high = 0.0, 1.0
    while unit_delta(high, epsilon) > delta:
        low, high = high, 2 * high
        if high > _MAX_UNIT_SIGMA:
            raise ValueError(
                f"local budget is ({epsilon}, {delta}); allowed are those that noise of {_MAX_UNIT_SIGMA:g} times the "
                "sensitivity is enough for"
            )
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if unit_delta(middle, epsilon) > delta else (low, middle)
    return high


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
