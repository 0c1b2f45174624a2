"""Certificates that were once below the truth, and inputs that once broke the accountant: each is kept as a test."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
import sqlalchemy as sa
from scipy.stats import norm

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    GaussianMechanism,
    HemisphereMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    TableMechanism,
    certify,
    lower_bound,
)
from croupier.accountant.bounds.exact_binary import ExactBinaryProfile
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.ranges import Linkage
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_entries import entries_of
from croupier.accountant.spending import ANY_TIER
from croupier.protocol.codes import Method
from croupier.protocol.names import Digest, RoundId
from tests.support.messages import naming
from tests.support.oracles.from_definitions import response, sigma_of, worst_divergences
from tests.support.statements import parameters


@pytest.mark.slow
def test_a_group_of_gaussian_budgets_covers_its_noisiest_member() -> None:
    """More than 32 budgets are answered together; the noisiest once was taken to have the largest local delta, too.

    The attack: some report lies beyond a threshold that only the noisy victim reaches.
    """
    others = [(1.0, 3000, 0.1 - 1e-3 * i) for i in range(32)]
    certificate = certify(Budgets.from_tiers([*others, (1.0, 1, 1e-12)]), GaussianMechanism(), delta=1e-6, attack=False)
    threshold = np.linspace(0, 60, 6001)
    none_of_others = np.sum([3000 * norm.logcdf(threshold / sigma_of(1.0, delta)) for _, _, delta in others], axis=0)
    sigma = sigma_of(1.0, 1e-12)
    low, high = (-np.expm1(none_of_others + norm.logcdf((threshold - value) / sigma)) for value in (0, 1))
    assert (high - np.exp(0.6) * low).max() > 1e-6  # no epsilon below 0.6 is true
    assert certificate.epsilon > 0.6


def spent_in_one_round(budgets: Budgets, randomizer: Randomizer, rounds: int = 1, delta: float = 1e-6) -> float:
    """What the ledger says that a client of any tier has lost, with entries as the service makes them."""
    certificate = certify(budgets, randomizer, delta=delta, attack=False)
    entries = entries_of(budgets, randomizer, certificate, with_profiles=True)
    assert [entry.count for entry in entries] == budgets.count.tolist()
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        for number in range(rounds):
            Ledger(connection).enter(RoundId(f"round-{number}"), Digest(bytes(32)), entries)
        (spent,) = (tier for tier in Ledger(connection).spent(delta * rounds) if tier.tier == ANY_TIER)
    engine.dispose()
    assert spent.guarantee is not None
    return spent.guarantee.epsilon


@pytest.mark.slow
def test_the_ledger_composes_the_profiles_of_the_certificate() -> None:
    """Budgets beyond 32 are answered in groups; noise of the groups' largest budgets hides more than the real one."""
    quiet = [(0.01 + 0.0005 * step, 250) for step in range(40)]
    budgets, randomizer = Budgets.from_tiers([*quiet, (2.0, 1), (8.0, 1)]), LaplaceMechanism(lattice=64)
    attack = lower_bound(budgets, randomizer, delta=1e-6)
    certified = certify(budgets, randomizer, delta=1e-6, attack=False)
    assert 0.45 < attack.epsilon <= certified.epsilon
    assert spent_in_one_round(budgets, randomizer) == pytest.approx(certified.epsilon, rel=1e-9)  # no profile: added
    # What it once did: certify the groups as if they were budgets.
    groups = Budgets.from_tiers([(tier.local_epsilon, tier.count) for tier in certified.tiers])
    assert certify(groups, randomizer, delta=1e-6, attack=False).epsilon < attack.epsilon


@pytest.mark.slow
def test_many_budgets_of_a_closed_form_have_profiles_in_the_ledger() -> None:
    budgets = Budgets.from_tiers([(0.5 + 0.01 * step, 250) for step in range(40)])
    certificate = certify(budgets, "rr", delta=1e-6, attack=False).epsilon
    assert certificate < spent_in_one_round(budgets, BinaryRandomizedResponse(), rounds=4) < 0.8 * 4 * certificate


def exact_worst_case(victim: float, others: Sequence[float], epsilon: float) -> mpmath.mpf:
    """The largest divergence of bits over all data sets of the others, in 400 digits."""
    with mpmath.workdps(400):
        own, *tables = (response(mpmath.mpf(budget), 2, mpmath.exp) for budget in (victim, *others))
        (worst,) = worst_divergences(own, tables, [mpmath.exp(mpmath.mpf(epsilon))])
        return worst


@pytest.mark.parametrize("victim", [1e-100, 3e-17, 1e-16, 1e-13, 1e-6, 0.5, 10.0, 30.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_the_exact_worst_case_of_bits_holds_at_the_smallest_budgets(victim: float, share: float) -> None:
    """e^epsilon w - (1 - w) once cancelled: at 1e-16 half of delta was missing, at 3e-17 there was no logarithm."""
    for others, counts in (([victim], [4]), ([1e-16, 2.0], [2, 2]), ([30.0], [3])):
        curve = ExactBinaryProfile(victim, np.array(others), np.array(counts))
        everyone = [other for other, count in zip(others, counts, strict=True) for _ in range(count)]
        truth = exact_worst_case(victim, everyone, share * victim)
        delta = curve.delta(share * victim).value
        assert truth <= delta
        assert delta <= truth * (1 + 1e-3) or victim > 10  # near that local budget there is only rounding


def response_table(epsilon: float, excess: float = 0.0) -> np.ndarray:
    keep, flip = 1 / (1 + np.exp(-epsilon)), 1 / (1 + np.exp(epsilon))
    return np.array([[keep + excess, flip - excess], [flip - excess, keep + excess]])


def test_a_table_above_its_budget_is_refused() -> None:
    for excess in (2e-10, 1e-13):
        with pytest.raises(ValueError, match=naming("ratio", "e^epsilon")):
            TableMechanism({1.0: response_table(1.0, excess)})
    with pytest.raises(ValueError, match=naming("add up to 1")):
        TableMechanism({1.0: response_table(1.0) * (1 + 1e-10)})
    with pytest.raises(ValueError, match=naming("shapes")):
        TableMechanism({1.0: response_table(1.0), 0.5: np.full((3, 3), 1 / 3)})
    for epsilon in np.geomspace(1e-3, 30, 50).tolist():  # floats that stand for masses with exactly this ratio
        TableMechanism({epsilon: response_table(epsilon)})
    with pytest.raises(ValueError, match=naming("epsilon", "1000.0")):
        TableMechanism({1000.0: response_table(1.0)})


@pytest.mark.parametrize("randomizer", [BinaryRandomizedResponse(), HemisphereMechanism(3), KaryRandomizedResponse(3)])
def test_delta_is_zero_only_from_the_local_budget_on(randomizer: Randomizer) -> None:
    budgets = Budgets.from_tiers([(1.0, 100_000)])
    for epsilon in (0.9, 0.99999, 1 - 2**-53):  # e^-800 and less
        assert 0 < certify(budgets, randomizer, epsilon=epsilon, attack=False).delta < 1e-25
    assert certify(budgets, randomizer, epsilon=1.0, attack=False).delta == 0
    few = Budgets.from_tiers([(30.0, 40)])
    assert certify(few, randomizer, epsilon=29.9, attack=False).delta > 0


RANDOMIZERS = [
    BinaryRandomizedResponse(),
    KaryRandomizedResponse(3),
    LaplaceMechanism(),
    LaplaceMechanism(lattice=8),
    GaussianMechanism(),
    HemisphereMechanism(3),
    TableMechanism({0.5: response_table(0.5), 1.0: response_table(1.0)}),
]


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=lambda randomizer: randomizer.name)
@pytest.mark.parametrize("linkage", ["separate", "stratified"])
@pytest.mark.parametrize("dishonest", [0, 3])
def test_a_victim_without_honest_others_has_its_local_guarantee(
    randomizer: Randomizer, linkage: Linkage, dishonest: int
) -> None:
    """No other user at all, tiers of one user under stratified linkage, and others that are all dishonest."""
    spent = 1e-6 if randomizer.spends_local_delta else 0.0
    tiers = [(0.5, 1, spent), (1.0, 1, spent)] if linkage == "stratified" else [(1.0, 1 + dishonest, spent)]
    budgets = Budgets.from_tiers(tiers)
    certificate = certify(budgets, randomizer, epsilon=0.5, dishonest=dishonest, linkage=linkage)
    pure = (np.e - np.exp(0.5)) / (np.e + 1)  # of any 1-private report
    assert 0.02 < certificate.delta <= (spent + (1 - spent) * pure) * (1 + 1e-9)
    certificate = certify(budgets, randomizer, delta=1e-3, dishonest=dishonest, linkage=linkage)
    assert 0 < certificate.epsilon <= 1 + 4e-15  # a table shows what its floats show


def test_gaussian_budgets_that_share_almost_no_output_are_certified() -> None:
    """The blanket's density came as floats near 0, which have few digits: its masses added up to 1.001."""
    budgets = Budgets.from_tiers([(0.3, 1, 1.09e-8), (6.0, 2, 4.3e-8)])
    certificate = certify(budgets, GaussianMechanism(), delta=0.51)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= 6


@pytest.mark.slow
def test_the_largest_and_the_smallest_budgets_overflow_nowhere() -> None:
    for randomizer in (BinaryRandomizedResponse(), KaryRandomizedResponse(3), LaplaceMechanism()):
        for local in (1e-100, 500.0):
            assert certify([local] * 10, randomizer, epsilon=local / 2).delta <= 1
            assert certify([local] * 10, randomizer, delta=1e-6).epsilon <= local
    large = {400.0: np.array([[1.0, np.exp(-400.0)], [np.exp(-400.0), 1.0]])}
    assert certify([400.0] * 10, TableMechanism(large), delta=1e-6).epsilon <= 400 + 1e-12
    apart = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.array([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    tables = TableMechanism(dict(zip((1.0, 2.0), apart, strict=True)))
    assert certify([1.0, 1.0, 2.0], tables, delta=1e-6).epsilon <= 2


@pytest.mark.parametrize(
    ("counts", "match"),
    [
        ([1.5], "count.*float64"),
        ([2**53] * 2000, "budgets hold 18014398509481984000 users"),
        ([2**53 - 1] * 1025, "budgets hold 9232379236109515775 users"),
    ],
)
def test_counts_must_be_whole_numbers_in_range(counts: list[float], match: str) -> None:
    size = len(counts)
    with pytest.raises(ValueError, match=match):
        Budgets(np.ones(size), np.zeros(size), np.array(counts))


def test_very_many_rounds_are_added_up() -> None:
    """Their loss distribution would take gigabytes."""
    certificate = certify([1.0] * 1000, KaryRandomizedResponse(3), delta=1e-6, rounds=10**9, attack=False)
    assert parameters(certificate.method, Method.BASIC_COMPOSITION) == {"rounds": 10**9}
    assert certificate.delta <= 1e-6 * (1 + 1e-15)
    assert certificate.epsilon <= certificate.everyone_else_colludes.epsilon == 1e9


@pytest.mark.parametrize("lattice", [None, 1, 50])
def test_gaussian_noise_without_an_honest_other_has_its_local_budget(lattice: int | None) -> None:
    """On a lattice the attack beside the certificate looked for the widest noise of nobody."""
    certificate = certify([(0.1, 3, 1e-3)], GaussianMechanism(lattice=lattice), delta=1e-4, dishonest=5)
    assert (certificate.epsilon, certificate.delta) == (0.1, 1e-3)
