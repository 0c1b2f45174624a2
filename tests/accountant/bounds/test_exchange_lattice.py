"""The exchange bound on a lattice: what noise on it is made of, and the whole against enumerated data sets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from croupier.accountant import Budgets, certify
from croupier.accountant.bounds.exchange_laplace import ExchangeLaplaceProfile, exchange_laplace_profile
from croupier.accountant.bounds.exchange_lattice import ExchangeLatticeProfile, most_unhidden, on_lattice
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.bounds.spans import SpanProfile
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.mechanisms.laplace import LaplaceMechanism
from croupier.protocol.codes import Method, ProofStep
from tests.support.drawn import drawn
from tests.support.histograms import histogram
from tests.support.statements import codes, parameters

Floats = NDArray[np.float64]
Tiers = list[tuple[float, int]]


def others_of(tiers: Tiers, dishonest: int = 0) -> Others:
    count = np.array([n for _, n in tiers], dtype=np.int64)
    return Others(np.array([e for e, _ in tiers]), np.zeros(len(tiers)), count, dishonest)


def curve_of(tiers: Tiers, victim: Victim, steps: int, delta: float, dishonest: int = 0) -> ExchangeLatticeProfile:
    def make(others: Others) -> Curve:
        return exchange_laplace_profile(victim, others, delta)

    curve = on_lattice(make, victim.local_epsilon, others_of(tiers, dishonest), steps, delta)
    assert isinstance(curve, ExchangeLatticeProfile)
    return curve


def on_the_lattice(rate: float, steps: int, reach: int) -> Floats:
    """The masses of -reach ... reach."""
    k = np.abs(np.arange(-reach, reach + 1))
    masses: Floats = np.tanh(rate / (2 * steps)) * np.exp(-rate * k / steps)
    return masses


def rounded(rate: float, steps: int, reach: int) -> Floats:
    """Returns the law of continuous noise rounded to the lattice: each value is the mass of a cell."""
    k, half = np.abs(np.arange(-reach, reach + 1)), rate / (2 * steps)
    return np.where(k == 0, -math.expm1(-half), math.sinh(half) * np.exp(-2 * half * k))


@pytest.mark.parametrize(("rate", "steps"), [(1e-3, 1000), (1.0, 1000), (4.0, 20), (3.0, 1), (20.0, 4)])
def test_noise_on_the_lattice_is_rounded_noise_or_none(rate: float, steps: int) -> None:
    reach, half = 30, rate / (2 * steps)
    mixed = rounded(rate, steps, reach) / math.cosh(half)
    mixed[reach] += 1 - 1 / math.cosh(half)
    assert on_the_lattice(rate, steps, reach) == pytest.approx(mixed, rel=1e-9)
    cells = np.array(
        [0.5 * math.exp(-half * (2 * k - 1)) - 0.5 * math.exp(-half * (2 * k + 1)) for k in range(1, reach)]
    )
    assert rounded(rate, steps, reach)[reach + 1 : -1] == pytest.approx(cells, rel=1e-9)


@given(st.integers(0, 2**32 - 1))
@drawn(15)
def test_the_victim_shows_no_more_than_with_rounded_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, victim = int(rng.choice([1, 2, 7, 50, 1000])), float(rng.uniform(0.05, 6))
    curve, reach = replace(curve_of([(victim, 5_000)], Victim(victim), 1000, 1e-3), steps=steps), 4 * steps
    gain, ratio = math.exp(rng.uniform(0, victim)), math.exp(curve.log_ratio)
    kept = 1 / math.cosh(victim / (2 * steps))
    apart = int(rng.integers(1, steps + 1))
    shown, whole = on_the_lattice(victim, steps, reach), rounded(victim, steps, reach)
    difference = shown[apart:] - gain * shown[: shown.size - apart]
    larger = kept * ratio * (whole[apart:] - gain / ratio * whole[: whole.size - apart])
    assert (difference <= larger + 1e-12 * (1 + gain)).all()


@given(st.integers(0, 2**32 - 1))
@drawn(15)
def test_how_many_hosts_are_shown(seed: int) -> None:
    """Against the law of a sum of independent coins."""
    rng = np.random.default_rng(seed)
    tiers = [(float(rng.uniform(0.1, 8)), int(rng.integers(1, 40))) for _ in range(3)]
    steps, target = int(rng.choice([1, 2, 5, 30])), float(rng.choice([1e-2, 1e-9, 1e-18]))
    law = np.ones(1)
    for epsilon, count in tiers:
        shown = 1 - 1 / math.cosh(epsilon / (2 * steps))
        for _ in range(count):
            law = np.convolve(law, [1 - shown, shown])
    most, chance = most_unhidden(others_of(tiers), steps, target)
    assert chance <= target * (1 + 1e-9)
    assert law[most + 1 :].sum() <= chance * (1 + 1e-9) + 1e-300
    assert most == sum(count for _, count in tiers) or most_unhidden(others_of(tiers), steps, 1.0)[0] <= most


def letters(rates: Floats, places: Floats, cuts: Floats, steps: int) -> Floats:
    """The chance of each letter (lattice points up to a cut) for every user, (n, 3)."""
    t = cuts[None, :] - places[:, None]
    step, half = rates[:, None] / steps, 1 / (1 + np.exp(-rates[:, None] / steps))
    below = np.where(t < 0, half * np.exp(-step * np.abs(t)), 1 - half * np.exp(-step * (t + 1)))
    return np.diff(np.concatenate([np.zeros((places.size, 1)), below, np.ones((places.size, 1))], axis=1), axis=1)


@given(st.integers(0, 2**32 - 1))
@drawn(3)
def test_no_data_set_of_ten_and_more_users_is_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, dishonest = int(rng.choice([4, 25, 1000])), int(rng.integers(0, 4))
    kinds = np.sort(rng.uniform(0.2, min(3.0, steps / 8), int(rng.integers(1, 4))))
    victim = float(kinds[-1])
    tiers = [(float(e), int(rng.integers(20, 50))) for e in kinds]
    curve = curve_of(tiers, Victim(victim), steps, 0.01, dishonest)
    rates = np.concatenate([np.full(n, e) for e, n in tiers])
    rates = np.delete(rates, rng.choice(rates.size, dishonest, replace=False))
    epsilons = (0.0, float(rng.uniform(0, 0.6)) * victim)
    for _ in range(8):
        pair = np.sort(rng.integers(0, steps + 1, 2)) if rng.random() < 0.5 else np.array([0, steps])
        if rng.random() < 0.5:
            pair = pair[::-1]
        places = rng.choice([np.zeros(rates.size), np.full(rates.size, steps), rng.integers(0, steps + 1, rates.size)])
        cuts = np.sort(rng.choice([*pair - 1, *pair, rng.integers(-steps, 2 * steps)], 2, replace=False))
        everyone = np.append(rates, victim)
        laws = [histogram(letters(everyone, np.append(places, own), cuts, steps)) for own in pair]
        assert laws[0].sum() == pytest.approx(1, abs=1e-9)
        for epsilon in epsilons:
            truth = float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum())
            assert truth * (1 - 1e-10) <= curve.delta(epsilon).value


@pytest.mark.parametrize(("steps", "most"), [(100, 1.075), (1000, 1.015), (1_000_000, 1.008)])
def test_certificates_are_the_closer_the_finer_the_lattice(steps: int, most: float) -> None:
    """On the line itself 1.006: |phi| is not followed beyond where it surely falls."""
    budgets, randomizer = Budgets.from_tiers([(2.5, 10_000)]), LaplaceMechanism(steps)
    certificate = certify(budgets, randomizer, delta=1e-6)
    assert codes(certificate.method) == [Method.EXCHANGE]
    attack = lower_bound(budgets, randomizer, victim=2.5, delta=1e-6).epsilon
    assert attack <= certificate.epsilon <= most * attack
    assert certificate.epsilon < certify(budgets, randomizer, delta=1e-6, bounds="blanket").epsilon


@pytest.mark.slow
@pytest.mark.parametrize("dishonest", [100])
def test_a_fine_lattice_costs_nothing(dishonest: int) -> None:
    budgets = Budgets.from_tiers([(0.1, 5_400), (0.5, 3_700), (1.0, 900)])
    fine, line = (
        certify(budgets, LaplaceMechanism(steps), delta=1e-6, dishonest=dishonest).epsilon for steps in (10**6, None)
    )
    assert line <= fine <= line * 1.01


def test_epsilon_and_delta_answer_each_other() -> None:
    curve = curve_of([(1.0, 3_000)], Victim(1.0), 200, 1e-6, dishonest=10)
    solution = curve.smallest_epsilon(1e-6, 1.0)
    assert solution.reached is not None
    assert 0.99e-6 < solution.reached.value <= 1e-6
    assert curve.delta(solution.epsilon).value == pytest.approx(solution.reached.value, rel=1e-6)
    assert curve.guess(1e-6) == pytest.approx(solution.epsilon, rel=0.1)
    assert curve.smallest_epsilon(curve.shown / 2, 1.0).reached is None
    assert curve.smallest_epsilon(1e-6, 1e-6).reached is None
    # Below what the lattice costs the factor is below 1.
    values = [curve.delta(share * curve.log_ratio).value for share in (0.0, 0.5, 1.0, 1.5)]
    assert values == sorted(values, reverse=True)
    assert curve.continuous.delta(0.0).value < values[0] <= 1
    assert curve.delta(1.0).value == 0
    assert curve.shown < curve.delta(0.9).value < 1e-15
    assert isinstance(curve.continuous, ExchangeLaplaceProfile)
    assert curve.continuous.count.sum() == 3_000 - 10 - curve.most_shown
    assert curve.most_shown > 0
    chords = curve.to_compose(1e-6, 1.0)
    assert chords is not None
    assert chords.delta(0.05).value >= curve.delta(0.05).value
    assert parameters(curve.explain(), ProofStep.ON_LATTICE)["lattice"] == 200


@pytest.mark.slow
def test_victims_that_are_answered_together() -> None:
    budgets, mechanism = Budgets.from_tiers([(0.5 + 0.01 * k, 500) for k in range(33)]), LaplaceMechanism(1000)
    certificate = certify(budgets, mechanism, delta=1e-6)
    blanket = certify(budgets, mechanism, delta=1e-6, bounds="blanket")
    assert certificate.tiers[-1].grouped
    assert certificate.tiers[-1].epsilon < 0.9 * blanket.tiers[-1].epsilon
    assert (
        lower_bound(budgets, mechanism, victim=budgets.local_epsilon.max(), delta=1e-6).epsilon
        <= certificate.tiers[-1].epsilon
    )


@pytest.mark.slow
def test_a_span_is_answered_in_parts() -> None:
    victims = Victim(1.5, 0.0, ((1.0, 0.0), (1.5, 0.0)))
    curve = curve_of([(0.5 + 0.1 * k, 500) for k in range(11)], victims, 1000, 1e-6)
    assert isinstance(curve.continuous, SpanProfile)
    assert curve.to_compose(1e-6, 1.5) is None
    solution = curve.smallest_epsilon(1e-6, 1.0, floor=0.01)
    assert solution.reached is not None
    assert curve.delta(solution.epsilon).value <= 1.001e-6
    line = curve.continuous.smallest_epsilon(1e-6, 1.0)
    assert line.epsilon < solution.epsilon < 1.05 * line.epsilon


def test_where_all_may_be_shown_there_is_none() -> None:
    def make(others: Others) -> Curve:
        return exchange_laplace_profile(Victim(8.0), others, 1e-6)

    assert isinstance(on_lattice(make, 8.0, others_of([(8.0, 40)]), 1, 1e-6), NoAmplification)
