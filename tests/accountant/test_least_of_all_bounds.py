"""The certificate as the least of all bounds that are proved: which one gives the number, and where one may not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    Certificate,
    HemisphereMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    OneBitMean,
    Randomizer,
    certify,
)
from croupier.accountant.certification import tier_profiles
from croupier.accountant.composition import ComposedProfile, Round
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.planner import plan
from croupier.accountant.ranges import BOUNDS, LINKAGES, Bounds, check_linkage
from croupier.accountant.recorded_profile import profile_of
from croupier.protocol.codes import Assumption, Method, ProofStep
from croupier.protocol.statements import Statement
from croupier.training.privacy import Batch, Conditions, UserSpending
from tests.support.drawn import drawn
from tests.support.oracles.exchange import divergence_of_split
from tests.support.statements import codes

MIXED = Budgets.from_tiers([(0.5, 9000), (2.0, 1000)])
BITS = [BinaryRandomizedResponse(), OneBitMean(), HemisphereMechanism(dimension=3), KaryRandomizedResponse(2)]


def steps_of(certificate: Certificate) -> list[Statement[ProofStep]]:
    return [step for tier in certificate.tiers for step in tier.steps]


@pytest.mark.parametrize("randomizer", BITS, ids=lambda randomizer: randomizer.name)
def test_bits_and_half_spheres_are_certified_well_below_the_blanket(randomizer: Randomizer) -> None:
    certificate = certify(MIXED, randomizer, delta=1e-6)
    assert certificate.lower_bound is None or certificate.lower_bound.epsilon <= certificate.epsilon
    assert 0.056874 <= certificate.epsilon <= 0.0570
    assert codes(certificate.method) == [Method.EXCHANGE]
    reached = {step["bound"]: step["epsilon"] for step in steps_of(certificate) if step.code is ProofStep.FOUND_EPSILON}
    assert reached["blanket"] == pytest.approx(0.0645, abs=5e-4)
    assert reached["exchange"] == certificate.epsilon
    back = certify(MIXED, randomizer, epsilon=certificate.epsilon, attack=False)
    assert back.delta <= 1e-6 * 1.05


def test_beside_a_worst_case_both_other_bounds_are_tried() -> None:
    certificate = certify({1.0: 300}, "rr", delta=1e-6)
    tried = [
        step["bound"] for step in steps_of(certificate) if step.code in (ProofStep.FOUND_EPSILON, ProofStep.NO_LESS)
    ]
    assert tried == ["worst case", "blanket", "exchange"]
    assert codes(certificate.method) == [Method.WORST_CASE]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tiers", "dishonest", "attack", "least"),
    [([(1.0, 10_000)], 0, 0.0312, 0.0314), ([(0.5, 400), (1.0, 300)], 2, 0.1305, 0.142)],
)
def test_laplace_noise_is_certified_by_the_exchange_bound(
    tiers: list[tuple[float, int]], dishonest: int, attack: float, least: float
) -> None:
    budgets = Budgets.from_tiers(tiers)
    told: list[tuple[int, int]] = []
    certificate = certify(
        budgets, "laplace", delta=1e-6, dishonest=dishonest, progress=lambda done, tiers: told.append((done, tiers))
    )
    assert told == [(done + 1, len(tiers)) for done in range(len(tiers))]
    assert certificate.lower_bound is not None
    assert max(attack, certificate.lower_bound.epsilon) <= certificate.epsilon <= least
    assert codes(certificate.method) == [Method.EXCHANGE]
    assert certify(budgets, "laplace", delta=1e-6, dishonest=dishonest, attack=False, bounds="blanket").epsilon > least


@pytest.mark.parametrize(
    "randomizer",
    [KaryRandomizedResponse(3), LaplaceMechanism(lattice=20)],
    ids=lambda randomizer: randomizer.statement.code,
)
def test_others_keep_the_blanket(randomizer: Randomizer) -> None:
    least, blanket = (certify(MIXED, randomizer, delta=1e-6, attack=False, bounds=bounds) for bounds in BOUNDS)
    assert least.epsilon == blanket.epsilon
    assert Method.EXCHANGE not in codes(least.method)


@pytest.mark.parametrize("bounds", ["", "exchange"])
def test_unknown_bounds_are_refused(bounds: str) -> None:
    with pytest.raises(ValueError, match="bounds is"):
        certify([1.0, 1.0], "rr", delta=0.1, bounds=bounds)  # type: ignore[arg-type]


def test_an_adaptive_order_is_refused_where_nothing_is_proved() -> None:
    for randomizer in (KaryRandomizedResponse(3), LaplaceMechanism()):
        with pytest.raises(ValueError, match="adaptive_order"):
            certify([1.0, 1.0], randomizer, delta=0.1, adaptive_order=True)
        with pytest.raises(ValueError, match="adaptive_order"):
            tier_profiles(MIXED, randomizer, 0.1, adaptive_order=True)


@pytest.mark.parametrize(
    "randomizer",
    [BITS[0], *(pytest.param(randomizer, marks=pytest.mark.slow) for randomizer in BITS[1:])],
    ids=lambda randomizer: randomizer.name,
)
@pytest.mark.parametrize("budgets", [MIXED, pytest.param(Budgets.from_tiers([(1.0, 300)]), marks=pytest.mark.slow)])
def test_an_adaptive_order_keeps_the_blanket(budgets: Budgets, randomizer: Randomizer) -> None:
    """Neither the exchange bound nor the exact worst case of a batch holds there."""
    turns = certify(budgets, randomizer, delta=1e-6, attack=False, adaptive_order=True)
    blanket = certify(budgets, randomizer, delta=1e-6, attack=False, bounds="blanket")
    assert turns.epsilon == blanket.epsilon > certify(budgets, randomizer, delta=1e-6, attack=False).epsilon
    assert [tier.epsilon for tier in turns.tiers] == [tier.epsilon for tier in blanket.tiers]
    assert Assumption.ADAPTIVE_ORDER in codes(turns.assumptions)
    for (_, curve), tier in zip(
        tier_profiles(budgets, randomizer, 1e-6, adaptive_order=True), blanket.tiers, strict=True
    ):
        assert curve is not None
        assert tier.privacy_profile is not None
        assert curve.delta(0.03) == tier.privacy_profile.delta(0.03)


@pytest.mark.slow
def test_a_training_in_sequence_keeps_the_blanket() -> None:
    batch = Batch(((0.5, 9000), (2.0, 1000)))
    together, turns = (
        UserSpending(3, 1e-6, Conditions(sequential=flag)).after([[batch]] * 2).epsilon for flag in (False, True)
    )
    blanket = certify(MIXED, "hemisphere", delta=1e-6, rounds=2, attack=False, bounds="blanket").epsilon
    assert together < 0.95 * turns
    assert turns == pytest.approx(blanket, rel=0.02)


def test_when_the_time_is_over_the_blanket_stays() -> None:
    certificate = certify(MIXED, "rr", delta=1e-6, attack=False, seconds=0.0)
    assert certificate.epsilon == certify(MIXED, "rr", delta=1e-6, attack=False, bounds="blanket").epsilon
    assert ProofStep.TIME_OVER in codes(steps_of(certificate))


def test_many_different_budgets() -> None:
    values = np.random.default_rng(1).uniform(0.01, 2.0, 10_000)
    values[0] = 2.0
    certificate = certify(values.tolist(), "rr", delta=1e-6)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= 1.05 * certificate.lower_bound.epsilon


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(8)
def test_never_above_the_blanket_and_never_below_an_attack(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.choice([1, 2, 5]))
    locals_ = np.exp(rng.uniform(math.log(0.02), math.log(4), count)).tolist()
    budgets = Budgets.from_tiers([(e, int(rng.integers(100, 4000))) for e in locals_])
    dishonest = int(rng.choice([0, 1, 50, budgets.num_users]))
    linkage = check_linkage(str(rng.choice(LINKAGES)))
    delta = float(rng.choice([0.3, 1e-4, 1e-9, 1e-20]))
    rounds = int(rng.choice([1, 1, 3]))
    keys = {"delta": delta, "dishonest": dishonest, "linkage": linkage, "rounds": rounds, "attack": False}
    certificate = certify(budgets, "hemisphere", **keys)  # type: ignore[arg-type]
    blanket = certify(budgets, "hemisphere", bounds="blanket", **keys)  # type: ignore[arg-type]
    for tier, before in zip(certificate.tiers, blanket.tiers, strict=True):
        # The points of a composed profile are not quite where they were.
        assert tier.epsilon <= before.epsilon * (1 if rounds == 1 else 1.02)
        attack = lower_bound(
            budgets, "rr", victim=tier.local_epsilon, delta=delta, dishonest=dishonest, linkage=linkage
        ).epsilon
        assert attack <= tier.epsilon * (1 + 1e-9)


def test_the_curve_that_is_composed_is_never_below_the_truth() -> None:
    budgets = Budgets.from_tiers([(2.0, 600)])
    certificate = certify(budgets, "hemisphere", delta=1e-4, attack=False)
    curve = certificate.tiers[0].privacy_profile
    assert curve is not None
    assert codes(certificate.method) == [Method.EXCHANGE]
    recorded = profile_of(curve, certificate.epsilon, 2.0)
    for epsilon in [*np.linspace(0, 1.2 * certificate.epsilon, 9).tolist(), recorded[7][0], 1.9]:
        truth = max(divergence_of_split([(2.0, 599)], [ones], 2.0, epsilon) for ones in (0, 300, 599))
        assert truth * (1 - 1e-9) <= curve.delta(epsilon).value
    assert all(delta >= divergence_of_split([(2.0, 599)], [0], 2.0, e) * (1 - 1e-9) for e, delta in recorded[:20])
    both = ComposedProfile([Round(curve, 2.0, 2)], 1e-4)
    assert (
        certificate.epsilon < both.delta(certificate.epsilon).value + certificate.epsilon
    )  # composed once more, it costs more
    assert both.delta(certificate.epsilon).value > 1e-4


def test_plans_reach_further_than_by_the_blanket_and_hold() -> None:
    def largest(bounds: Bounds, adaptive_order: bool = False) -> float:
        planned = plan("rr", delta=1e-6, epsilon=0.1, num_users=10_000, bounds=bounds, adaptive_order=adaptive_order)
        assert planned.certificate.epsilon <= 0.1
        return float(planned.budgets.local_epsilon[-1])

    assert largest("all") > 1.05 * largest("blanket") == 1.05 * largest("all", adaptive_order=True)
    users = [
        plan("rr", delta=1e-6, epsilon=0.03, budgets=[1.0], bounds=bounds).budgets.num_users
        for bounds in ("all", "blanket")
    ]
    assert users[0] < 0.8 * users[1]


@pytest.mark.parametrize(("local", "users"), [(0.0026267, 10**6), (0.01, 10**6), (0.001, 10_000), (0.1, 10**6)])
def test_no_bound_of_bits_hides_a_lower_blanket(local: float, users: int) -> None:
    """At tiny budgets rounding is most of its delta: it certified 1.18e-7 where the blanket has 0.99e-7."""
    budgets = Budgets.from_tiers([(local, users)])
    least, blanket = (certify(budgets, "rr", delta=1e-6, attack=False, bounds=bounds) for bounds in BOUNDS)
    assert least.epsilon <= blanket.epsilon * (1 + 1e-6)
    for share in (0.3, 1.0, 2.0):
        epsilon, other = (
            certify(budgets, "rr", epsilon=share * blanket.epsilon, attack=False, bounds=bounds).delta
            for bounds in ("all", "blanket")
        )
        assert epsilon <= other * (1 + 1e-8)
