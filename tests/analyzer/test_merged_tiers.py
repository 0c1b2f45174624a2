"""Estimates where rare budgets are counted with larger ones: the stated bias is enough, and no bound is forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.accountant.rounds.small_tiers import merge_small_tiers
from croupier.analyzer.estimates import Estimate, Merged
from croupier.analyzer.estimators import estimate
from croupier.protocol.codes import Note
from croupier.protocol.mechanisms import KaryResponse, Laplace, OneBit, RandomizedResponse
from croupier.protocol.questions import Question
from tests.support.drawn import drawn
from tests.support.messages import naming
from tests.support.statements import codes

GRID = (0.1, 0.5, 1.0, 2.0, 4.0)
QUESTIONS = [
    Question("bit", RandomizedResponse()),
    Question("letter", KaryResponse(k=4)),
    Question("mean", OneBit(low=-2.0, high=6.0)),
]
Tiers = tuple[tuple[float, int], ...]


def shown(exact: Tiers, least: int) -> Tiers:
    return tuple(merge_small_tiers(exact, least))


def answer(question: Question, reports: np.ndarray, tiers: Tiers, merged: Merged | None) -> Estimate:
    result = estimate(question, reports, tiers, least_epsilon=GRID[0], merged=merged)
    assert isinstance(result, Estimate)
    return result


@drawn(100)
@given(st.data())
def test_the_stated_bias_is_enough_for_any_values_of_any_users(data: st.DataObject) -> None:
    """Expected reports are compared with what they would be if everybody had the budget that is shown."""
    question, least = data.draw(st.sampled_from(QUESTIONS)), data.draw(st.integers(2, 40))
    used = data.draw(st.lists(st.sampled_from(GRID), min_size=1, max_size=5, unique=True).map(sorted))
    sizes = st.one_of(st.integers(1, 40), st.integers(200, 2000))
    exact = tuple((own, data.draw(sizes)) for own in used)
    tiers = shown(exact, least)
    k, width = len(question.mechanism.categories) or 2, 8.0 if question.mechanism.kind == "onebit" else 1.0
    as_used = np.repeat([own for own, _ in exact], [count for _, count in exact])
    as_shown = np.repeat([own for own, _ in tiers], [count for _, count in tiers])
    assert np.all(as_used <= as_shown)
    n = len(as_used)
    values = data.draw(st.sampled_from([np.zeros(n), np.ones(n), np.arange(n) % 2 * 1.0, (as_used < as_shown) * 1.0]))
    values = values if data.draw(st.booleans()) else 1 - values

    def hits(budgets: np.ndarray) -> float:
        q = 1 / (np.expm1(budgets) + k)
        return float((q + (1 - k * q) * values).sum())

    weight = float((1 - k / (np.expm1(as_shown) + k)).sum())
    moved = width * abs(hits(as_used) - hits(as_shown)) / weight
    reports = (np.arange(n) % k).astype(np.int64)
    result = answer(question, reports, tiers, Merged(GRID, least))
    assert moved <= result.merging_bias * (1 + 1e-9) + 1e-12
    plain = answer(question, reports, tiers, None)
    assert plain.merging_bias == 0
    assert result.values == plain.values
    for wide, other in zip(result.standard_errors, plain.standard_errors, strict=True):
        assert wide >= other
    hidden = [users for _, users in Merged(GRID, least).hidden(tiers)]
    assert bool(result.merging_bias) == any(hidden)
    if not any(hidden):
        assert result == plain


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.mechanism.kind)
def test_intervals_cover_the_truth_although_budgets_are_hidden(question: Question) -> None:
    """200 seeded rounds in which 29 of 300 people have more noise than is counted; without the bias too few cover."""
    exact, least, n, k = ((0.1, 14), (0.5, 15), (4.0, 271)), 30, 300, len(question.mechanism.categories) or 2
    tiers = shown(exact, least)
    assert tiers == ((4.0, 300),)
    values = (np.arange(n) >= 0.03 * n).astype(np.int64)
    covered = {True: 0, False: 0}
    for seed in range(200):
        source = np.random.default_rng(seed)
        budgets = source.permutation(np.repeat([own for own, _ in exact], [count for _, count in exact]))
        blanket = source.random(n) < k / (np.exp(budgets) + k - 1)
        reports = np.where(blanket, source.integers(0, k, n), values)
        for merged in (True, False):
            result = answer(question, reports, tiers, Merged(GRID, least) if merged else None)
            low, high = result.confidence_intervals[1 if k > 2 else 0]
            truth = -2 + 8 * 0.97 if question.mechanism.kind == "onebit" else 0.97
            covered[merged] += low <= truth <= high
    # A 95 % interval covers fewer than 172 of 200 times with probability below 1e-6.
    assert covered[False] < 172 <= covered[True]


def test_what_is_hidden_follows_from_the_grid_and_the_threshold() -> None:
    merged = Merged(GRID, 10)
    assert merged.hidden([(0.1, 12), (2.0, 30), (4.0, 4)]) == [(0.1, 0.0), (0.5, 9.0), (4.0, 0.0)]
    assert merged.hidden([(4.0, 6)]) == [(0.1, 5.0)]  # one of them at least has the budget that is shown


def test_missing_budgets_are_taken_to_hide_as_many() -> None:
    reports = np.arange(200, dtype=np.int64) % 2
    many, other = (answer(QUESTIONS[0], reports, ((2.0, n),), Merged(GRID, 10)) for n in (200, 100))
    assert other.merging_bias == pytest.approx(2 * many.merging_bias)
    assert Note.DEPENDENT_BUDGETS in codes(many.notes)


def test_other_estimates_need_the_exact_tiers() -> None:
    with pytest.raises(ValueError, match=naming("tiers", "laplace")):
        estimate(Question("x", Laplace(0.0, 1.0)), np.zeros(9), ((1.0, 9),), merged=Merged(GRID, 3))
