"""Binomial masses and tails with a stated error, for attacks and published figures.

Masses use Loader's saddle-point form (C. Loader, "Fast and accurate computation of binomial probabilities", 2000),
which has no cancellation; tails of Bin(n, 1/2) use scipy's incomplete beta function. Each comes with a bound on its
relative error, which callers add in the direction that keeps an upper bound an upper bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIT = float(np.finfo(np.float64).eps)
"""2^-52; the relative error of one rounded operation is at most half of it."""

_STIRLING_TABLE = 16
"""Below this n the errors of Stirling's formula come from a table; from 16 on the series has an error below 1e-15."""


def _exact_stirling_errors() -> Floats:
    # ln n! - (n + 1/2) ln n + n - ln(2 pi)/2 for small n, where the series below has not converged. lgamma and the
    # logarithm have an error of an ulp here and the values are at most 40, so the absolute error is below 1e-14.
    return np.array(
        [0.0]
        + [
            math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
            for n in range(1, _STIRLING_TABLE)
        ]
    )


_TABLE = _exact_stirling_errors()


def _stirling_error(n: Floats) -> Floats:
    # For n >= 16 the first omitted term of the alternating series, 691/(360360 n^11), is below 1e-15.
    big = np.maximum(n, _STIRLING_TABLE)
    square = big * big
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / big
    small = np.minimum(n, _STIRLING_TABLE - 1).astype(np.int64)
    return np.where(n < _STIRLING_TABLE, _TABLE[small], series)


def _deviance(x: Floats, mean: Floats | float) -> Floats:
    """Returns x ln(x/mean) + mean - x >= 0, without cancellation when x is near mean. x > 0."""
    difference = x - mean
    v = difference / (x + mean)
    near = np.abs(v) < 0.3
    square = np.where(near, v * v, 0.0)
    total = difference * v
    power = 2 * x * v
    # Successive terms decrease by v^2 <= 0.09; the omitted ones are below 1e-18 of the first.
    largest = float(square.max(initial=1e-300))
    for j in range(1, 1 + min(16, math.ceil(18 / -math.log10(max(largest, 1e-18))))):
        power *= square
        total += power / (2 * j + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = x * np.log(x / mean) + mean - x
    return np.where(near, total, far)


def binomial_pmf(x: Ints, n: Ints | int, p: float) -> Floats:
    """Returns Pr[Bin(n, p) = x]; arrays broadcast, 0 outside 0..n. 0 < p < 1 (the float is taken as exact).

    Relative error at most `pmf_error(spread)`, where spread bounds |x - n p|. Underflows to 0 below 1e-300.
    """
    xs, ns = np.asarray(x, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inside = (xs >= 0) & (xs <= ns)
    interior = (xs > 0) & (xs < ns)
    safe_n = np.maximum(ns, 2.0)
    a = np.where(interior, xs, 1.0)
    b = safe_n - a
    log_pmf = (
        _stirling_error(safe_n)
        - _stirling_error(a)
        - _stirling_error(b)
        - _deviance(a, safe_n * p)
        - _deviance(b, safe_n * (1 - p))
    )
    mass = np.exp(log_pmf) * np.sqrt(safe_n / (2 * math.pi * a * b))
    edge = np.where(xs == 0, np.exp(ns * math.log1p(-p)), np.exp(ns * math.log(p)))
    return np.where(interior, mass, np.where(inside, edge, 0.0))


def pmf_error(spread: float) -> float:
    """Returns a bound on the relative error of `binomial_pmf` for |x - n p| <= spread and a mass above 1e-300.

    The mean n p is rounded once, which moves the exponent by spread * UNIT. The deviances are free of cancellation
    where |x - n p| is below 0.3 (x + n p); beyond, x is below 3.4 * spread, and so are the terms that cancel.
    The constants were checked against 40-digit arithmetic (tests/accountant/numerics/test_binomial.py).
    """
    return UNIT * (300.0 + 10.0 * spread)


def half_tail(a: Ints, n: Ints) -> Floats:
    """Returns Pr[Bin(n, 1/2) >= a]; arrays broadcast, 1 for a <= 0, 0 for a > n. Relative error: half_tail_error(n)."""
    from scipy.special import betainc

    lower, size = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(n, dtype=np.float64))
    inside = (lower >= 1) & (lower <= size)
    first = np.where(inside, lower, 1.0)
    second = np.where(inside, size - lower + 1, 1.0)
    tail = betainc(first, second, 0.5)
    return np.where(inside, tail, np.where(lower <= 0, 1.0, 0.0))


def half_tail_error(n: float) -> float:
    """Returns a bound on the relative error of `half_tail` where it is above 1e-300, for n <= 2^53.

    Four times the largest error in 40-digit arithmetic, which occurs 30 and more standard deviations out.
    """
    return 2e-13 + 4e-14 * math.sqrt(n)
