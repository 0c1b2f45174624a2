"""Quantiles in a large range from disjoint groups: intervals at their level, and small errors in rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from croupier.analyzer.quantile_search import QuantileEstimate, QuantileSearch

TIERS = ((1.0, 0.5), (3.0, 0.5))
N, GROUPS = 6_000, 12
LEVEL = 0.95


def incomes(source: np.random.Generator, n: int = N) -> np.ndarray:
    return np.asarray(np.minimum(np.exp(source.normal(10.3, 0.9, n)), 1e7))


def searched(numbers: np.ndarray, q: float, source: np.random.Generator, *, logarithmic: bool) -> QuantileEstimate:
    """One search: everybody draws a group, and answers once by randomised response."""
    search = QuantileSearch(q, 1.0, 1e7, GROUPS, LEVEL, logarithmic)
    group_of = source.integers(0, GROUPS, numbers.size)
    for group in range(GROUPS):
        threshold = search.threshold()
        mine = numbers[group_of == group]
        budgets = source.choice([epsilon for epsilon, _ in TIERS], mine.size, p=[share for _, share in TIERS])
        flips = source.random(mine.size) < 1 / (1 + np.exp(budgets))
        ones = float(np.sum((mine <= threshold) ^ flips))
        tiers = [(epsilon, float((budgets == epsilon).sum())) for epsilon, _ in TIERS]
        weight = sum(math.tanh(epsilon / 2) * count for epsilon, count in tiers)
        share = (ones - sum(count / (1 + math.exp(epsilon)) for epsilon, count in tiers)) / weight
        search.add(threshold, share, tiers)
    return search.estimate()


def coverage(rounds: int, q: float, *, logarithmic: bool) -> tuple[float, float]:
    """How often the interval has the quantile of these people, and the mean error of the estimate in rank."""
    source = np.random.default_rng(3)
    numbers = incomes(source)
    truth = float(np.sort(numbers)[math.ceil(q * N) - 1])
    covered, errors = 0, []
    for _ in range(rounds):
        quantile = searched(numbers, q, source, logarithmic=logarithmic)
        covered += quantile.interval[0] <= truth <= quantile.interval[1]
        errors.append(abs(float((numbers <= quantile.estimate).mean()) - q))
    return covered / rounds, float(np.mean(errors))


@pytest.mark.parametrize("q", [0.5, 0.9])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_intervals_cover_over_ten_thousand_searches(q: float, logarithmic: bool) -> None:
    covered, error = coverage(10_000, q, logarithmic=logarithmic)
    assert covered >= float(binom(10_000, LEVEL).ppf(1e-6)) / 10_000
    assert error < 0.03


def test_intervals_cover_over_some_searches() -> None:
    covered, error = coverage(150, 0.5, logarithmic=True)
    assert covered >= float(binom(150, LEVEL).ppf(1e-6)) / 150
    assert error < 0.03


def test_a_search_without_noise_finds_the_quantile() -> None:
    """Huge budgets and everybody in every group: the interval shrinks by half with each step."""
    search = QuantileSearch(0.5, 0.0, 1024.0, 10)
    for _ in range(10):
        threshold = search.threshold()
        search.add(threshold, float(threshold >= 700.25), [(20.0, 1_000_000.0)])
    result = search.estimate()
    assert result.interval == (700.0, 701.0)
    assert 700 <= result.estimate <= 701
    assert [step.threshold for step in result.steps][:3] == pytest.approx([512.0, 768.0, 640.0])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"q": 0.0}, "q is 0.0"),
        ({"q": 1.0}, "q is 1.0"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"low": 5.0, "high": 5.0}, "the range is"),
        ({"high": math.inf}, "the range is"),
        ({"groups": 1}, "groups is 1"),
        ({"logarithmic": True}, "low is 0.0"),
    ],
)
def test_what_cannot_be_searched_is_refused(changed: dict[str, object], why: str) -> None:
    given: dict[str, object] = {"q": 0.5, "low": 0.0, "high": 1.0, "groups": 5}
    with pytest.raises(ValueError, match=why):
        QuantileSearch(**(given | changed))  # type: ignore[arg-type]
