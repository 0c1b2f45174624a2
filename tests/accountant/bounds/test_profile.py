"""The search for epsilon on a privacy profile: the upper end of a narrow bracket, evaluated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.accountant.bounds.profile import NoAmplification, Others, Victim
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import Bounded


class GaussianProfile:
    method = "mu-GDP"

    def __init__(self, mu: float, guess: float) -> None:
        self.mu, self.first = mu, guess

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(gaussian_delta(self.mu, epsilon), 0.0)

    def guess(self, delta: float) -> float:
        return self.first

    def explain(self) -> tuple[str, ...]:
        return ()


@given(st.floats(0.001, 3), st.floats(1e-3, 100), st.sampled_from([1e-15, 1e-6, 0.01, 0.3]))
@settings(max_examples=80, deadline=None)
def test_the_search_returns_the_upper_end_of_a_narrow_bracket(mu: float, guess: float, delta: float) -> None:
    solution = smallest_epsilon(GaussianProfile(mu, guess), delta, 200.0)
    exact = gaussian_epsilon(mu, delta)
    assert solution.epsilon >= exact * (1 - 1e-11)
    close_in_delta = gaussian_delta(mu, solution.epsilon) >= delta * (1 - 5e-6)
    assert close_in_delta or solution.epsilon <= exact * (1 + 3e-6) + 1e-12


class NothingBeyond(GaussianProfile):
    """Delta falls to 0 at once, as where a report shows nothing beyond its local budget."""

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(0.0 if epsilon >= self.mu else 0.4, 0.0)

    def guess(self, delta: float) -> float:
        return gaussian_epsilon(self.first, delta)


def test_the_search_goes_on_after_a_delta_of_0() -> None:
    solution = smallest_epsilon(NothingBeyond(0.1, 0.01), 1e-5, 1.0)
    assert 0.1 <= solution.epsilon <= 0.1 * (1 + 1e-6)


def test_the_search_stops_at_the_ceiling() -> None:
    solution = smallest_epsilon(GaussianProfile(3.0, 1.0), 1e-6, 0.5)
    assert solution.epsilon == 0.5
    assert solution.reached is None


@pytest.mark.parametrize("name", ["rr", "krr(k=5)", "hemisphere", "laplace", "laplace(lattice=100)", "gaussian"])
def test_nothing_is_shared_with_fewer_dishonest_users(name: str) -> None:
    """Reproduction: caches moved along with `replace`, and the result had the epsilon of no dishonest users."""
    randomizer = as_randomizer(name)
    none = Others(np.array([1.0]), np.array([1e-6]), np.array([9_999]), 0)
    fresh = Others(np.array([1.0]), np.array([1e-6]), np.array([9_999]), 5_000)
    victim = Victim(1.0, 1e-6)

    def bounds(others: Others) -> list[float]:
        curves = [randomizer.profile(victim, others, 1e-6), randomizer.exchange_profile(victim, others, 1e-6)]
        return [curve.delta(0.003).value for curve in curves if not isinstance(curve, NoAmplification)]

    fewer = bounds(none)
    changed = bounds(replace(none, dishonest=5_000))
    assert changed == bounds(fresh)
    assert all(less < more for less, more in zip(fewer, changed, strict=True))
