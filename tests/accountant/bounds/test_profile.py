"""The search for epsilon on a privacy profile: the upper end of a narrow bracket, evaluated."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.bounds.profile import Bounded, smallest_epsilon
from accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon


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
    found = smallest_epsilon(GaussianProfile(mu, guess), delta, 200.0)
    exact = gaussian_epsilon(mu, delta)
    assert found.epsilon >= exact * (1 - 1e-11)
    close_in_delta = gaussian_delta(mu, found.epsilon) >= delta * (1 - 5e-6)
    assert close_in_delta or found.epsilon <= exact * (1 + 3e-6) + 1e-12


class NothingBeyond(GaussianProfile):
    """Delta falls to 0 at once, as where a report shows nothing beyond its local budget."""

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(0.0 if epsilon >= self.mu else 0.4, 0.0)

    def guess(self, delta: float) -> float:
        return gaussian_epsilon(self.first, delta)


def test_the_search_goes_on_after_a_delta_of_0() -> None:
    found = smallest_epsilon(NothingBeyond(0.1, 0.01), 1e-5, 1.0)
    assert 0.1 <= found.epsilon <= 0.1 * (1 + 1e-6)


def test_the_search_stops_at_the_ceiling() -> None:
    found = smallest_epsilon(GaussianProfile(3.0, 1.0), 1e-6, 0.5)
    assert found.epsilon == 0.5
    assert found.reached is None
