"""The exchange bound for bits: its proof step by step, its integral, and the whole against what is true."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import assume, given
from hypothesis import strategies as st

from croupier.accountant import Budgets, HemisphereMechanism, certify
from croupier.accountant.bounds.exchange_binary import ExchangeBinaryProfile, exchange_binary_profile
from croupier.accountant.bounds.profile import NoAmplification, Others, Victim
from croupier.accountant.exchange_bits import Grid, Hosts, exchange
from croupier.accountant.kernel import above
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.search import stage_ends
from croupier.protocol.codes import ProofStep
from tests.support.drawn import drawn
from tests.support.oracles.exchange import (
    count_law,
    divergence_of_split,
    exchanged,
    expected_excess,
    law_by_clocks,
    worst_bits,
)
from tests.support.statements import codes, parameters

Tiers = list[tuple[float, int]]


def others_of(tiers: Tiers, victim: float, dishonest: int = 0) -> Others:
    """All users but one of the victim's budget."""
    left = [(e, n - (e == victim)) for e, n in tiers]
    left = [(e, n) for e, n in left if n > 0]
    count = np.array([n for _, n in left], dtype=np.int64)
    return Others(np.array([e for e, _ in left], dtype=np.float64), np.zeros(len(left)), count, dishonest)


def curve_of(tiers: Tiers, victim: float, delta: float | None = 1e-6, dishonest: int = 0) -> ExchangeBinaryProfile:
    curve = exchange_binary_profile(Victim(victim), others_of(tiers, victim, dishonest), delta)
    assert isinstance(curve, ExchangeBinaryProfile)
    return curve


def epsilon_of(tiers: Tiers, victim: float, delta: float = 1e-6, dishonest: int = 0) -> float:
    return smallest_epsilon(curve_of(tiers, victim, delta, dishonest), delta, victim).epsilon


# The proof, step by step.


@pytest.mark.parametrize("values", list(itertools.product((0, 1), repeat=3)))
def test_the_first_clock_takes_no_law_apart(values: tuple[int, ...]) -> None:
    keeps, weights = [0.75, 0.6, 0.9], [0.5, 0.4, 0.1]
    whole = count_law(keeps, values)
    for end in (0.3, 1.2):
        assert np.abs(law_by_clocks(keeps, values, weights, end) - whole).max() < 1e-7


@pytest.mark.parametrize("values", list(itertools.product((0, 1), repeat=3)))
def test_the_likelihood_ratio_is_the_sum_of_the_theorem(values: tuple[int, ...]) -> None:
    keeps, keep = [Fraction(3, 4), Fraction(2, 3), Fraction(9, 10)], Fraction(5, 6)
    weights, gain = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], Fraction(3, 2)
    counts, outcomes = exchanged(keeps, values, weights, keep)
    for own, value in ((0, 1), (1, 0)):
        # Forgetting the slots leaves the hosts but one, a fair bit in its place, and the victim.
        for ones, chances in counts.items():
            parts = [
                float(w)
                * count_law(
                    [0.5 if i == j else float(p) for j, p in enumerate(keeps)] + [float(keep)], [*values, value]
                )
                for i, w in enumerate(weights)
            ]
            assert float(chances[own]) == pytest.approx(sum(part[ones] for part in parts), rel=1e-12)
    for outcome, (under_one, zero, reference) in zip(itertools.product((0, 1), repeat=4), outcomes, strict=True):
        ratio = Fraction(0)
        for p, x, y, weight in zip(keeps, values, outcome, weights, strict=False):
            victims = (keep if y == 1 else 1 - keep) - gain * (keep if y == 0 else 1 - keep)
            ratio += weight * victims / (p if y == x else 1 - p)
        assert under_one - gain * zero == ratio * reference
    truth = sum(max(Fraction(0), a - gain * b) for a, b in counts.values())
    assert truth <= sum(max(Fraction(0), a - gain * b) for a, b, _ in outcomes)


def test_a_group_of_hosts_is_a_mixture_of_its_ends_and_of_what_its_clocks_leave_it() -> None:
    budgets = [(arb(0.5), 30), (arb(1.0), 20), (arb(2.0), 10)]
    hosts = Hosts.of(budgets)
    flips = [(1 / (1 + v.exp()), n) for v, n in budgets]
    for group, rung in ((hosts, arb(0)), (hosts.after(arb(0.125)), arb(0.125))):
        mean = sum(((1 - rung) * part * q + rung * part / 2 for part, q in group.flips), arb(0))
        assert (mean - sum((n * q for q, n in flips), arb(0)) / 60).contains(0)
        assert group.count == 60
    assert all(0 < part < 1 for part, _ in hosts.flips)
    assert len(Hosts.of([(arb(1.0), 4)]).flips) == 1


def test_the_last_stage_ends_at_the_horizon() -> None:
    for horizon, growth in ((0.01, 1e-9), (3.0, 0.2), (35.0, 1e-4), (90.0, 1.0)):
        ends = stage_ends(horizon, growth, 8)
        assert ends[-1] == horizon
        assert len(ends) <= 8
        assert all(earlier < later for earlier, later in itertools.pairwise((0.0, *ends)))


@pytest.mark.parametrize(
    ("tiers", "victim", "epsilon"),
    [
        ([(1.0, 400)], 1.0, 0.12),
        ([(2.0, 300)], 2.0, 0.0),
        ([(0.5, 300), (2.0, 60)], 2.0, 0.3),
        ([(0.2, 50), (1.0, 100), (4.0, 30)], 3.0, 0.5),
    ],
)
def test_the_integral_is_over_estimated_by_about_a_per_cent(tiers: Tiers, victim: float, epsilon: float) -> None:
    curve = curve_of(tiers, victim, delta=1e-4)
    grid = curve.floats.grid(epsilon)
    left = [(e, n - (e == victim)) for e, n in tiers]

    def excess(agreeing: list[int]) -> float:
        data = [(e, m, n - m) for (e, n), m in zip(left, agreeing, strict=True)]
        return expected_excess(data, grid.ends, victim, epsilon, grid.theta, grid.sigma)

    corners = [
        excess([n if agree else 0 for (_, n), agree in zip(left, agrees, strict=True)])
        for agrees in itertools.product((False, True), repeat=len(left))
    ]
    bound = curve.delta(epsilon).value
    assert bound >= max(*corners, excess([n // 2 for _, n in left])) * (1 - 1e-9)
    # The larger factor is taken at every u: at small n and large delta not quite that of a single corner.
    assert bound <= max(corners) * (1.02 if epsilon > 0 else 1.08)


# The whole bound, never below the truth.

LEVELS = [1e-16, 1e-6, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0, 400.0]


@given(
    st.lists(st.sampled_from(LEVELS), min_size=2, max_size=8),
    st.floats(0.0, 0.999),
    st.integers(0, 2),
    st.data(),
)
@drawn(30)
def test_no_data_set_of_a_few_users_is_worse(
    budgets: list[float], share: float, dishonest: int, data: st.DataObject
) -> None:
    victim = data.draw(st.integers(0, len(budgets) - 1))
    epsilon = share * budgets[victim]
    rest = np.array([b for i, b in enumerate(budgets) if i != victim])
    others = Others(rest, np.zeros(rest.size), np.ones(rest.size, dtype=np.int64), dishonest)
    curve = exchange_binary_profile(Victim(budgets[victim]), others, data.draw(st.sampled_from([None, 0.1, 1e-3])))
    if isinstance(curve, NoAmplification):
        assert rest.size <= dishonest
        return
    truth = worst_bits(budgets, victim, epsilon, dishonest)
    assert curve.delta(epsilon).value >= truth


@given(
    budgets=st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0]), min_size=2, max_size=6),
    epsilon=st.sampled_from([0.0, 0.1, 0.4]),
    place=st.tuples(*[st.floats(-1.0, 1.0)] * 5),
    grouped=st.booleans(),
)
@drawn(60)
def test_every_grid_bounds_all_data_sets(
    budgets: list[float], epsilon: float, place: tuple[float, ...], grouped: bool
) -> None:
    assume(epsilon < budgets[0])
    theta, sigma, step, far, end = np.exp(place) * (4, 0.2, 0.05, 9, 0.05)
    hosts = [(arb(v), 1) for v in sorted(budgets[1:])]
    groups = [Hosts.of(hosts)] if grouped else [Hosts.of([one]) for one in hosts]
    grid = Grid(float(theta), float(sigma), float(step), 12, float(far), (float(end) / 3, float(end)))
    bound = above(exchange(groups, arb(budgets[0]), arb(epsilon), grid))
    assert bound >= worst_bits(budgets, 0, epsilon)


@pytest.mark.parametrize("epsilon", [0.02, 0.08, 0.12])
def test_one_group_of_many_budgets_loses_little(epsilon: float) -> None:
    tiers = [(0.8 + i / 50, 60) for i in range(21)]
    left = [(v, n - (v == 1.0)) for v, n in tiers]
    curve, one = curve_of(tiers, 1.0), Hosts.of([(arb(v), n) for v, n in left])
    grouped, apart = replace(curve, groups=(one,)).delta(epsilon).value, curve.delta(epsilon).value
    assert len(curve.groups) == 21
    for agreeing in (0.0, 0.5, 1.0):
        ones = [int(agreeing * n) for _, n in left]
        assert divergence_of_split(left, ones, 1.0, epsilon) <= min(grouped, apart)
    assert grouped <= 1.15 * apart


@pytest.mark.parametrize("epsilon_local", [0.3, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_no_split_of_400_equal_users_is_worse_and_the_worst_is_near(epsilon_local: float, share: float) -> None:
    epsilon = share * epsilon_local
    delta = curve_of([(epsilon_local, 400)], epsilon_local, 1e-3).delta(epsilon).value
    splits = [divergence_of_split([(epsilon_local, 399)], [m], epsilon_local, epsilon) for m in range(400)]
    assert max(splits) * (1 - 1e-9) <= delta
    if max(splits) > 1e-9:
        assert delta <= max(splits) * (1.5 if share == 0 else 8)


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_no_split_of_three_tiers_is_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiers = [(float(e), int(n)) for e, n in zip(np.sort(rng.uniform(0.1, 3, 3)), rng.integers(1, 300, 3), strict=True)]
    victim = tiers[int(rng.integers(3))][0]
    epsilon = float(rng.uniform(0, 0.6)) * victim
    dishonest = int(rng.integers(0, 3))
    delta = curve_of(tiers, victim, 1e-4, dishonest).delta(epsilon).value if sum(n for _, n in tiers) > 6 else 1.0
    for _ in range(12):
        left = [(e, n - (e == victim)) for e, n in tiers]
        for _ in range(dishonest):  # any of them
            place = int(rng.integers(3))
            left[place] = (left[place][0], max(0, left[place][1] - 1))
        ones = [int(rng.choice([0, n, int(rng.integers(0, n + 1))])) for _, n in left]
        truth = divergence_of_split(left, ones, victim, epsilon)
        assert truth * (1 - 1e-9) - 1e-15 <= delta


# Reference values of the specification: exchange, and the attack.

TABLE = [
    ([(1.0, 1_000)], 1.0, 0.13025, 0.12661),
    ([(1.0, 10_000)], 1.0, 0.03601, 0.03566),
    ([(1.0, 60_000)], 1.0, 0.01348, 0.01341),
    ([(2.0, 1_000)], 2.0, 0.35050, 0.32328),
    ([(2.0, 10_000)], 2.0, 0.08889, 0.08702),
    ([(2.0, 60_000)], 2.0, 0.03289, 0.03259),
    ([(4.0, 60_000)], 4.0, 0.1157, 0.11247),
    ([(0.5, 9_000), (2.0, 1_000)], 2.0, 0.05722, 0.05687),
    ([(0.5, 9_000), (2.0, 1_000)], 0.5, 0.01682, 0.01670),
    ([(0.1, 9_999), (4.0, 1)], 4.0, 0.06879, 0.06843),
    ([(0.5, 3_438), (1.0, 2_355), (2.0, 573)], 2.0, 0.07587, 0.07521),
    ([(e / 4, 1_250) for e in range(1, 9)], 2.0, 0.06439, 0.06379),
]


@pytest.mark.parametrize(("tiers", "victim", "expected", "attack"), TABLE)
def test_the_table_of_the_specification(tiers: Tiers, victim: float, expected: float, attack: float) -> None:
    epsilon = epsilon_of(tiers, victim)
    assert attack * (1 - 1e-4) <= epsilon <= expected * 1.01


@pytest.mark.parametrize(("tiers", "victim"), [(row[0], row[1]) for row in TABLE])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_no_attack_is_better_and_the_blanket_is_worse(tiers: Tiers, victim: float, delta: float) -> None:
    budgets = Budgets.from_tiers(tiers)
    attack = lower_bound(budgets, "rr", victim=victim, delta=delta).epsilon
    epsilon = epsilon_of(tiers, victim, delta)
    assert attack <= epsilon
    if sum(n for _, n in tiers) >= 10_000 and len(tiers) == 1:
        assert epsilon < certify(budgets, HemisphereMechanism(), delta=delta, attack=False, bounds="blanket").epsilon


@pytest.mark.parametrize(("local", "most"), [(0.5, 1.005), (1.0, 1.005), (2.0, 1.005), (4.0, 1.01)])
@pytest.mark.parametrize("users", [10_000, 1_000_000, 10_000_000])
def test_within_a_few_per_cent_of_the_attack(local: float, most: float, users: int) -> None:
    attack = lower_bound(Budgets.from_tiers([(local, users)]), "rr", delta=1e-6).epsilon
    assert attack <= epsilon_of([(local, users)], local) <= most * attack


def test_many_budgets_that_differ_by_less_than_can_be_seen() -> None:
    epsilons = np.linspace(1e-16, 2e-16, 500)
    others = Others(epsilons, np.zeros(500), np.full(500, 4, dtype=np.int64), 0)
    curve = exchange_binary_profile(Victim(1.0), others, 1e-6)
    assert isinstance(curve, ExchangeBinaryProfile)
    attack = lower_bound(Budgets.from_tiers([(1e-16, 2_000), (1.0, 1)]), "rr", victim=1.0, delta=1e-6).epsilon
    assert attack <= smallest_epsilon(curve, 1e-6, 1.0).epsilon <= 1.02 * attack


# Monotone, and at the ends of the ranges.


def test_delta_falls_with_epsilon() -> None:
    curve = curve_of([(0.5, 900), (2.0, 100)], 2.0)
    values = [curve.delta(epsilon).value for epsilon in np.linspace(0, 2, 60)]
    assert all(later <= earlier * (1 + 1e-3) for earlier, later in itertools.pairwise(values))
    assert values[-1] == 0.0


def test_more_users_and_smaller_budgets_help_and_the_dishonest_hurt() -> None:
    assert epsilon_of([(1.0, 20_000)], 1.0) < epsilon_of([(1.0, 10_000)], 1.0)
    assert epsilon_of([(0.5, 5_000), (1.0, 5_000)], 1.0) < epsilon_of([(1.0, 10_000)], 1.0)
    hurt = [epsilon_of([(0.5, 5_000), (1.0, 5_000)], 1.0, dishonest=f) for f in (0, 100, 4_000, 9_000)]
    assert hurt == sorted(hurt)
    assert hurt[2] < epsilon_of([(1.0, 6_000)], 1.0)


def test_the_dishonest_are_those_of_the_smallest_budgets() -> None:
    assert epsilon_of([(0.5, 5_000), (1.0, 5_001)], 1.0, dishonest=5_000) == epsilon_of([(1.0, 5_001)], 1.0)


@pytest.mark.parametrize("delta", [1e-2, 1e-12, 1e-30])
@pytest.mark.parametrize("local", [1e-16, 1e-6, 0.1, 8.0, 30.0, 400.0])
def test_tiny_and_large_budgets_give_a_bound_without_a_warning(local: float, delta: float) -> None:
    tiers = [(local, 600), (1.0, 600)]
    for victim in (local, 1.0):
        curve = curve_of(tiers, victim, delta)
        solution = smallest_epsilon(curve, delta, victim)
        attack = lower_bound(Budgets.from_tiers(tiers), "rr", victim=victim, delta=delta).epsilon
        assert attack * (1 - 1e-12) <= solution.epsilon <= victim
        for share in (0.0, 0.5, 0.999999, 1.0):
            bound = curve.delta(share * victim)
            assert 0 <= bound.slack <= bound.value <= 1
            assert bound.value > 0 or share == 1.0


def test_tiny_deltas_keep_their_relative_accuracy() -> None:
    curve = curve_of([(1.0, 10_000)], 1.0, 1e-30)
    solution = smallest_epsilon(curve, 1e-30, 1.0)
    assert solution.reached is not None
    attack = lower_bound(Budgets.from_tiers([(1.0, 10_000)]), "rr", delta=1e-30).epsilon
    assert attack <= solution.epsilon <= 1.005 * attack


def test_without_another_honest_client_there_is_no_bound() -> None:
    assert isinstance(exchange_binary_profile(Victim(1.0), others_of([(1.0, 1)], 1.0), 1e-6), NoAmplification)
    assert isinstance(exchange_binary_profile(Victim(1.0), others_of([(1.0, 5)], 1.0, 4), 1e-6), NoAmplification)


def test_the_steps_name_hosts_and_clocks() -> None:
    steps = curve_of([(0.5, 9_000), (2.0, 1_000)], 2.0).explain()
    assert codes(steps) == [ProofStep.HOSTS, ProofStep.HOST_VARIANCE, ProofStep.CLOCKS]
    assert parameters(steps, ProofStep.HOSTS) == {"users": 9_999, "tiers": 2}
