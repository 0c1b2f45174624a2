"""Bernstein's inequality: the distance from its mean within which a sum of independent variables lies.

Statement (Bernstein's inequality). Let S be a sum of independent variables, each at most b above its own mean, and V
the variance of S (or anything larger). Then Pr[S >= E S + t] <= exp(-t^2 / (2 (V + b t / 3))) for every t >= 0.

Proof. For |lambda| b < 3, E e^(lambda (X - E X)) <= exp((lambda^2 Var X / 2) / (1 - lambda b / 3)), because
k! >= 2 * 3^(k-2) bounds the k-th term of the exponential series by a geometric one; multiply over the summands and
take lambda = t / (V + b t / 3) in Markov's inequality (Boucheron, Lugosi, Massart 2013, Corollary 2.11). The exponent
is -L exactly where t^2 - (2 b L / 3) t - 2 V L = 0. The other side follows for -S if no variable is more than b below
its mean; bits keep to b = 1 on both sides.
"""

from __future__ import annotations

import math


def bernstein_radius(variance: float, log_tail: float, largest: float = 1.0) -> float:
    """Returns a distance from the mean beyond which a sum has mass at most e^-log_tail, on either side.

    Args:
        variance: of the sum, or an upper bound.
        log_tail: ln(1/mass), >= 0.
        largest: b, the largest distance of one summand from its own mean.

    Returns:
        The root of the quadratic above, plus 1 for the rounding of the caller's mean and of this root.
    """
    drift = largest * log_tail / 3
    return drift + math.sqrt(drift * drift + 2 * log_tail * variance) + 1
