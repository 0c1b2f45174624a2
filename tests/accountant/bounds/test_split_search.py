"""Branch and bound over the splits of the others' bits: never below any split, and close to the worst of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.bounds import split_search
from accountant.bounds.split_boxes import like_the_middle
from accountant.bounds.split_search import SplitSearchProfile, is_searchable
from croupier import Budgets, certify
from tests.accountant.oracles.from_definitions import count_law
from tests.support.drawn import drawn


def divergence(others: list[tuple[float, int, int]], victim: float, epsilon: float) -> float:
    """From the definition, by convolution; others: budget, how many hold a 1, how many a 0."""
    law = count_law(
        [(1 / (1 + math.exp(-e)), m) for e, m, _ in others] + [(1 / (1 + math.exp(e)), k) for e, _, k in others]
    )
    keep = 1 / (1 + math.exp(-victim))
    one, zero = np.convolve(law, [1 - keep, keep]), np.convolve(law, [keep, 1 - keep])
    return float(np.maximum(one - math.exp(epsilon) * zero, 0).sum())


def worst(others: list[float], counts: list[int], victim: float, epsilon: float) -> float:
    return max(
        divergence([(e, m, n - m) for e, n, m in zip(others, counts, split, strict=True)], victim, epsilon)
        for split in itertools.product(*(range(n + 1) for n in counts))
    )


@given(
    st.lists(
        st.tuples(st.sampled_from([1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0]), st.integers(1, 9)), min_size=1, max_size=3
    ),
    st.sampled_from([0.1, 1.0, 3.0, 8.0]),
    st.floats(0.0, 0.99),
    st.integers(0, 4),
)
@drawn(25)
def test_no_split_and_no_choice_of_dishonest_is_worse(
    tiers: list[tuple[float, int]], victim: float, share: float, dishonest: int
) -> None:
    tiers = sorted(dict(tiers).items())
    others, counts = [e for e, _ in tiers], [n for _, n in tiers]
    epsilon = share * victim
    truth = 0.0
    for gone in itertools.product(*(range(min(n, dishonest) + 1) for n in counts)):
        if sum(gone) == min(dishonest, sum(counts)):
            left = [n - g for n, g in zip(counts, gone, strict=True)]
            truth = max(truth, worst(others, left, victim, epsilon))
    found = SplitSearchProfile(victim, np.array(others), np.array(counts), dishonest)
    bound = found.delta(epsilon).value
    assert truth * (1 - 1e-9) <= bound <= truth * (split_search._RATIO + 1e-6) + 1e-12
    assert found._search(epsilon).attained <= truth * (1 + 1e-9)


@given(
    st.lists(
        st.tuples(st.sampled_from([1e-6, 0.1, 0.5, 1.0, 2.0, 6.0]), st.integers(0, 30), st.integers(0, 3)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0.1, 1.0, 3.0]),
    st.floats(0.0, 0.99),
    st.integers(0, 30),
)
@drawn(60)
def test_no_split_of_a_box_is_worse_than_its_middle_suggests(
    tiers: list[tuple[float, int, int]], victim: float, share: float, most: int
) -> None:
    # Per tier: the budget, how many surely hold a 1, and how many more may.
    others = np.array([budget for budget, _, _ in tiers])
    low = np.array([[ones for _, ones, _ in tiers]])
    high = low + np.array([[more for _, _, more in tiers]])
    count = high[0] + most
    epsilon = share * victim
    (bound,), (slack,) = like_the_middle(victim, epsilon, others, count, low, high)
    truth = max(
        divergence([(e, m, n - m) for e, n, m in zip(others, count, split, strict=True)], victim, epsilon)
        for split in itertools.product(*(range(a, b + 1) for a, b in zip(low[0], high[0], strict=True)))
    )
    assert truth * (1 - 1e-9) - 1e-15 <= bound
    assert 0 <= slack <= bound


@pytest.mark.parametrize(("epsilon", "loss"), [(0.02, 1.1), (0.2, 1.4)])
def test_one_box_is_nearly_enough_for_hundreds_of_users(epsilon: float, loss: float) -> None:
    others, count = np.array([0.5, 1.0, 2.0]), np.array([344, 236, 57])
    (bound,), _ = like_the_middle(2.0, epsilon, others, count, 0 * count[None], count[None])
    worst = max(
        divergence([(e, m, n - m) for e, n, m in zip(others, count, split, strict=True)], 2.0, epsilon)
        for split in itertools.product(*((0, int(n) // 2, int(n)) for n in count))
    )
    assert worst <= bound <= loss * worst


@pytest.mark.parametrize(
    ("tiers", "victim", "attack", "proved"),
    [  # the brackets of the specification
        ([(1.0, 9_999)], 1.0, 0.035659, 0.035837),
        ([(4.0, 9_999)], 4.0, 0.314643, 0.316216),
        ([(0.5, 9_000), (2.0, 999)], 2.0, 0.056874, 0.057158),
        ([(0.5, 3_438), (1.0, 2_355), (2.0, 572)], 2.0, 0.075214, 0.075966),
        ([(4.0, 99_999)], 4.0, 0.084715, 0.0851),
    ],
)
def test_the_bound_and_the_attack_meet(
    tiers: list[tuple[float, int]], victim: float, attack: float, proved: float
) -> None:
    others, counts = (np.array(column) for column in zip(*tiers, strict=True))
    found = SplitSearchProfile(victim, others, counts.astype(np.int64))
    inverse = found.smallest_epsilon(1e-6)
    assert inverse.reached is not None
    assert inverse.reached.value <= 1e-6
    assert attack * (1 - 1e-5) <= inverse.epsilon <= min(proved, 1.0015 * attack)


def test_what_the_boxes_do_not_settle_in_time_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = np.array([0.5, 1.0, 2.0]), np.array([3_000, 2_000, 500])
    sharp = SplitSearchProfile(2.0, *tiers).delta(0.07).value
    monkeypatch.setattr(split_search, "BOXES", 1)
    rough = SplitSearchProfile(2.0, *tiers)
    assert sharp <= rough.delta(0.07).value <= 1
    found = rough.smallest_epsilon(1e-6)
    assert found.reached is not None
    assert found.reached.value <= 1e-6


def test_certificates_use_it_where_it_is_quick_or_asked_for() -> None:
    equal = certify(Budgets.from_tiers([(4.0, 10_000)]), "rr", delta=1e-6)
    assert "branch and bound" in equal.method
    assert equal.lower_bound is not None
    assert equal.lower_bound.epsilon <= equal.epsilon <= 1.002 * equal.lower_bound.epsilon
    mixed = Budgets.from_tiers([(0.1, 500), (0.5, 300), (1.0, 100), (4.0, 5)])
    quick = certify(mixed, "onebit", delta=1e-6, dishonest=3)
    thorough = certify(mixed, "onebit", delta=1e-6, dishonest=3, thorough=True)
    assert thorough.lower_bound is not None
    assert thorough.lower_bound.epsilon <= thorough.epsilon <= quick.epsilon <= 1.005 * thorough.lower_bound.epsilon
    assert not is_searchable(2.0, np.linspace(0.1, 2, 5), np.full(5, 10), 0, thorough=True)
    assert not is_searchable(31.0, np.array([1.0]), np.array([10]), 0, thorough=True)
