"""Shares of several options from one bit of every person: unbiased, with errors and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.accountant.accuracy import margins
from croupier.analyzer.estimators import estimate
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.questions import Question
from tests.analyzer.draws import with_fakes

SHARES = np.array([0.5, 0.1, 0.0, 0.9])
QUESTION = Question("symptoms", MultipleChoice(len(SHARES)))


def play(
    people: int, budgets: tuple[float, ...], rounds: int, seed: int, noise: HopNoise | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plays rounds from the definition; returns errors, standard errors, and whether intervals cover: (rounds, k)."""
    source, k = np.random.default_rng(seed), len(SHARES)
    chosen = source.random((people, k)) < SHARES
    truth = chosen.mean(axis=0)
    of_people = np.resize(budgets, people)
    tiers = [(budget, int((of_people == budget).sum())) for budget in budgets]
    law = None if noise is None else noise.law(2 * k)
    errors, stated, covered = [], [], []
    for _ in range(rounds):
        drawn = source.integers(0, k, people)
        flipped = source.random(people) < 1 / (1 + np.exp(source.permutation(of_people)))
        reports = 2 * drawn + (chosen[np.arange(people), drawn] ^ flipped)
        fakes = None
        if law is not None:
            reports, fakes = with_fakes(reports, law, 1, source)
        result = estimate(QUESTION, reports, tiers, fakes=fakes)
        low, high = np.array(result.confidence_intervals).T
        errors.append(np.array(result.values) - truth)
        stated.append(result.standard_errors)
        covered.append((low <= truth) & (truth <= high))
    return np.array(errors), np.array(stated), np.array(covered)


@pytest.mark.parametrize(("people", "budgets"), [(400, (1.0, 3.0)), (200, (6.0,)), (1000, (0.5,))])
def test_errors_are_as_stated_and_intervals_cover(people: int, budgets: tuple[float, ...]) -> None:
    errors, stated, covered = play(people, budgets, 1000, seed=71)
    spread = errors.std(axis=0)
    assert (np.abs(errors.mean(axis=0)) < 5 * spread / 1000**0.5).all()
    assert (stated.mean(axis=0) > 0.88 * spread).all()
    assert (stated.mean(axis=0) < 1.3 * spread).all()  # more where a share is 0: its estimates are cut there
    assert (covered.mean(axis=0) > 0.93).all()
    planned = margins([(budget, people // len(budgets)) for budget in budgets], f"choices(k={len(SHARES)})")
    assert planned.participants == pytest.approx(1.96 * spread[0], rel=0.12)  # half of the people is the worst share


def test_fakes_of_hops_are_counted_out() -> None:
    errors, stated, covered = play(1000, (6.0, 8.0), 300, seed=72, noise=HopNoise(1.0, 1e-6))
    spread = errors.std(axis=0)
    assert (np.abs(errors.mean(axis=0)) < 5 * spread / 300**0.5 + 0.002).all()
    assert (stated.mean(axis=0) > 0.9 * spread).all()
    assert (covered.mean(axis=0) > 0.94).all()


def test_an_option_that_nobody_drew_may_have_any_share() -> None:
    reports = np.array([0, 1, 1, 2, 2, 3, 4, 5])  # of the options 0, 1 and 2 of 4
    result = estimate(QUESTION, reports, [(2.0, len(reports))])
    assert result.confidence_intervals[3] == (0.0, 1.0)
    assert all(0 <= share <= 1 for share in result.projected)


def test_possible_shares_need_not_add_up_to_one() -> None:
    reports = np.repeat([1, 3, 5, 7], 200)  # every bit says that the option is chosen
    result = estimate(QUESTION, reports, [(8.0, len(reports))])
    assert result.projected == pytest.approx((1.0,) * 4, abs=0.01)
