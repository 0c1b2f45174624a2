"""The privacy filter: never below an adversary who chooses every round by the results of the rounds before it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import Budgets, certify, compose
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.privacy_filter import (
    BASIC_SHARE,
    GAUSSIAN_SHARE,
    LOST_SHARE,
    RENYI_SHARE,
    PrivacyFilter,
    filter_cuts,
    last_cut,
    smallest_admitting_epsilon,
)
from croupier.accountant.round_cost import ORDERS, RoundCost, curve_points
from croupier.protocol.codes import Assumption, Method
from tests.support.accounting import GaussianProfile
from tests.support.drawn import drawn
from tests.support.oracles.adaptive import Pair, largest_delta, profile_points, randomized_response, shuffled_bits
from tests.support.statements import codes, parameters

THREE = (
    (randomized_response(0.4), randomized_response(0.8), shuffled_bits(0.5, 6)),
    (randomized_response(0.05), shuffled_bits(1.0, 4), shuffled_bits(2.0, 7)),
    (randomized_response(0.3, lost=0.002), shuffled_bits(1.5, 5), randomized_response(1.2, lost=0.0005)),
    (shuffled_bits(0.5, 8), shuffled_bits(1.0, 6), shuffled_bits(3.0, 6)),
)


def cost_of(pair: Pair, delta: float) -> RoundCost:
    points = profile_points(pair)
    epsilon = next((e for e, d in points if d <= delta), points[-1][0])
    return RoundCost(epsilon, max(delta, points[-1][1]), (points,))


def test_rounds_chosen_by_results_lose_more_than_either_sequence() -> None:
    """Reproduction: composed losses certified .0431 for both sequences; choosing between them has delta .001323."""
    alone = certify(Budgets.from_tiers([(0.002, 1)]), "rr", delta=1e-3, attack=False)
    small = certify(Budgets.from_tiers([(0.04484, 1)]), "rr", delta=1e-3, attack=False)
    crowd = certify(Budgets.from_tiers([(0.5, 300)]), "rr", delta=1e-3, attack=False)
    first, second, third = randomized_response(0.002), randomized_response(0.04484), shuffled_bits(0.5, 299)

    def choices(history: tuple[Pair, ...]) -> list[Pair]:
        return [[first], [second, third], []][len(history)]

    assert largest_delta(0.0431, choices) > 0.001323
    sequences = [[alone, small], [alone, crowd]]
    fixed = [compose(sequence, delta=1e-3, fixed_terms=True).epsilon for sequence in sequences]
    assert fixed == [pytest.approx(0.0430, abs=2e-4)] * 2
    # A limit that a filter kept on both paths holds for the choice between them.
    limit = max(compose(sequence, delta=1e-3).epsilon for sequence in sequences)
    assert largest_delta(limit, choices) <= 1e-3


@pytest.mark.parametrize("number", range(len(THREE)))
@pytest.mark.parametrize("delta", [0.1, 0.02, 1e-3])
@pytest.mark.parametrize("first_cut", [1e-4, 0.1])  # of the second, two rounds need the second cut
def test_no_choice_among_three_mechanisms_over_three_rounds_exceeds_it(
    number: int, delta: float, first_cut: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.accountant.privacy_filter.FIRST_CUT", first_cut)
    pairs = THREE[number]
    costs = {pair: cost_of(pair, delta) for pair in pairs}
    totals = {
        epsilon
        for chosen in itertools.combinations_with_replacement(pairs, 3)
        if (epsilon := smallest_admitting_epsilon([costs[pair] for pair in chosen], delta)) is not None
    }
    assert totals or number == 2  # where something is lost with certainty, a small delta admits nothing
    for epsilon in sorted(totals)[::4]:
        allowed = PrivacyFilter(epsilon, delta)

        @cache
        def admits(chosen: tuple[Pair, ...], allowed: PrivacyFilter = allowed) -> bool:
            return allowed.admits([costs[pair] for pair in chosen])

        def choices(history: Sequence[Pair]) -> list[Pair]:
            return [p for p in pairs if len(history) < 3 and admits(tuple(sorted((*history, p), key=id)))]

        assert largest_delta(epsilon, choices) <= delta * (1 + 1e-12)


@pytest.mark.slow
@drawn(60)
@given(st.integers(0, 2**32 - 1))
def test_no_choice_among_drawn_mechanisms_exceeds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    delta = float(10 ** rng.uniform(-4, -0.5))
    pairs = [
        Pair.of(rng.dirichlet(np.full(4, 0.5)).tolist(), rng.dirichlet(np.full(4, 3.0)).tolist(), rng.uniform(0, 1))
        for _ in "abc"
    ]
    costs = {pair: cost_of(pair, delta) for pair in pairs}
    chosen = [pairs[index] for index in rng.integers(0, 3, 3)]
    epsilon = smallest_admitting_epsilon([costs[pair] for pair in chosen], delta)
    if epsilon is None:
        return
    allowed = PrivacyFilter(epsilon, delta)

    def choices(history: Sequence[Pair]) -> list[Pair]:
        return [p for p in pairs if len(history) < 3 and allowed.admits([costs[q] for q in (*history, p)])]

    assert largest_delta(epsilon, choices) <= delta * (1 + 1e-12)


def test_a_total_that_is_read_afterwards_may_be_exceeded() -> None:
    """Reproduction: it was CERTIFIED without an assumption. One result ends it, another is followed by a round."""
    delta = 0.01
    first, second = randomized_response(2 * math.atanh(delta) * (1 - 1e-9)), randomized_response(1.0, lost=0.24 * delta)
    costs = [RoundCost(points[-1][0], points[-1][1], (points,)) for points in map(profile_points, (first, second))]
    stopped, went_on = (smallest_admitting_epsilon(costs[:rounds], delta) for rounds in (1, 2))
    assert stopped is not None
    assert went_on is not None
    (p, p_other), (q, q_other) = first.p[2:], first.q[2:]
    after_both = [(p_other * a, q_other * b) for a, b in zip(second.p, second.q, strict=True)]
    lost = max(0.0, p - math.exp(stopped) * q) + sum(max(0.0, a - math.exp(went_on) * b) for a, b in after_both)
    assert lost > 1.1 * delta


def gaussian_round(mu: float, rounds: int, delta: float) -> RoundCost:
    points = curve_points(GaussianProfile(mu), (10.0, 0.0), last_cut(rounds, delta))
    return RoundCost(1.0, delta, (points,))


@pytest.mark.parametrize("rounds", [1, 5, 400])
def test_gaussian_rounds_cost_their_share_of_delta_and_no_more(rounds: int) -> None:
    mu, delta = 0.05, 1e-6
    solution = smallest_admitting_epsilon({gaussian_round(mu, rounds, delta): rounds}, delta)
    assert solution is not None
    exact = gaussian_epsilon(mu * math.sqrt(rounds), delta)
    at_share = gaussian_epsilon(mu * math.sqrt(rounds), 0.32 * delta)
    assert exact < solution
    assert solution <= at_share * 1.02


@pytest.mark.parametrize(("rounds", "dearer"), [(1_093, 1.05), (1_094, 1.12), (5_000, 1.12), (10**6, 1.4)])
def test_a_total_has_no_largest_number_of_rounds(rounds: int, dearer: float) -> None:
    """Reproduction: each round used up 1e-4 of delta, so that after 1,250 rounds a total admitted no more of them."""
    delta = 1e-6
    mu = 0.5 / math.sqrt(rounds)
    solution = smallest_admitting_epsilon({gaussian_round(mu, rounds, delta): rounds}, delta)
    assert solution is not None
    assert gaussian_epsilon(0.5, delta) < solution < dearer * gaussian_epsilon(0.5, 3 / 8 * delta)


def test_what_all_cuts_and_sums_may_lose_adds_up_to_delta() -> None:
    """The parts of all ways to cut, each with three shares, and the share of basic composition."""
    cuts = filter_cuts(10**9)
    assert [cut.rounds > 6 * before.rounds for before, cut in itertools.pairwise(cuts)] == [True] * (len(cuts) - 1)
    shares = (LOST_SHARE, GAUSSIAN_SHARE, RENYI_SHARE)
    added = BASIC_SHARE + sum(cut.part for cut in cuts) * sum(shares)
    assert Fraction(0.999) < added < 1


def test_moments_are_those_of_a_known_law() -> None:
    """Randomised response: both integrals against the sum over its two answers; never below, and close."""
    for epsilon in (0.01, 0.5, 3.0):
        pair = RoundCost.of_pair(epsilon, 0.0).tail(1e-12)
        p = 1 / (1 + math.exp(-epsilon))
        exact = np.logaddexp(
            ORDERS * math.log(p) + (1 - ORDERS) * math.log1p(-p), ORDERS * math.log1p(-p) + (1 - ORDERS) * math.log(p)
        )
        assert np.all(pair.moments >= exact * (1 - 1e-13) - 1e-13)
        assert np.all(pair.moments <= exact * (1 + 1e-9) + 1e-9)
        assert pair.lost == 0


@pytest.mark.slow
def test_fixed_terms_cost_at_most_what_a_filter_says() -> None:
    certificate = certify(Budgets.from_tiers([(0.5, 3438), (1.0, 2355), (2.0, 573)]), "rr", delta=1e-6, attack=False)
    for rounds in (2, 30):
        fixed = compose([certificate] * rounds, delta=1e-5, fixed_terms=True)
        chosen = compose([certificate] * rounds, delta=1e-5)
        assert fixed.epsilon < chosen.epsilon < 1.13 * fixed.epsilon
        assert parameters(chosen.method, Method.PRIVACY_FILTER) == {"rounds": rounds}
        assert Assumption.FIXED_TERMS in codes(fixed.assumptions)
        assert Assumption.FIXED_TERMS not in codes(chosen.assumptions)
        assert Assumption.TOTAL_BEFOREHAND in codes(chosen.assumptions)
        assert Assumption.TOTAL_BEFOREHAND not in codes(fixed.assumptions)


def test_a_filter_only_ever_counts_more() -> None:
    """More rounds never fit where fewer do not, in whatever order and multiplicity they are given."""
    costs = [cost_of(pair, 1e-3) for pair in THREE[1]]
    allowed = PrivacyFilter(0.6, 1e-3)
    for chosen in itertools.product(costs, repeat=3):
        if allowed.admits(chosen):
            assert all(allowed.admits(chosen[:end]) for end in (1, 2))
        assert allowed.admits(chosen) == allowed.admits(chosen[::-1]) == allowed.admits(Counter(chosen))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PrivacyFilter(-1.0, 1e-6), "epsilon is -1.0"),
        (lambda: PrivacyFilter(1.0, 0.0), "delta is 0.0"),
        (lambda: PrivacyFilter(1.0, 1e-6).admits([]), "rounds is empty"),
        (lambda: smallest_admitting_epsilon({RoundCost.of_pair(1.0, 0.0): 0}, 1e-6), "a count below 1"),
        (lambda: smallest_admitting_epsilon([RoundCost.of_pair(1.0, 0.0)], 1.0), "delta is 1.0"),
        (lambda: RoundCost(1.0, 2.0, (((1.0, 0.0),),)), "delta is 2.0; it must be 0 <= delta <= 1"),
        (lambda: RoundCost(1.0, 0.0, ()), "tiers is empty"),
    ],
)
def test_nonsense_is_refused(make: object, match: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=match):
        make()
