"""Which mechanism a plan chooses for many categories: the one with the least error."""

from __future__ import annotations

import pytest

from croupier.accountant import plan
from croupier.accountant.budgets import Budgets
from croupier.accountant.category_choice import best_of_categories
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.krr import KaryRandomizedResponse
from croupier.accountant.mechanisms.pgr import ProjectiveResponse
from croupier.accountant.release import SettledConditions


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
    chosen = best_of_categories(k, budgets)
    assert chosen.name == name
    others = [KaryRandomizedResponse(k), *([ProjectiveResponse(k, q) for q in (2, 3, 5)] if k > 6 else [])]
    assert standard_error(budgets, chosen) == min(standard_error(budgets, mechanism) for mechanism in (chosen, *others))


def test_hops_add_less_to_krr() -> None:
    budgets = Budgets.from_tiers([(4.5, 1_000)])
    assert best_of_categories(300, budgets).kind == "pgr"
    assert best_of_categories(300, budgets, SettledConditions(hop_noise=(0.1, 1e-6))).kind == "krr"


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
