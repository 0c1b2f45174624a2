"""Estimators: unbiased, with standard errors and intervals that mean what they say, most of it without luck.

Expectations and variances are summed over every outcome where few people answer.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.analyzer.estimates import Estimate
from croupier.analyzer.estimators import estimate
from croupier.analyzer.scalars import project_on_simplex
from croupier.deploy.local.demo_plan import SURVEY, SURVEY_QUESTIONS
from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.codes import Note
from croupier.protocol.histograms import values_of
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb
from tests.analyzer.draws import Floats, Ints, dealt, responses
from tests.support import make_kit
from tests.support.messages import naming
from tests.support.statements import codes, parameters

TIERS = ((0.5, 540), (1.0, 370), (2.0, 90))
BIT = Question("bit", RandomizedResponse())
LETTER = Question("letter", KaryResponse(k=4))
MEAN = Question("mean", OneBit(low=-2.0, high=6.0))
LATTICE = Question("lattice", Laplace(low=-2.0, high=6.0, lattice=80))


def simulate(
    question: Question, truths: Floats, source: np.random.Generator, tiers: Sequence[tuple[float, int]]
) -> Ints:
    """Draws one shuffled round of randomised response; a number is rounded to an end of its range at random."""
    budgets, values = dealt(tiers, source), truths.astype(np.int64)
    if isinstance(question.mechanism, OneBit):
        low, high = question.mechanism.low, question.mechanism.high
        values = (source.random(len(truths)) < (truths - low) / (high - low)).astype(np.int64)
    return responses(len(question.mechanism.categories) or 2, values, budgets, source)


def test_intervals_of_the_demonstration_cover_as_the_readme_says() -> None:
    """README.md gives this test as the command."""
    text = " ".join(Path("README.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(r"200 repetitions.* ([0-9.]+) to ([0-9.]+) % of each", text)
    table = np.genfromtxt(SURVEY, delimiter=",", names=True)
    source, tiers = np.random.default_rng(0), ((0.5, 3438), (1.0, 2355), (2.0, 573))
    shares = []
    for asked in SURVEY_QUESTIONS:
        truths = table[asked.column] - (1.0 if asked.question.mechanism.categories else 0.0)
        exact = np.bincount(truths.astype(int)) / truths.size if asked.question.mechanism.categories else truths.mean()
        rounds = [estimate(asked.question, simulate(asked.question, truths, source, tiers), tiers) for _ in range(200)]
        intervals = np.array([round_.confidence_intervals for round_ in rounds])
        shares += ((intervals[..., 0] <= exact) & (exact <= intervals[..., 1])).mean(axis=0).tolist()
    assert len(shares) == 7
    assert [f"{100 * share:.1f}" for share in (min(shares), max(shares))] == list(said)


def test_dependent_budgets_bias_the_estimate_and_the_result_says_so() -> None:
    reports = np.ones(1000, dtype=np.int64)
    assert codes(estimate(BIT, reports, TIERS).notes).count(Note.DEPENDENT_BUDGETS) == 1
    assert Note.DEPENDENT_BUDGETS not in codes(estimate(BIT, reports, ((1.0, 1000),)).notes)
    assert Note.DEPENDENT_BUDGETS not in codes(estimate(LATTICE, reports, TIERS).notes)


def test_binary_frequency_by_hand() -> None:
    """GSPA Algorithm 2 with A = 6, n = 10, ε = ln 3 for all, so q = ¼: (6 − 2.5)/(10 − 5) = 0.7."""
    reports = np.array([1] * 6 + [0] * 4, dtype=np.int64)
    result = estimate(BIT, reports, ((math.log(3), 10),))
    assert result.values == pytest.approx((0.7,))
    assert result.standard_errors == pytest.approx((math.sqrt(10 * 0.25 * 0.75) / 5,))
    assert result.sampling_standard_errors == pytest.approx((math.sqrt(0.7 * 0.3 / 10),))


def test_histogram_by_hand() -> None:
    """k = 4, ε = ln 5, q = 1/8: shares (count − n/8)/(n/2)."""
    reports = np.array([0] * 5 + [1] * 2 + [2], dtype=np.int64)
    result = estimate(LETTER, reports, ((math.log(5), 8),))
    assert result.values == pytest.approx((1.0, 0.25, 0.0, -0.25))
    assert result.projected == pytest.approx((0.875, 0.125, 0.0, 0.0))
    assert sum(result.values) == pytest.approx(1.0)


def test_an_impossible_share_is_said_to_be_one() -> None:
    """Reproduction: a share of 1.2172 was published without a remark, with an interval beyond 1."""
    reports = np.array([1] * 9 + [0], dtype=np.int64)
    result = estimate(BIT, reports, ((1.0, 10),))
    assert result.values[0] > 1
    assert result.projected == (1.0,)
    assert 0 <= result.confidence_intervals[0][0] < result.confidence_intervals[0][1] == 1
    assert result.notes == (Statement.of(Note.OUTSIDE_RANGE, low=0, high=1),)
    mean = estimate(MEAN, 1 - reports, ((1.0, 10),))
    assert mean.values[0] < -2
    assert mean.projected == (-2.0,)
    letters = estimate(LETTER, np.array([0] * 5 + [1] * 2 + [2], dtype=np.int64), ((math.log(5), 8),))
    assert letters.notes == (Statement.of(Note.SOME_OUTSIDE_RANGE, outside=1, estimates=4, low=0, high=1),)
    assert all(0 <= low <= high <= 1 for low, high in letters.confidence_intervals)
    possible = estimate(BIT, np.array([1] * 500 + [0] * 500, dtype=np.int64), ((1.0, 1000),))
    assert possible.notes == ()
    assert possible.projected == possible.values


@pytest.mark.slow
def test_the_largest_histogram_fits_into_a_message() -> None:
    """Reproduction: k = 65,536 was accepted, and its result was larger than any message may be."""
    most = 1 << 16
    labels = tuple(f"{index:016}" for index in range(most))
    assert sum(len(label) for label in labels) == 1 << 20
    question = Question("letter", KaryResponse(most, labels))
    result = estimate(question, np.arange(100, dtype=np.int64), ((1.0, 100),))
    pairs = ((0.1, 0.2),) * most  # a number that is exactly 0 takes no room
    result = replace(result, projected=(0.1,) * most, confidence_intervals=pairs, population_intervals=pairs)
    result = replace(result, sampling_standard_errors=(0.1,) * most)
    publication = pb.Publication()
    result.publish(publication)
    publication.round.CopyFrom(make_kit(2, question).round)
    read = values_of(publication)
    assert [value.label for value in read] == list(labels)
    assert [value.estimate for value in read] == list(result.values)
    for value, error in zip(read, result.standard_errors, strict=True):
        assert value.confidence_interval.low <= 0.1 < 0.2 <= value.confidence_interval.high < 0.2 + 1e-7
        assert error <= value.standard_error <= error * (1 + 1e-6)
    rest = 384 * 1024  # the certificate, with as many budgets as a grid may have, and what stands around it
    assert publication.ByteSize() < MESSAGE_BYTES - rest
    budgets = [pb.Tier(local_epsilon=1.1, local_delta=1e-7, count=2**40, epsilon=0.1)] * 4096
    assert pb.Certificate(tiers=budgets).ByteSize() < rest / 2
    with pytest.raises(ValueError, match=naming("labels", 1048577, 1048576)):
        KaryResponse(most, (*labels[:-1], labels[-1] + "x"))


@pytest.mark.parametrize("mechanism", [Laplace(0.0, 100.0), Gaussian(0.0, 100.0, 1e-6)], ids=lambda m: m.kind)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_report_does_not_ruin_a_mean(mechanism: Laplace | Gaussian, sign: int) -> None:
    """Reproduction: one report of 2^62 among 2,001 moved a mean of 40 to 2.8e14."""
    question, tiers = Question("mean", mechanism), ((0.5, 1000), (2.0, 1001))
    honest = np.full(2001, 0.4 * mechanism.lattice).astype(np.int64)
    forged = honest.copy()
    forged[7] = sign * 2**62
    unforged, other = (estimate(question, reports, tiers, least_epsilon=0.5) for reports in (honest, forged))
    assert other.clamping is not None
    assert abs(other.values[0] - unforged.values[0]) <= other.clamping.influence
    assert other.clamping.influence < 2.5 * unforged.standard_errors[0]
    assert (unforged.clamping.num_clamped if unforged.clamping else None, other.clamping.num_clamped) == (0, 1)
    assert other.confidence_intervals[0][0] < 40 < other.confidence_intervals[0][1]


def test_a_single_user_has_an_answer() -> None:
    result = estimate(BIT, np.array([1], dtype=np.int64), ((1.0, 1),))
    assert isinstance(result, Estimate)
    assert result.standard_errors[0] > 0


@pytest.mark.parametrize(
    ("reports", "tiers", "confidence", "message"),
    [
        ([], TIERS, 0.95, "0 reports and 1000 budgets"),
        ([1], (), 0.95, "1 reports and 0 budgets"),
        *(([1], TIERS, level, naming("confidence", level, "(0, 1)")) for level in (0.0, 1.0, -0.5, 1.5, math.nan)),
    ],
)
def test_bad_input_is_named(
    reports: list[int], tiers: tuple[tuple[float, int], ...], confidence: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(BIT, np.array(reports, dtype=np.int64), tiers, confidence)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12))
def test_the_projection_is_the_nearest_probability_vector(shares: list[float]) -> None:
    given_shares = np.array(shares)
    projected = project_on_simplex(given_shares)
    assert np.all(projected >= 0)
    assert projected.sum() == pytest.approx(1.0)
    # Optimality: moving towards any corner of the simplex does not come closer.
    residual = given_shares - projected
    assert np.all(residual - residual @ projected <= 1e-9)


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
    mean, variance, stated = moments(Question("letter", KaryResponse(k=3)), budgets, laws)
    assert mean == pytest.approx([letters.count(j) / 4 for j in range(3)], abs=1e-12)
    assert stated == pytest.approx(variance, rel=0.15)


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
