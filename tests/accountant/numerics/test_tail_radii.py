"""Bernstein's radius: beyond it lies at most the mass that was asked for, and it is not much too far out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from croupier.accountant.numerics.tail_radii import bernstein_radius


@pytest.mark.parametrize("log_tail", [0.0, 1.0, 14.0, 50.0, 500.0])
@pytest.mark.parametrize(("n", "p"), [(3, 0.5), (100, 0.01), (1000, 0.5), (10**6, 0.3), (10**8, 1e-6), (50, 0.99)])
def test_binomials_have_at_most_the_mass_asked_for_beyond_it(n: int, p: float, log_tail: float) -> None:
    variance = n * p * (1 - p)
    radius = bernstein_radius(variance, log_tail)
    assert binom.logsf(math.ceil(n * p + radius) - 1, n, p) <= -log_tail
    assert binom.logcdf(math.floor(n * p - radius), n, p) <= -log_tail
    assert radius <= math.sqrt(2 * variance * log_tail) + 2 * log_tail / 3 + 1


def test_larger_summands_reach_further() -> None:
    scores = np.array([0.0, 10.0])
    law = np.array([0.9, 0.1])
    total = np.ones(1)
    for _ in range(60):
        total = np.convolve(total, np.concatenate([[law[0]], np.zeros(9), [law[1]]]))
    mean, variance = 60 * float(law @ scores), 60 * float(law @ scores**2 - (law @ scores) ** 2)
    radius = bernstein_radius(variance, 20.0, largest=10.0)
    assert float(total[math.ceil(mean + radius) :].sum()) <= math.exp(-20)
    assert float(total[: max(0, math.floor(mean - radius))].sum()) <= math.exp(-20)
