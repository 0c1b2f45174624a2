"""Randomizers: exact thresholds, rounded towards privacy, and draws that a wrong probability would not pass."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import mpmath
import pytest

from client.randomizers import blanket_threshold, flip_threshold, randomize
from protocol.calibration import gaussian_sigma_steps
from protocol.questions import Question, choose_budget, encode_report
from protocol.randomness import SeededRandomForTests, SystemRandom, uniform_permutation

BIT = Question("bit", "rr")
MEAN = Question("mean", "onebit", low=0.0, high=10.0)
LATTICE = Question("lattice", "laplace", low=0.0, high=10.0, lattice=20)
# Hoeffding: a mean of n bits is off by more than √(ln(2/β)/(2n)) with probability at most β.
DRAWS, ERROR_RATE = 200_000, 1e-6
TOLERANCE = math.sqrt(math.log(2 / ERROR_RATE) / (2 * DRAWS))


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, math.log(3), 5.0, 20.0])
@pytest.mark.parametrize("k", [2, 3, 5, 1000])
def test_thresholds_are_exact_and_rounded_towards_privacy(epsilon: float, k: int) -> None:
    with mpmath.workdps(60):
        gamma = k / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1) * 2**64
        assert 0 <= blanket_threshold(epsilon, k) - gamma < 1
        flip = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon))) * 2**64
        assert 0 <= flip_threshold(epsilon) - flip < 1
        kept = 2**64 - flip_threshold(epsilon)
        assert mpmath.log(mpmath.mpf(kept) / flip_threshold(epsilon)) <= mpmath.mpf(epsilon)


def share_of(question: Question, value: float, epsilon: float, report: int) -> float:
    source = SeededRandomForTests(int(1000 * epsilon) + report)
    return sum(randomize(question, value, epsilon, source) == report for _ in range(DRAWS)) / DRAWS


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("bit", [0, 1])
def test_bits_are_kept_with_the_right_probability(bit: int, epsilon: float) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert abs(share_of(BIT, bit, epsilon, bit) - keep) < TOLERANCE
    assert abs(share_of(BIT, bit, epsilon, bit) - keep * 1.02) > TOLERANCE  # a wrong one would be caught


def test_letters_have_the_right_probabilities() -> None:
    question = Question("letter", "krr", k=4)
    z = math.exp(1.0) + 3
    for report in range(4):
        right = (math.exp(1.0) if report == 2 else 1.0) / z
        assert abs(share_of(question, 2, 1.0, report) - right) < TOLERANCE


def test_one_bit_means_are_unbiased() -> None:
    weight = math.tanh(0.5)
    for value in (0.0, 2.5, 10.0):
        expected = (1 - weight) / 2 + weight * value / 10
        assert abs(share_of(MEAN, value, 1.0, 1) - expected) < TOLERANCE


def test_laplace_reports_have_the_discrete_law() -> None:
    """Chi-square of the noise at Laurent and Massart's bound: fails by chance with probability below 1e-6."""
    draws, epsilon = 20_000, 2.0
    seen = Counter(randomize(LATTICE, 5.0, epsilon, SystemRandom()) - 10 for _ in range(draws))
    ratio = math.exp(-epsilon / 20)
    cells = range(-30, 31)
    law = {z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in cells}
    inside = sum(seen[z] for z in cells)
    statistic = sum((seen[z] - draws * p) ** 2 / (draws * p) for z, p in law.items())
    outside = draws * (1 - sum(law.values()))
    statistic += (draws - inside - outside) ** 2 / outside
    log_error = math.log(1e6)
    assert statistic < 61 + 2 * math.sqrt(61 * log_error) + 2 * log_error


def test_gaussian_reports_have_the_discrete_law() -> None:
    """The same chi-square, against exp(-z^2/(2 sigma^2)) with the sigma that the local budget asks for."""
    draws, question = 20_000, Question("g", "gaussian", low=0.0, high=10.0, lattice=10, local_delta=1e-3)
    sigma = gaussian_sigma_steps(2.0, 1e-3, 10)
    seen = Counter(randomize(question, 5.0, 2.0, SystemRandom()) - 5 for _ in range(draws))
    weights = {z: math.exp(-z * z / (2 * sigma * sigma)) for z in range(-400, 401)}
    total = math.fsum(weights.values())
    cells = [z for z in weights if draws * weights[z] / total > 10]
    statistic = sum((seen[z] - draws * weights[z] / total) ** 2 / (draws * weights[z] / total) for z in cells)
    inside, expected = sum(seen[z] for z in cells), draws * sum(weights[z] for z in cells) / total
    statistic += (inside - expected) ** 2 / (draws - expected)
    log_error = math.log(1e6)
    assert statistic < len(cells) + 2 * math.sqrt(len(cells) * log_error) + 2 * log_error


@pytest.mark.parametrize(
    ("question", "value", "message"),
    [
        (BIT, 2, "value is 2; allowed are 0..1"),
        (BIT, 0.5, r"value is 0\.5"),
        (Question("l", "krr", k=3), 3, "allowed are 0..2"),
        (MEAN, 10.1, r"allowed are numbers in \[0, 10\]"),
        (MEAN, math.nan, "value is nan"),
        (LATTICE, -0.1, r"value is -0\.1"),
    ],
)
def test_values_outside_the_domain_are_refused(question: Question, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        randomize(question, value, 1.0, SystemRandom())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 20.5, math.nan, math.inf])
def test_budgets_out_of_range_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=f"local epsilon is {epsilon}"):
        randomize(BIT, 1, epsilon, SystemRandom())
    with pytest.raises(ValueError, match="k is 1"):
        blanket_threshold(1.0, 1)


class Scripted:
    """A source that plays a list of draws."""

    def __init__(self, draws: Iterator[int]) -> None:
        self.draws = draws

    def bits64(self) -> int:
        return next(self.draws)

    def below(self, bound: int) -> int:
        return next(self.draws) % bound

    def block(self, length: int) -> bytes:
        return b"".join(self.bits64().to_bytes(8, "big") for _ in range(-(-length // 8)))[:length]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_permutation_comes_from_exactly_one_run_of_draws(size: int) -> None:
    runs = itertools.product(*(range(last + 1) for last in range(size - 1, 0, -1)))
    orders = Counter(tuple(uniform_permutation(size, Scripted(iter(run)))) for run in runs)
    assert set(orders) == set(itertools.permutations(range(size)))
    assert set(orders.values()) == {1}


def test_bounded_draws_are_exactly_uniform_and_checked() -> None:
    class Counting(SystemRandom):
        def __init__(self, *draws: int) -> None:
            super().__init__()
            self.draws = list(draws)

        def bits64(self) -> int:
            return self.draws.pop(0)

    limit = 2**64 - 2**64 % 3
    assert Counting(limit, 2**64 - 1, limit - 1).below(3) == (limit - 1) % 3
    for bound in (0, -1, 2**64 + 1):
        with pytest.raises(ValueError, match=f"bound is {bound}"):
            SystemRandom().below(bound)
    assert SystemRandom().below(1) == 0
    assert SeededRandomForTests(5).bits64() == SeededRandomForTests(5).bits64()
    assert len({SystemRandom().bits64() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"randomizer": "krr"}, "k is missing"),
        ({"randomizer": "rr", "k": 2}, "rr has no k"),
        ({"randomizer": "onebit", "low": 0.0}, "high is missing"),
        ({"randomizer": "onebit", "low": 0.0, "high": math.inf}, "the interval is"),
        ({"randomizer": "laplace", "low": 0.0, "high": 1.0}, "lattice is missing"),
        ({"randomizer": "laplace", "low": 0.0, "high": 1.0, "lattice": 0}, "lattice is 0"),
        ({"randomizer": "gaussian", "low": 0.0, "high": 1.0, "lattice": 10}, "local_delta is missing"),
        ({"randomizer": "gaussian", "low": 0.0, "high": 1.0, "lattice": 10, "local_delta": 0.0}, "local_delta is 0"),
        (
            {"randomizer": "gaussian", "low": 0.0, "high": 1.0, "lattice": 1001, "local_delta": 1e-6},
            "allowed are 1..1000",
        ),
        ({"randomizer": "rr", "local_delta": 1e-6}, "rr has no local_delta"),
        ({"randomizer": "krr", "k": 2, "labels": ("a",)}, "2 different names are required"),
        ({"randomizer": "krr", "k": 2, "labels": ("a", "a")}, "2 different names are required"),
        ({"randomizer": "exact"}, "randomizer is 'exact'"),
        ({"randomizer": "rr", "name": "a b"}, "name is 'a b'"),
    ],
)
def test_questions_are_checked(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Question(**{"name": "q", **fields})  # type: ignore[arg-type]


def test_values_are_read_as_people_write_them() -> None:
    rating = Question("rating", "krr", k=5, labels=("1", "2", "3", "4", "5"))
    assert [rating.parse_value(text) for text in ("1", "3.0", " 5 ")] == [0, 2, 4]
    mood = Question("mood", "krr", k=2, labels=("good", "bad"))
    assert mood.parse_value("bad") == 1
    assert BIT.parse_value("1.0") == 1
    assert MEAN.parse_value("2.5") == 2.5
    for question, text in (
        (rating, "0"),
        (rating, "x"),
        (mood, "7"),
        (BIT, "2"),
        (BIT, ""),
        (MEAN, "10.01"),
        (MEAN, "nan"),
    ):
        with pytest.raises(ValueError, match="value is"):
            question.parse_value(text)
    with pytest.raises(ValueError, match="has no interval"):
        _ = BIT.interval
    with pytest.raises(ValueError, match="200 in all"):
        Question("many", "krr", k=200).parse_value("x")


def test_reports_are_golden_and_checked() -> None:
    assert encode_report(-2).hex() == "fffffffffffffffe"
    assert LATTICE.decode_report(encode_report(-2)) == -2
    for question, plaintext in (
        (BIT, encode_report(2)),
        (BIT, encode_report(-1)),
        (BIT, b"1"),
        (LATTICE, encode_report(2**62 + 1)),
    ):
        with pytest.raises(ValueError, match="report"):
            question.decode_report(plaintext)


def test_the_largest_grid_budget_within_the_maximum() -> None:
    grid = (0.5, 1.0, 2.0)
    assert [choose_budget(epsilon, grid) for epsilon in (0.5, 0.99, 1.0, 7.0)] == [0.5, 0.5, 1.0, 2.0]
    for epsilon in (0.49, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"max_local_epsilon is {epsilon}; it must be"):
            choose_budget(epsilon, grid)
