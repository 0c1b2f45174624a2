"""mu-Gaussian differential privacy: delta(epsilon) and its inverse (Dong, Roth, Su 2022, Corollary 1).

Used to choose where to look first and by published asymptotic bounds; nothing certified rests on it. The noise that a
local budget asks for is calibrated in `protocol.calibration`, rounded the safe way.
"""

from __future__ import annotations

import math

from croupier.accountant.numerics.roots import root_between
from croupier.accountant.ranges import check_target_delta, outside

__all__ = ["gaussian_delta", "gaussian_epsilon"]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Returns Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), for mu > 0 and epsilon >= 0.

    Evaluated as a product of a normal tail and 1 - e^(log ratio), to about 13 digits; not rounded in any direction.
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
