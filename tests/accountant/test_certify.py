"""Properties of the certificate: never below brute force, monotone, never above the local budget, clear errors."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant import (
    BinaryRandomizedResponse,
    Budgets,
    KaryRandomizedResponse,
    LaplaceMechanism,
    OneBitMean,
    Randomizer,
    Tier,
    certify,
    read_budgets_csv,
)
from accountant.binomial import fair_tail, fair_tails, window
from accountant.blanket import blanket_count, remove_largest
from accountant.certify import _Victim

EPSILONS = st.floats(0.01, 10.0)


def exact_worst(budgets: list[float], victim: int, k: int, epsilon: float) -> float:
    """Returns the true δ(ε) of k-RR by enumerating the histogram laws over all values of all users."""
    others = [budget for index, budget in enumerate(budgets) if index != victim]

    def law(budget: float, letter: int) -> dict[tuple[int, ...], float]:
        z = math.exp(budget) + k - 1
        one = {j: tuple(int(i == j) for i in range(k)) for j in range(k)}
        return {one[j]: (math.exp(budget) if j == letter else 1.0) / z for j in range(k)}

    def add(a: dict[tuple[int, ...], float], b: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
        total: dict[tuple[int, ...], float] = {}
        for (x, p), (y, q) in itertools.product(a.items(), b.items()):
            key = tuple(i + j for i, j in zip(x, y, strict=True))
            total[key] = total.get(key, 0.0) + p * q
        return total

    worst = 0.0
    for values in itertools.product(range(k), repeat=len(others)):
        rest: dict[tuple[int, ...], float] = {(0,) * k: 1.0}
        for budget, value in zip(others, values, strict=True):
            rest = add(rest, law(budget, value))
        p0, p1 = add(rest, law(budgets[victim], 0)), add(rest, law(budgets[victim], 1))
        worst = max(worst, sum(max(0.0, p - math.exp(epsilon) * p1[key]) for key, p in p0.items()))
    return worst


@given(st.lists(EPSILONS, min_size=1, max_size=4), st.integers(2, 3), st.floats(0.0, 3.0))
@settings(max_examples=60, deadline=None)
def test_never_below_brute_force_over_all_data_sets(budgets: list[float], k: int, epsilon: float) -> None:
    certified = certify(budgets, KaryRandomizedResponse(k), epsilon=epsilon).delta
    exact = max(exact_worst(budgets, victim, k, epsilon) for victim in range(len(budgets)))
    assert certified >= exact * (1 - 1e-12) - 1e-15


@given(st.lists(EPSILONS, min_size=2, max_size=12), st.sampled_from([1e-9, 1e-6, 1e-3, 0.1]), st.integers(0, 13))
@settings(max_examples=60, deadline=None)
def test_epsilon_is_monotone_and_at_most_local(budgets: list[float], delta: float, dishonest: int) -> None:
    randomizer = BinaryRandomizedResponse()
    base = certify(budgets, randomizer, delta=delta, dishonest=dishonest)
    tolerance = 1 + 1e-5
    assert base.epsilon <= max(budgets) == base.everyone_else_colludes.epsilon
    assert all(tier.epsilon <= tier.local_epsilon for tier in base.tiers)
    assert certify(budgets, randomizer, delta=delta, dishonest=dishonest + 1).epsilon * tolerance >= base.epsilon
    assert certify(budgets, randomizer, delta=delta * 2, dishonest=dishonest).epsilon <= base.epsilon * tolerance
    more = certify([*budgets, min(budgets)], randomizer, delta=delta, dishonest=dishonest)
    assert more.epsilon <= base.epsilon * tolerance
    back = certify(budgets, randomizer, epsilon=base.epsilon, dishonest=dishonest)
    assert back.delta <= delta * (1 + 1e-9)


def test_nobody_hides_the_last_honest_user() -> None:
    """With f ≥ n − 1 the certificate is what one report gives away: (ε_0, 0), or less at δ > 0."""
    alone = certify([1.0] * 50, BinaryRandomizedResponse(), delta=1e-9, dishonest=49)
    assert alone.epsilon == pytest.approx(1.0, rel=1e-6)
    single = certify([1.0], BinaryRandomizedResponse(), epsilon=0.2)
    keep, flip = math.e / (1 + math.e), 1 / (1 + math.e)
    assert single.delta == pytest.approx(keep - math.exp(0.2) * flip, rel=1e-9)


@pytest.mark.parametrize("randomizer", [BinaryRandomizedResponse(), KaryRandomizedResponse(4)])
def test_many_tiers_are_bounded_from_above_and_close(randomizer: Randomizer) -> None:
    """Rounding budgets to cells and γ to a grid may only add, and adds little."""
    budgets = np.linspace(0.2, 2.0, 3000).tolist()
    certificate = certify(budgets, randomizer, delta=1e-6)
    gammas = randomizer.gamma(np.array(budgets[:-1]))
    exact = _Victim(
        randomizer, 2.0, blanket_count([(float(gamma), 1) for gamma in gammas], randomizer.buckets_per_sigma)
    ).epsilon(1e-6)
    assert exact * (1 - 1e-6) <= certificate.tiers[-1].epsilon <= exact * 1.02
    assert certificate.num_users == 3000 == len(certificate.tiers)
    assert [tier.epsilon for tier in certificate.tiers] == sorted(tier.epsilon for tier in certificate.tiers)


def test_onebit_is_rr_and_laplace_is_not_amplified() -> None:
    budgets = [0.5] * 100 + [1.0] * 100
    assert (
        certify(budgets, OneBitMean(), delta=1e-6).epsilon
        == certify(budgets, BinaryRandomizedResponse(), delta=1e-6).epsilon
    )
    laplace = certify(budgets, LaplaceMechanism(lattice=100), delta=1e-6)
    assert [tier.epsilon for tier in laplace.tiers] == [0.5, 1.0]
    assert any("no amplification" in assumption for assumption in laplace.assumptions)
    assert certify(budgets, LaplaceMechanism(), epsilon=0.5).delta == pytest.approx(1 - math.exp(-0.5))


def test_the_smallest_delta_is_served_and_smaller_ones_are_refused() -> None:
    tiny = certify([1.0] * 2000, BinaryRandomizedResponse(), delta=1e-15)
    assert certify([1.0] * 2000, BinaryRandomizedResponse(), delta=1e-6).epsilon < tiny.epsilon <= 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "delta is None and epsilon is None"),
        ({"delta": 1e-6, "epsilon": 1.0}, "give exactly one"),
        ({"delta": 1e-16}, "delta is 1e-16; allowed is 1e-15"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": float("nan")}, "delta is nan"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": float("inf")}, "epsilon is inf"),
        ({"delta": 1e-6, "dishonest": -1}, "dishonest is -1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify([1.0, 2.0], BinaryRandomizedResponse(), **arguments)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 21.0, math.nan, math.inf])
def test_bad_budgets_are_named(epsilon: float) -> None:
    with pytest.raises(ValueError, match=f"local epsilon is {epsilon}"):
        certify([1.0, epsilon], BinaryRandomizedResponse(), delta=1e-6)


def test_budgets_are_checked_at_construction() -> None:
    with pytest.raises(ValueError, match="there are no budgets"):
        Budgets.from_epsilons([])
    with pytest.raises(ValueError, match="count is 0"):
        Tier(1.0, 0)
    with pytest.raises(ValueError, match=r"local delta is 0\.1"):
        Tier(1.0, 1, 0.1)
    with pytest.raises(ValueError, match="k is 1"):
        KaryRandomizedResponse(1)
    assert Budgets.from_tiers([(2.0, 1), (1.0, 2), (2.0, 3)]).tiers == (Tier(1.0, 2), Tier(2.0, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eps\n1\n", "no column 'epsilon'; its columns are eps"),
        ("epsilon\n", "has no rows"),
        ("epsilon\nx\n", "line 2: could not convert"),
        ("epsilon,count\n1,0\n", "line 2: count is 0"),
        ("epsilon,count\n1,2\n1,1.5\n", "line 3"),
        ("epsilon,delta\n1,0.5\n", r"local delta is 0\.5"),
    ],
)
def test_bad_budget_files_name_line_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "budgets.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_budgets_csv(path)


def test_dishonest_users_are_those_of_the_largest_weight() -> None:
    assert remove_largest([(0.2, 3), (0.9, 2), (0.5, 1)], 3) == [(0.2, 3)]
    assert remove_largest([(0.2, 3), (0.9, 2)], 1) == [(0.9, 1), (0.2, 3)]
    assert remove_largest([(0.2, 3)], 9) == []


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 30)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_law_of_the_blanket_count(groups: list[tuple[float, int]]) -> None:
    law = blanket_count(groups, 10)
    exact = np.array([1.0])
    for gamma, count in groups:
        for _ in range(count):
            exact = np.convolve(exact, [1 - gamma, gamma])
    dense = np.zeros(len(exact))
    dense[law.m] = law.mass
    assert float(np.abs(dense - exact).sum()) <= law.slack + 1e-10
    assert np.all(dense >= exact * (1 - 1e-12) - law.slack)


def test_bucketing_only_moves_mass_down() -> None:
    groups = [(0.3, 40_000), (0.8, 10_000)]
    fine, coarse = blanket_count(groups, 10_000), blanket_count(groups, 5)
    assert len(coarse.m) < 200 < len(fine.m)
    below_fine = np.array([fine.mass[fine.m <= m].sum() for m in coarse.m])
    below_coarse = np.cumsum(coarse.mass)
    assert np.all(below_coarse >= below_fine - 1e-12)


def test_fair_tails_against_direct_summation() -> None:
    counts = np.arange(0, 400, dtype=np.float64)
    first = np.floor(3 + 0.52 * counts) + 1
    above, without_one, error = fair_tails(counts, first)
    for c, a, got, got_without, bound in zip(counts, first, above, without_one, error, strict=True):
        exact = sum(math.comb(int(c), j) for j in range(int(a), int(c) + 1)) / 2 ** int(c)
        assert abs(got - exact) <= bound + 1e-300
        if c:
            exact = sum(math.comb(int(c) - 1, j) for j in range(int(a) - 1, int(c))) / 2 ** (int(c) - 1)
            assert abs(got_without - exact) <= bound + 1e-300


def test_incomplete_beta_against_mpmath() -> None:
    for trials, successes in ((10, 5), (1000, 600), (100_000, 50_700), (1_000_000, 502_500)):
        with mpmath.workdps(40):
            term = mpmath.binomial(trials, successes) / mpmath.mpf(2) ** trials
            exact = mpmath.mpf(0)
            for j in range(successes, trials + 1):  # the terms fall; stop where they no longer count
                exact += term
                if term < exact * mpmath.mpf(10) ** -25:
                    break
                term *= mpmath.mpf(trials - j) / (j + 1)
        got = float(fair_tail(np.array([float(successes)]), np.array([float(trials)]))[0])
        assert abs(got / float(exact) - 1) < 1e-11
    assert fair_tail(np.array([0.0, 11.0]), np.array([10.0, 10.0])).tolist() == [1.0, 0.0]


def test_windows_hold_all_but_their_stated_mass() -> None:
    counts, mass, lost = window(50_000, 0.01)
    assert counts[0] > 0
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-10)
    assert lost == 1e-22


def test_the_json_has_the_stated_keys() -> None:
    document = certify([1.0] * 50, BinaryRandomizedResponse(), delta=1e-6).to_json()
    assert set(document) == {
        "epsilon", "delta", "grade", "method", "assumptions", "randomizer", "num_users", "dishonest",
        "numerical_slack", "tiers", "everyone_else_colludes", "comparison",
    }  # fmt: skip
    assert set(document["tiers"][0]) == {"local_epsilon", "count", "epsilon"}
    assert set(document["comparison"][0]) == {"name", "epsilon", "grade", "status"}
