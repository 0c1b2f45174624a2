"""Estimators: unbiased, with standard errors and intervals that mean what they say."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.analyzer.estimates import Estimate
from croupier.analyzer.estimators import estimate
from croupier.analyzer.scalars import project_on_simplex
from croupier.deploy.local.demo_plan import SURVEY, SURVEY_QUESTIONS
from croupier.net.sizes import MESSAGE_BYTES
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
from tests.support import make_kit
from tests.support.messages import naming
from tests.support.statements import codes

TIERS = ((0.5, 540), (1.0, 370), (2.0, 90))
BUDGETS = np.repeat([epsilon for epsilon, _ in TIERS], [count for _, count in TIERS])
BIT = Question("bit", RandomizedResponse())
LETTER = Question("letter", KaryResponse(k=4))
MEAN = Question("mean", OneBit(low=-2.0, high=6.0))
LATTICE = Question("lattice", Laplace(low=-2.0, high=6.0, lattice=200))
Ints = npt.NDArray[np.int64]


def simulate(
    question: Question,
    truths: npt.NDArray[np.float64],
    source: np.random.Generator,
    budgets: npt.NDArray[np.float64] = BUDGETS,
) -> Ints:
    """Draws one shuffled round from the definitions of the randomizers; budgets are dealt at random."""
    budgets = source.permutation(budgets)
    n = len(budgets)
    if question.mechanism.kind == "laplace":
        position = (truths + 2) / 8 * 200
        lattice = np.floor(position) + (source.random(n) < position - np.floor(position))
        p = 1 - np.exp(-budgets / 200)
        return (lattice + source.geometric(p) - source.geometric(p)).astype(np.int64)
    k = len(question.mechanism.categories) or 2
    values = truths.astype(np.int64)
    if isinstance(question.mechanism, OneBit):
        low, high = question.mechanism.low, question.mechanism.high
        values = (source.random(n) < (truths - low) / (high - low)).astype(np.int64)
    blanket = source.random(n) < k / (np.exp(budgets) + k - 1)
    return np.where(blanket, source.integers(0, k, n), values).astype(np.int64)


def truths_of(question: Question) -> npt.NDArray[np.float64]:
    source = np.random.default_rng(11)
    if question.mechanism.kind == "rr":
        return (source.random(1000) < 0.3).astype(np.float64)
    if question.mechanism.kind == "krr":
        return source.choice(4, 1000, p=[0.1, 0.2, 0.3, 0.4]).astype(np.float64)
    return source.beta(2, 5, 1000) * 8 - 2


def answer_of(question: Question, truths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if question.mechanism.kind == "krr":
        return np.bincount(truths.astype(np.int64), minlength=4) / len(truths)
    return np.array([truths.mean()])


@pytest.mark.parametrize("question", [BIT, LETTER, MEAN, LATTICE], ids=lambda q: q.mechanism.kind)
def test_unbiased_with_honest_errors(question: Question) -> None:
    """400 seeded rounds: the mean error is within 5 standard errors of 0, the intervals cover, the errors are tight."""
    repeats, truths = 400, truths_of(question)
    exact = answer_of(question, truths)
    rounds = [
        estimate(question, simulate(question, truths, np.random.default_rng(seed)), TIERS) for seed in range(repeats)
    ]
    errors = np.array([round_.values for round_ in rounds]) - exact
    stated = np.array([round_.standard_errors for round_ in rounds])
    scale = errors.std(axis=0)
    assert np.all(np.abs(errors.mean(axis=0)) < 5 * scale / math.sqrt(repeats))
    intervals = np.array([round_.confidence_intervals for round_ in rounds])
    covered = (intervals[:, :, 0] <= exact) & (exact <= intervals[:, :, 1])
    # A 95 % interval covers fewer than 345 of 400 times with probability below 1e-11.
    assert np.all(covered.sum(axis=0) >= 345)
    # The stated error is the real one within 5 standard errors of a standard deviation; for rounded values a bound.
    slack = 5 / math.sqrt(2 * repeats)
    assert np.all(stated.mean(axis=0) > scale * (1 - slack))
    assert np.all(stated.mean(axis=0) < scale * (1 + slack) * (1.1 if question.mechanism.kind == "onebit" else 1.0))


def test_intervals_of_the_demonstration_cover_as_the_readme_says() -> None:
    """README.md gives this test as the command."""
    text = " ".join(Path("README.md").read_text(encoding="utf-8").split())
    (said,) = re.findall(r"200 repetitions.* ([0-9.]+) to ([0-9.]+) % of each", text)
    table = np.genfromtxt(SURVEY, delimiter=",", names=True)
    source, tiers = np.random.default_rng(0), ((0.5, 3438), (1.0, 2355), (2.0, 573))
    budgets = np.repeat([epsilon for epsilon, _ in tiers], [count for _, count in tiers])
    shares = []
    for asked in SURVEY_QUESTIONS:
        truths = table[asked.column] - (1.0 if asked.question.mechanism.categories else 0.0)
        exact = np.bincount(truths.astype(int)) / truths.size if asked.question.mechanism.categories else truths.mean()
        rounds = [
            estimate(asked.question, simulate(asked.question, truths, source, budgets), tiers) for _ in range(200)
        ]
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


def test_reports_and_budgets_that_differ_in_number_are_noted() -> None:
    result = estimate(BIT, np.array([1] * 6 + [0] * 4, dtype=np.int64), ((math.log(3), 20),))
    assert result.values == pytest.approx((0.7,))
    assert result.notes[0] == Statement.of(Note.TIERS_SCALED, reports=10, budgets=20)


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
        ([1], TIERS, 1.0, r"confidence is 1\.0"),
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
