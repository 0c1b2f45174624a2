"""The parts the certificates are made of: binomial masses and tails, the law of the blanket count, the search."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.bounds.profile import Bounded, smallest_epsilon
from accountant.numerics.binomial import binomial_pmf, half_tail, half_tail_error, pmf_error
from accountant.numerics.count_law import blanket_count, without_largest
from accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon


@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 40, 1000, 10**5, 10**7, 10**8])
@pytest.mark.parametrize("p", [0.5, 0.3, 1e-3, 0.999])
@pytest.mark.parametrize("deviation", [-9, -3, 0, 1, 5, 9])
def test_binomial_masses_are_as_good_as_stated(n: int, p: float, deviation: int) -> None:
    x = round(n * p + deviation * (n * p * (1 - p)) ** 0.5)
    if not 0 <= x <= n:
        assert binomial_pmf(np.array([x]), n, p)[0] == 0
        return
    with mpmath.workdps(40):
        q = mpmath.mpf(p)
        exact = mpmath.binomial(n, x) * q**x * (1 - q) ** (n - x)
        if exact > 1e-290:
            found = mpmath.mpf(float(binomial_pmf(np.array([x]), n, p)[0]))
            assert abs(found / exact - 1) <= pmf_error(abs(x - n * p))


@pytest.mark.parametrize("n", [1, 5, 64, 1000, 10**5, 10**7])
@pytest.mark.parametrize("deviation", [0, 1, 3, 6, 9])
def test_binomial_tails_are_as_good_as_stated(n: int, deviation: int) -> None:
    a = min(n, round(n / 2 + deviation * n**0.5 / 2))
    with mpmath.workdps(40):
        logarithm = mpmath.loggamma(n + 1) - mpmath.loggamma(a + 1) - mpmath.loggamma(n - a + 1)
        term = mpmath.exp(logarithm - n * mpmath.log(2))
        exact, x = mpmath.mpf(0), a
        while x <= n and term > exact * mpmath.mpf(10) ** -25:
            exact += term
            term *= mpmath.mpf(n - x) / (x + 1)
            x += 1
        found = mpmath.mpf(float(half_tail(np.array([a]), np.array([n]))[0]))
        assert abs(found / exact - 1) <= half_tail_error(n)


def test_tails_outside_the_support() -> None:
    assert half_tail(np.array([-1, 0, 4]), np.array([3, 3, 3])).tolist() == [1.0, 1.0, 0.0]


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
    found = np.array([law.mass[law.counts <= m].sum() for m in range(exact.size)])
    np.testing.assert_allclose(found + law.lost, exact, atol=1e-13)
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


def test_the_largest_are_removed() -> None:
    gamma, count = without_largest(np.array([0.1, 0.9, 0.5]), np.array([3, 2, 4]), 4)
    assert gamma.tolist() == [0.5, 0.1]
    assert count.tolist() == [2, 3]
    assert without_largest(np.array([0.1]), np.array([3]), 3)[0].size == 0


@pytest.mark.parametrize(("gamma", "tail"), [(1.5, 1e-9), (-0.1, 1e-9), (float("nan"), 1e-9), (0.5, 0.0), (0.5, 1.0)])
def test_bad_count_arguments_are_refused(gamma: float, tail: float) -> None:
    with pytest.raises(ValueError, match="allowed"):
        blanket_count(np.array([gamma]), np.array([1]), tail=tail)


class GaussianCurve:
    method = "mu-GDP"

    def __init__(self, mu: float, guess: float) -> None:
        self.mu, self.first = mu, guess

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(gaussian_delta(self.mu, epsilon), 0.0)

    def guess(self, delta: float) -> float:
        return self.first

    def explain(self) -> tuple[str, ...]:
        return ()


@given(st.floats(0.001, 3), st.floats(1e-3, 100), st.sampled_from([1e-15, 1e-6, 0.01, 0.3]))
@settings(max_examples=80, deadline=None)
def test_the_search_returns_the_upper_end_of_a_narrow_bracket(mu: float, guess: float, delta: float) -> None:
    found = smallest_epsilon(GaussianCurve(mu, guess), delta, 200.0)
    exact = gaussian_epsilon(mu, delta)
    assert found.epsilon >= exact * (1 - 1e-11)
    close_in_delta = gaussian_delta(mu, found.epsilon) >= delta * (1 - 2e-6)
    assert close_in_delta or found.epsilon <= exact * (1 + 3e-6) + 1e-12


def test_the_search_stops_at_the_ceiling() -> None:
    found = smallest_epsilon(GaussianCurve(3.0, 1.0), 1e-6, 0.5)
    assert found.epsilon == 0.5
    assert found.reached is None
