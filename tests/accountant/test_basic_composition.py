"""What a person is promised over several rounds whatever all other people do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from croupier.accountant.basic_composition import WorstCases, all_together, basic_composition, weakest
from croupier.accountant.certification import certify
from croupier.accountant.composed_certificates import compose, worst_cases
from croupier.accountant.guarantees import Grade, Guarantee
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.statements import Statement


def local(epsilon: float, delta: float = 0.0, grade: Grade = Grade.CERTIFIED) -> Guarantee:
    return Guarantee(
        epsilon, delta, grade, (Statement.of(Method.LOCAL_BUDGET),), (Statement.of(Assumption.EVERYONE_ELSE_DISHONEST),)
    )


def test_budgets_add_up_as_decimals_with_their_grade_and_assumptions() -> None:
    three = basic_composition([local(0.1, 1e-5)] * 3)
    assert (three.epsilon, three.delta, three.grade) == (0.3, 3e-5, Grade.CERTIFIED)
    assert basic_composition([local(0.1, 1e-5)], times=3) == three
    assert three.method == (Statement.of(Method.LOCAL_BUDGET), Statement.of(Method.BASIC_COMPOSITION, rounds=3))
    assert three.assumptions == local(1.0).assumptions
    assert basic_composition([local(0.1)]) == local(0.1)
    assert basic_composition([local(1.0, 0.5)] * 3).delta == 1.0
    with pytest.raises(ValueError, match="empty"):
        basic_composition([])
    with pytest.raises(ValueError, match="HEURISTIC"):
        basic_composition([local(1.0), local(1.0, grade=Grade.HEURISTIC)])


def test_whichever_guarantee_a_person_has_the_largest_epsilon_and_delta_hold() -> None:
    worst = weakest([local(2.0, 1e-6), local(1.0, 1e-5)])
    assert (worst.epsilon, worst.delta) == (2.0, 1e-5)


def test_a_round_without_hop_noise_counts_with_its_own_noise_if_one_hop_is_honest() -> None:
    hop = Guarantee(0.2, 1e-6, Grade.CERTIFIED, (Statement.of(Method.HOP_NOISE),))
    both = all_together([WorstCases(local(1.0), hop), WorstCases(local(0.5))])
    assert both.no_honest_hop.epsilon == 1.5
    assert both.one_honest_hop is not None
    assert (both.one_honest_hop.epsilon, both.one_honest_hop.delta) == (0.7, 1e-6)
    assert all_together([WorstCases(local(1.0))] * 2).one_honest_hop is None
    assert WorstCases(local(0.1), hop).one_honest_hop == local(0.1)  # the own noise promises more


def test_all_waves_of_a_series_count_once_in_the_worst_cases_as_they_do_in_the_sum() -> None:
    """Reproduction: a report added up the local budgets of waves in which a person sends one report."""
    wave = certify({1.0: 100}, "rr", delta=1e-6, attack=False, rounds=PermanentSeries(12, "ab"))
    assert compose([wave, wave], fixed_terms=True).epsilon <= 1.0
    assert worst_cases([wave, wave]).no_honest_hop.epsilon == 1.0
    other = certify({1.0: 100}, "rr", delta=1e-6, attack=False)
    assert worst_cases([wave, wave, other, other]).no_honest_hop.epsilon == 3.0


def test_without_a_delta_releases_are_composed_at_one_at_which_they_add_up() -> None:
    release = certify({1.0: 100}, "rr", delta=1e-6, attack=False)
    assert compose([release] * 3, fixed_terms=True) == compose([release] * 3, delta=3e-6, fixed_terms=True)
    assert compose([release] * 3) == compose([release] * 3, delta=1.2e-5)


@pytest.mark.slow
def test_a_client_adds_up_without_numpy() -> None:
    loads = "import sys, croupier.accountant.basic_composition; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout == "False\n"
