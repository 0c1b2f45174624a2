"""Certificates that were once below the truth, and inputs that once broke the accountant: each is kept as a test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
import sqlalchemy as sa
from scipy.stats import norm

from accountant import BinaryRandomizedResponse, Budgets, GaussianMechanism, LaplaceMechanism, certify, lower_bound
from accountant.certification import certify_with_curves
from accountant.exact_binary import ExactBinaryCurve
from accountant.ledger import ANY_TIER, Ledger
from accountant.randomizers import Randomizer
from accountant.service import _entries


def sigma_of(epsilon: float, delta: float) -> float:
    """The analytic calibration, by a scan that shares no code with the accountant's."""
    sigmas = np.geomspace(0.05, 50, 200_001)
    spent = norm.sf(sigmas * epsilon - 1 / (2 * sigmas)) - np.exp(epsilon) * norm.sf(
        sigmas * epsilon + 1 / (2 * sigmas)
    )
    return float(sigmas[np.argmax(spent <= delta)])


def test_a_group_of_gaussian_budgets_covers_its_noisiest_member() -> None:
    """More than 32 budgets are answered together; the noisiest once was taken to have the largest local delta, too.

    The attack: some report lies beyond a threshold that nobody but the noisy victim reaches.
    """
    others = [(1.0, 3000, 0.1 - 1e-3 * i) for i in range(32)]
    certificate = certify(Budgets.from_tiers([*others, (1.0, 1, 1e-12)]), GaussianMechanism(), delta=1e-6, attack=False)
    threshold = np.linspace(0, 60, 6001)
    nobody = np.sum([3000 * norm.logcdf(threshold / sigma_of(1.0, delta)) for _, _, delta in others], axis=0)
    sigma = sigma_of(1.0, 1e-12)
    low, high = (-np.expm1(nobody + norm.logcdf((threshold - value) / sigma)) for value in (0, 1))
    assert (high - np.exp(0.6) * low).max() > 1e-6  # no epsilon below 0.6 is true
    assert certificate.epsilon > 0.6


def spent_in_one_round(budgets: Budgets, randomizer: Randomizer, rounds: int = 1, delta: float = 1e-6) -> float:
    """What the ledger says that a client of any tier has lost, with entries as the service makes them."""
    certificate, curves = certify_with_curves(budgets, randomizer, delta=delta, attack=False)
    entries = _entries(budgets, randomizer, certificate, curves, with_profiles=True)
    assert [entry.count for entry in entries] == budgets.count.tolist()
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        for number in range(rounds):
            Ledger(connection).enter(f"round-{number}", bytes(32), entries)
        (spent,) = (one for one in Ledger(connection).spent(delta * rounds) if one.tier == ANY_TIER)
    engine.dispose()
    assert spent.guarantee is not None
    return spent.guarantee.epsilon


def test_the_ledger_composes_the_curves_of_the_certificate_and_no_reconstruction() -> None:
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


def test_many_budgets_of_a_closed_form_have_profiles_in_the_ledger() -> None:
    budgets = Budgets.from_tiers([(0.5 + 0.01 * step, 250) for step in range(40)])
    one = certify(budgets, "rr", delta=1e-6, attack=False).epsilon
    assert one < spent_in_one_round(budgets, BinaryRandomizedResponse(), rounds=4) < 0.8 * 4 * one


def exact_worst_case(victim: float, others: Sequence[float], epsilon: float) -> mpmath.mpf:
    """The largest divergence of the number of ones over all data sets of the others, in 400 digits."""
    worst = mpmath.mpf(0)
    with mpmath.workdps(400):
        shown, gain = 1 / (1 + mpmath.exp(-mpmath.mpf(victim))), mpmath.exp(mpmath.mpf(epsilon))
        ones = [1 / (1 + mpmath.exp(-mpmath.mpf(other))) for other in others]
        for held in itertools.product([False, True], repeat=len(others)):
            law = [mpmath.mpf(1)]
            for bit, share in zip(held, ones, strict=True):
                p = share if bit else 1 - share
                law = [a * (1 - p) + b * p for a, b in zip([*law, 0], [0, *law], strict=True)]
            terms = [
                (shown - gain * (1 - shown)) * before - (gain * shown - (1 - shown)) * here
                for before, here in zip([0, *law], [*law, 0], strict=True)
            ]
            worst = max(worst, sum(max(mpmath.mpf(0), term) for term in terms))
    return worst


@pytest.mark.parametrize("victim", [1e-300, 3e-17, 1e-16, 1e-13, 1e-6, 0.5, 10.0, 30.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_the_exact_worst_case_of_bits_holds_at_the_smallest_budgets(victim: float, share: float) -> None:
    """e^epsilon w - (1 - w) once cancelled: at 1e-16 half of delta was missing, at 3e-17 there was no logarithm."""
    for others, counts in (([victim], [4]), ([1e-16, 2.0], [2, 2]), ([30.0], [3])):
        curve = ExactBinaryCurve(victim, np.array(others), np.array(counts))
        everyone = [other for other, count in zip(others, counts, strict=True) for _ in range(count)]
        truth = exact_worst_case(victim, everyone, share * victim)
        found = curve.delta(share * victim).value
        assert truth <= found
        assert found <= truth * (1 + 1e-3) or victim > 10  # there, rounding is all that is left near the local budget
