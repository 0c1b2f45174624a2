"""The kernel's integral: never below the sum over all counts, wherever it is evaluated, and close on a line found."""

from __future__ import annotations

import numpy as np
import pytest
from flint import acb, arb
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.accountant import kernel
from croupier.accountant.kernel import Atoms, FiniteLaw, Lattice, Line, Weights
from croupier.accountant.search import Floated
from tests.support.oracles.from_definitions import blanket_delta

LAWS = (FiniteLaw(2), FiniteLaw(5), FiniteLaw(13, 4, 1))


def weights_of(law: FiniteLaw, budgets: list[float]) -> Weights:
    return [(law.gamma(arb(budget)), 1) for budget in budgets]


def line_for(losses: Atoms, weights: Weights) -> Line:
    chance, loss = np.array([[float(w), float(x)] for w, x in losses.atoms]).T
    return Floated(chance, loss, np.array([float(g) for g, _ in weights]), np.ones(len(weights))).line()


@given(
    law=st.sampled_from(LAWS),
    others=st.lists(st.sampled_from([0.1, 1.0, 3.0]), min_size=1, max_size=6),
    epsilon=st.sampled_from([0.0, 0.1, 0.9]),
    theta=st.floats(0.05, 8.0),
    sigma=st.floats(0.05, 1.0),
    strip=st.floats(0.05, 0.99),
    step=st.floats(0.02, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_every_line_bounds_the_sum_over_all_counts(
    law: FiniteLaw, others: list[float], epsilon: float, theta: float, sigma: float, strip: float, step: float
) -> None:
    losses, weights = law.losses(arb(1.0), arb(epsilon)), weights_of(law, others)
    bound = kernel.blanket(losses, weights, Line(theta, sigma, step, strip * theta, 6 / sigma))
    assert not bound.upper() < kernel.small_blanket(losses, weights)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_the_line_that_is_found_loses_little(law: FiniteLaw, epsilon: float) -> None:
    losses, weights = law.losses(arb(1.0), arb(epsilon)), weights_of(law, [0.5] * 9)
    exact = kernel.small_blanket(losses, weights)
    assert exact <= kernel.blanket(losses, weights, line_for(losses, weights)).upper() <= 1.02 * exact


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_sum_over_all_counts_is_the_bound_by_its_definition(k: int) -> None:
    others = [0.3, 1.0, 1.0, 4.0]
    law = FiniteLaw(k)
    ours = kernel.small_blanket(law.losses(arb(2.0), arb(0.4)), weights_of(law, others))
    assert float(ours) == pytest.approx(float(blanket_delta([2.0, *others], 0, k, 0.4)), rel=1e-12)


def test_a_line_with_too_many_points_proves_less() -> None:
    law = FiniteLaw(3)
    losses, weights = law.losses(arb(1.0), arb(0.1)), weights_of(law, [1.0])
    assert kernel.blanket(losses, weights, Line(1.0, 0.1, 1e-9, 0.5, 1.0)) > kernel.small_blanket(losses, weights)
    assert not kernel.blanket(losses, weights, Line(float("nan"), 0.1, 1.0, 0.5, float("nan"))).is_finite()


def test_a_lattice_keeps_mass_and_mean_and_is_larger() -> None:
    rng = np.random.default_rng(3)
    mass, mean = rng.dirichlet(np.ones(40)), rng.normal(size=40)
    step = 0.125
    low, high = np.floor(mean / step), np.floor(mean / step) + 1
    lattice = Lattice(low, high, mean / step, mass, step)
    exact = Atoms([(arb(w), arb(x)) for w, x in zip(mass.tolist(), mean.tolist(), strict=True)])
    for x in (-2.0, -0.1, 0.3, 2.0):
        assert lattice.real(arb(x))[0] >= exact.real(arb(x))[0]
    assert (lattice.real(arb(0))[0] - exact.real(arb(0))[0]).contains(0)
    assert (lattice.at(acb(0))[1] - exact.at(acb(0))[1]).real.contains(0)


def test_a_geometric_mean_shows_more_than_its_weights() -> None:
    law = FiniteLaw(4)
    losses, weights = law.losses(arb(1.0), arb(0.2)), weights_of(law, [0.2, 1.0, 3.0])
    assert kernel.small_blanket(losses, [kernel.geometric_mean(weights)]) > kernel.small_blanket(losses, weights)
