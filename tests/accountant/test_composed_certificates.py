"""Several releases together: never below the exact product, below adding, and the same through dp-accounting."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from croupier import (
    Budgets,
    Certificate,
    Grade,
    Guarantee,
    certify,
    compose,
    of_disjoint_groups,
    privacy_loss_distribution,
)
from croupier.accountant.composed_certificates import ComposedRelease, compose_releases
from croupier.accountant.mechanisms.table import TableMechanism
from croupier.accountant.numerics.decimals import sum_above
from croupier.protocol.codes import Assumption, Note
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement, joined
from tests.support.messages import naming
from tests.support.oracles.from_definitions import count_law

FEW = certify([0.5, 0.5, 1.0], "rr", delta=1e-3, attack=False)
MORE = certify([2.0] * 6, "rr", delta=1e-3, attack=False)
MANY = certify(Budgets.from_tiers([(0.5, 900), (2.0, 100)]), "hemisphere", delta=1e-6, attack=False)


def product_delta(first: tuple[float, int], second: tuple[float, int], epsilon: float) -> float:
    """Two batches of equal budgets, all others holding the same bit in each: outcome by outcome."""
    worst = 0.0
    for bits in itertools.product((False, True), repeat=2):
        laws = []
        for (local, users), bit in zip((first, second), bits, strict=True):
            keep = 1 / (1 + math.exp(-local))
            rest = [(keep if bit else 1 - keep, users - 1)]
            laws.append([count_law([*rest, (own, 1)]) for own in (keep, 1 - keep)])
        p, q = (np.outer(laws[0][value], laws[1][value]) for value in (0, 1))
        for law, other in ((p, q), (q, p)):
            worst = max(worst, float(np.maximum(law - math.exp(epsilon) * other, 0).sum()))
    return worst


@pytest.mark.parametrize("delta", [0.05, 1e-3, 1e-6])
def test_two_different_releases_are_never_below_their_product(delta: float) -> None:
    both = [certify([1.0] * 40, "rr", delta=1e-3), MORE]
    composed = compose(both, delta=delta, fixed_terms=True)
    assert product_delta((1.0, 40), (2.0, 6), composed.epsilon) <= delta
    assert composed.epsilon <= compose(both, delta=delta).epsilon
    assert composed.grade is Grade.CERTIFIED
    assert composed.method[-1]["rounds"] == 2
    # Reproduction: print(compose(…)) was all fields and assumptions.
    assert str(composed) == f"CERTIFIED ε = {round_up(composed.epsilon)} at δ = {delta:g} ({joined(composed.method)})"


@pytest.mark.slow
def test_ten_of_one_certificate_cost_what_ten_rounds_cost() -> None:
    ten = certify(Budgets.from_tiers([(0.5, 900), (2.0, 100)]), "hemisphere", delta=1e-6, rounds=10, attack=False)
    composed = compose([MANY] * 10, delta=1e-6, fixed_terms=True)
    assert composed.epsilon == pytest.approx(ten.epsilon, rel=0.02)
    assert composed.epsilon < 0.6 * 10 * MANY.epsilon
    assert set(MANY.assumptions) <= set(composed.assumptions)
    assert compose([ten], delta=1e-6, fixed_terms=True).epsilon == pytest.approx(ten.epsilon, rel=0.02)
    assert compose([ten], delta=1e-6).epsilon == pytest.approx(compose([MANY] * 10, delta=1e-6).epsilon, rel=0.02)


def test_without_curves_the_pairs_are_composed() -> None:
    read = Certificate.from_json(MANY.to_json())
    pairs = compose([read] * 10, delta=2e-5, fixed_terms=True)
    assert compose([MANY] * 10, delta=2e-5, fixed_terms=True).epsilon < pairs.epsilon <= 10 * MANY.epsilon * (1 + 1e-12)
    assert compose([read], delta=1e-6).epsilon == pytest.approx(MANY.epsilon, rel=1e-12)


@pytest.mark.parametrize("rounds", [2, 1000])
def test_releases_are_composed_whose_e_to_epsilon_is_no_float(rounds: int) -> None:
    """Reproduction: without a curve an epsilon above 709 ended in a RuntimeWarning of e^epsilon."""
    dear = certify([(1.0, 20), (450.0, 1)], "rr", delta=1e-6, rounds=rounds, attack=False)
    assert dear.epsilon > 709
    read = Certificate.from_json(dear.to_json())
    composed = compose([read, MANY], delta=1e-5, fixed_terms=True)
    assert dear.epsilon < composed.epsilon <= sum_above([dear.epsilon, MANY.epsilon])
    assert composed.epsilon <= compose([read, MANY], delta=1e-5).epsilon <= dear.epsilon + 2.0  # its local budget
    # The worst of a pair: nearly all its mass is at its epsilon.
    assert dear.epsilon - 12 < compose([read], delta=0.99999, fixed_terms=True).epsilon < dear.epsilon
    law = privacy_loss_distribution(read, value_discretization_interval=dear.epsilon / 500)
    assert dear.epsilon - 1 < law.get_epsilon_for_delta(1e-5) < dear.epsilon * 1.01


def test_many_rounds_that_are_read_back_are_composed() -> None:
    """Reproduction: where the local budgets of all rounds added up to 709 more, it ended in an OverflowError."""
    rounds = certify({4.0: 1000}, "rr", delta=1e-6, rounds=1000, attack=False)
    assert rounds.everyone_else_colludes.epsilon == 4000
    composed = compose([Certificate.from_json(rounds.to_json()), MANY], delta=1e-5, fixed_terms=True)
    assert rounds.epsilon < composed.epsilon <= sum_above([rounds.epsilon, MANY.epsilon])


@pytest.mark.parametrize("read", [True, False])
def test_what_is_certified_beyond_the_tiers_is_composed(read: bool) -> None:
    """Reproduction: an ε of clients whose budget did not arrive, above all tiers, was left out: .2 instead of 1.5."""
    round_ = replace(MANY, epsilon=1.5)
    several = [Certificate.from_json(round_.to_json()) if read else round_]
    assert compose(several, delta=1e-6).epsilon == 1.5
    assert compose(several * 20, delta=1e-3).epsilon > 15
    assert privacy_loss_distribution(several[0]).get_epsilon_for_delta(1e-6) >= 1.5 - 1e-3


@pytest.mark.slow
def test_what_is_lost_for_certain_is_not_composed_away() -> None:
    local = certify([(0.7, 30, 1e-4)], "gaussian", delta=1e-6, attack=False)
    assert local.epsilon == local.everyone_else_colludes.epsilon
    for fixed_terms, enough in ((True, 4e-4), (False, 1.3e-3)):
        with pytest.raises(ValueError, match=naming("delta", enough / 2, "larger")):
            compose([local] * 3, delta=enough / 2, fixed_terms=fixed_terms)
        assert compose([local] * 3, delta=enough, fixed_terms=fixed_terms).epsilon <= 3 * 0.7 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("certificates", "delta", "message"),
    [([], 0.1, "certificates is empty"), ([FEW], 0.0, "delta"), ([FEW, 3], 0.1, r"certificates\[1\]")],
)
def test_nonsense_is_refused(certificates: list[Certificate], delta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compose(certificates, delta=delta)


@pytest.mark.parametrize("certificate", [MANY, MORE], ids=["many", "few"])
def test_the_loss_distribution_is_above_the_certificate_and_close(certificate: Certificate) -> None:
    losses = privacy_loss_distribution(certificate)
    assert losses.get_delta_for_epsilon(certificate.epsilon) >= certificate.delta * (1 - 1e-2)
    reached = losses.get_epsilon_for_delta(certificate.delta)
    assert certificate.epsilon * (1 - 1e-3) <= reached <= certificate.epsilon * 1.02
    # With somebody else's event on the same grid: more than either alone.
    noise = from_gaussian_mechanism(20.0, value_discretization_interval=1e-4)
    both = losses.compose(noise).get_epsilon_for_delta(certificate.delta)
    assert max(reached, noise.get_epsilon_for_delta(certificate.delta)) < both
    assert both <= reached + noise.get_epsilon_for_delta(certificate.delta * 1e-2)


def test_the_loss_distribution_is_never_below_an_exact_law() -> None:
    losses = privacy_loss_distribution(certify([1.0] * 40, "rr", delta=1e-3), value_discretization_interval=1e-3)
    keep = 1 / (1 + math.exp(-1.0))
    for share in (keep, 1 - keep):
        p, q = (count_law([(share, 39), (own, 1)]) for own in (keep, 1 - keep))
        for epsilon in np.linspace(0, 0.9, 10).tolist():
            exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
            assert exact <= losses.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
    with pytest.raises(ValueError, match="value_discretization_interval"):
        privacy_loss_distribution(FEW, value_discretization_interval=0.0)
    with pytest.raises(ValueError, match="step is 1e-09"):
        privacy_loss_distribution(FEW, value_discretization_interval=1e-9)


def test_any_iterable_of_certificates_is_composed_and_nothing_else() -> None:
    """Reproduction: of a generator it was said that rounds is empty."""
    assert compose((FEW for _ in range(2)), delta=0.05) == compose([FEW, FEW], delta=0.05)
    with pytest.raises(ValueError, match=naming("certificates", "Certificate")):
        compose(FEW, delta=0.05)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=naming("certificates[0]", "dict")):
        compose([FEW.to_json()], delta=0.05)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=naming("certificates")):
        compose(iter([]), delta=1e-13)


def test_the_loss_distribution_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match=naming("delta", "2.0", "1e-12 <= delta < 1")):
        privacy_loss_distribution(FEW, delta=2.0)
    with pytest.raises(ValueError, match=naming("value_discretization_interval", "'a'")):
        privacy_loss_distribution(FEW, value_discretization_interval="a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=naming("dict")):
        privacy_loss_distribution(FEW.to_json())  # type: ignore[arg-type]


def test_deltas_add_up_as_they_are_written() -> None:
    """Reproduction: six certificates at 1e-14 did not add up to 6e-14, by the last digit of a float."""
    read = Certificate.from_json(certify([(0.5, 900)], "rr", delta=1e-14, attack=False).to_json())
    lost = sum_above([1e-14] * 6)
    assert lost > 6e-14
    composed = compose([read] * 6, delta=6e-14, fixed_terms=True)
    assert (composed.epsilon, composed.delta) == (sum_above([read.epsilon] * 6), lost)


def test_tables_are_added_up_as_what_they_show() -> None:
    """Reproduction: a table declared for .1 that shows a digit more was, twice, certified below its certificates."""
    keep = math.nextafter(1 / (1 + math.exp(-0.1)), 1.0)
    table = TableMechanism({0.1: [[keep, 1 - keep], [1 - keep, keep]]})
    alone = certify(Budgets.from_tiers([(0.1, 3)]), table, delta=1e-9, attack=False)
    assert alone.everyone_else_colludes.epsilon > 0.1
    assert compose([alone] * 2, delta=1e-8).epsilon >= 2 * min(alone.epsilon, alone.everyone_else_colludes.epsilon)


@pytest.mark.parametrize("fixed_terms", [False, True])
def test_a_smaller_delta_than_the_certificates_is_certified_for(fixed_terms: bool) -> None:
    # Reproduction: two rounds at 1e-12 came to several times what certify gives for them.
    certificate = certify({1.0: 1000}, "rr", delta=1e-6, attack=False)
    exact = certify({1.0: 1000}, "rr", delta=1e-12, rounds=2, attack=False)
    composed = compose([certificate] * 2, delta=1e-12, fixed_terms=fixed_terms)
    assert exact.epsilon * (1 - 2e-3) <= composed.epsilon <= 1.15 * exact.epsilon
    assert not composed.notes


def test_a_delta_that_is_too_small_is_refused_with_what_can_be_done() -> None:
    """Reproduction: the error named a larger delta only."""
    certificate = certify({1.0: 1000}, "rr", delta=1e-6, attack=False)
    read = Certificate.from_json(certificate.to_json())
    choices = naming("delta is 1e-09", "4e-06", "factor of 4,000", "fixed_terms")
    with pytest.raises(ValueError, match=choices):
        compose([read], delta=1e-9)
    with pytest.raises(ValueError, match=choices):
        compose_releases([ComposedRelease(Guarantee(1.0, 1e-6, Grade.CERTIFIED, certificate.method))], delta=1e-9)
    smaller = Certificate.from_json(certify({1.0: 1000}, "rr", delta=1e-6 / 4000, attack=False).to_json())
    assert compose([smaller], delta=1e-9).delta == 1e-9


def test_releases_at_a_smaller_delta_than_their_guarantees_say_so() -> None:
    certificate = certify({1.0: 1000}, "rr", delta=1e-6, attack=False)
    (tier,) = certificate.tiers
    stated = Guarantee(certificate.epsilon, 1e-6, Grade.CERTIFIED, certificate.method)
    release = ComposedRelease(stated, tier.privacy_profile, 1.0)
    assert [note.code for note in compose_releases([release], delta=1e-9).notes] == [Note.LARGER_DELTA]
    assert not compose_releases([release], delta=1e-5).notes


def test_what_cannot_be_certified_for_a_smaller_delta_says_so() -> None:
    certificate = certify({1.0: 1000}, "rr", delta=1e-6, attack=False)
    grouped = replace(certificate, tiers=tuple(replace(tier, grouped=True) for tier in certificate.tiers))
    composed = compose([grouped], delta=1e-9)
    assert [note.code for note in composed.notes] == [Note.LARGER_DELTA]
    assert composed.epsilon >= certify({1.0: 1000}, "rr", delta=1e-9, attack=False).epsilon


def test_disjoint_groups_cost_what_the_worst_one_costs() -> None:
    small, large = (certify([1.0] * n, "rr", delta=1e-6, attack=False) for n in (200, 1000))
    together = of_disjoint_groups([small, large])
    assert (together.epsilon, together.delta) == (small.epsilon, 1e-6)
    assert set(small.assumptions) < set(together.assumptions)
    assert together.assumptions[-1] == Statement.of(Assumption.DISJOINT_GROUPS, groups=2)
    with pytest.raises(ValueError, match="empty"):
        of_disjoint_groups([])
