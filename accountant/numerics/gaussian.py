"""mu-Gaussian differential privacy: delta(epsilon) and its inverse (Dong, Roth, Su 2022, Corollary 1).

Used to choose where to look first, by published asymptotic bounds, and for the Gaussian mechanism's own local budget.
"""

from __future__ import annotations

import math


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), for mu > 0 and epsilon >= 0.

    Evaluated as a product of a normal tail and 1 - e^(log ratio), to about 13 digits; not rounded in any direction.
    """
    from scipy.special import log_ndtr

    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The upper end of a bracket, of relative width 1e-12, around the root of gaussian_delta(mu, .) = delta.

    0 < delta < 1. Raises ValueError for mu <= 0 or delta outside (0, 1).
    """
    if not (mu > 0 and math.isfinite(mu)):
        raise ValueError(f"mu is {mu!r}; allowed is a finite number > 0")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta!r}; allowed is 0 < delta < 1")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, mu
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if gaussian_delta(mu, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def gaussian_sigma(local_epsilon: float, local_delta: float) -> float:
    """The least noise scale, for sensitivity 1, that makes the Gaussian mechanism (local_epsilon, local_delta)-DP.

    Analytic calibration (Balle and Wang, ICML 2018): gaussian_delta(1/sigma, local_epsilon) <= local_delta, and sigma
    is the upper end of a bracket of relative width 1e-12. Raises ValueError unless epsilon > 0 and 0 < delta < 1.
    """
    if not (local_epsilon > 0 and math.isfinite(local_epsilon)):
        raise ValueError(f"local_epsilon is {local_epsilon!r}; allowed is a finite number > 0")
    if not 0 < local_delta < 1:
        raise ValueError(f"local_delta is {local_delta!r}; allowed is 0 < delta < 1")
    low, high = 0.0, 1.0
    while gaussian_delta(1 / high, local_epsilon) > local_delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if gaussian_delta(1 / middle, local_epsilon) > local_delta:
            low = middle
        else:
            high = middle
    return high
