"""Laws of sums of independent bits: every mass and tail within its stated error of 40 digits."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier.accountant.numerics.poisson_binomial
from croupier.accountant.numerics.poisson_binomial import poisson_binomial


def exact_law(shares: list[tuple[float, bool]]) -> list[Any]:
    """The law of a sum of bits, 1 - share where flipped, in 40 digits."""
    law = [mpmath.mpf(1)]
    for share, flipped in shares:
        q = 1 - mpmath.mpf(share) if flipped else mpmath.mpf(share)
        law = [(law[i] if i < len(law) else 0) * (1 - q) + (law[i - 1] * q if i else 0) for i in range(len(law) + 1)]
    return law


@settings(max_examples=40, deadline=None)
@given(
    bits=st.lists(st.tuples(st.floats(1e-9, 0.9), st.booleans()), min_size=1, max_size=40),
    tilt=st.floats(0.01, 8.0),
)
def test_sums_of_bits_are_within_their_error(bits: list[tuple[float, bool]], tilt: float) -> None:
    with mpmath.workdps(40):
        law = exact_law(bits)
        share, flipped = (np.array(column) for column in zip(*bits, strict=True))
        others, constant = poisson_binomial(share, np.ones(len(bits), dtype=np.int64), flipped)
        window = others.window(tilt)
        t = np.arange(window.low, min(window.low + window.length, window.highest + 1), dtype=np.int64)
        point, point_error, tail, tail_error = window.upper(t)
        masses, error = window.masses()
        for i, place in enumerate(t.tolist()):
            scale = mpmath.exp(window.log_scale - tilt * place)
            assert abs(law[place + constant] / scale - point[i]) <= point_error[i]
            assert abs(sum(law[place + constant + 1 :]) / scale - tail[i]) <= tail_error[i]
            assert abs(law[place + constant] / scale - masses[i]) <= error
        assert max(point_error[0], error) < 1e-11


def test_grouped_probabilities_give_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = 1 / (1 + np.exp(np.random.default_rng(3).uniform(0.05, 6, 5000)))
    ones = np.ones(shares.size, dtype=np.int64)
    grouped, _ = poisson_binomial(shares, ones)
    monkeypatch.setattr(croupier.accountant.numerics.poisson_binomial, "MAX_GROUPS", 10_000)
    single, _ = poisson_binomial(shares, ones)
    assert grouped.probability.size < 1100 < single.probability.size
    for tilt in (0.001, 0.05, 0.5):
        rough, exact = grouped.window(tilt), single.window(tilt)
        t = np.arange(exact.low + 60, exact.low + exact.length - 60, dtype=np.int64)
        for law, error, other, other_error in (
            (rough.upper(t)[0], rough.upper(t)[1], exact.upper(t)[0], exact.upper(t)[1]),
            (rough.upper(t)[2], rough.upper(t)[3], exact.upper(t)[2], exact.upper(t)[3]),
        ):
            factor = math.exp(rough.log_scale - exact.log_scale)
            assert (np.abs(law * factor - other) <= 2 * (error + other_error)).all()
            assert float(error.max()) < 1e-10 * max(1.0, float(other.max()) / 0.01)


def test_the_law_of_100_million_bits_keeps_its_digits() -> None:
    others, _ = poisson_binomial(np.array([0.3]), np.array([10**8]))
    window = others.window(1e-3)
    t = np.array([window.low + window.length // 2])
    point, error, _, _ = window.upper(t)
    scale, _ = window.scale(t)
    with mpmath.workdps(40):
        exact = (
            mpmath.binomial(10**8, int(t[0]))
            * mpmath.mpf(0.3) ** int(t[0])
            * (1 - mpmath.mpf(0.3)) ** (10**8 - int(t[0]))
        )
    assert float(exact) == pytest.approx(float(point[0] * scale[0]), rel=1e-8)
    assert error[0] < 1e-6 * point[0]
