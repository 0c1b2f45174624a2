"""The certificates of randomised response: vectors, brute force, 50-digit sums, monotonicity, trust in the others."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    Grade,
    HemisphereMechanism,
    KaryRandomizedResponse,
    OneBitMean,
    Randomizer,
)
from croupier.protocol.codes import Method
from tests.support.accounting import certify_without_attack as certify
from tests.support.oracles.from_definitions import VECTORS, blanket_delta, worst_delta
from tests.support.statements import codes

ROUNDING = 1e-14
"""The rounding of the brute force, which adds a few hundred doubles below 1."""
ON_LATTICE = 2e-3
"""By how much the losses of k >= 3 values may be above the truth with a handful of users: they are put on a lattice."""


def tier_delta(budgets: list[float], victim: int, randomizer: Randomizer, epsilon: float, dishonest: int = 0) -> float:
    certificate = certify(budgets, randomizer, epsilon=epsilon, dishonest=dishonest)
    return next(t.delta for t in certificate.tiers if t.local_epsilon == budgets[victim])


def of_blanket(k: int) -> Randomizer:
    """Points of a sphere have the blanket bound of bits, and never the exact worst case that few bits have."""
    return HemisphereMechanism() if k == 2 else KaryRandomizedResponse(k)


def randomizer_of(row: dict[str, Any]) -> Randomizer:
    return BinaryRandomizedResponse() if row["mechanism"] == "rr" else KaryRandomizedResponse(row["k"])


@pytest.mark.parametrize("row", VECTORS["delta_small"], ids=lambda row: f"{row['k']}-{row['victim']}-{row['epsilon']}")
def test_delta_agrees_with_the_vectors_and_is_never_below(row: dict[str, Any]) -> None:
    expected = float(row["delta"])
    delta = tier_delta(row["budgets"], row["victim"], of_blanket(row["k"]), row["epsilon"])
    assert delta >= expected * (1 - 5e-12)  # the vector itself is rounded to 12 digits
    assert delta <= expected * (1 + (3e-11 if row["k"] == 2 else ON_LATTICE))


@pytest.mark.parametrize("row", VECTORS["epsilon_large"], ids=str)
def test_epsilon_agrees_with_the_vectors(row: dict[str, Any]) -> None:
    budgets = Budgets.from_tiers([(epsilon, count) for count, epsilon in row["tiers"]])
    certificate = certify(budgets, of_blanket(row.get("k", 2)), delta=row["delta"], bounds="blanket")
    certified = next(t.epsilon for t in certificate.tiers if t.local_epsilon == row["victim_epsilon"])
    digits = 10.0 ** -row["digits"] if "digits" in row else 0.0
    assert certified == pytest.approx(row["epsilon"], rel=1e-3 + digits)
    # A vector with digits is rounded to them, also upwards: 0.0569 for an attack that reaches 0.0568735.
    attack = row.get("attack", 0.0) * (1 - digits)
    assert certified >= attack
    best = certify(budgets, randomizer_of(row), delta=row["delta"])
    assert attack <= best.epsilon <= certificate.epsilon * (1 + 1e-5)
    assert certificate.grade is Grade.CERTIFIED
    assert certificate.epsilon == max(t.epsilon for t in certificate.tiers)


@pytest.mark.parametrize("row", VECTORS["brute_force_worst"], ids=str)
def test_delta_is_never_below_the_brute_force_vectors(row: dict[str, Any]) -> None:
    delta = tier_delta(row["budgets"], row["victim"], randomizer_of(row), row["epsilon"])
    assert delta >= row["delta_exact_worst"] * (1 - 1e-12)
    if row["k"] >= 3 and row["attained_by_others"] and set(row["attained_by_others"]) <= {2, 3}:
        assert delta <= row["delta_exact_worst"] * (1 + ON_LATTICE) or row["k"] == 4


@given(
    budgets=st.lists(st.sampled_from([0.01, 0.3, 1.0, 2.5, 10.0]), min_size=2, max_size=4),
    k=st.integers(2, 3),
    epsilon=st.sampled_from([0.0, 0.005, 0.2, 1.0, 4.0]),
)
@settings(max_examples=40, deadline=None)
def test_delta_is_never_below_the_worst_data_set(budgets: list[float], k: int, epsilon: float) -> None:
    for victim in range(len(budgets)):
        delta = tier_delta(budgets, victim, KaryRandomizedResponse(k), epsilon)
        assert delta >= worst_delta(budgets, victim, k, epsilon) - ROUNDING


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("budgets", [[0.3] * 9, [5.0, 0.01, 0.01, 2.0, 2.0, 1.0, 7.0, 0.4], [10.0, 10.0, 1e-6]])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.3, 1.2])
def test_delta_agrees_with_fifty_digit_arithmetic(k: int, budgets: list[float], epsilon: float) -> None:
    for victim in {0, len(budgets) - 1}:
        exact = float(blanket_delta(budgets, victim, k, epsilon))
        delta = tier_delta(budgets, victim, of_blanket(k), epsilon)
        assert exact <= delta <= exact * (1 + (3e-11 if k == 2 else ON_LATTICE))


@given(
    st.floats(0.05, 3.0), st.integers(2, 400), st.sampled_from([2, 3, 10]), st.sampled_from([1e-2, 1e-5, 1e-9, 1e-15])
)
@settings(max_examples=40, deadline=None)
def test_the_epsilon_found_has_the_delta_asked_for(local: float, n: int, k: int, delta: float) -> None:
    randomizer = KaryRandomizedResponse(k)
    certificate = certify(Budgets.from_tiers([(local, n)]), randomizer, delta=delta, bounds="blanket")
    assert certificate.epsilon <= local
    back = certify(Budgets.from_tiers([(local, n)]), randomizer, epsilon=certificate.epsilon, bounds="blanket")
    assert back.delta <= delta * (1 + (1e-9 if k == 2 else 1e-5))  # the cut of the blanket count differs


@pytest.mark.parametrize("randomizer", [BinaryRandomizedResponse(), KaryRandomizedResponse(5)])
def test_epsilon_is_monotone_in_everything(randomizer: Randomizer) -> None:
    def epsilon(tiers: list[tuple[float, int]], delta: float = 1e-5, dishonest: int = 0) -> float:
        return certify(Budgets.from_tiers(tiers), randomizer, delta=delta, dishonest=dishonest).epsilon

    def non_increasing(values: list[float]) -> bool:
        return all(later <= earlier * (1 + 5e-6) for earlier, later in itertools.pairwise(values))

    assert non_increasing([epsilon([(1.0, n)]) for n in (5, 10, 50, 51, 52, 500, 5000, 50_000)])
    assert non_increasing([epsilon([(v, 300)]) for v in (3.0, 2.0, 1.0, 0.5, 0.1, 0.01)])
    assert non_increasing([epsilon([(1.0, 300)], delta) for delta in (1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1)])
    assert non_increasing([epsilon([(1.0, 300)], dishonest=f) for f in (299, 298, 250, 100, 10, 1, 0)])


@pytest.mark.parametrize("dishonest", [4, 5, 100])
def test_without_honest_others_the_local_budget_is_certified(dishonest: int) -> None:
    certificate = certify([1.0, 0.5, 0.2, 2.0, 1.0], "rr", delta=1e-6, dishonest=dishonest)
    assert [tier.epsilon for tier in certificate.tiers] == [tier.local_epsilon for tier in certificate.tiers]
    assert codes(certificate.method) == [Method.LOCAL_BUDGET]
    assert certify([0.7], "rr", delta=0.01).epsilon == 0.7


def test_dishonest_clients_are_those_that_hide_the_victim_best() -> None:
    with_help = [0.1, 0.1, 1.0, 1.0, 2.0]
    assert tier_delta(with_help, 4, HemisphereMechanism(), 0.5, dishonest=2) == pytest.approx(
        tier_delta([1.0, 1.0, 2.0], 2, HemisphereMechanism(), 0.5), rel=1e-12
    )


def test_stratified_linkage_hides_a_user_only_in_its_own_tier() -> None:
    budgets = Budgets.from_tiers([(0.5, 50), (1.0, 200), (3.0, 1)])
    certificate = certify(budgets, "rr", delta=1e-4, linkage="stratified")
    for tier in certificate.tiers:
        alone = certify(Budgets.from_tiers([(tier.local_epsilon, tier.count)]), "rr", delta=1e-4)
        assert tier.epsilon == pytest.approx(alone.epsilon, rel=1e-5)
    assert certificate.epsilon == 3.0


@pytest.mark.parametrize("alone", [1, 2, 6])
def test_a_user_of_a_small_stratum_finds_its_own_certificate(alone: int) -> None:
    """With more strata than are amplified, the strata without amplification lie between the others."""
    large = [(0.5 + 0.05 * step, 50) for step in range(64)]
    small = [(0.48 + 0.65 * step, 1) for step in range(alone)]
    certificate = certify(Budgets.from_tiers([*large, *small]), "rr", delta=1e-4, linkage="stratified", attack=False)
    assert sum(tier.count for tier in certificate.tiers) == certificate.num_users
    for local, count in [*large, *small]:
        epsilon = certificate.tier_of(local).epsilon
        assert epsilon < local if count > 1 else epsilon >= local


def test_of_users_with_one_epsilon_the_one_that_shows_most_is_shown() -> None:
    tiers = [(1.0, 60, 1e-9), (1.0, 60, 1e-2)]
    certificate = certify(Budgets.from_tiers(tiers), "gaussian", delta=1e-3, attack=False)
    assert certificate.tiers[0].epsilon < certificate.tiers[1].epsilon
    assert certificate.tier_of(1.0) == certificate.tiers[1]


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", [BinaryRandomizedResponse(), KaryRandomizedResponse(4)])
def test_arbitrary_budgets_are_reported_in_close_groups(randomizer: Randomizer) -> None:
    rng = np.random.default_rng(7)
    values = np.round(rng.uniform(0.8, 2.0, 1000), 9)
    values[0] = 2.0
    grouped = certify(Budgets.from_epsilons(values), randomizer, delta=1e-6)
    assert len(grouped.tiers) <= 8
    assert sum(t.count for t in grouped.tiers) == 1000
    # The same multiset on a grid coarse enough to be answered tier by tier, rounded up: an independent upper bound.
    coarse = certify(Budgets.from_epsilons(np.ceil(values * 15) / 15), randomizer, delta=1e-6)
    fine = certify(Budgets.from_epsilons(np.maximum(np.floor(values * 15) / 15, 0.1)), randomizer, delta=1e-6)
    assert fine.epsilon <= grouped.epsilon <= coarse.epsilon


def test_one_bit_mean_is_binary_randomised_response() -> None:
    budgets = [0.5, 1.0, 1.0, 2.0]
    assert certify(budgets, OneBitMean(), delta=0.01).epsilon == certify(budgets, "rr", delta=0.01).epsilon


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "exactly one"),
        ({"delta": 0.1, "epsilon": 1.0}, "exactly one"),
        ({"epsilon": -0.1}, ">= 0"),
        ({"delta": 0.1, "dishonest": 1.5}, "integer"),
        ({"delta": 0.1, "rounds": 0}, ">= 1"),
        ({"delta": 0.1, "linkage": "none"}, "'separate' or 'stratified'"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        certify([1.0, 1.0], "rr", **arguments)


@pytest.mark.parametrize("randomizer", [HemisphereMechanism(), KaryRandomizedResponse(200)], ids=str)
def test_budgets_near_the_limit_of_floats_keep_their_last_threshold(randomizer: Randomizer) -> None:
    """Found by attacking: a threshold whose slope was within an ulp of 1 passed the last count, and delta was 0."""
    local, epsilon = 27.687, 27.68694
    certified = certify([local] * 65, randomizer, epsilon=epsilon).delta
    # Everybody else tells the truth with certainty 1 - 1e-12 and holds the other value: the victim's report is seen.
    seen = -math.expm1(epsilon - local) * 0.999
    assert certified >= seen > 5e-5


def test_the_worst_case_is_found_for_more_users() -> None:
    certificate = certify([2.0] * 3000, "rr", delta=1e-6, attack=True)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= certificate.lower_bound.epsilon * 1.002
    assert certificate.epsilon < 0.9 * certify([2.0] * 3000, "rr", delta=1e-6, bounds="blanket").epsilon
