"""No certificate is below the exact worst case over all data sets: n <= 7 (less for larger k), budgets 1e-6 to 10."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from croupier import BinaryRandomizedResponse, KaryRandomizedResponse, OneBitMean, certify, lower_bound
from tests.support.drawn import drawn
from tests.support.oracles.from_definitions import worst_delta

Law = NDArray[np.float64]


def add_report(law: Law, budget: float, value: int, k: int) -> Law:
    """One more user; law[h1, ..., h_{k-1}] is the law of the histogram, without letter 0, whose count follows."""
    total = math.exp(budget) + k - 1
    masses = [(math.exp(budget) if letter == value else 1.0) / total for letter in range(k)]
    result: Law = masses[0] * law
    for axis, mass in enumerate(masses[1:]):
        later, earlier = (slice(None),) * axis + (slice(1, None),), (slice(None),) * axis + (slice(-1),)
        result[later] += mass * law[earlier]  # the last count is never reached, so nothing falls off
    return result


def worst_over_data_sets(budgets: list[float], victim: int, k: int, epsilons: list[float]) -> Law:
    """The exact delta at each epsilon. By symmetry of the letters the victim moves from 0 to 1; others of one budget
    are exchangeable, so that only non-decreasing values are tried within a budget."""
    others = sorted(b for i, b in enumerate(budgets) if i != victim)
    worst = np.zeros(len(epsilons))

    def visit(law: Law, index: int, least: int) -> None:
        if index == len(others):
            p, q = (add_report(law, budgets[victim], value, k) for value in (0, 1))
            for place, epsilon in enumerate(epsilons):
                gain = math.exp(epsilon)
                for a, b in ((p, q), (q, p)):
                    worst[place] = max(worst[place], float(np.maximum(a - gain * b, 0).sum()))
            return
        start = least if index and others[index] == others[index - 1] else 0
        for value in range(start, k):
            visit(add_report(law, others[index], value, k), index + 1, value)

    empty = np.zeros((len(budgets) + 2,) * (k - 1))
    empty[(0,) * (k - 1)] = 1.0
    visit(empty, 0, 0)
    return worst


def test_the_fast_oracle_agrees_with_the_slow_one() -> None:
    budgets = [0.3, 1.0, 2.0, 1.0]
    for k in (2, 3):
        slow = [worst_delta(budgets, 2, k, epsilon) for epsilon in (0.1, 0.8)]
        np.testing.assert_allclose(worst_over_data_sets(budgets, 2, k, [0.1, 0.8]), slow, rtol=1e-10)


LEVELS = [1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0]
LARGEST = {2: 7, 3: 6, 4: 5}  # users; there are up to k^(n−1) data sets for every victim


def letters_and_budgets(levels: list[float]) -> st.SearchStrategy[tuple[int, list[float]]]:
    return st.sampled_from(sorted(LARGEST)).flatmap(
        lambda k: st.tuples(st.just(k), st.lists(st.sampled_from(levels), min_size=1, max_size=LARGEST[k]))
    )


@given(letters_and_budgets(LEVELS), st.lists(st.floats(0.0, 0.999), min_size=2, max_size=2), st.data())
@drawn(60)
def test_no_data_set_is_worse_than_its_certificate(
    drawn: tuple[int, list[float]], shares: list[float], data: st.DataObject
) -> None:
    k, budgets = drawn
    victim = data.draw(st.integers(0, len(budgets) - 1))
    epsilons = [share * budgets[victim] for share in shares]
    worst = worst_over_data_sets(budgets, victim, k, epsilons)
    randomizers = [KaryRandomizedResponse(k)] + ([BinaryRandomizedResponse(), OneBitMean()] if k == 2 else [])
    for randomizer in randomizers:
        for epsilon, exact in zip(epsilons, worst, strict=True):
            certificate = certify(budgets, randomizer, epsilon=epsilon, attack=False)
            (tier,) = (t for t in certificate.tiers if t.local_epsilon == budgets[victim])
            assert exact <= tier.delta * (1 + 1e-9) + 1e-15  # the rounding of the oracle


@given(letters_and_budgets(LEVELS[2:]), st.sampled_from([0.1, 1e-2, 1e-4]))
@drawn(30)
def test_no_attack_is_better_than_the_best_and_no_certificate_worse(
    drawn: tuple[int, list[float]], delta: float
) -> None:
    k, budgets = drawn
    randomizer = BinaryRandomizedResponse() if k == 2 else KaryRandomizedResponse(k)
    attack = lower_bound(budgets, randomizer, delta=delta)
    certificate = certify(budgets, randomizer, delta=delta, attack=False)
    assert attack.epsilon <= certificate.epsilon * (1 + 1e-9)
    best = 0.0
    for victim in {budgets.index(b) for b in budgets}:
        (tier,) = (t for t in certificate.tiers if t.local_epsilon == budgets[victim])
        certified, attacked = worst_over_data_sets(budgets, victim, k, [tier.epsilon, attack.epsilon * (1 - 1e-9)])
        assert certified <= delta * (1 + 1e-9) or tier.epsilon == tier.local_epsilon
        best = max(best, attacked)
    assert attack.epsilon == 0 or best >= delta * (1 - 1e-6)
