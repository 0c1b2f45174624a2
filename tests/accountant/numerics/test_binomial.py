"""Binomial masses and tails: within their stated error of 40-digit arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from croupier.accountant.numerics.binomial import binomial_pmf, half_tail, half_tail_error, pmf_error


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
            computed = mpmath.mpf(float(binomial_pmf(np.array([x]), n, p)[0]))
            assert abs(computed / exact - 1) <= pmf_error(abs(x - n * p))


@pytest.mark.parametrize(
    ("a", "n"),
    [
        *(
            (min(n, round(n / 2 + deviation * n**0.5 / 2)), n)
            for n in (1, 5, 64, 1000, 10**5, 10**7)
            for deviation in (0, 1, 3, 6, 9)
        ),
        (6_346, 9_414),  # 34 standard deviations out, where it is worst
        (34_126, 59_591),
        (385_489, 743_591),
    ],
)
def test_binomial_tails_are_as_good_as_stated(a: int, n: int) -> None:
    with mpmath.workdps(40):
        logarithm = mpmath.loggamma(n + 1) - mpmath.loggamma(a + 1) - mpmath.loggamma(n - a + 1)
        term = mpmath.exp(logarithm - n * mpmath.log(2))
        exact, x = mpmath.mpf(0), a
        while x <= n and term > exact * mpmath.mpf(10) ** -25:
            exact += term
            term *= mpmath.mpf(n - x) / (x + 1)
            x += 1
        computed = mpmath.mpf(float(half_tail(np.array([a]), np.array([n]))[0]))
        assert abs(computed / exact - 1) <= half_tail_error(n)


def test_tails_outside_the_support() -> None:
    assert half_tail(np.array([-1, 0, 4]), np.array([3, 3, 3])).tolist() == [1.0, 1.0, 0.0]
