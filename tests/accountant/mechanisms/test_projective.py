"""Projective geometry response: no certificate below the exact worst case, and none far above an attack."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier import Budgets, certify, lower_bound
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.pgr import ProjectiveResponse
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.protocol.projective import ProjectiveSpace, space_for
from tests.support.oracles.from_definitions import Table, worst_divergences


def table_of(space: ProjectiveSpace, epsilon: float) -> Table:
    """The probability of every point for every category, from the definition."""
    vectors = np.array([space.vector(point) for point in range(space.num_points)])
    raised = np.where(vectors @ vectors.T % space.q == 0, math.exp(epsilon), 1.0)
    shares: Table = (raised / raised.sum(axis=1, keepdims=True)).tolist()
    return shares


@pytest.mark.parametrize("budgets", [[1.0, 1.0, 1.0], [3.0, 0.3, 2.0], [0.5, 4.0, 4.0], [2.0, 1.0], [6.0, 0.1, 0.1]])
@pytest.mark.parametrize("part", [0.1, 0.6])
def test_no_data_set_is_worse_than_its_certificate(budgets: list[float], part: float) -> None:
    space, epsilon = ProjectiveSpace(2, 3), part * budgets[0]
    victim, *others = (table_of(space, budget) for budget in budgets)
    (worst,) = worst_divergences(victim[:2], others, [math.exp(epsilon)])  # all pairs of categories are alike
    certificate = certify(Budgets.from_epsilons(budgets), ProjectiveResponse(7, 2), epsilon=epsilon, attack=False)
    (certified,) = [tier.delta for tier in certificate.tiers if tier.local_epsilon == budgets[0]]
    assert certified >= worst * (1 - 1e-9)
    attack = lower_bound(Budgets.from_epsilons(budgets), ProjectiveResponse(7, 2), epsilon=epsilon, victim=budgets[0])
    assert attack.delta <= worst * (1 + 1e-9)


def test_hyperplanes_of_one_point_are_randomised_response() -> None:
    """With t = 2 hyperplanes are points: the certificate, the error and the attack are those of krr."""
    budgets = Budgets.from_tiers([(0.5, 300), (1.5, 700)])
    for k, q in ((3, 2), (6, 5), (14, 13)):
        ours, other = ProjectiveResponse(k, q), randomizer_from_name(f"krr(k={k})")
        assert certify(budgets, ours, delta=1e-6, attack=False).epsilon == pytest.approx(
            certify(budgets, other, delta=1e-6, attack=False).epsilon, rel=1e-9
        )
        assert standard_error(budgets, ours) == pytest.approx(standard_error(budgets, other), rel=1e-12)
        noise = certify(budgets, ours, delta=1e-6, attack=False, hop_noise=(0.5, 1e-6)).one_honest_hop
        alike = certify(budgets, other, delta=1e-6, attack=False, hop_noise=(0.5, 1e-6)).one_honest_hop
        assert noise is not None
        assert alike is not None
        assert noise.epsilon == pytest.approx(alike.epsilon, rel=1e-9)


@pytest.mark.parametrize(("k", "q", "epsilon"), [(1024, 3, 1.0), (100, 5, 2.0), (7, 2, 0.5)])
def test_the_certificate_is_within_one_per_cent_of_an_attack(k: int, q: int, epsilon: float) -> None:
    budgets = Budgets.from_tiers([(epsilon, 2_000)])
    certified = certify(budgets, ProjectiveResponse(k, q), delta=1e-6, attack=False).epsilon
    attacked = lower_bound(budgets, ProjectiveResponse(k, q), delta=1e-6).epsilon
    assert attacked <= certified < 1.01 * attacked


def test_the_error_of_1024_categories_is_a_tenth_of_krr() -> None:
    budgets = Budgets.from_tiers([(1.0, 10_000)])
    ratio = standard_error(budgets, ProjectiveResponse(1024, 3)) / standard_error(
        budgets, randomizer_from_name("krr(k=1024)")
    )
    assert 0.10 < ratio < 0.11


@pytest.mark.parametrize("k", [10, 200, 5_000])
def test_the_error_does_not_grow_with_the_categories(k: int) -> None:
    """4 e^v/(e^v - 1)^2 is the least variance that any randomizer can have for many categories (Ye and Barg 2018)."""
    for epsilon, q in ((0.5, 3), (1.0, 3), (1.5, 5), (2.0, 7)):
        variance = standard_error(Budgets.from_tiers([(epsilon, 1)]), ProjectiveResponse(k, q)) ** 2
        least = 4 * math.exp(epsilon) / math.expm1(epsilon) ** 2
        assert variance < 1.06 * least
        assert space_for(k, q).num_points < 10 * k
