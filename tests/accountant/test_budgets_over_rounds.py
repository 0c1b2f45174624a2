"""What the counts of budgets in many certificates tell of each person, to a first hop that knows who took part."""

from __future__ import annotations

import numpy as np

SHARES = np.array([0.54, 0.37, 0.09])
ATTENDANCE = 0.7


def recovered(people: int, rounds: int, source: np.random.Generator) -> tuple[float, float]:
    """Returns for how many people least squares name the right budget, and for how many the commonest one is right."""
    budget = source.choice(3, people, p=SHARES)
    attended = (source.random((rounds, people)) < ATTENDANCE).astype(np.float64)
    counts = np.stack([attended @ (budget == tier) for tier in range(3)], axis=1)
    surprise = counts - attended.sum(axis=1, keepdims=True) * SHARES
    guessed = (SHARES + np.linalg.lstsq(attended, surprise, rcond=None)[0]).argmax(axis=1)
    return float((guessed == budget).mean()), float(np.bincount(budget).max() / people)


def test_few_rounds_tell_little_and_many_tell_every_budget() -> None:
    """The numbers of docs/not-defended.md."""
    source = np.random.default_rng(1)

    def mean(rounds: int) -> tuple[float, float]:
        shares = np.mean([recovered(120, rounds, source) for _ in range(20)], axis=0)
        return float(shares[0]), float(shares[1])

    right, blind = mean(10)
    assert right < blind + 0.12
    right, blind = mean(60)
    assert 0.75 < right < 0.9
    assert mean(100)[0] > 0.95
    assert mean(120)[0] > 0.99
