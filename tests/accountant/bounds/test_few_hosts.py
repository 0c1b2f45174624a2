"""The exchange bound for Laplace noise where hosts are few: |phi| followed far out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accountant.bounds import laplace_laws
from accountant.bounds.exchange import tilt
from accountant.bounds.exchange_laplace import (
    MORE_TERMS,
    ExchangeLaplaceProfile,
    FollowedProduct,
    exchange_laplace_profile,
)
from accountant.bounds.profile import Others, Victim, smallest_epsilon
from accountant.mechanisms.laplace import LaplaceMechanism
from tests.support.drawn import drawn

Floats = NDArray[np.float64]
Tiers = list[tuple[float, int]]


def plain_curve(tiers: Tiers, victim: float, delta: float | None, dishonest: int = 0) -> ExchangeLaplaceProfile:
    """All users but one of the victim's budget."""
    left = [(e, n - (e == victim)) for e, n in tiers]
    count = np.array([n for _, n in left], dtype=np.int64)
    others = Others(np.array([e for e, _ in left]), np.zeros(len(left)), count, dishonest)
    curve = exchange_laplace_profile(Victim(victim), others, delta)
    assert isinstance(curve, ExchangeLaplaceProfile)
    return curve


@given(st.integers(0, 2**32 - 1))
@drawn(5)
def test_cells_far_out_are_above_the_law_itself(seed: int) -> None:
    """Where |phi| need not fall, with few hosts: against the atoms, at places between the edges."""
    rng = np.random.default_rng(seed)
    rate = float(rng.uniform(0.3, 3))
    victim, epsilon, hosts = rate * float(rng.uniform(1.2, 2)), float(rng.uniform(0, 0.1)), float(rng.integers(20, 400))
    family = laplace_laws.family_of(victim, epsilon, rate, terms=MORE_TERMS)
    found = laplace_laws.members(victim, epsilon, rate)
    values, mass = laplace_laws.ratio_atoms(victim, epsilon, rate, [place for place, _ in found])
    product = FollowedProduct((family,), np.array([hosts]), np.array([1 / hosts]), math.expm1(epsilon))
    theta = tilt(product)
    edges = np.concatenate([np.linspace(0, 7, 60), 7 * 1.1 ** np.arange(1, 30)]) / (theta * product.deviation)
    bounds, error = product.over(theta, edges, 60)
    for cell in rng.integers(0, edges.size - 1, 12).tolist():
        r = rng.uniform(edges[cell], edges[cell + 1])
        for x, m, (_, thin) in zip(values, mass, found, strict=True):
            phi = 1 - thin + (m * thin) @ np.exp(theta / hosts * (1 + 1j * r) * x / thin)
            assert hosts * math.log(abs(phi)) <= bounds[cell] + error + 1e-9


def test_few_hosts_are_followed_far_out() -> None:
    """Where the value at rest would stand from about 3 standard deviations on."""
    family = laplace_laws.family_of(4.5, 0.1, 3.0, terms=MORE_TERMS)
    product = FollowedProduct((family,), np.array([999.0]), np.array([1 / 999]), math.expm1(0.1))
    theta = tilt(product)
    edges = np.concatenate([np.linspace(0, 7, 200), 7 * 1.1 ** np.arange(1, 30)]) / (theta * product.deviation)
    bounds, _ = product.over(theta, edges, 200)
    assert bounds[0] - bounds[210] > 15
    assert (bounds <= bounds[0] + 1e-12).all()


def test_the_bound_of_few_hosts_is_followed_far_out() -> None:
    """Where the value at rest served for most of the integral, 1,000 users at 4 had 0.762."""
    for tiers, delta, at, least, most in (
        ([(4.0, 1_000)], 1e-4, 0.744, 0.685, 0.763),
        ([(0.01, 9_000), (5.0, 1_000)], 1e-6, 0.882, 0.7336, 0.93),
    ):
        quick = plain_curve(tiers, tiers[-1][0], delta)
        followed = replace(quick, followed=True)
        assert followed.delta(at).value <= delta < followed.delta(least).value
        assert delta < quick.delta(at).value
        assert quick.delta(most).value <= delta
        assert followed.plain.delta(at) == quick.delta(at)
    # Where hosts are many it is the same but for the cells beyond the bulk.
    many = plain_curve([(1.0, 1_000_000)], 1.0, 1e-6)
    assert replace(many, followed=True).delta(0.003).value == pytest.approx(many.delta(0.003).value, rel=1e-3)


def test_an_epsilon_is_found_though_the_bound_is_of_no_use_far_above_it() -> None:
    """Steps that came near from below gave way to a bisection of what the bound cannot do: 5, the local budget."""
    curve = replace(plain_curve([(0.01, 9_000), (5.0, 1_000)], 5.0, 1e-6), followed=True)
    assert curve.delta(3.0).value > 0.5
    found = smallest_epsilon(curve, 1e-6, 5.0, 1e-6)
    assert 0.87 < found.epsilon < 0.89


def test_few_hosts_only_are_followed_by_the_mechanism() -> None:
    for users, followed in ((10_000, True), (1_000_000, False)):
        others = Others(np.array([1.0]), np.zeros(1), np.array([users]), 0)
        found = LaplaceMechanism().exchange_profile(Victim(1.0), others, 1e-6)
        assert isinstance(found, ExchangeLaplaceProfile)
        assert found.followed == followed
