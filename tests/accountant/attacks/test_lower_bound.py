"""`lower_bound` is a lower bound: never above brute force or a certificate, and as strong as the known attacks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    GaussianMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    LowerBound,
    Randomizer,
    certify,
)
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.numerics.gaussian import gaussian_delta
from croupier.protocol.calibration import unit_sigma
from tests.support.messages import naming
from tests.support.oracles.from_definitions import VECTORS, worst_delta

Floats = npt.NDArray[np.float64]
Tiers = list[tuple[float, int]]
RR = BinaryRandomizedResponse()


def refuted(case: str) -> dict[str, Any]:
    (row,) = [row for row in VECTORS["refuted_published"] if row["case"].startswith(case)]
    return dict(row)


@pytest.mark.parametrize(
    ("case", "tiers", "randomizer", "delta"),
    [
        ("GSPA Thm 2, rr eps0=4 n=1000", [(4.0, 1000)], RR, 1e-6),
        ("GSPA Thm 2, rr 99 users at 2", [(2.0, 99), (8.0, 1)], RR, 1e-6),
        ("GSPA Thm 2, laplace on [0,1], 9000 at 0.1", [(0.1, 9000), (3.0, 1000)], LaplaceMechanism(), 1e-6),
        pytest.param(
            *("GSPA Thm 2, laplace on [0,1], 999 at 0.01", [(0.01, 999), (8.0, 1)], LaplaceMechanism(), 1e-6),
            marks=pytest.mark.slow,
        ),
        ("PSP authors' code, laplace eps0=4", [(4.0, 1000)], LaplaceMechanism(), 1e-4),
        ("PSP authors' code, laplace eps0=3", [(3.0, 1000)], LaplaceMechanism(), 1e-6),
    ],
)
def test_the_known_refutations_are_reached(case: str, tiers: Tiers, randomizer: Randomizer, delta: float) -> None:
    known = refuted(case)
    attack = lower_bound(Budgets.from_tiers(tiers), randomizer, delta=delta)
    assert attack.epsilon > known["published_epsilon"]
    assert attack.epsilon >= known["attack_epsilon"] * (1 - 1e-5)


@pytest.mark.parametrize("row", [row for row in VECTORS["epsilon_large"] if "attack" in row], ids=str)
def test_the_known_attacks_on_mixed_bits_are_reached(row: dict[str, Any]) -> None:
    budgets = Budgets.from_tiers([(epsilon, count) for count, epsilon in row["tiers"]])
    attack = lower_bound(budgets, RR, delta=row["delta"])
    assert attack.epsilon == pytest.approx(row["attack"], rel=1e-3)
    assert attack.epsilon < row["epsilon"]


@pytest.mark.parametrize(
    ("n", "local", "delta", "figure", "away"),
    [
        # At n = 1000 the count of the third letter's blanket messages is worth 1.5e-4 of epsilon to the certificate.
        (1000, 0.5, 1e-4, 0.016856, 2e-4),
        (10_000, 0.5, 1e-4, 0.003977, 1e-4),
        (10_000, 1.0, 1e-6, 0.023253, 1e-4),
        (100_000, 4.0, 1e-6, 0.109909, 1e-4),
    ],
)
def test_ten_categories_meet_the_certificate(n: int, local: float, delta: float, figure: float, away: float) -> None:
    randomizer, budgets = KaryRandomizedResponse(10), Budgets.from_tiers([(local, n)])
    attack = lower_bound(budgets, randomizer, delta=delta)
    assert attack.epsilon == pytest.approx(figure, rel=away)
    assert attack.epsilon <= certify(budgets, randomizer, delta=delta, attack=False).epsilon


@pytest.mark.parametrize("row", [row for row in VECTORS["laplace_large"] if "epsilon" in row], ids=str)
def test_laplace_attacks_stay_below_the_proved_values(row: dict[str, Any]) -> None:
    budgets = Budgets.from_tiers([(epsilon, count) for count, epsilon in row["tiers"]])
    attack = lower_bound(budgets, LaplaceMechanism(), delta=row["delta"])
    assert 0.7 * row["epsilon"] < attack.epsilon < row["epsilon"]


@pytest.mark.parametrize("row", [row for row in VECTORS["laplace_large"] if "epsilon_at_most" in row], ids=str)
def test_laplace_attacks_on_mixed_budgets(row: dict[str, Any]) -> None:
    budgets = Budgets.from_tiers([(epsilon, count) for count, epsilon in row["tiers"]])
    attack = lower_bound(budgets, LaplaceMechanism(), delta=row["delta"])
    assert row.get("attack", 0.0) <= attack.epsilon < row["epsilon_at_most"]


budgets_of_few = st.lists(st.floats(0.05, 5.0).map(lambda x: round(x, 3)), min_size=1, max_size=4)


def exact_worst(budgets: list[float], k: int, epsilon: float) -> float:
    return max(worst_delta(budgets, victim, k, epsilon) for victim in range(len(budgets)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(budgets=budgets_of_few, epsilon=st.floats(0.0, 3.0))
def test_bits_of_few_users_are_attacked_exactly(budgets: list[float], epsilon: float) -> None:
    """With all splits and both directions the attack is the truth, for every victim."""
    for local in set(budgets):
        attack = lower_bound(budgets, RR, victim=local, epsilon=epsilon)
        exact = worst_delta(budgets, budgets.index(local), 2, epsilon)
        assert exact - 1e-11 <= attack.delta <= exact + 1e-14


@settings(max_examples=15, deadline=None)
@given(budgets=budgets_of_few, epsilon=st.floats(0.0, 3.0), k=st.integers(3, 4))
def test_categories_of_few_users_are_never_overstated(budgets: list[float], epsilon: float, k: int) -> None:
    attack = lower_bound(budgets, KaryRandomizedResponse(k), epsilon=epsilon)
    exact = exact_worst(budgets, k, epsilon)
    assert 0.9 * exact - 1e-12 <= attack.delta <= exact + 1e-14


@settings(max_examples=15, deadline=None)
@given(budgets=budgets_of_few, delta=st.floats(1e-9, 0.3), k=st.integers(2, 4))
def test_no_smaller_epsilon_can_be_true(budgets: list[float], delta: float, k: int) -> None:
    """At the epsilon of the bound the exact delta still is at least the one that was asked for."""
    attack = lower_bound(budgets, KaryRandomizedResponse(k), delta=delta)
    if attack.epsilon > 0:
        assert exact_worst(budgets, k, attack.epsilon) >= delta * (1 - 1e-12)


@pytest.mark.parametrize("row", VECTORS["brute_force_worst"], ids=str)
def test_the_worst_cases_of_the_vectors(row: dict[str, Any]) -> None:
    budgets, k = row["budgets"], row["k"]
    attack = lower_bound(budgets, KaryRandomizedResponse(k), victim=budgets[row["victim"]], epsilon=row["epsilon"])
    exact = float(row["delta_exact_worst"])
    assert attack.delta <= exact * (1 + 1e-9)
    # All splits of bits are searched; of letters only the first placements.
    assert attack.delta >= exact * (1 - 1e-9 if k == 2 else 0.98)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
def test_many_different_budgets_are_close_to_the_certificate(delta: float) -> None:
    epsilons = np.random.default_rng(0).uniform(0.2, 2.0, 20_000)
    randomizer = KaryRandomizedResponse(6)
    attack = lower_bound(epsilons, randomizer, delta=delta)
    certificate = certify(epsilons, randomizer, delta=delta, attack=False)
    assert 0.99 * certificate.epsilon < attack.epsilon <= certificate.epsilon


@pytest.mark.parametrize("lattice", [1, 2])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_two_noisy_users_against_every_event(kind: str, lattice: int) -> None:
    """Lattice noise, two users: the divergence of the pair of reports, multiplied out, is never exceeded."""
    points = np.arange(-40 * lattice, 41 * lattice + 1)
    budgets, deltas = (0.7, 1.5), (1e-3, 1e-3)

    def law(user: int, at: float) -> Floats:
        distance = np.abs(points / lattice - at)
        if kind == "laplace":
            mass = np.exp(-budgets[user] * distance)
        else:
            mass = np.exp(-((distance / unit_sigma(budgets[user], deltas[user])) ** 2) / 2)
        return np.asarray(mass / mass.sum())

    randomizer = LaplaceMechanism(lattice) if kind == "laplace" else GaussianMechanism(lattice)
    for epsilon in (0.1, 0.6):
        worst = 0.0
        for at in range(lattice + 1):
            other = law(0, at / lattice)
            p, q = (np.outer(other, law(1, x)) for x in (0.0, 1.0))
            p, q = ((table + table.T) / 2 for table in (p, q))
            worst = max(worst, *(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p))))
        rows = [(budget, 1, delta) for budget, delta in zip(budgets, deltas, strict=True)]
        attack = lower_bound(Budgets.from_tiers(rows), randomizer, victim=1.5, epsilon=epsilon)
        assert 0.6 * worst < attack.delta <= worst


def test_a_single_gaussian_user_has_its_own_mechanism() -> None:
    """Without others there is no amplification: the attack's delta is the Gaussian mechanism's, nearly."""
    budgets = Budgets.from_tiers([(1.0, 1, 1e-5)])
    exact = gaussian_delta(1 / unit_sigma(1.0, 1e-5), 0.2)
    attack = lower_bound(budgets, GaussianMechanism(), epsilon=0.2)
    assert 0.9 * exact < attack.delta <= exact * (1 + 1e-9)


def test_in_high_dimension_the_other_tiers_do_not_help() -> None:
    """Ten users of a small noise among 1000 of a large one: seen apart, they hide only behind each other."""
    rows = [(1.0, 1000, 1e-6), (4.0, 10, 1e-6)]
    line = lower_bound(Budgets.from_tiers(rows), GaussianMechanism(), delta=1e-5)
    space = lower_bound(Budgets.from_tiers(rows), GaussianMechanism(dimension=10_000), delta=1e-5)
    alone = lower_bound(Budgets.from_tiers(rows[1:]), GaussianMechanism(), delta=1e-5)
    assert line.epsilon < 0.2
    assert space.epsilon > 4 * line.epsilon
    assert space.epsilon < 1.05 * alone.epsilon


def test_stronger_with_dishonest_users_and_with_visible_tiers() -> None:
    budgets = Budgets.from_tiers([(0.5, 500), (2.0, 100)])
    plain = lower_bound(budgets, RR, delta=1e-6)
    attack = lower_bound(budgets, RR, delta=1e-6, dishonest=300)
    all_but_one = lower_bound(budgets, RR, delta=1e-6, dishonest=599)
    tiers = lower_bound(budgets, RR, delta=1e-6, linkage="stratified")
    assert plain.epsilon < attack.epsilon < tiers.epsilon < all_but_one.epsilon <= 2.0
    assert all_but_one.epsilon == pytest.approx(2.0, abs=1e-5)
    assert tiers.epsilon == lower_bound(Budgets.from_tiers([(2.0, 100)]), RR, delta=1e-6).epsilon


def test_a_search_only_gets_better_and_reports() -> None:
    budgets = Budgets.from_tiers([(0.5, 60), (2.0, 30)])
    heard: list[tuple[LowerBound, int]] = []
    quick = lower_bound(budgets, LaplaceMechanism(), delta=1e-4)
    long = lower_bound(
        budgets, LaplaceMechanism(), delta=1e-4, seconds=0.4, progress=lambda best, tried: heard.append((best, tried))
    )
    assert long.epsilon >= quick.epsilon
    assert [tried for _, tried in heard] == list(range(1, len(heard) + 1))
    assert all(victim_attack.epsilon <= other.epsilon for (victim_attack, _), (other, _) in itertools.pairwise(heard))
    assert heard[-1][0] == long


def test_a_search_over_few_splits_ends_before_its_time() -> None:
    attack = lower_bound([1.0, 2.0, 3.0], RR, epsilon=0.5, seconds=60)
    assert attack.delta == pytest.approx(exact_worst([1.0, 2.0, 3.0], 2, 0.5), rel=1e-9)


@pytest.mark.slow
def test_the_attack_is_described() -> None:
    assert lower_bound([4.0] * 1000, RR, delta=1e-6).attack == (
        "victim of local ε 4 among 999 whose bits are all 0; count of ones < 4"
    )
    attack = lower_bound(Budgets.from_tiers([(0.01, 999), (8.0, 1)]), LaplaceMechanism(), delta=1e-6)
    assert attack.attack.startswith("victim of local ε 8 among 999 all at 1, moving between 0 and 1; count of reports")


@pytest.mark.parametrize("randomizer", [RR, KaryRandomizedResponse(3)], ids=str)
def test_nothing_is_shown_where_e_to_the_epsilon_is_no_float(randomizer: Randomizer) -> None:
    assert lower_bound(Budgets.from_tiers([(500.0, 3)]), randomizer, epsilon=1000.0).delta == 0


def test_where_nothing_can_be_shown_the_bound_is_zero() -> None:
    attack = lower_bound([0.01] * 1000, RR, delta=0.5)
    assert (attack.epsilon, attack.delta) == (0.0, 0.5)
    assert "no event" in attack.attack
    assert lower_bound([1.0] * 10, RR, epsilon=1.0).delta == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"delta": 1e-6, "epsilon": 0.1}, "exactly one"),
        ({"delta": 0.0}, "0 < delta < 1"),
        ({"epsilon": -1.0}, "finite number >= 0"),
        ({"delta": 0.1, "dishonest": -1}, "integer >= 0"),
        ({"delta": 0.1, "linkage": "none"}, "'separate' or 'stratified'"),
        ({"delta": 0.1, "seconds": -1.0}, "seconds"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lower_bound([1.0] * 3, RR, **arguments)


def test_unknown_tiers_and_noise_without_a_delta_are_refused() -> None:
    with pytest.raises(ValueError, match=naming("victim", 2)):
        lower_bound([1.0] * 3, RR, victim=2, delta=0.1)
    with pytest.raises(ValueError, match="local_delta is 0"):
        lower_bound([1.0] * 3, GaussianMechanism(), delta=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "randomizer"),
    [
        ([(4.0, 1000)], LaplaceMechanism()),
        ([(0.1, 900), (3.0, 100)], LaplaceMechanism(16)),
        ([(5.1, 82, 1e-4), (0.5, 1, 1e-6)], GaussianMechanism()),
        ([(4.0, 1000)], RR),
        ([(1.0, 500), (2.0, 30)], KaryRandomizedResponse(5)),
    ],
    ids=str,
)
def test_epsilon_at_delta_and_delta_at_epsilon_tell_the_same(rows: list[Any], randomizer: Randomizer) -> None:
    budgets = Budgets.from_tiers(rows)
    for delta in (1e-3, 1e-8):
        epsilon = lower_bound(budgets, randomizer, delta=delta).epsilon
        assert epsilon > 0
        assert lower_bound(budgets, randomizer, epsilon=0.99 * epsilon).delta > 0.5 * delta


def test_laplace_attacks_never_pass_the_local_budget() -> None:
    for tiers in ([(0.3, 1)], [(0.3, 1), (12.0, 2)], [(0.01, 50), (30.0, 1)]):
        for delta in (1e-12, 1e-3):
            attack = lower_bound(Budgets.from_tiers(tiers), LaplaceMechanism(), delta=delta)
            assert 0 < attack.epsilon <= tiers[-1][0]
