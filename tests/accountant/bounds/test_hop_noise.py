"""The hop noise bound against exact enumeration that shares no code with it, and against the specification's values."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.composition import ComposedProfile, Round
from croupier.accountant.hop_kernel import precision_for
from croupier.accountant.kernel import FiniteLaw
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.hop_noise import HopNoise
from tests.support.messages import naming
from tests.support.oracles.hop_noise import batch_laws, fakes_array, hockey_stick, truncated_laplace

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "hop_noise.json").read_text())["rows"]

Law = dict[tuple[int, ...], float]


def counts_law(k: int, scale: float, radius: int, report: int) -> Law:
    """The law of the counts of a batch with one client's report and one hop's fakes, from the definition."""
    noise = truncated_laplace(scale, radius)
    law: Law = {}
    draws: dict[tuple[int, ...], float] = {(-z, z): p for z, p in noise.items()}
    if k > 2:
        draws = {zs: math.prod([noise[z] for z in zs]) for zs in itertools.product(noise, repeat=k)}
    for shifts, probability in draws.items():
        counts = tuple(radius + z + (value == report) for value, z in enumerate(shifts))
        law[counts] = law.get(counts, 0.0) + probability
    return law


def mixture(laws: list[Law], weights: list[float]) -> Law:
    mixed: Law = {}
    for law, weight in zip(laws, weights, strict=True):
        for counts, probability in law.items():
            mixed[counts] = mixed.get(counts, 0.0) + weight * probability
    return mixed


def divergence(first: Law, second: Law, epsilon: float) -> float:
    return math.fsum(max(0.0, p - math.exp(epsilon) * second.get(counts, 0.0)) for counts, p in first.items())


def check_all_batches(k: int, radius: int, scale: float, others: int) -> None:
    """Every multiset of the others' reports, and every choice of the messages that do not reach the honest hop.

    A choice that depends on a coin is a mixture of these choices, and a dropped victim shows nothing, so that neither
    gains more than the worst of them.
    """
    law, fakes = law_of(k, scale, radius), fakes_array(k, scale, radius)
    for local_epsilon in (0.5, 3.0, math.inf):
        profile = profile_of(law, local_epsilon)
        epsilons = [share * profile.largest_loss for share in (0.0, 0.3, 0.9, 1.1)]
        bounds = [profile.delta(epsilon).value for epsilon in epsilons]
        batches = {
            kept
            for reports in itertools.combinations_with_replacement(range(k), others)
            for size in range(others + 1)
            for kept in itertools.combinations(reports, size)
        }
        for kept in batches:
            laws = batch_laws(fakes, kept, local_epsilon)
            for first, second in itertools.permutations(laws, 2):
                for epsilon, bound in zip(epsilons, bounds, strict=True):
                    assert hockey_stick(first, second, epsilon) == pytest.approx(bound, rel=1e-11, abs=1e-14)


GRID = [(k, radius) for k in (2, 3, 4) for radius in range(1, 7)]


@pytest.mark.parametrize(("k", "radius"), [(2, 1), (2, 6), (3, 1), (3, 4), (4, 2)])
def test_every_choice_in_front_of_the_honest_hop_shows_exactly_the_bound(k: int, radius: int) -> None:
    check_all_batches(k, radius, radius / 3, others=2)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "radius"), GRID)
@pytest.mark.parametrize("share", [0.2, 1.0, 5.0])
def test_every_choice_shows_the_bound_on_the_whole_grid(k: int, radius: int, share: float) -> None:
    check_all_batches(k, radius, radius * share, others=4 if k < 4 else 3)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row['kind']}-{row['epsilon']}-{row['delta']}")
def test_radius_and_delta_are_those_of_the_specification(row: dict[str, Any]) -> None:
    law = HopNoise(row["epsilon"], row["delta"]).law(2 if row["kind"] == "two" else 7)
    assert law.radius == row["c"]
    assert law.edge == pytest.approx(row["edge"], rel=1e-12)
    assert law.delta == pytest.approx(row["delta_exact"], rel=1e-7)
    assert math.sqrt(law.variance) == pytest.approx(row["sd_per_bin"], rel=1e-12)


@pytest.mark.parametrize(
    ("k", "scale", "radius"), [(2, 1.5, 6), (2, 0.4, 1), (2, 30.0, 6), (3, 2.0, 6), (3, 0.7, 2), (4, 1.1, 3)]
)
def test_the_bound_of_the_report_itself_is_the_exact_divergence(k: int, scale: float, radius: int) -> None:
    profile = HopNoiseProfile(law_of(k, scale, radius))
    first, second = (counts_law(k, scale, radius, report) for report in (0, 1))
    for epsilon in (0.0, 0.1, 0.5 / scale, 1 / scale, 1.7 / scale, 2 / scale, 5 / scale):
        exact = max(divergence(first, second, epsilon), divergence(second, first, epsilon))
        bound = profile.delta(epsilon).value
        assert exact <= bound * (1 + 1e-12)
        assert bound == pytest.approx(exact, rel=1e-9)


@given(
    k=st.sampled_from([2, 3]),
    scale=st.floats(0.3, 20),
    radius=st.integers(1, 4),
    local_epsilon=st.floats(0.01, 8),
    epsilon=st.floats(0, 4),
)
def test_the_bound_with_randomised_response_is_the_truth(
    k: int, scale: float, radius: int, local_epsilon: float, epsilon: float
) -> None:
    kept = math.exp(local_epsilon) / (math.exp(local_epsilon) + k - 1)
    other = 1 / (math.exp(local_epsilon) + k - 1)
    laws = [counts_law(k, scale, radius, report) for report in range(k)]
    first, second = (mixture(laws, [kept if report == value else other for report in range(k)]) for value in (0, 1))
    bound = profile_of(law_of(k, scale, radius), local_epsilon).delta(epsilon).value
    assert divergence(first, second, epsilon) == pytest.approx(bound, rel=1e-11, abs=1e-14)


@given(
    k=st.sampled_from([2, 3, 1_000]),
    epsilon=st.floats(0.01, 8),
    delta=st.floats(1e-12, 1e-3),
    target=st.floats(1e-12, 0.4),
    local_epsilon=st.floats(0.01, 8),
)
def test_the_epsilon_found_for_a_delta_is_confirmed_and_the_least(
    k: int, epsilon: float, delta: float, target: float, local_epsilon: float
) -> None:
    profile = profile_of(HopNoise(epsilon, delta).law(k), local_epsilon)
    solution = profile.smallest_epsilon(target, 30.0)
    assert solution.epsilon <= local_epsilon * (1 + 2e-5)  # sums of many values are searched for in floats
    assert profile.delta(solution.epsilon).value <= target
    assert solution.epsilon == 0 or profile.delta(solution.epsilon * 0.999).value > target


def test_the_whole_epsilon_is_enough_for_the_delta_that_was_asked_for() -> None:
    for k in (2, 3, 65_536):
        for epsilon, delta in itertools.product((0.001, 0.1, 1.0, 20.0), (1e-12, 1e-6, 1e-3)):
            law = HopNoise(epsilon, delta).law(k)
            assert law.delta <= delta
            assert HopNoiseProfile(law).delta(epsilon).value <= delta * (1 + 1e-9) + 1e-14
            # One less would not do, and noise is never smaller than what was asked for.
            assert Fraction(law.scale) * Fraction(epsilon) >= (1 if k == 2 else 2)


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"), [(0.0009, 1e-6, "0.0009"), (20.1, 1e-6, "20.1"), (1, 0.01, "0.01"), (1, 0, "0")]
)
def test_hop_noise_outside_its_range_is_refused_with_the_range(epsilon: float, delta: float, named: str) -> None:
    with pytest.raises(ValueError, match=naming(named, "must be")):
        HopNoise(epsilon, delta)


def composed_exactly(first: np.ndarray, second: np.ndarray, rounds: int, epsilon: float) -> float:
    """delta of many rounds of two laws of counts, summed over all sequences of losses."""
    shown = float(first[second == 0].sum())
    pair: dict[float, float] = {}
    for p, q in zip(first[second > 0].tolist(), second[second > 0].tolist(), strict=True):
        if p > 0:
            key = round(math.log(p / q), 9)
            pair[key] = pair.get(key, 0.0) + p
    losses = {0.0: 1.0}
    for _ in range(rounds):
        summed: dict[float, float] = {}
        for (before, p), (own, q) in itertools.product(losses.items(), pair.items()):
            key = round(before + own, 9)
            summed[key] = summed.get(key, 0.0) + p * q
        losses = summed
    hidden = math.fsum(p * -math.expm1(epsilon - own) for own, p in losses.items() if own > epsilon)
    return 1 - (1 - shown) ** rounds + hidden


@pytest.mark.parametrize(
    ("k", "local", "noise", "rounds"),
    [
        (2, math.inf, (0.1, 1e-8), 50),
        (2, 1.1, (0.1, 1e-8), 10),
        (3, math.inf, (4.0, 1e-8), 5),
        (3, 5.0, (2.0, 1e-8), 5),
    ],
)
def test_composition_of_rounds_is_exact_to_a_thousandth(
    k: int, local: float, noise: tuple[float, float], rounds: int
) -> None:
    law = HopNoise(*noise).law(k)
    profile = profile_of(law, local).to_compose(1e-6, min(local, 20.0))
    composed = ComposedProfile([Round(profile, 20.0, rounds)], 1e-6)
    solution = smallest_epsilon(composed, 1e-6, 20.0 * rounds)
    first, second = (one.ravel() for one in batch_laws(fakes_array(k, law.scale, law.radius), [], local)[:2])
    assert composed_exactly(first, second, rounds, solution.epsilon) <= 1e-6
    assert composed_exactly(first, second, rounds, solution.epsilon / 1.001) > 1e-6


def profile_of(law: FakeLaw, local_epsilon: float) -> HopNoiseProfile:
    """The bound for randomised response; at an infinite budget for a report that is the value."""
    if local_epsilon == math.inf:
        return HopNoiseProfile(law)
    with ctx.workprec(precision_for(local_epsilon)):
        return HopNoiseProfile(law, (FiniteLaw(law.num_values).classes(arb(local_epsilon)),))


def law_of(k: int, scale: float, radius: int) -> FakeLaw:
    edge = truncated_laplace(scale, radius)[radius]
    return FakeLaw(k, scale, radius, edge, edge if k == 2 else 2 * edge - edge**2)
