"""Composition of rounds: never below the exact product of the worst pair, close to it, and never worse than adding."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import Budgets, LaplaceMechanism, certify
from croupier.accountant.bounds.exact_binary import ExactBinaryProfile
from croupier.accountant.composition import ComposedProfile, Round, profile_nodes
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.protocol.codes import Method
from tests.support.accounting import GaussianProfile
from tests.support.messages import naming
from tests.support.oracles.from_definitions import count_law
from tests.support.statements import parameters


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("rounds", [1, 2, 30])
def test_gaussian_rounds_compose_to_a_gaussian(mu: float, rounds: int) -> None:
    composed = ComposedProfile([Round(GaussianProfile(mu), 50.0, rounds)], 1e-7)
    for delta in (1e-6, 1e-3):
        epsilon = gaussian_epsilon(mu * math.sqrt(rounds), delta)
        assert delta * (1 - 1e-9) <= composed.delta(epsilon).value <= delta * 1.02


def test_different_rounds_compose() -> None:
    composed = ComposedProfile([Round(GaussianProfile(0.3), 50.0, 4), Round(GaussianProfile(0.05), 50.0, 9)], 1e-7)
    epsilon = gaussian_epsilon(math.sqrt(4 * 0.3**2 + 9 * 0.05**2), 1e-5)
    assert 1e-5 * (1 - 1e-9) <= composed.delta(epsilon).value <= 1.05e-5


@pytest.mark.slow
def test_very_different_rounds_share_a_grid() -> None:
    """Steps as fine as the smaller round needs, all the way to the end of the larger one, would be billions."""
    composed = ComposedProfile([Round(GaussianProfile(0.4), 50.0, 2), Round(GaussianProfile(1e-9), 50.0)], 1e-6)
    epsilon = gaussian_epsilon(math.sqrt(2) * 0.4, 1e-5)
    assert 1e-5 * (1 - 1e-9) <= composed.delta(epsilon).value <= 1.05e-5


def product_delta(p: np.ndarray, q: np.ndarray, rounds: int, epsilon: float) -> float:
    """The divergence of independent rounds, outcome by outcome."""
    total = 0.0
    for outcome in itertools.product(range(p.size), repeat=rounds):
        total += max(0.0, math.prod(p[list(outcome)]) - math.exp(epsilon) * math.prod(q[list(outcome)]))
    return total


@pytest.mark.parametrize("rounds", [2, 3, 4])
@pytest.mark.parametrize("budgets", [(1.0, 1.0, 1.0), (0.5, 0.5, 2.0), (3.0, 0.2)])
def test_composed_bits_are_never_below_any_product(budgets: tuple[float, ...], rounds: int) -> None:
    victim, others = budgets[-1], budgets[:-1]
    levels, counts = np.unique(others, return_counts=True)
    single = ExactBinaryProfile(victim, levels, counts)
    composed = ComposedProfile([Round(single, victim, rounds)], 1e-6)
    keep = 1 / (1 + math.exp(-victim))
    for epsilon in (0.05, 0.4, 1.0):
        worst = 0.0
        for values in itertools.product((0, 1), repeat=len(others)):
            rest = count_law(
                [(1 / (1 + math.exp(b if v == 0 else -b)), 1) for b, v in zip(others, values, strict=True)]
            )
            p, q = (np.convolve(rest, [1 - share, share]) for share in (keep, 1 - keep))
            worst = max(worst, product_delta(p, q, rounds, epsilon), product_delta(q, p, rounds, epsilon))
        delta = composed.delta(epsilon).value
        # Above it, because the curve is the worst over data sets at every epsilon, and a product has one data set.
        assert worst * (1 - 1e-9) <= delta <= 1.6 * worst + 1e-6


@given(st.floats(0.02, 2.0), st.sampled_from([1e-10, 1e-6, 1e-2]), st.integers(2, 40))
@settings(max_examples=15, deadline=None)
def test_profile_nodes_are_convex_and_above_the_truth_between(mu: float, delta: float, points: int) -> None:
    curve = GaussianProfile(mu)
    step = gaussian_epsilon(mu, delta) / points
    if step <= 0:
        return
    multiples, values = profile_nodes(curve, step, points)
    gains = np.exp(multiples * step)
    slopes = np.diff(values) / np.diff(gains)
    assert np.all(np.diff(slopes) >= -1e-12 * np.abs(slopes[1:]))
    for epsilon in np.linspace(0, points * step, 37):
        chord = float(np.interp(math.exp(epsilon), gains, values))
        assert chord >= gaussian_delta(mu, float(epsilon)) * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("randomizer", "tiers"),
    [("rr", [(1.0, 500)]), ("laplace", [(1.0, 1000)]), ("hemisphere", [(0.5, 500), (1.0, 500)])],
)
def test_rounds_cost_less_than_adding_and_more_than_one(randomizer: str, tiers: list[tuple[float, int]]) -> None:
    budgets = Budgets.from_tiers(tiers)
    certificates = [certify(budgets, randomizer, delta=1e-6, rounds=rounds, attack=False) for rounds in (1, 8)]
    assert certificates[0].epsilon < certificates[1].epsilon < 8 * certificates[0].epsilon
    assert parameters(certificates[1].method, Method.COMPOSED_LOSSES) == {"rounds": 8}
    for once, eight in zip(certificates[0].tiers, certificates[1].tiers, strict=True):
        assert once.epsilon < eight.epsilon <= 8 * once.local_epsilon
    # The other way round: the delta at that epsilon, by a curve with other points.
    back = certify(budgets, randomizer, epsilon=certificates[1].epsilon, rounds=8, attack=False)
    assert 0.9e-6 <= back.delta <= 1.01e-6


@pytest.mark.slow
def test_a_round_of_which_no_curve_says_anything_is_composed_by_adding() -> None:
    """All of its loss may be infinite, of which the library takes a logarithm."""
    certificate = certify([(20.0, 100, 1e-3)], "gaussian", delta=1e-6, rounds=2, attack=False)
    assert (certificate.epsilon, certificate.delta) == (40.0, 2e-3)


def test_tiny_deltas_are_composed_by_adding() -> None:
    certificate = certify([1.0] * 500, "rr", delta=1e-13, rounds=3)
    assert parameters(certificate.method, Method.BASIC_COMPOSITION) == {"rounds": 3}
    with pytest.raises(ValueError, match="must be 1e-12"):
        ComposedProfile([Round(GaussianProfile(1.0), 5.0, 2)], 1e-13)


@pytest.mark.slow
def test_many_arbitrary_budgets_are_composed_by_adding() -> None:
    budgets = np.linspace(0.5, 1.0, 100)
    certificate = certify(budgets, LaplaceMechanism(), delta=1e-5 / 2, attack=False, bounds="blanket")
    two = certify(budgets, LaplaceMechanism(), delta=1e-5, rounds=2, attack=False, bounds="blanket")
    assert two.epsilon == pytest.approx(2 * certificate.epsilon, rel=1e-9)


def test_rounds_that_all_differ_do_not_take_steps_as_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: one after the other they took as the square of their number, half a minute for a thousand."""
    steps = 0
    compose = DensePLDPmf.compose

    def counted(law: DensePLDPmf, other: DensePLDPmf, *args: float) -> DensePLDPmf:
        nonlocal steps
        product = compose(law, other, *args)
        steps += product.size
        return product

    monkeypatch.setattr(DensePLDPmf, "compose", counted)
    mus = np.linspace(0.02, 0.03, 64)
    composed = ComposedProfile([Round(GaussianProfile(float(mu)), 50.0) for mu in mus], 1e-7)
    assert steps <= 1.5 * 6 * composed.losses[0].size
    epsilon = gaussian_epsilon(math.sqrt(float(mus @ mus)), 1e-5)
    assert 1e-5 * (1 - 1e-9) <= composed.delta(epsilon).value <= 1.05e-5


@pytest.mark.parametrize(
    "local_epsilon", [1e-4, 0.1, *(pytest.param(local, marks=pytest.mark.slow) for local in (0.001, 0.01))]
)
def test_over_rounds_all_bounds_are_no_worse_than_the_blanket(local_epsilon: float) -> None:
    """Reproduction: where bits have hardly a budget, the chords of their worst case alone were composed."""
    budgets = {local_epsilon: 1000}
    for rounds, delta in ((10, 1e-10), (100, 1e-6)):
        least, blanket = (
            certify(budgets, "rr", delta=delta, rounds=rounds, dishonest=100, bounds=bounds, attack=False).epsilon
            for bounds in ("all", "blanket")
        )
        assert least <= blanket * (1 + 1e-5)


@pytest.mark.parametrize("different", [True, False])
def test_what_transforms_may_lose_is_added_as_proved(different: bool) -> None:
    """Two factors a lose s (2 |a|_2 + |a * a|_2) times the root of the length (docs/composition.md, section 5)."""
    round_ = Round(GaussianProfile(0.3), 50.0)
    factor, _ = ComposedProfile([round_], 5e-7, 1e-3).losses
    rounds = [round_, round_] if different else [Round(GaussianProfile(0.3), 50.0, 2)]
    product, slack = ComposedProfile(rounds, 1e-6, 1e-3).losses
    norms = 2 * float(np.linalg.norm(factor._probs)) + float(np.linalg.norm(product._probs))
    assert slack >= 20 * 2**-53 * math.log2(product.size) * math.sqrt(product.size) * norms


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match=naming("rounds")):
        ComposedProfile([], 1e-6)
    with pytest.raises(ValueError, match="count is 0"):
        Round(GaussianProfile(1.0), 1.0, 0)


@pytest.mark.parametrize("rounds", [3, 9, 13, 14, 22, 49])
def test_a_part_of_each_round_comes_to_no_more_than_the_whole(rounds: int) -> None:
    """Reproduction: of 1e-6 in nine rounds, nine ninths were a little more, shown as δ = 1.00001e-06."""
    for delta in (1e-6, 1e-5, 0.3):
        assert certify({1.0: 1}, "rr", delta=delta, rounds=rounds).delta == delta
    assert certify({1.0: 20}, "rr", epsilon=0.3, rounds=rounds).epsilon == 0.3
