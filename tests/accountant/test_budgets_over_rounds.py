"""What the counts of budgets in many certificates tell of each person, to a first hop that knows who took part."""

from __future__ import annotations

import numpy as np
import pytest

SHARES = np.array([0.54, 0.37, 0.09])
ATTENDANCE = 0.7


def recovered(people: int, rounds: int, source: np.random.Generator, *, least: int = 0) -> tuple[float, float]:
    """Returns for how many people least squares name the right budget, and for how many the commonest one is right.

    least: the rarest budget is counted together with its neighbour where fewer people have it.
    """
    budget = source.choice(3, people, p=SHARES)
    attended = (source.random((rounds, people)) < ATTENDANCE).astype(np.float64)
    counts, prior = np.stack([attended @ (budget == tier) for tier in range(3)], axis=1), SHARES
    if counts[:, 2].max() < least:
        counts, prior = np.stack([counts[:, 0], counts[:, 1] + counts[:, 2]], axis=1), np.array([0.54, 0.46])
        budget = np.minimum(budget, 1)
    surprise = counts - attended.sum(axis=1, keepdims=True) * prior
    guessed = (prior + np.linalg.lstsq(attended, surprise, rcond=None)[0]).argmax(axis=1)
    return float((guessed == budget).mean()), float(np.bincount(budget).max() / people)


@pytest.mark.parametrize("least", [0, 20])
def test_few_rounds_tell_little_and_many_tell_every_budget(least: int) -> None:
    """The numbers of docs/not-defended.md; merging the counts of a rare budget changes nothing."""
    source = np.random.default_rng(1)

    def mean(rounds: int) -> tuple[float, float]:
        shares = np.mean([recovered(120, rounds, source, least=least) for _ in range(20)], axis=0)
        return float(shares[0]), float(shares[1])

    right, blind = mean(10)
    assert right < blind + 0.12
    right, blind = mean(60)
    assert 0.75 < right < 0.9
    assert mean(100)[0] > 0.95
    assert mean(120)[0] > 0.99
