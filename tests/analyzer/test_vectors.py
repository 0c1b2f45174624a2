"""Vector reports at the analyzer: what is taken for one, and the means of different budgets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from croupier.analyzer.vectors import (
    decode_gaussian_vector,
    decode_unit_vector,
    gaussian_mean,
    hemisphere_length,
    hemisphere_mean,
    longest_gaussian_report,
)
from tests.support.messages import naming


def test_only_unit_vectors_are_reports() -> None:
    """A longer one would let a single client move the mean as far as it likes."""
    good = np.array([0.6, -0.8], dtype="<f4")
    assert decode_unit_vector(2, good.tobytes()).tolist() == good.tolist()
    for values in ([6.0, 8.0], [0.0, 0.0], [math.nan, 0.6], [math.inf, 0.0], [0.6, 0.79]):
        with pytest.raises(ValueError, match="must be 1"):
            decode_unit_vector(2, np.array(values, dtype="<f4").tobytes())
    for size in (0, 7, 9, 12):
        with pytest.raises(ValueError, match=f"{size} bytes; 8 are required"):
            decode_unit_vector(2, bytes(size))


def test_signalling_nans_are_refused_without_a_warning() -> None:
    """Found by the fuzzer: numpy warned in the analyzer, for what any client may send."""
    plaintext = bytes.fromhex("0000817f") + bytes(4)
    with pytest.raises(ValueError, match="length nan"):
        decode_unit_vector(2, plaintext)
    with pytest.raises(ValueError, match="length nan"):
        decode_gaussian_vector(2, 5.0, plaintext)


def test_gaussian_reports_are_finite_and_no_longer_than_honest_ones() -> None:
    good = np.array([3.0, -4.0], dtype="<f4")
    assert decode_gaussian_vector(2, 5.0, good.tobytes()).tolist() == good.tolist()
    for values in ([3.0, -4.1], [math.nan, 0.0], [math.inf, 0.0], [0.0, -math.inf], [3e38, 3e38]):
        with pytest.raises(ValueError, match=naming("length", "5.0")):
            decode_gaussian_vector(2, 5.0, np.array(values, dtype="<f4").tobytes())
    for size in (0, 7, 9, 12):
        with pytest.raises(ValueError, match=f"{size} bytes; 8 are required"):
            decode_gaussian_vector(2, 5.0, bytes(size))


@pytest.mark.parametrize("dimension", [1, 2, 60, 1000, 2**18])
def test_an_honest_report_is_too_long_at_most_once_in_2_to_the_40(dimension: int) -> None:
    """Against the exact quantile of the chi-square law, which the bound exceeds by little."""
    noise = math.sqrt(float(chi2.isf(2.0**-40, dimension)))
    bound = longest_gaussian_report(dimension, 2.0, 0.5)
    assert 2.0 + 0.5 * noise < bound < 2.0 + 0.5 * noise * 1.15
    assert longest_gaussian_report(dimension, 2.0, 1e-12) == pytest.approx(2.0, rel=1e-5)


def test_budgets_are_weighted_by_what_their_reports_show() -> None:
    tiers = [(0.5, 300), (4.0, 100)]
    shown = sum(count * math.tanh(epsilon / 2) for epsilon, count in tiers)
    # The mean of the sum of the reports of 400 users who all hold the vector (C, 0, 0).
    expected = np.array([shown / hemisphere_length(3), 0.0, 0.0])
    estimate = hemisphere_mean(expected, tiers, 2.5)
    assert estimate.mean == pytest.approx([2.5, 0.0, 0.0])
    assert estimate.standard_error == pytest.approx(2.5 * hemisphere_length(3) / shown * math.sqrt(400 / 3))


def test_gaussian_means_have_the_noise_of_their_scales() -> None:
    estimate = gaussian_mean(np.array([8.0, -4.0]), [(1.0, 3), (2.0, 1)])
    assert estimate.mean.tolist() == [2.0, -1.0]
    assert estimate.standard_error == pytest.approx(math.sqrt(7) / 4)
    with pytest.raises(ValueError, match=naming(0, 1)):
        gaussian_mean(np.zeros(2), [])
