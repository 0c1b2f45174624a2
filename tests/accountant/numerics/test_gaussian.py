"""The Gaussian profile against 50-digit arithmetic: what the privacy filter allows for its rounding is enough."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_error
from croupier.accountant.round_cost import RoundCost


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-9, 1e-8, 1e-6, 1e-4, 1e-2, 1.0, 30.0, 100.0])
def test_its_error_is_within_what_is_allowed_for(mu: float) -> None:
    """Reproduction: at mu = 1e-9 it errs by 1e-4 of itself, and 1e-9 was allowed for at every mu."""
    with mpmath.workdps(50):
        for distance in np.linspace(0, 36, 145).tolist():
            epsilon = distance * mu + (mu * mu / 2 if mu > 1 else 0.0)
            exact = exact_delta(mu, epsilon)
            if exact > 1e-250:
                assert abs(gaussian_delta(mu, epsilon) - exact) <= gaussian_error(mu) * exact / 5


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 1e-3])
def test_the_variance_of_a_round_is_never_below_the_exact_one(mu: float) -> None:
    """Points of an exact Gaussian profile, whose least mu is at most that of the release above all chords."""
    with mpmath.workdps(50):
        grid = (mu * np.linspace(0, 7, 800)).tolist()
        points = tuple((epsilon, float(exact_delta(mu, epsilon))) for epsilon in grid)
        tail = RoundCost(1.0, 0.5, (points,)).tail(1e-300)
        deviation = float(np.sqrt(tail.variance))
        assert deviation < mu * 1.05
        for epsilon, delta in points[::16]:
            assert tail.lost + exact_delta(deviation, epsilon) >= delta
