"""Randomizers: exact thresholds, rounded towards privacy, and draws that a wrong probability would not pass."""

from __future__ import annotations

import itertools
import math
from collections import Counter
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
from croupier.protocol.randomness import SystemRandom, uniform_permutation
from tests.support.messages import naming
from tests.support.scripted import Scripted

BIT = Question("bit", RandomizedResponse())
MEAN = Question("mean", OneBit(low=0.0, high=10.0))
LATTICE = Question("lattice", Laplace(low=0.0, high=10.0, lattice=20))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 0.1, 0.5, 1.0, math.log(3), 5.0, 20.0])
@pytest.mark.parametrize("k", [2, 3, 5, 1 << 16])
def test_thresholds_are_exact_and_rounded_towards_privacy(epsilon: float, k: int) -> None:
    with mpmath.workdps(60):
        gamma = k / (mpmath.exp(mpmath.mpf(epsilon)) + k - 1) * 2**64
        threshold = blanket_threshold(epsilon, k)
        assert 0 <= threshold - gamma < 1
        ratio = mpmath.mpf(k * 2**64 - (k - 1) * threshold) / threshold  # of a category's chances, its own and another
        assert mpmath.log(ratio) <= mpmath.mpf(epsilon)
        flip = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon))) * 2**64
        assert 0 <= flip_threshold(epsilon) - flip < 1
        kept = 2**64 - flip_threshold(epsilon)
        assert mpmath.log(mpmath.mpf(kept) / flip_threshold(epsilon)) <= mpmath.mpf(epsilon)


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


@pytest.mark.parametrize("size", range(5))
def test_every_permutation_comes_from_exactly_one_run_of_draws(size: int) -> None:
    runs = itertools.product(*(range(last + 1) for last in range(size - 1, 0, -1)))
    orders = Counter(tuple(uniform_permutation(size, Scripted(*run))) for run in runs)
    assert set(orders) == set(itertools.permutations(range(size)))
    assert set(orders.values()) == {1}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("krr", {}, "k is missing"),
        ("krr", {"k": 1}, "k is 1; it must be 2..65536"),
        ("krr", {"k": (1 << 16) + 1}, "k is 65537; it must be 2..65536"),
        ("krr", {"k": 2, "lattice": 4}, "lattice is 4, but krr has no lattice"),
        ("levels", {"low": 0.0, "high": 1.0, "k": 1}, r"k is 1; it must be 2..1024"),
        ("levels", {"low": 0.0, "high": 1.0, "k": 1025}, r"k is 1025; it must be 2..1024"),
        ("rr", {"k": 2}, "rr has no k"),
        ("onebit", {"low": 0.0}, "high is missing"),
        ("onebit", {"low": 0.0, "high": math.inf}, "the interval is"),
        ("onebit", {"low": 1.0, "high": 1.0}, r"interval.*\[1.0.*1.0\].*<"),
        ("onebit", {"low": math.nan, "high": 1.0}, r"the interval is \[nan, 1.0\]"),
        ("onebit", {"low": -1.7e308, "high": 1.7e308}, "must be finite"),
        ("laplace", {"low": 0.0, "high": 1.0, "lattice": (1 << 31) + 1}, "must be 1..2147483648"),
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
        ("rr", {"name": "a/b"}, "name is 'a/b'"),
        ("rr", {"name": ""}, "name is ''; it must be 1..64"),
        ("rr", {"name": "x" * 65}, "must be 1..64"),
    ],
)
def test_questions_are_checked(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Question(fields.pop("name", "q"), mechanism_from(kind, fields))


def test_values_are_read_as_people_write_them() -> None:
    rating, plain = KaryResponse(3, ("5", "3", "1")), KaryResponse(3)
    assert [rating.parse_value(text) for text in ("5", "3.0", "1.00", " 3\n")] == [0, 1, 2, 1]
    assert (plain.categories, plain.parse_value("2.0")) == (("0", "1", "2"), 2)
    mood = KaryResponse(2, ("good", "bad"))
    assert mood.parse_value("bad") == 1
    assert BIT.mechanism.parse_value("1.0") == 1
    assert MEAN.mechanism.parse_value("2.5") == 2.5
    for mechanism, text in (
        (rating, "0"),
        (rating, "2"),
        (rating, "x"),
        *((plain, text) for text in ("3", "-1", "nan", "0.5")),
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
    grid = (2.0, 0.5, 1.0)
    assert [choose_budget(epsilon, grid) for epsilon in (0.5, 0.99, 1.0, 7.0)] == [0.5, 0.5, 1.0, 2.0]
    for epsilon in (0.49, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=naming("max_local_epsilon", epsilon)):
            choose_budget(epsilon, grid)
