"""Margins of error: they are half of the analyzer's intervals, and a plan for one is certified and hardly larger."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from croupier import Budgets, margins, plan_for_error
from croupier.accountant.accuracy import halving, people_for_margin
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.analyzer.base import Batch
from croupier.analyzer.estimators import ESTIMATORS
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.rounding import round_down
from tests.support.accounting import certify_without_attack as certify
from tests.support.command_line import answer, croupier, refused
from tests.support.messages import naming

TIERS = [(0.7, 1500), (2.0, 2500)]


def reports_of(mechanism: Mechanism, seed: int) -> list[int]:
    """Reports at the least favourable values: of krr most have the first, else half of the people the first or last."""
    source, reports = np.random.default_rng(seed), list[int]()
    for epsilon, count in TIERS:
        values = source.integers(0, 2, count)
        if isinstance(mechanism, Laplace):
            noise = np.rint(source.laplace(0.0, mechanism.lattice / epsilon, count)).astype(int)
            reports += (values * mechanism.lattice + noise).tolist()
            continue
        k = mechanism.k if isinstance(mechanism, KaryResponse) else 2
        values = (source.random(count) > 0.8).astype(int) if k > 2 else values
        kept = source.random(count) < np.expm1(epsilon) / (np.exp(epsilon) + k - 1)
        reports += np.where(kept, values, source.integers(0, k, count)).tolist()
    return reports


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [("rr", RandomizedResponse()), ("krr(k=5)", KaryResponse(5)), ("onebit", OneBit(0, 1)), ("laplace", Laplace(0, 1))],
)
def test_a_margin_is_half_of_a_published_interval(name: str, mechanism: Mechanism) -> None:
    """The planner's standard error of krr is that of a category that nobody holds, which is too small for a margin."""
    expected = margins(Budgets.from_tiers(TIERS), name)
    result = ESTIMATORS[mechanism.kind].estimate(Batch(mechanism, reports_of(mechanism, 7), TIERS, 0.7))
    for promised, intervals in (
        (expected.participants, result.confidence_intervals),
        (expected.population, result.population_intervals),
    ):
        longest = max((high - low) / 2 for low, high in intervals)
        assert longest == pytest.approx(promised, rel=0.05)
        assert longest < 1.04 * promised  # nothing is promised that is not kept, up to the law of whole numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rr", "krr(k=5)", "laplace"])
def test_the_fewest_people_for_a_margin_and_an_epsilon(name: str) -> None:
    planned = plan_for_error(name, 0.05, epsilon=0.5)
    assert planned.certificate.epsilon <= 0.5
    assert planned.margins == margins(planned.budgets, name)
    assert 0.0495 < planned.margins.population <= 0.05
    (tier,) = planned.budgets.tiers
    fewer = plan_for_error(name, 0.05, num_users=round(0.98 * tier.count))
    assert fewer.certificate.epsilon > 0.5
    again = certify([tier.local_epsilon] * tier.count, name, delta=1e-6)
    assert again.epsilon == pytest.approx(planned.certificate.epsilon)


def test_the_documentation_states_what_the_planner_answers() -> None:
    planned = plan_for_error("rr", 0.05, epsilon=0.5).budgets
    page = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
    local = round_down(float(planned.local_epsilon[0]), 3)
    assert f"± 5 points at ε ≤ 0.5 and δ = 10⁻⁶ that is {planned.num_users:,} people with a local ε of {local}." in page


def test_given_people_or_given_budgets() -> None:
    shape = Budgets.from_tiers(TIERS)
    people = plan_for_error("rr", 0.03, budgets=shape)
    assert people.budgets.local_epsilon.tolist() == [0.7, 2.0]
    assert 0.0299 < people.margins.population <= 0.03
    scaled = plan_for_error("rr", 0.03, budgets=shape, num_users=5000)
    assert scaled.budgets.num_users == 5000
    assert scaled.margins.population == pytest.approx(0.03, rel=1e-4)
    first, second = scaled.budgets.local_epsilon
    assert second / first == pytest.approx(2.0 / 0.7)


def test_half_of_the_error() -> None:
    budgets = Budgets.from_tiers(TIERS)
    whole, better = margins(budgets, "rr"), halving(budgets, "rr")
    assert better.num_users == 4 * budgets.num_users
    assert better.budgets is not None
    assert margins(better.budgets, "rr").participants == pytest.approx(whole.participants / 2, rel=1e-4)
    more = margins(Budgets.from_tiers([(epsilon, 4 * count) for epsilon, count in TIERS]), "rr")
    assert (more.participants, more.population) == pytest.approx((whole.participants / 2, whole.population / 2))
    assert halving(Budgets.from_tiers([(3.0, 100)]), "onebit").budgets is None  # rounding to a bit is noise, too


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 2.0])
def test_half_of_the_error_beside_hop_noise(epsilon: float) -> None:
    """With hop noise fewer than four times as many people are needed, and twice as many where it is all the noise."""
    budgets, fakes = Budgets.from_tiers(TIERS), HopFakes(HopNoise(epsilon, 1e-6), 2, as_randomizer("rr"))
    halved = halving(budgets, "rr", fakes)
    many = Budgets.from_tiers([(tier.local_epsilon, tier.count * 1000) for tier in budgets.tiers])
    assert halving(many, "rr", fakes).num_users == pytest.approx(4 * many.num_users, rel=0.02)
    assert 2 * budgets.num_users < halved.num_users < 4 * budgets.num_users
    more = halved.num_users / budgets.num_users

    def error(budgets_of_error: Budgets, times: float) -> float:
        """By the formula of the standard error, which is not the one that `halving` solves."""
        gain, variance = as_randomizer("rr").signal(budgets_of_error.local_epsilon, budgets_of_error.local_delta)
        clients = times * float(variance @ budgets_of_error.count)
        return math.sqrt(clients + fakes.variance) / (times * float(gain @ budgets_of_error.count))

    assert 0.45 < error(budgets, more) / error(budgets, 1.0) <= 0.5
    if halved.budgets is not None:
        assert halved.budgets.local_epsilon[-1] <= 8.0
        assert error(halved.budgets, 1.0) == pytest.approx(error(budgets, 1.0) / 2, rel=0.05)


def test_half_of_the_error_of_a_vector() -> None:
    halved = halving([1.0] * 100, "hemisphere(d=50)")
    assert halved.num_users == 400
    assert halved.budgets is not None
    once, other = (np.tanh(epsilon / 2) for epsilon in (1.0, float(halved.budgets.local_epsilon[0])))
    assert other == pytest.approx(2 * once, rel=1e-3)
    assert halving([2.0] * 100, "hemisphere(d=50)").budgets is None


def test_what_has_no_answer_says_what_is_possible() -> None:
    with pytest.raises(ValueError, match=naming(300, "0.0566", 385)):
        plan_for_error("rr", 0.05, num_users=300)
    with pytest.raises(ValueError, match=naming("num_users", "epsilon")):
        plan_for_error("rr", 0.05, num_users=300, epsilon=1.0)
    with pytest.raises(ValueError, match=naming("epsilon 0.5")):
        plan_for_error("rr", 0.05)
    with pytest.raises(ValueError, match=naming("share", "number")):
        margins([1.0] * 10, "hemisphere(d=3)")


@pytest.mark.slow
def test_the_command_solves_for_an_error() -> None:
    """Reproduction: 'how many people for ± 5 points at ε ≤ 0.5?' had no command."""
    result = answer("plan", "--error", "0.05", "--epsilon", "0.5", "--groups", "4")
    assert result["num_users_of_all_groups"] == 4 * result["num_users"] == 4 * result["certificate"]["num_users"]
    assert result["margins"]["population"] <= 0.05
    assert result["certificate"]["epsilon"] <= 0.5 < result["halving"]["epsilon"]
    text = " ".join(croupier("plan", "--error", "0.05", "--epsilon", "0.5", "--groups", "4").stdout.split())
    assert f"{result['num_users']:,} people in each of 4 groups" in text
    assert "± 5 points for the population" in text
    mean = answer("plan", "--error", "2", "--low", "0", "--high", "40", "--users", "2000")
    assert (mean["randomizer"], round(mean["margins"]["population"], 2)) == ("onebit", 2.0)
    assert answer("plan", "--error", "0.1", "--categories", "5", "--users", "900")["randomizer"] == "krr(k=5)"
    assert re.search(naming("below 20"), refused("plan", "--error", "30", "--low", "0", "--high", "40"))
    assert "--categories is given without --error" in refused("plan", "--categories", "5", "--users", "9")
    assert "--hop-noise is given with --error" in refused(
        "plan", "--error", "0.05", "--epsilon", "0.5", "--hop-noise", "1"
    )


@pytest.mark.parametrize("tiers", [[(1.0, 40)], [(0.5, 30), (4.0, 30)]])
def test_people_for_a_margin_are_enough_and_the_margin_is_checked(tiers: list[tuple[float, int]]) -> None:
    budgets = Budgets.from_tiers(tiers)
    people = people_for_margin(budgets, "rr", 0.25)
    scale = people / budgets.num_users
    assert margins(Budgets.from_tiers([(e, math.ceil(scale * n)) for e, n in tiers]), "rr").participants < 0.25
    assert people_for_margin(budgets, "rr", 0.25, variance_of_fakes=50.0) > people
    for margin in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            people_for_margin(budgets, "rr", margin)
