"""The noise scales of a million Gaussian budgets at once: the same floats that `protocol.calibration` finds one by one.

There a bisection asks of about fifty scales whether they are enough. Here its root is found first, for whole arrays;
which scales are enough then follows by comparing them with it, and only of those so close to it that rounding decides
is it asked as there. What the noise is for is left to the mechanism.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from croupier.accountant.numerics.binomial import UNIT, Floats
from croupier.protocol.calibration import BRACKET, FAR, MAX_UNIT_SIGMA, UNDERFLOW, unit_delta, unit_sigma

PART = 1 << 15
"""Budgets that are looked at together: their arrays stay in the processor's cache."""
FEW = 256
"""Up to this number of budgets are bisected one by one; the scales are remembered."""
STEPS = 40
"""The most steps of Newton's method, which takes about five."""
SURE = 30
"""Halvings of the first bracket after which none of its ends is close to the root, but for one budget in hundreds."""


def unit_sigmas(epsilon: Floats, delta: Floats) -> Floats:
    """Returns `unit_sigma` of every budget, bit for bit. Shapes (T,).

    Raises:
        ValueError: as there, for the first budget that it is raised for.
    """
    if epsilon.size <= FEW:
        return np.array([unit_sigma(*budget) for budget in zip(epsilon.tolist(), delta.tolist(), strict=True)])
    parts = [slice(start, start + PART) for start in range(0, epsilon.size, PART)]
    return np.concatenate([_part(epsilon[part].tobytes(), delta[part].tobytes()) for part in parts])


@lru_cache(maxsize=64)
def _part(epsilons: bytes, deltas: bytes) -> Floats:
    """Returns the scales of the budgets in two arrays of float64; cached, as certificate and attack ask repeatedly."""
    epsilon, delta = np.frombuffer(epsilons), np.frombuffer(deltas)
    root, margin = _root(epsilon, delta)
    with np.errstate(invalid="ignore"):
        # The bracket of the bisection after SURE halvings, if the root is not so close to an end that rounding decides.
        top = np.exp2(np.maximum(np.frexp(root)[1], 0))
        bottom = np.where(top > 1, top / 2, 0.0)
        width = (top - bottom) * 2.0**-SURE
        low = bottom + np.floor((root - bottom) / width) * width
        high = low + width
        sure = (root - low > margin) & (high - root > margin) & (top <= MAX_UNIT_SIGMA)
    sure &= (epsilon > 0) & (epsilon <= 500) & (delta > 0) & (delta < 1)
    for index in np.flatnonzero(~sure).tolist():
        low[index] = high[index] = unit_sigma(float(epsilon[index]), float(delta[index]))
    left = np.arange(epsilon.size)
    while (left := left[high[left] - low[left] > BRACKET * high[left]]).size:
        middle = (low[left] + high[left]) / 2
        enough = middle >= root[left]
        close = np.flatnonzero(np.abs(middle - root[left]) <= margin[left])
        here = left[close]
        asked = zip(middle[close].tolist(), epsilon[here].tolist(), delta[here].tolist(), strict=True)
        enough[close] = [unit_delta(sigma, at) <= target for sigma, at, target in asked]
        high[left[enough]], low[left[~enough]] = middle[enough], middle[~enough]
    return high


def _root(epsilon: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Where `unit_delta` is delta, about, and how far from there rounding may decide what it is above.

    By Newton's method on ln delta against ln mu, mu = 1/sigma, where d delta/d mu = phi(epsilon/mu - mu/2), phi the
    normal density. It starts below the root: with epsilon = 0 delta would be larger, and so it would without what is
    subtracted. Each of `unit_delta` and what is computed here is above the truth by at most twice the error
    that it adds; scipy's erfc is good to x^2 u where C's is good to 8u, which three times the error has room for.
    """
    from scipy.special import ndtri

    with np.errstate(all="ignore"):
        quantile = ndtri(delta)
        bend = np.hypot(quantile, np.sqrt(2 * epsilon))
        mu = np.where(quantile < 0, 2 * epsilon / (bend - quantile), quantile + bend)
        mu = np.maximum(mu, 2 * ndtri(0.5 + delta / 2))
        for _ in range(STEPS):
            value, error, slope = _delta(1 / mu, epsilon)
            step = np.log(delta / value) * value / slope
            mu *= np.exp(step)
            if not np.nanmax(np.abs(step), initial=0.0) > 1e-8:
                break
        value, error, slope = _delta(1 / mu, epsilon)
        share = (1.01 * np.abs(value - delta) + 3 * error) / slope + 8 * UNIT
        return 1 / mu, share / mu


def _delta(sigma: Floats, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
    """As `unit_delta`; with the error that it has added, and the derivative in -ln sigma."""
    from scipy.special import erfc

    a, b = epsilon * sigma, 1 / (2 * sigma)
    lower, upper = (a - b) / math.sqrt(2), (a + b) / math.sqrt(2)
    density = np.exp(-lower * lower)
    near = upper < FAR
    first = 0.5 * erfc(lower)
    far = density / (math.sqrt(math.pi) * (upper + np.sqrt(upper * upper + 2)))
    second = np.where(near, 0.5 * np.exp(epsilon) * erfc(upper), far)
    moved = 2 * UNIT * (a + b)
    error = first * (moved * (2 * np.maximum(lower, 0.0) + 1.5) + 16 * UNIT)
    error += second * (moved * (2 * np.where(near, upper, np.abs(lower)) + 1.5) + 16 * UNIT)
    value = np.maximum(0.0, first - second) + error + UNDERFLOW
    return value, error + UNDERFLOW, density / (math.sqrt(2 * math.pi) * sigma)
