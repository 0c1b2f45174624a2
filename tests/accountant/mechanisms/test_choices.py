"""`choices`: the certificate of a bit, for whole sets of options, against every set of everybody."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.choices import MultipleChoice
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.accountant.mechanisms.table import TableMechanism
from croupier.protocol.hop_noise import HopNoise


def law_of(k: int, options: int, epsilon: float) -> list[float]:
    """Returns the probabilities of the 2k reports of a person who chooses these options, by the definition."""
    flip = 1 / (1 + math.exp(epsilon))
    chosen = [options >> option & 1 for option in range(k)]
    return [(1 - flip if bit == chosen[option] else flip) / k for option in range(k) for bit in (0, 1)]


def multiset_law(laws: list[list[float]]) -> dict[tuple[int, ...], float]:
    """Returns the law of the shuffled reports of a few people, by enumeration."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for reports in itertools.product(*(range(len(each)) for each in laws)):
        law[tuple(sorted(reports))] += math.prod(each[report] for each, report in zip(laws, reports, strict=True))
    return law


@pytest.mark.parametrize(("k", "others"), [(2, (1.0, 2.0, 0.5)), (3, (1.0, 1.5))])
@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_the_certificate_is_above_every_data_set(k: int, others: tuple[float, ...], epsilon: float) -> None:
    victim = max(others)
    certified = certify(Budgets.from_epsilons([victim, *others]), f"choices(k={k})", epsilon=epsilon).delta
    worst = 0.0
    for of_others in itertools.product(range(1 << k), repeat=len(others)):
        rest = [law_of(k, options, budget) for options, budget in zip(of_others, others, strict=True)]
        laws = [multiset_law([law_of(k, options, victim), *rest]) for options in range(1 << k)]
        for first, second in itertools.permutations(laws, 2):
            beyond = (mass - math.exp(epsilon) * second.get(reports, 0.0) for reports, mass in first.items())
            worst = max(worst, sum(difference for difference in beyond if difference > 0))
    assert 0 < worst <= certified


@pytest.mark.parametrize("k", [2, 3])
def test_the_blanket_bound_is_that_of_the_table_of_all_sets(k: int) -> None:
    """The table knows all pairs of sets, of which those without a common option are the worst."""
    budgets = Budgets.from_tiers([(0.5, 300), (1.5, 200)])
    tables = {
        epsilon: np.array([law_of(k, options, epsilon) for options in range(1 << k)])
        for epsilon in budgets.local_epsilon.tolist()
    }
    ours = certify(budgets, MultipleChoice(k), delta=1e-5, bounds="blanket").epsilon
    table = certify(budgets, TableMechanism(tables), delta=1e-5, bounds="blanket", attack=False).epsilon
    assert ours == pytest.approx(table, rel=2e-3)


@pytest.mark.parametrize("k", [2, 12, 32])
def test_it_costs_what_a_bit_costs(k: int) -> None:
    budgets = Budgets.from_tiers([(1.0, 600), (2.0, 400)])
    ours, bit = (certify(budgets, randomizer, delta=1e-6) for randomizer in (MultipleChoice(k), "hemisphere"))
    assert ours.epsilon == bit.epsilon
    assert ours.lower_bound is not None
    assert ours.epsilon < 1.01 * ours.lower_bound.epsilon


def test_hop_noise_hides_an_option_with_its_bit() -> None:
    """A fake is one of the 2k reports, and one report moves two counts."""
    ours = certify({6.0: 100, 8.0: 100}, "choices(k=5)", delta=1e-6, hop_noise=(0.1, 1e-6))
    law = HopNoise(0.1, 1e-6).law(10)
    assert ours.one_honest_hop is not None
    assert 0.099 < ours.one_honest_hop.epsilon < 0.1
    assert randomizer_from_name("choices(k=5)").num_report_values == law.num_values
    assert ours.lower_bound is not None
    assert ours.lower_bound.epsilon <= ours.epsilon < 1.003 * ours.lower_bound.epsilon
