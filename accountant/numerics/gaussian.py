"""mu-Gaussian differential privacy: delta(epsilon) and its inverse (Dong, Roth, Su 2022, Corollary 1).

The privacy filter rests on delta(epsilon) and allows for its error (`gaussian_error`). The other functions choose first
guesses and serve published asymptotic bounds. `protocol.calibration` calibrates noise to a local budget, rounded the
safe way.
"""

from __future__ import annotations

import math
from typing import Any

from croupier.accountant.numerics.roots import root_between
from croupier.accountant.ranges import check_target_delta, outside


def gaussian_error(mu: Any) -> Any:
    """Returns a bound on the relative error of `gaussian_delta` where it is above 1e-300; mu may be an array.

    Two logarithms of normal tails, of magnitude at most 700, are subtracted: their rounding is divided by a difference
    of about mu/38 or more. The bound is at least five times the largest error in 50-digit arithmetic.
    """
    return 1e-9 + 1e-10 / mu


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Returns Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), for mu > 0 and epsilon >= 0.

    Evaluated as a product of a normal tail and 1 - e^(log ratio), not rounded in any direction. See `gaussian_error`.
    """
    from scipy.special import log_ndtr

    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Returns the root of gaussian_delta(mu, .) = delta to 2^-47 of it or mu, or 0 where delta(0) is below it.

    Raises:
        ValueError: mu is not a finite number > 0, or delta is outside (0, 1).
    """
    if not (mu > 0 and math.isfinite(mu)):
        raise outside("mu", mu, "a finite number > 0")
    check_target_delta(delta)

    def excess(epsilon: float) -> float:
        return delta - gaussian_delta(mu, epsilon)

    high = mu
    while excess(high) < 0:
        high *= 2
    return root_between(excess, 0.0, high, bits=48)
