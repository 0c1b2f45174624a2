"""Randomizers: exact thresholds, rounded towards privacy, and draws that a wrong probability would not pass."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import mpmath
import pytest

from croupier.client.randomizers import randomize
from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.protocol.calibration import gaussian_sigma_steps
from croupier.protocol.mechanisms import mechanism_from
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question, choose_budget
from croupier.protocol.randomness import SeededRandomForTests, SystemRandom, uniform_permutation
from tests.support.messages import naming

BIT = Question("bit", RandomizedResponse())
MEAN = Question("mean", OneBit(low=0.0, high=10.0))
LATTICE = Question("lattice", Laplace(low=0.0, high=10.0, lattice=20))
# Hoeffding: a mean of n bits is off by more than √(ln(2/β)/(2n)) with probability at most β.
DRAWS, ERROR_RATE = 50_000, 1e-6
TOLERANCE = math.sqrt(math.log(2 / ERROR_RATE) / (2 * DRAWS))
FEWER = 10_000
"""Where a draw takes long; the tolerance is 2.7 % then, and a mean that ignores the value would be off by 23 %."""


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


def share_of(question: Question, value: float, epsilon: float, report: int, draws: int = DRAWS) -> float:
    source = SeededRandomForTests(int(1000 * epsilon) + report)
    hits: int = sum(randomize(question, value, epsilon, source) == report for _ in range(draws))
    return hits / draws


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("bit", [0, 1])
def test_bits_are_kept_with_the_right_probability(bit: int, epsilon: float) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    share = share_of(BIT, bit, epsilon, bit)
    assert abs(share - keep) < TOLERANCE
    assert abs(share - keep * 1.05) > TOLERANCE  # a wrong one would be caught


def test_letters_have_the_right_probabilities() -> None:
    question = Question("letter", KaryResponse(k=4))
    z = math.exp(1.0) + 3
    for report in range(4):
        right = (math.exp(1.0) if report == 2 else 1.0) / z
        assert abs(share_of(question, 2, 1.0, report) - right) < TOLERANCE


def test_one_bit_means_are_unbiased() -> None:
    weight = math.tanh(0.5)
    for value in (0.0, 2.5, 10.0):
        expected = (1 - weight) / 2 + weight * value / 10
        assert abs(share_of(MEAN, value, 1.0, 1, FEWER) - expected) < TOLERANCE * math.sqrt(DRAWS / FEWER)


@pytest.mark.slow
def test_laplace_reports_have_the_discrete_law() -> None:
    """Chi-square of the noise at Laurent and Massart's bound: fails by chance with probability below 1e-6."""
    draws, epsilon = 8_000, 2.0
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


@pytest.mark.slow
def test_gaussian_reports_have_the_discrete_law() -> None:
    """Chi-square against exp(-z^2/(2 sigma^2)) with the sigma that the local budget asks for."""
    draws, question = 8_000, Question("g", Gaussian(low=0.0, high=10.0, lattice=10, local_delta=1e-3))
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
        (BIT, 2, "value is 2; it must be 0 or 1"),
        (BIT, 0.5, r"value is 0\.5"),
        (Question("l", KaryResponse(k=3)), 3, "must be 0..2"),
        (MEAN, 10.1, r"\[0.*10\]"),
        (MEAN, math.nan, "value is nan"),
        (LATTICE, -0.1, r"value is -0\.1"),
    ],
)
def test_values_outside_the_domain_are_refused(question: Question, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        randomize(question, value, 1.0, SystemRandom())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 20.5, math.nan, math.inf])
def test_budgets_out_of_range_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=naming("local epsilon", epsilon)):
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
    ("kind", "fields", "message"),
    [
        ("krr", {}, "k is missing"),
        ("rr", {"k": 2}, "rr has no k"),
        ("onebit", {"low": 0.0}, "high is missing"),
        ("onebit", {"low": 0.0, "high": math.inf}, "the interval is"),
        ("laplace", {"low": 0.0, "high": 1.0, "lattice": 0}, "lattice is 0"),
        ("gaussian", {"low": 0.0, "high": 1.0, "lattice": 10}, "local_delta is missing"),
        ("gaussian", {"low": 0.0, "high": 1.0, "lattice": 10, "local_delta": 0.0}, "local_delta is 0"),
        (
            "gaussian",
            {"low": 0.0, "high": 1.0, "lattice": 1001, "local_delta": 1e-6},
            "must be 1..1000",
        ),
        ("rr", {"local_delta": 1e-6}, "rr has no local_delta"),
        ("krr", {"k": 2, "labels": ("a",)}, "must be 2 different names"),
        ("krr", {"k": 2, "labels": ("a", "a")}, "must be 2 different names"),
        ("exact", {}, "mechanism is 'exact'"),
        ("rr", {"name": "a b"}, "name is 'a b'"),
    ],
)
def test_questions_are_checked(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Question(fields.pop("name", "q"), mechanism_from(kind, fields))


def test_values_are_read_as_people_write_them() -> None:
    rating = KaryResponse(5, ("1", "2", "3", "4", "5"))
    assert [rating.parse_value(text) for text in ("1", "3.0", " 5 ")] == [0, 2, 4]
    mood = KaryResponse(2, ("good", "bad"))
    assert mood.parse_value("bad") == 1
    assert BIT.mechanism.parse_value("1.0") == 1
    assert MEAN.mechanism.parse_value("2.5") == 2.5
    for mechanism, text in (
        (rating, "0"),
        (rating, "x"),
        (mood, "7"),
        (BIT.mechanism, "2"),
        (BIT.mechanism, ""),
        (MEAN.mechanism, "10.01"),
        (MEAN.mechanism, "nan"),
    ):
        with pytest.raises(ValueError, match="value is"):
            mechanism.parse_value(text)
    with pytest.raises(ValueError, match="200 in all"):
        KaryResponse(200).parse_value("x")


def test_reports_are_golden_and_checked() -> None:
    bit, lattice = RandomizedResponse(), Laplace(0.0, 10.0, lattice=20)
    assert lattice.encode_report(-2).hex() == "fffffffffffffffe"
    assert lattice.decode_report(lattice.encode_report(-2)) == -2
    for mechanism, plaintext in (
        (bit, bit.encode_report(2)),
        (bit, bit.encode_report(-1)),
        (bit, b"1"),
        (lattice, lattice.encode_report(2**62 + 1)),
    ):
        with pytest.raises(ValueError, match="report"):
            mechanism.decode_report(plaintext)


def test_the_largest_grid_budget_within_the_maximum() -> None:
    grid = (0.5, 1.0, 2.0)
    assert [choose_budget(epsilon, grid) for epsilon in (0.5, 0.99, 1.0, 7.0)] == [0.5, 0.5, 1.0, 2.0]
    for epsilon in (0.49, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=naming("max_local_epsilon", epsilon)):
            choose_budget(epsilon, grid)
