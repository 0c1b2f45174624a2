"""Randomizers for vectors: exact sides, unbiased means, the variance that is claimed, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from croupier.analyzer.vectors import hemisphere_length, hemisphere_mean
from croupier.client.thresholds import flip_threshold
from croupier.client.vectors import clipped, gaussian, gaussian_mean_of_records, hemisphere, mean_of_records, normals
from croupier.protocol.calibration import ROUNDING
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.randomness import SystemRandom
from tests.support.messages import naming
from tests.support.randomness import SeededRandom

DIMENSIONS = [2, 60, 1000]


class Steered:
    """A source whose point and sign are fixed, and whose last two coins are chosen."""

    def __init__(self, seed: int, sign: int, forward: int, flip: int) -> None:
        self._inner = SeededRandom(seed)
        self._draws = iter([forward, sign, flip])

    def block(self, length: int) -> bytes:
        return self._inner.block(length)

    def bits64(self) -> int:
        return next(self._draws)

    def below(self, bound: int) -> int:
        raise AssertionError(bound)


def test_normals_are_normal() -> None:
    drawn = normals(20_001, SeededRandom(1))
    assert drawn.shape == (20_001,)
    assert kstest(drawn, "norm").pvalue > 1e-4
    assert abs(float(np.corrcoef(drawn[:10_000], drawn[10_000:20_000])[0, 1])) < 0.05
    assert normals(3, SystemRandom()).tolist() != normals(3, SystemRandom()).tolist()


@pytest.mark.parametrize("dimension", [1, 2, 3, 60])
def test_a_report_and_its_opposite_change_places_with_the_point(dimension: int) -> None:
    """The guarantee in floating point: over the sign of the point, each side has exactly its share of the coins."""
    never, always = 2**64 - 1, 0
    rng = np.random.default_rng(dimension)
    for seed, vector in enumerate([*rng.normal(size=(20, dimension)), *(np.eye(dimension) * 1e-30)]):
        reports = Counter(
            (hemisphere(vector, 10.0, 1.0, Steered(seed, sign, always, flip)).tobytes(), flip)
            for sign, flip in itertools.product((0, 1), (never, always))
        )
        kept = {report for report, flip in reports if flip == never}
        flipped = {report for report, flip in reports if flip == always}
        assert len(kept) == len(flipped) == 1  # whichever sign the point had
        towards = np.frombuffer(kept.pop(), dtype=np.float32)
        assert np.array_equal(-towards, np.frombuffer(flipped.pop(), dtype=np.float32))
        assert float(towards.astype(float) @ vector) > 0


def test_a_point_on_the_border_is_on_either_side_with_the_same_chance() -> None:
    """A sum of exactly zero: whatever the vector, report and opposite are equally likely over the sign of the point."""
    vector = np.zeros(4)
    vector[3] = 1.0

    class OnTheBorder(Steered):
        def block(self, length: int) -> bytes:
            # Box and Muller: the angles of the second half make the last normal exactly 0 where its radius is 0.
            words = np.full(length // 8, 1 << 63, dtype="<u8")
            words[length // 16 - 1] = 2**64 - 1
            return words.tobytes()

    reports = Counter(
        hemisphere(vector, 1.0, 1.0, OnTheBorder(0, sign, 0, flip)).tobytes()
        for sign, flip in itertools.product((0, 1), (0, 2**64 - 1))
    )
    assert sorted(reports.values()) == [2, 2]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_reports_have_length_one_and_their_side_with_the_right_chance(dimension: int) -> None:
    source, rng = SeededRandom(dimension), np.random.default_rng(dimension)
    vector = rng.normal(size=dimension)
    vector *= 2.0 / np.linalg.norm(vector)
    count, epsilon = 1000, 1.5
    reports = np.array([hemisphere(vector, 2.0, epsilon, source) for _ in range(count)])
    assert reports.dtype == np.float32
    assert np.abs(np.linalg.norm(reports, axis=1) - 1).max() < 1e-6
    towards = int((reports @ vector > 0).sum())
    share = 1 - flip_threshold(epsilon) / 2**64
    assert abs(towards - count * share) < 5 * math.sqrt(count * share * (1 - share))


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("length", [0.0, 0.3, 1.0])
def test_the_mean_is_the_vector_and_the_variance_what_is_claimed(dimension: int, length: float) -> None:
    source, count, epsilon, clipping_norm = SeededRandom(7), 1500, 2.0, 3.0
    vector = np.zeros(dimension)
    vector[0] = length * clipping_norm
    reports = np.array([hemisphere(vector, clipping_norm, epsilon, source) for _ in range(count)], dtype=np.float64)
    estimate = hemisphere_mean(reports.sum(axis=0), [(epsilon, count)], clipping_norm)
    errors = (estimate.mean - vector) / estimate.standard_error
    # A coordinate of the mean direction varies a little less than the others; none varies more.
    assert float(errors @ errors) < chi2.ppf(1 - 1e-6, dimension)
    assert float(errors[1:] @ errors[1:]) > chi2.ppf(1e-6, dimension - 1)
    scale = clipping_norm * hemisphere_length(dimension) / math.tanh(epsilon / 2)
    assert estimate.standard_error == pytest.approx(scale / math.sqrt(dimension * count))


def test_hemisphere_length_inverts_the_mean_of_a_coordinate() -> None:
    assert hemisphere_length(1) == pytest.approx(1.0)
    assert hemisphere_length(2) == pytest.approx(math.pi / 2)
    assert hemisphere_length(3) == pytest.approx(2.0)
    assert hemisphere_length(10**6) == pytest.approx(math.sqrt(math.pi * 10**6 / 2), rel=1e-6)
    with pytest.raises(ValueError, match="dimension is 0"):
        hemisphere_length(0)
    with pytest.raises(ValueError, match=naming(0, 1)):
        hemisphere_mean(np.zeros(3), [], 1.0)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_gaussian_reports_are_the_clipped_vector_plus_the_noise(dimension: int) -> None:
    vector = np.full(dimension, 5.0)
    reports = np.array([gaussian(vector, 1.0, 0.5) for _ in range(max(5, 2_000 // dimension))], dtype=np.float64)
    noise = (reports - 1 / math.sqrt(dimension)).ravel()
    assert kstest(noise / 0.5, "norm").pvalue > 1e-6


def test_clipping_scales_only_what_is_too_long() -> None:
    assert clipped(np.array([3.0, 4.0]), 10.0).tolist() == [3.0, 4.0]
    assert clipped(np.array([3.0, 4.0]), 1.0) == pytest.approx([0.6, 0.8])
    assert clipped(np.array([1e200, 1e200]), 1.0) == pytest.approx([math.sqrt(0.5)] * 2)
    assert clipped(np.zeros(2), 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("vector", "norm", "epsilon", "message"),
    [
        (np.array([1.0, math.nan]), 1.0, 1.0, "1 of the vector's 2 entries"),
        (np.array([math.inf]), 1.0, 1.0, "not finite"),
        (np.zeros((2, 2)), 1.0, 1.0, r"shape \(2, 2\)"),
        (np.zeros(0), 1.0, 1.0, r"shape \(0,\)"),
        (np.ones(2), 0.0, 1.0, "clipping_norm is 0.0"),
        (np.ones(2), 1.0, 0.0, "epsilon is 0.0"),
        (np.ones(2), 1.0, 21.0, "epsilon is 21.0"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    vector: np.ndarray[tuple[int, ...], np.dtype[np.float64]], norm: float, epsilon: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        hemisphere(vector, norm, epsilon, SystemRandom())


def test_noise_without_a_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="sigma is 0"):
        gaussian(np.ones(2), 1.0, 0.0)


def silo_mechanism(dimension: int, records: int, clipping_norm: float = 2.0) -> GaussianVector:
    task = VectorTask(dimension, clipping_norm, "model", bytes(4 * dimension))
    return GaussianVector(task, records, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_reports_of_silos_have_the_published_noise(dimension: int) -> None:
    """Each bound fails by chance with a probability below 1e-6."""
    mechanism, rng = silo_mechanism(dimension, 8), np.random.default_rng(dimension)
    forward = rng.normal(size=dimension)
    # Some are clipped, some are not; their mean is longer than half the clipping norm.
    records = np.linspace(1.4, 5.0, 8)[:, None] * forward / np.linalg.norm(forward)
    records += rng.normal(size=records.shape) * (0.1 / math.sqrt(dimension))
    count, sigma = max(25, 1_500 // dimension), mechanism.sigma(1.0)
    reports = np.array([gaussian_mean_of_records(mechanism, records, 1.0) for _ in range(count)])
    assert reports.dtype == np.float32
    lengths = np.linalg.norm(records, axis=1)
    mean = (records * (2.0 / np.maximum(lengths, 2.0))[:, None]).mean(axis=0)
    assert 1.5 < float(np.linalg.norm(mean)) < 2.0
    noise = (reports.astype(np.float64) - mean) / sigma
    assert kstest(noise.ravel(), "norm").pvalue > 1e-6
    squares = (noise**2).sum(axis=0)  # of each coordinate
    assert chi2.ppf(1e-6 / dimension, count) < squares.min() <= squares.max() < chi2.isf(1e-6 / dimension, count)
    assert kstest((noise**2).sum(axis=1), chi2(dimension).cdf).pvalue > 1e-6  # of each report


def test_the_mean_of_records_is_that_of_the_clipped_vectors() -> None:
    rng = np.random.default_rng(5)
    records = rng.normal(size=(50, 7)).astype(np.float32)
    expected = np.mean([clipped(record.astype(np.float64), 1.5) for record in records], axis=0)
    assert mean_of_records(records, 7, 1.5, 50) == pytest.approx(expected, abs=2.0**-32)
    one_by_one = mean_of_records((record for record in records), 7, 1.5, 3)
    assert one_by_one.tolist() == mean_of_records(records, 7, 1.5, 50).tolist()


@pytest.mark.parametrize("clipping_norm", [1e-20, 0.3, 1e20])
@pytest.mark.parametrize(("dimension", "count"), [(1, 1), (2, 3), (1000, 40)])
def test_replacing_a_record_moves_the_mean_as_little_as_calibrated(
    dimension: int, count: int, clipping_norm: float
) -> None:
    """The worst case: a record far beyond the clipping norm becomes its opposite. It is reached, too."""
    rng = np.random.default_rng(dimension)
    records = rng.normal(size=(count, dimension)) * 5 * clipping_norm
    others = records.copy()
    others[-1] = -records[-1]
    means = [mean_of_records(rows, dimension, clipping_norm, count) for rows in (records, others)]
    lengths = [float(np.linalg.norm(mean / clipping_norm)) for mean in means]
    assert max(lengths) <= 1 + ROUNDING
    moved = float(np.linalg.norm((means[0] - means[1]) / clipping_norm))
    far = float(np.linalg.norm(records[-1])) >= clipping_norm
    assert far
    assert (1 - ROUNDING) * 2 / count < moved < (1 + ROUNDING) * 2 / count


def test_a_mean_at_the_clipping_norm_is_not_clipped_again() -> None:
    """A second clipping would round a second time, and nothing accounts for that."""
    for seed in range(50):
        record = np.random.default_rng(seed).normal(size=999) * 100
        mean = mean_of_records([record] * 3, 999, 0.7, 3)
        assert clipped(mean, 0.7 * (1 + ROUNDING)).tolist() == mean.tolist()


@pytest.mark.parametrize(
    ("records", "epsilon", "message"),
    [
        (np.zeros((9, 2)), 1.0, "client.*9.*10"),
        ([], 1.0, "this client has 0 records"),
        (np.zeros((10, 3)), 1.0, r"record 1 has.*\(3,\).*\(2,\)"),
        ([np.zeros(2), np.array([0.0, math.inf])], 1.0, "record 2: 1 of .*vector's 2 entries"),
        (np.zeros((10, 2)), 0.0, "local budget is"),
    ],
)
def test_silos_that_cannot_report_are_told_why(records: object, epsilon: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gaussian_mean_of_records(silo_mechanism(2, 10), records, epsilon)  # type: ignore[arg-type]
