"""Fourier transforms: round-off within the stated bound, for every kind of length that is used."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import fft

from croupier.accountant.numerics.fourier import STAGE, smooth_odd_length
from tests.support.messages import naming


@pytest.mark.parametrize("length", [64, 512, 81, 125, 343, 105, 360])
def test_transforms_keep_the_stated_error(length: int) -> None:
    x = np.random.default_rng(length).dirichlet(np.full(length, 0.2))
    with mpmath.workdps(50):
        # Whole numbers, in units of 2^-120, are added exactly.
        roots = [mpmath.expjpi(mpmath.mpf(-2 * j) / length) for j in range(length)]
        masses, real, imaginary = (
            np.array([int(mpmath.ldexp(value, 120)) for value in values], dtype=object)
            for values in (x.tolist(), [root.real for root in roots], [root.imag for root in roots])
        )
        turns = np.outer(np.arange(length // 2 + 1), np.arange(length)) % length
        sums = zip(real[turns] @ masses, imaginary[turns] @ masses, strict=True)
        exact = [mpmath.mpc(mpmath.ldexp(a, -240), mpmath.ldexp(b, -240)) for a, b in sums]
        for transform in (np.fft.rfft(x), fft.rfft(x)):
            wrong = [abs(a - b) for a, b in zip(transform.tolist(), exact, strict=True)]
            assert max(wrong) <= STAGE * math.log2(length) * x.sum()
            assert math.sqrt(sum(float(e) ** 2 for e in wrong)) <= STAGE * math.log2(length) * math.sqrt(
                length
            ) * float(np.linalg.norm(x))
    back = fft.irfft(fft.rfft(x), n=length)
    assert np.abs(back - x).max() <= 2 * STAGE * math.log2(length) * x.sum()


def test_smooth_lengths_are_odd_close_and_have_small_factors() -> None:
    for least in (1, 2, 10, 100, 1000, 54_321, 10**9):
        length = smooth_odd_length(least)
        assert least <= length <= 1.35 * least + 2
        for factor in (3, 5, 7):
            while length % factor == 0:
                length //= factor
        assert length == 1
    with pytest.raises(ValueError, match=naming(2**62 + 1, 2**62)):
        smooth_odd_length(2**62 + 1)
