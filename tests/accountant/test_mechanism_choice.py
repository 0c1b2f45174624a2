"""Which mechanism a plan chooses for a purpose: the one with the least error, compared with every other one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier.accountant import ErrorPlan, Plan, plan, plan_for_error, randomizer_from_name
from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanism_choice import Categories, Mean, standard_error
from croupier.accountant.mechanisms.krr import KaryRandomizedResponse
from croupier.accountant.mechanisms.levels import LevelsMean
from croupier.accountant.mechanisms.onebit import OneBitMean
from croupier.accountant.mechanisms.pgr import ProjectiveResponse
from croupier.accountant.release import SettledConditions
from croupier.protocol.hop_noise import HopNoise


def error(k: int, budgets: Budgets, noise: HopNoise | None) -> float:
    fakes = SettledConditions(hop_noise=noise).fakes(LevelsMean(k))
    return standard_error(budgets, LevelsMean(k), fakes.variance)


@pytest.mark.parametrize("noise", [None, HopNoise(1.0, 1e-6), HopNoise(0.1, 1e-6)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 7.0])
def test_the_chosen_levels_have_the_least_error_of_all(epsilon: float, noise: HopNoise | None) -> None:
    for budgets in (Budgets.from_tiers([(epsilon, 3000)]), Budgets.from_tiers([(epsilon / 2, 900), (epsilon, 300)])):
        best = Mean().best(budgets, SettledConditions(hop_noise=noise)).k
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


def levels_of(planned: Plan | ErrorPlan) -> int:
    chosen = randomizer_from_name(planned.certificate.randomizer)
    assert isinstance(chosen, LevelsMean)
    return chosen.k


def test_a_plan_for_a_mean_chooses_the_levels_and_says_how_many() -> None:
    """For given budgets, and where the budgets themselves are looked for."""
    budgets = Budgets.from_tiers([(4.0, 2000)])
    planned = plan("mean", budgets=budgets)
    assert planned.chosen == planned.certificate.randomizer == "levels(k=5)"
    assert levels_of(planned) == Mean().best(budgets, SettledConditions()).k
    assert "levels(k=5)" in str(planned)
    noisy = plan("levels", num_users=2000, epsilon=1.0, hop_noise=(0.5, 1e-6))
    assert levels_of(noisy) > 2
    assert noisy.certificate.epsilon <= 1.0
    for k in (2, levels_of(noisy) + 3):
        other = plan(f"levels(k={k})", num_users=2000, epsilon=1.0, hop_noise=(0.5, 1e-6))
        assert other.standard_error is not None
        assert noisy.standard_error is not None
        assert noisy.standard_error <= other.standard_error
    with pytest.raises(ValueError, match="k"):
        plan("levels(k=1)", budgets=budgets)


@pytest.mark.parametrize(
    ("k", "epsilon", "name"),
    [
        (1024, 0.5, "pgr(k=1024, q=3)"),
        (1024, 1.0, "pgr(k=1024, q=3)"),
        (1024, 2.5, "pgr(k=1024, q=13)"),
        (1024, 8.0, "krr(k=1024)"),
        (5, 3.0, "krr(k=5)"),
        (3, 0.5, "krr(k=3)"),
        (60_000, 1.0, "pgr(k=60000, q=3)"),
    ],
)
def test_the_choice_has_the_least_error(k: int, epsilon: float, name: str) -> None:
    budgets = Budgets.from_tiers([(epsilon, 1_000)])
    chosen = Categories(k).best(budgets, SettledConditions())
    assert chosen.name == name
    others = [KaryRandomizedResponse(k), *([ProjectiveResponse(k, q) for q in (2, 3, 5)] if k > 6 else [])]
    assert standard_error(budgets, chosen) == min(standard_error(budgets, mechanism) for mechanism in (chosen, *others))


def test_hops_add_less_to_krr() -> None:
    budgets = Budgets.from_tiers([(4.5, 1_000)])
    assert Categories(300).best(budgets, SettledConditions()).kind == "pgr"
    assert Categories(300).best(budgets, SettledConditions(hop_noise=(0.1, 1e-6))).kind == "krr"


@pytest.mark.slow
def test_a_plan_names_what_it_chose() -> None:
    """For given budgets pgr has the smaller error; for a given central epsilon krr has, with far larger budgets."""
    given = plan("categories(k=200)", budgets=Budgets.from_tiers([(1.0, 5_000)]))
    assert given.certificate.randomizer == given.chosen == "pgr(k=200, q=3)"
    assert given.chosen in str(given)
    sought = plan("categories(k=200)", num_users=5_000, epsilon=0.2)
    assert sought.certificate.epsilon <= 0.2
    assert sought.standard_error is not None
    for other in ("krr(k=200)", "pgr(k=200, q=3)", "pgr(k=200, q=13)"):
        error = plan(other, num_users=5_000, epsilon=0.2).standard_error
        assert error is not None
        assert sought.standard_error <= error * 1.001


@pytest.mark.slow
@pytest.mark.parametrize(("people", "epsilon"), [(1_000, 0.1), (1_000, 1.0), (10_000, 0.5)])
def test_at_the_same_certified_epsilon_the_chosen_levels_have_the_least_error(people: int, epsilon: float) -> None:
    chosen = plan("mean", num_users=people, epsilon=epsilon)
    assert chosen.certificate.epsilon <= epsilon
    assert chosen.standard_error is not None
    for other in ("onebit", "laplace"):
        error = plan(other, num_users=people, epsilon=epsilon).standard_error
        assert error is not None
        assert chosen.standard_error <= error * 1.001


@pytest.mark.slow
def test_a_margin_of_error_of_a_mean_takes_no_more_people_than_with_two_levels() -> None:
    chosen, two = (plan_for_error(name, 0.01, epsilon=1.0) for name in ("mean", "onebit"))
    assert chosen.certificate.epsilon <= 1.0
    assert chosen.budgets.num_users <= two.budgets.num_users
    assert chosen.certificate.lower_bound is not None
