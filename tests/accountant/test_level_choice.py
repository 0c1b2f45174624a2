"""How many levels a plan chooses: those with the least error of the mean, compared with every other number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier.accountant import plan
from croupier.accountant.budgets import Budgets
from croupier.accountant.level_choice import best_levels
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.levels import LevelsMean
from croupier.accountant.mechanisms.onebit import OneBitMean
from croupier.accountant.release import SettledConditions
from croupier.protocol.hop_noise import HopNoise


def error(k: int, budgets: Budgets, noise: HopNoise | None) -> float:
    fakes = SettledConditions(hop_noise=noise).fakes(LevelsMean(k))
    return standard_error(budgets, LevelsMean(k), fakes.variance)


@pytest.mark.parametrize("noise", [None, HopNoise(1.0, 1e-6), HopNoise(0.1, 1e-6)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 7.0])
def test_the_chosen_levels_have_the_least_error_of_all(epsilon: float, noise: HopNoise | None) -> None:
    for budgets in (Budgets.from_tiers([(epsilon, 3000)]), Budgets.from_tiers([(epsilon / 2, 900), (epsilon, 300)])):
        best = best_levels(budgets, SettledConditions(hop_noise=noise)).k
        every = {k: error(k, budgets, noise) for k in range(2, 120)}
        assert best in every
        assert every[best] == min(every.values())


def test_the_stated_variance_is_the_largest_over_all_values() -> None:
    """Enumerated from the definition: for every value on a fine grid, and no value has more."""
    for k in (2, 3, 5, 16):
        levels = np.arange(k) / (k - 1)
        for epsilon in (0.3, 1.0, 3.0, 8.0, 20.0):
            keep = -math.expm1(-epsilon) / (1 + (k - 1) * math.exp(-epsilon))
            largest = 0.0
            for value in np.linspace(0, 1, 997):
                hats = np.maximum(0.0, 1 - np.abs(value - levels) * (k - 1))
                law = keep * hats + (1 - keep) / k
                largest = max(largest, float(law @ levels**2 - (law @ levels) ** 2))
            gain, variance = LevelsMean(k).signal(np.array([epsilon]), np.zeros(1))
            assert gain[0] == pytest.approx(keep)
            assert largest <= variance[0] * (1 + 1e-9)
            assert variance[0] <= largest * (1 + 1e-4)


def test_two_levels_are_onebit() -> None:
    budgets = Budgets.from_tiers([(0.7, 100), (3.0, 50)])
    assert standard_error(budgets, LevelsMean(2)) == pytest.approx(standard_error(budgets, OneBitMean()))


def test_a_plan_chooses_the_levels_and_says_how_many() -> None:
    """For given budgets, and where the budgets themselves are looked for."""
    budgets = Budgets.from_tiers([(4.0, 2000)])
    planned = plan("levels", budgets=budgets)
    assert planned.levels == best_levels(budgets).k == 5
    assert "5 levels" in str(planned)
    assert planned.certificate.randomizer == "levels(k=5)"
    noisy = plan("levels", num_users=2000, epsilon=1.0, hop_noise=(0.5, 1e-6))
    assert noisy.levels is not None
    assert noisy.levels > 2
    assert noisy.certificate.epsilon <= 1.0
    for k in (2, noisy.levels + 3):
        other = plan(f"levels(k={k})", num_users=2000, epsilon=1.0, hop_noise=(0.5, 1e-6))
        assert other.standard_error is not None
        assert noisy.standard_error is not None
        assert noisy.standard_error <= other.standard_error
    with pytest.raises(ValueError, match="k"):
        plan("levels(k=1)", budgets=budgets)
