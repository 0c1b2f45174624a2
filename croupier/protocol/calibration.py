"""How much Gaussian noise a local budget asks for: the one number that client, accountant and analyzer must agree on.

Numbers live on a lattice, so their noise is the discrete Gaussian, and its (epsilon, delta) is summed exactly on the
lattice instead of being taken from the continuous mechanism. Vectors live on so fine a lattice (2^-1074) that it is
not. Needs nothing but the standard library, as clients do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

ROUNDING = 1e-6
"""What rounding may add to the length of a clipped vector and to the sensitivity of a mean, as a share of either."""
_MAX_SIGMA_STEPS = 1e6
MAX_UNIT_SIGMA = 1e9
BRACKET = 1e-12
"""The relative width at which a bisection stops."""
FAR = 25.0
"""erfc(25) is 8e-274; epsilon is below 700 where upper, at least sqrt(epsilon), is below this."""
_UNIT = 2.0**-52
UNDERFLOW = 1e-300
"""More than erfc loses where it underflows."""


def unit_delta(sigma: float, epsilon: float) -> float:
    """Returns the delta at epsilon of Gaussian noise on a vector of sensitivity 1, rounded up.

    Exact in any dimension, with the 2-norm: delta = Phi(-a + b) - e^epsilon Phi(-a - b), a = epsilon sigma and
    b = 1/(2 sigma) (Balle and Wang, ICML 2018, Theorem 8). What is added bounds the rounding: an argument of erfc is
    wrong by at most 4u (a + b), u = 2^-53, which moves erfc(x) by at most 2 max(x, 0) + 1.5 times that, relatively
    (-erfc'(x)/erfc(x) <= x + sqrt(x^2 + 2) for x >= 0, and < 1.2 below), and erfc, exp and the products are good to
    32u together (the C library's erfc is good to 8u). Far out, where erfc would underflow, what is subtracted is the
    lower bound of it that the same inequality gives, erfc(x) >= 2 e^(-x^2)/(sqrt(pi) (x + sqrt(x^2 + 2))).
    """
    a, b = epsilon * sigma, 1 / (2 * sigma)
    lower, upper = (a - b) / math.sqrt(2), (a + b) / math.sqrt(2)
    first = 0.5 * math.erfc(lower)
    if upper < FAR:
        second, bend = 0.5 * math.exp(epsilon) * math.erfc(upper), upper
    else:  # e^epsilon e^(-upper^2) = e^(-lower^2)
        second = math.exp(-lower * lower) / (math.sqrt(math.pi) * (upper + math.sqrt(upper * upper + 2)))
        bend = abs(lower)
    moved = 2 * _UNIT * (a + b)
    error = first * (moved * (2 * max(lower, 0.0) + 1.5) + 16 * _UNIT)
    error += second * (moved * (2 * bend + 1.5) + 16 * _UNIT)
    return min(1.0, max(0.0, first - second) + error + UNDERFLOW)


@lru_cache(maxsize=8192)
def unit_sigma(epsilon: float, delta: float) -> float:
    """Returns a noise scale with which Gaussian noise makes a vector of sensitivity 1 (epsilon, delta)-private.

    Analytic calibration, rounded up: `unit_delta` was evaluated at the scale that is returned, and is above delta at
    a scale smaller by 1e-12 of it.

    Raises:
        ValueError: epsilon outside (0, 500], delta outside (0, 1), or a scale above 10^9.
    """
    if not 0 < epsilon <= 500:
        raise ValueError(f"local_epsilon is {epsilon}; it must be 0 < local_epsilon ≤ 500")
    if not 0 < delta < 1:
        raise ValueError(f"local_delta is {delta}; it must be 0 < local_delta < 1")
    low, high = 0.0, 1.0
    while unit_delta(high, epsilon) > delta:
        low, high = high, 2 * high
        if high > MAX_UNIT_SIGMA:
            raise ValueError(
                f"local budget is ({epsilon}, {delta}); it must be one that noise of {MAX_UNIT_SIGMA:g} times the "
                "sensitivity is enough for"
            )
    return _narrowed(lambda sigma: unit_delta(sigma, epsilon) <= delta, low, high)


def unit_epsilon(sigma: float, delta: float) -> float:
    """Returns an epsilon at which `unit_delta(sigma, epsilon)` is at most delta, the least one up to 1e-12 of it.

    Raises:
        ValueError: sigma is not a finite number > 0, or delta is outside (0, 1).
    """
    if not (0 < sigma < math.inf and 0 < delta < 1):
        raise ValueError(f"sigma is {sigma} and delta {delta}; they must be a finite number > 0 and 0 < delta < 1")
    if unit_delta(sigma, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1 / sigma
    while unit_delta(sigma, high) > delta:
        low, high = high, 2 * high
    return _narrowed(lambda epsilon: unit_delta(sigma, epsilon) <= delta, low, high)


def _narrowed(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Returns the upper end of a bracket of relative width BRACKET, where a monotone condition was seen to hold."""
    while high - low > BRACKET * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def gaussian_local_delta(sigma: float, epsilon: float, steps: int) -> float:
    """Returns the hockey-stick divergence at e^epsilon of two discrete Gaussians `steps` lattice points apart.

    The discrete Gaussian of `sigma` lattice steps has masses proportional to exp(-z^2/(2 sigma^2)); smaller distances
    diverge less (docs/bounds.md, section 2.3). Rounded up by more than the rounding of the sum.

    Raises:
        ValueError: sigma outside (0, 10^6], epsilon not above 0, or steps below 1.
    """
    if not 0 < sigma <= _MAX_SIGMA_STEPS:
        raise ValueError(f"sigma is {sigma} lattice steps; it must be 0 < sigma ≤ {_MAX_SIGMA_STEPS:g}")
    if not epsilon > 0 or steps < 1:
        raise ValueError(f"epsilon is {epsilon} and steps {steps}; they must be epsilon > 0 and steps ≥ 1")
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
        raise ValueError(f"local budget is ({epsilon}, {delta}); it must be 0 < epsilon ≤ 20 and 1e-15 ≤ delta < 1")
    sigma, margin = unit_sigma(epsilon, delta) * steps, 1e-9
    while gaussian_local_delta(sigma, epsilon, steps) > delta:
        sigma, margin = sigma * (1 + margin), 4 * margin
    return sigma
