"""The law of the blanket count: the Poisson-binomial itself, or below it and close."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from croupier.accountant.numerics.count_law import blanket_count, without_largest


def poisson_binomial_cdf(gamma: list[float]) -> np.ndarray:
    law = np.array([1.0])
    for g in gamma:
        law = np.convolve(law, [1 - g, g])
    return np.cumsum(law)


@given(st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.5, 0.73, 0.999, 1.0]), max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_count_law_is_the_poisson_binomial(gamma: list[float]) -> None:
    law = blanket_count(np.array(gamma), np.ones(len(gamma), dtype=np.int64))
    exact = poisson_binomial_cdf(gamma)
    cumulative = np.array([law.mass[law.counts <= m].sum() for m in range(exact.size)])
    np.testing.assert_allclose(cumulative + law.lost, exact, atol=1e-13)
    assert law.lost <= 1e-30


def test_grouped_and_shortened_laws_lie_below_and_close() -> None:
    rng = np.random.default_rng(3)
    gamma = rng.uniform(0.05, 0.95, 3000)
    exact = poisson_binomial_cdf(gamma.tolist())
    ones = np.ones(gamma.size, dtype=np.int64)
    law = blanket_count(gamma, ones, tail=1e-20)
    cdf = np.array([law.mass[law.counts <= m].sum() + law.lost for m in range(exact.size)])
    assert np.all(cdf * (1 + law.relative_error) >= exact - 1e-13)
    assert law.mean == pytest.approx(gamma.sum(), rel=1e-4)
    coarse = law.coarsened(40, 1e-9)
    assert coarse.counts.size <= 40
    below = np.array([coarse.mass[coarse.counts <= m].sum() + coarse.lost for m in range(exact.size)])
    assert np.all(below * (1 + coarse.relative_error) >= exact - 1e-13)
    assert coarse.mass.sum() + coarse.lost >= 1 - 1e-12


def test_long_laws_are_rounded_down() -> None:
    law = blanket_count(np.array([0.5, 0.25]), np.array([10**8, 10**8]), tail=1e-20)
    assert law.counts.size <= 4096
    mean = 0.75 * 10**8
    assert mean - 1e4 < law.mean < mean
    assert law.mass.sum() + law.lost == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("users", "gamma"), [(10**9, 0.3), (10**10, 0.01), (10**12, 0.5), (2**53, 1e-3)])
def test_very_long_laws_have_masses_rounded_up(users: int, gamma: float) -> None:
    law = blanket_count(np.array([gamma]), np.array([users]), tail=1e-20)
    assert law.counts.size <= 4096
    mean = users * gamma
    assert mean - 0.01 * math.sqrt(mean) < law.mean < mean
    assert 1 - 1e-12 <= law.mass.sum() + law.lost <= 1 + 1e-6
    # Below every count lies no less mass than a binomial has there.
    below = np.cumsum(law.mass) - law.mass + law.lost
    exact = betainc(users - law.counts + 1.0, np.maximum(law.counts, 1), 1 - gamma)
    assert np.all(below * (1 + law.relative_error) + 1e-7 >= exact)


def test_the_largest_are_removed() -> None:
    gamma, count = without_largest(np.array([0.1, 0.9, 0.5]), np.array([3, 2, 4]), 4)
    assert gamma.tolist() == [0.5, 0.1]
    assert count.tolist() == [2, 3]
    assert without_largest(np.array([0.1]), np.array([3]), 3)[0].size == 0


@pytest.mark.parametrize(("gamma", "tail"), [(1.5, 1e-9), (-0.1, 1e-9), (float("nan"), 1e-9), (0.5, 0.0), (0.5, 1.0)])
def test_bad_count_arguments_are_refused(gamma: float, tail: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        blanket_count(np.array([gamma]), np.array([1]), tail=tail)
