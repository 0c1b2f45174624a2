"""`choices`: the certificate of a bit, for whole sets of options, against every set of everybody."""

from __future__ import annotations

import math

import pytest

from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.choices import MultipleChoice
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.accountant.mechanisms.table import TableMechanism
from croupier.protocol.hop_noise import HopNoise
from tests.support.oracles.from_definitions import one_option, worst_divergences


@pytest.mark.parametrize(("k", "others"), [(2, (1.0, 2.0, 0.5)), (3, (1.0, 1.5))])
@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_the_certificate_is_above_every_data_set(k: int, others: tuple[float, ...], epsilon: float) -> None:
    victim = max(others)
    certified = certify(Budgets.from_epsilons([victim, *others]), f"choices(k={k})", epsilon=epsilon).delta
    own, *tables = (one_option(budget, k) for budget in (victim, *others))
    (worst,) = worst_divergences(own, tables, [math.exp(epsilon)])
    assert 0 < worst <= certified


@pytest.mark.parametrize("k", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_blanket_bound_is_that_of_the_table_of_all_sets(k: int) -> None:
    """The table knows all pairs of sets, of which those without a common option are the worst."""
    budgets = Budgets.from_tiers([(0.5, 300), (1.5, 200)])
    tables = {epsilon: one_option(epsilon, k) for epsilon in budgets.local_epsilon.tolist()}
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
