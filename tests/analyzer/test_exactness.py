"""Estimators without luck: expectations and variances summed over every outcome, and what estimates must keep."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from croupier.analyzer.estimates import Estimate
from croupier.analyzer.estimators import estimate
from croupier.analyzer.scalars import project_on_simplex
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.codes import Note
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from tests.support.messages import naming
from tests.support.statements import codes, parameters

BIT = Question("bit", RandomizedResponse())
MEAN = Question("mean", OneBit(low=-2.0, high=6.0))
LATTICE = Question("lattice", Laplace(low=-2.0, high=6.0, lattice=80))


def tiers_of(budgets: tuple[float, ...]) -> list[tuple[float, int]]:
    return [(budget, budgets.count(budget)) for budget in sorted(set(budgets))]


def letter_law(budget: float, letter: int, k: int) -> list[float]:
    z = math.exp(budget) + k - 1
    return [(math.exp(budget) if j == letter else 1.0) / z for j in range(k)]


def moments(
    question: Question, budgets: tuple[float, ...], laws: list[dict[float, list[float]]]
) -> tuple[list[float], list[float], list[float]]:
    """Returns mean, variance and mean stated variance of the estimates.

    Every assignment of the budgets to the users (they are independent of the values) and every outcome is summed.
    `laws[i][budget]` is the law of user i's report.
    """
    tiers, total = tiers_of(budgets), 0.0
    size = len(laws[0][budgets[0]])
    answers: dict[tuple[int, ...], Estimate] = {}
    first, second, stated = (np.zeros(size if question.mechanism.kind == "krr" else 1) for _ in range(3))
    for deal in set(itertools.permutations(budgets)):
        for outcome in itertools.product(range(size), repeat=len(budgets)):
            weight = math.prod(laws[i][deal[i]][report] for i, report in enumerate(outcome))
            key = tuple(sorted(outcome))
            if key not in answers:
                answers[key] = estimate(question, np.array(key, dtype=np.int64), tiers)
            values = np.array(answers[key].values)
            first += weight * values
            second += weight * values**2
            stated += weight * np.array(answers[key].standard_errors) ** 2
            total += weight
    mean = first / total
    return mean.tolist(), (second / total - mean**2).tolist(), (stated / total).tolist()


@pytest.mark.parametrize("budgets", [(1.0, 1.0, 1.0, 1.0), (0.2, 0.2, 1.0, 4.0), (0.5, 1.0, 2.0, 4.0)])
@pytest.mark.parametrize("bits", [(0, 0, 0, 0), (0, 1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1)])
def test_bits_are_exactly_unbiased(budgets: tuple[float, ...], bits: tuple[int, ...]) -> None:
    laws = [{budget: letter_law(budget, bit, 2) for budget in budgets} for bit in bits]
    mean, variance, _ = moments(BIT, budgets, laws)
    assert mean == pytest.approx([sum(bits) / 4], abs=1e-12)
    if len(set(budgets)) == 1:  # the noise of a kept or flipped bit does not depend on the bit
        stated = estimate(BIT, np.array(bits, dtype=np.int64), tiers_of(budgets)).standard_errors[0]
        assert stated**2 == pytest.approx(variance[0], rel=1e-9)


@pytest.mark.parametrize("letters", [(0, 0, 0, 0), (0, 1, 2, 2), (2, 1, 1, 2)])
def test_letters_are_exactly_unbiased(letters: tuple[int, ...]) -> None:
    budgets = (0.5, 0.5, 1.5, 3.0)
    laws = [{budget: letter_law(budget, letter, 3) for budget in budgets} for letter in letters]
    mean, _, _ = moments(Question("letter", KaryResponse(k=3)), budgets, laws)
    assert mean == pytest.approx([letters.count(j) / 4 for j in range(3)], abs=1e-12)


def test_one_bit_means_are_exactly_unbiased_in_the_units_of_the_question() -> None:
    budgets, values = (0.5, 1.0, 1.0, 3.0), (-2.0, 0.1, 3.3, 6.0)
    laws = []
    for value in values:
        up = (value + 2) / 8
        law = {}
        for budget in budgets:
            keep = math.exp(budget) / (1 + math.exp(budget))
            chance_of_one = up * keep + (1 - up) * (1 - keep)
            law[budget] = [1 - chance_of_one, chance_of_one]
        laws.append(law)
    mean, variance, stated = moments(MEAN, budgets, laws)
    assert mean == pytest.approx([sum(values) / 4], abs=1e-11)
    assert variance[0] > 0
    assert stated[0] > 0.5 * variance[0]


def test_laplace_reports_are_averaged_and_their_variances_add() -> None:
    tiers = [(0.5, 2), (2.0, 1), (8.0, 1)]
    result = estimate(LATTICE, np.array([-40, 100, 20, 60], dtype=np.int64), tiers)
    assert result.values == pytest.approx((-2 + 8 * 35 / 80,))
    variance = 0.0
    for budget, count in tiers:  # the variance of the discrete law, summed from its definition
        ratio = math.exp(-budget / 80)
        steps = np.arange(-40_000, 40_001, dtype=np.float64)
        variance += count * float(((1 - ratio) / (1 + ratio) * ratio ** np.abs(steps) * steps**2).sum() + 0.25)
    assert result.standard_errors == pytest.approx((8 / 80 * math.sqrt(variance) / 4,), rel=1e-9)


def test_gaussian_reports_are_averaged_with_the_error_of_their_noise() -> None:
    question = Question("g", Gaussian(low=-2.0, high=6.0, lattice=80, local_delta=1e-6))
    result = estimate(question, np.array([-40, 100, 20, 60], dtype=np.int64), [(0.5, 2), (2.0, 1), (8.0, 1)])
    assert result.values == pytest.approx((-2 + 8 * 35 / 80,))
    noise = sum(count * unit_sigma(budget, 1e-6) ** 2 for budget, count in [(0.5, 2), (2.0, 1), (8.0, 1)])
    assert result.standard_errors == pytest.approx((8 * math.sqrt(noise + 4 * 0.25 / 80**2) / 4,), rel=1e-3)


@pytest.mark.parametrize("mechanism", [Laplace(0.0, 1.0, lattice=20), Gaussian(0.0, 1.0, 1e-3, lattice=20)])
def test_the_bias_of_clamping_is_at_most_what_is_stated(mechanism: Laplace | Gaussian) -> None:
    """The law of the noise, summed: for any value and budget a mean moves by at most the stated bias, and not by 0."""
    steps = np.arange(-20_000, 20_001, dtype=np.float64)
    for budget in (0.5, 1.0):
        if isinstance(mechanism, Laplace):
            law = np.exp(-np.abs(steps) * budget / mechanism.lattice)
        else:
            law = np.exp(-(steps**2) / (2 * mechanism.sigma_steps(budget) ** 2))
        law /= law.sum()
        stated = estimate(Question("q", mechanism), np.array([3]), [(budget, 1)], least_epsilon=0.5).clamping
        assert stated is not None
        low, high = mechanism.lattice * stated.low, mechanism.lattice * stated.high
        for value in (0, 7, mechanism.lattice):
            moved = float(law @ np.clip(value + steps, low, high)) - value
            assert abs(moved) / mechanism.lattice <= stated.bias + 1e-12
        assert law[(steps < low) | (steps > high)].sum() < 4e-4
    assert stated.bias < 2e-4


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
def test_intervals_cover_as_often_as_they_say(confidence: float) -> None:
    """3000 users, 500 seeded rounds: the number of hits is a binomial draw, refused at an error rate of 1e-6.

    An interval of half or double that length would be refused too.
    """
    n, repeats, share = 3000, 500, 0.3
    budgets = np.repeat([0.5, 1.0, 2.0], [1000, 1500, 500])
    tiers = [(0.5, 1000), (1.0, 1500), (2.0, 500)]
    source = np.random.default_rng(99)
    bits = (np.arange(n) < share * n).astype(np.int64)
    hits = {1.0: 0, 0.5: 0, 2.0: 0}
    for _ in range(repeats):
        flip = source.random(n) < 1 / (1 + np.exp(source.permutation(budgets)))
        result = estimate(BIT, bits ^ flip, tiers, confidence)
        (low, high), centre = result.confidence_intervals[0], result.values[0]
        for stretch in hits:
            hits[stretch] += centre + stretch * (low - centre) <= share <= centre + stretch * (high - centre)
    law = binom(repeats, confidence)
    assert law.ppf(5e-7) <= hits[1.0] <= law.isf(5e-7)
    assert hits[0.5] < law.ppf(5e-7)
    if confidence < 0.99:
        assert hits[2.0] > law.isf(5e-7)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_the_order_of_reports_and_tiers_does_not_matter(reports: list[int]) -> None:
    question = Question("letter", KaryResponse(k=5))
    tiers = [(0.5, len(reports)), (2.0, 3), (1.0, 2)]
    result = estimate(question, np.array(reports, dtype=np.int64), tiers)
    other = estimate(question, np.array(sorted(reports), dtype=np.int64), sorted(tiers))
    assert result.values == pytest.approx(other.values, abs=1e-12)
    assert result.standard_errors == pytest.approx(other.standard_errors)
    assert sum(result.values) == pytest.approx(1.0)
    assert sum(result.projected) == pytest.approx(1.0)
    assert (
        len(result.values)
        == len(result.projected)
        == len(result.standard_errors)
        == len(result.confidence_intervals)
        == 5
    )


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("ones", [0, 7, 30, 59, 60])
@pytest.mark.parametrize("rounded", [False, True])
def test_intervals_hold_what_the_test_does_not_reject(confidence: float, ones: int, rounded: bool) -> None:
    """The variance at each hypothesised share is summed over the budgets, and every share of a fine grid is tested."""
    question, tiers = MEAN if rounded else BIT, [(0.5, 40), (2.0, 20)]
    result = estimate(question, np.array([1] * ones + [0] * (60 - ones), dtype=np.int64), tiers, confidence)
    c, z = np.linspace(0, 1, 20_001), NormalDist().inv_cdf((1 + confidence) / 2)
    keep = [(math.exp(budget) / (1 + math.exp(budget)), count) for budget, count in tiers]
    total = sum(count * (2 * p - 1) for p, count in keep)
    offset = sum(count * (1 - p) for p, count in keep)
    uneven = c * (1 - c) * 60 / 59 * sum(count * (2 * p - 1 - total / 60) ** 2 for p, count in keep)
    mixed = sum(count * ((pi := 1 - p + (2 * p - 1) * c) * (1 - pi)) for p, count in keep)
    fixed = sum(count * p * (1 - p) for p, count in keep)
    for intervals, variance in (
        (result.confidence_intervals, mixed if rounded else fixed + uneven),
        (result.population_intervals, mixed),
    ):
        reach = z * np.sqrt(variance) + 0.5 + max(0.0, z**2 - 1) / 6
        kept = c[np.abs(np.clip(ones, offset, offset + total) - offset - c * total) <= reach]
        ends = np.array([kept[0], kept[-1]])
        assert intervals[0] == pytest.approx(tuple(8 * ends - 2 if rounded else ends), abs=1e-3)
    assert result.confidence_level == confidence


def test_a_mean_of_lattice_reports_has_the_interval_of_its_noise() -> None:
    result = estimate(LATTICE, np.full(6, 40, dtype=np.int64), [(8.0, 6)], 0.95)
    z, r = NormalDist().inv_cdf(0.975), math.exp(-8 / 80)
    variance = 6 * (2 * r / (1 - r) ** 2 + 0.25)
    kurtosis = 6 * 2 * r * (1 + 4 * r + r * r) / (1 - r) ** 4 / variance**2
    wider = z + kurtosis * (z**3 - 3 * z) / 24
    half = 8 / 480 * (wider * math.sqrt(variance) + 0.5 + (z**2 - 1) / 6)
    assert result.clamping is not None
    assert result.confidence_intervals[0] == pytest.approx(
        (2 - half - result.clamping.bias, 2 + half + result.clamping.bias)
    )


def test_scaled_budgets_give_the_answer_of_the_scaled_population() -> None:
    reports = np.array([1] * 30 + [0] * 10, dtype=np.int64)
    same = estimate(BIT, reports, [(0.5, 30), (2.0, 10)])
    more = estimate(BIT, reports, [(0.5, 60), (2.0, 20)])
    assert more.values == pytest.approx(same.values)
    assert more.standard_errors == pytest.approx(same.standard_errors)
    assert Note.TIERS_SCALED not in codes(same.notes)
    assert parameters(more.notes, Note.TIERS_SCALED) == {"reports": 40, "budgets": 80}


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_bad_level_is_named(confidence: float) -> None:
    with pytest.raises(ValueError, match=naming("confidence", confidence, "(0, 1)")):
        estimate(BIT, np.array([1], dtype=np.int64), [(1.0, 1)], confidence)


SHARES = st.lists(st.floats(-3, 3), min_size=1, max_size=12)


@given(SHARES, st.floats(-2, 2))
@settings(max_examples=80, deadline=None)
def test_the_projection_keeps_order_and_does_not_move_twice(shares: list[float], shift: float) -> None:
    vector = np.array(shares)
    projected = project_on_simplex(vector)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1.0)
    assert np.all(np.diff(projected[np.argsort(vector, kind="stable")]) >= 0)
    assert project_on_simplex(projected) == pytest.approx(projected, abs=1e-12)
    assert project_on_simplex(vector + shift) == pytest.approx(projected, abs=1e-12)  # only differences count
    support = projected > 1e-9
    gaps = (vector - projected)[support]
    assert gaps == pytest.approx(np.full(len(gaps), gaps[0]), abs=1e-9)  # all that stay move by the same


@given(SHARES, st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_no_other_probability_vector_is_nearer(shares: list[float], seed: int) -> None:
    vector = np.array(shares)
    distance = float(((vector - project_on_simplex(vector)) ** 2).sum())
    for other in np.random.default_rng(seed).dirichlet(np.full(len(shares), 0.5), 50):
        assert distance <= float(((vector - other) ** 2).sum()) + 1e-12
