"""The certificate against values that were computed independently of this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accountant import (
    BinaryRandomizedResponse,
    Budgets,
    KaryRandomizedResponse,
    Randomizer,
    certify,
)
from accountant.certify import _victims
from accountant.published import gspa_theorem_2

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "accounting.json").read_text()
)


def randomizer_of(vector: dict[str, Any]) -> Randomizer:
    return BinaryRandomizedResponse() if vector["mechanism"] == "rr" else KaryRandomizedResponse(vector["k"])


def delta_of(vector: dict[str, Any]) -> float:
    """Returns our bound for the victim that the vector names."""
    budgets = Budgets.from_epsilons(vector["budgets"])
    tier = [one.local_epsilon for one in budgets.tiers].index(vector["budgets"][vector["victim"]])
    return _victims(randomizer_of(vector), budgets, 0)[tier].delta(vector["epsilon"])[0]


def named(vector: dict[str, Any]) -> str:
    return "-".join(str(vector.get(key, "")) for key in ("mechanism", "k", "victim", "epsilon", "delta"))


@pytest.mark.parametrize("vector", VECTORS["delta_small"], ids=named)
def test_small_deltas_are_exact_and_never_below(vector: dict[str, Any]) -> None:
    exact = float(vector["delta"])
    rounding = 1e-11 * exact  # the vector has 12 digits
    assert exact - rounding <= delta_of(vector) <= exact * (1 + 1e-8)


@pytest.mark.parametrize("vector", VECTORS["epsilon_large"], ids=named)
def test_large_epsilons(vector: dict[str, Any]) -> None:
    budgets = Budgets.from_tiers([(epsilon, count) for count, epsilon in vector["tiers"]])
    certificate = certify(budgets, randomizer_of(vector), delta=vector["delta"])
    (tier,) = [one for one in certificate.tiers if one.local_epsilon == vector["victim_epsilon"]]
    assert tier.epsilon == pytest.approx(vector["epsilon"], rel=1e-3 if "digits" in vector else 5e-4)
    assert tier.epsilon >= vector.get("attack", 0.0)


@pytest.mark.parametrize("vector", VECTORS["brute_force_worst"], ids=named)
def test_never_below_the_exact_worst_case(vector: dict[str, Any]) -> None:
    exact = vector["delta_exact_worst"]
    assert delta_of(vector) >= exact * (1 - 1e-9)
    if vector["k"] >= 3 and not {0, 1} & set(vector["attained_by_others"] or [0]):  # the others all hold a third value
        assert delta_of(vector) == pytest.approx(exact, rel=1e-6)


def test_what_gspa_says_is_what_its_theorem_says() -> None:
    for tiers, says in (
        ([(4.0, 1000)], 1.4494),
        ([(0.1, 9000), (3.0, 1000)], 0.0767),
        ([(2.0, 99), (8.0, 1)], 1.832),
    ):
        bound = gspa_theorem_2(Budgets.from_tiers(tiers), 1e-6)
        assert bound.epsilon == pytest.approx(says, rel=1e-3)
        assert bound.grade == "ASYMPTOTIC"
