"""Scales that are merged: products over all users, and the law of their sum, are never further off than is said."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from croupier.accountant.attacks import additive_noise, merged_scales
from croupier.accountant.attacks.event_tests import Target
from croupier.accountant.attacks.interval_probabilities import (
    GaussianIntervals,
    IntervalProbabilities,
    LaplaceIntervals,
)
from croupier.accountant.attacks.score_tests import ScoreTest
from croupier.accountant.lower_bound import lower_bound

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NOISE: tuple[IntervalProbabilities, ...] = (LaplaceIntervals(), GaussianIntervals())


def _users(kind: str, generator: np.random.Generator) -> tuple[Floats, Ints]:
    """Scales of many kinds: spread evenly, in heaps at the edge of a bin, few and far from each other."""
    if kind == "even":
        scales = np.exp(generator.uniform(-0.7, 3.0, 3000))
    elif kind == "heaps":
        scales = np.concatenate([1 + 1e-3 * generator.exponential(size=500), np.full(300, 7.0), 7 + np.arange(5) / 10])
    else:
        scales = np.array([1e-3, 0.5, 0.5000001, 40.0, 1e5])
    return scales, generator.integers(1, 4, scales.size)


def _generating(
    noise: IntervalProbabilities, scales: Floats, cuts: Floats, power: complex
) -> npt.NDArray[np.complex128]:
    """Ln E e^(power (score - middle)) of each scale, scores 0, 2, 1, 3, 0 ... of the cells between cuts."""
    law = noise.between(scales[:, None], 1.0, cuts[:-1], cuts[1:])[0]
    law = law / law.sum(1, keepdims=True)
    score = np.arange(cuts.size - 1) * 2 % 5
    return np.asarray(np.log(1 + law @ np.expm1(power * (score - 2))))


@pytest.mark.parametrize("noise", NOISE, ids=["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["even", "heaps", "few"])
@pytest.mark.parametrize("radius", [9e-4, 0.003])
def test_a_product_over_merged_scales_is_as_near_as_is_said(
    noise: IntervalProbabilities, kind: str, radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_scales, "RADIUS", radius)
    generator = np.random.default_rng(3)
    scales, count = _users(kind, generator)
    assert noise.variation is not None
    merged, weight, merging = merged_scales.merged_scales(scales, count, noise.variation)
    assert (weight > 0).all()
    assert weight.sum() == pytest.approx(count.sum(), rel=1e-14)
    assert merging.users == count.sum()
    cuts = np.array([-math.inf, -1.0, 0.2, 0.7, 1.3, 2.0, 5.0, math.inf])
    for tilt, angle in [(0.0, 0.1), (0.01, 0.0), (0.01, 0.2), (0.05, 0.05)]:
        power = complex(tilt, angle)
        exact = count @ _generating(noise, scales, cuts, power)
        approximation = weight @ _generating(noise, merged, cuts, power)
        error = float(merging.log_error(4 * tilt, np.array([4 * angle]))[0])
        assert abs(exact - approximation) <= error + 1e-13 * abs(exact)
        assert error < 1.0
        for turn in (angle, 2.0, math.pi):
            # |phi|^2, at angles of any size
            logs = [
                _generating(noise, which, cuts, complex(tilt, turn)).real
                - _generating(noise, which, cuts, complex(tilt)).real
                for which in (scales, merged)
            ]
            mean, other = count @ np.exp(2 * logs[0]) / count.sum(), weight @ np.exp(2 * logs[1]) / count.sum()
            assert mean <= other + merging.unlike(4 * tilt)


def test_what_is_not_bounded_is_not_claimed() -> None:
    """Large tilts and angles, and bins as wide as budgets are apart."""
    merging = merged_scales.Merging(1000.0, 9e-4, 0.0, 2.44)
    assert merging.log_error(0.1, np.array([0.5, 1.5])).tolist()[1] == math.inf
    assert math.isinf(merging.log_error(1.1, np.zeros(1))[0])
    assert math.isinf(merging.unlike(1.1))
    wide = merged_scales.Merging(1000.0, 0.3, 0.0, 2.44)
    assert math.isinf(wide.log_error(0.1, np.zeros(1))[0])
    assert math.isinf(wide.unlike(0.1))


@pytest.mark.parametrize("angle", [0.0, 0.2, 0.5])
def test_how_fast_densities_change_with_a_complex_scale(angle: float) -> None:
    """The 1-norm of d/dx p at scale e^x, summed up at x = i angle."""
    z = np.linspace(-60, 60, 120_001)
    scale = complex(math.cos(angle), math.sin(angle))
    laplace = np.exp(-np.abs(z) / scale) / (2 * scale) * (np.abs(z) / scale - 1)
    gaussian = np.exp(-((z / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi)) * ((z / scale) ** 2 - 1)
    for noise, change in zip(NOISE, (laplace, gaussian), strict=True):
        assert noise.variation is not None
        assert float(np.abs(change).sum()) * float(z[1] - z[0]) <= noise.variation


@pytest.mark.parametrize("noise", NOISE, ids=["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.02, 0.08])
def test_scores_of_merged_scales_add_up(
    noise: IntervalProbabilities, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the transforms of all scales, without a tilt: never more, and nearly as much."""
    monkeypatch.setattr(merged_scales, "RADIUS", 0.003)
    scales, count = np.exp(np.linspace(0.4, 0.6, 201)), np.full(201, 30)
    cuts = np.array([-math.inf, -1.0, 0.0, 0.4, 0.7, 1.0, 1.3, 2.0, math.inf])
    assert noise.variation is not None

    def laws(which: Floats, at: float) -> Floats:
        cells = noise.between(which[:, None], at, cuts[:-1], cuts[1:])[0]
        law: Floats = cells @ np.eye(4)[[0, 0, 1, 2, 3, 3, 2, 1]]
        return np.asarray(law / law.sum(1, keepdims=True))

    first, second = (laws(np.array([0.4]), at)[0] for at in (1.0, 0.0))
    length = 3 * int(count.sum()) + 4
    power = np.exp(count @ np.log(np.fft.rfft(laws(scales, 1.0), n=length)))
    total = np.fft.irfft(power, n=length)
    gain, loss = (
        np.convolve(total, first_law)[:length] - math.exp(epsilon) * np.convolve(total, other)[:length]
        for first_law, other in ((first, second), (second, first))
    )
    exact = max(float(np.cumsum(gain[::-1]).max()), float(np.cumsum(loss).max()))
    merged, weight, merging = merged_scales.merged_scales(scales, count, noise.variation)
    assert merged.size < scales.size
    test = ScoreTest(first, second, laws(merged, 1.0), weight, 1e-13, merging)
    score = test.best(Target(epsilon=epsilon)).score
    assert 0.96 * exact < score <= exact


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", ["laplace", "gaussian"])
def test_merged_scales_prove_as_much(randomizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging scales does not weaken an attack on 10^4 users with 2,500 budgets."""
    tiers = [(epsilon, 4, 1e-8) for epsilon in np.linspace(0.3, 1.5, 2_500).tolist()]
    plain = lower_bound(tiers, randomizer, delta=1e-6)
    monkeypatch.setattr(additive_noise, "FEW_SCALES", 100)
    merged = lower_bound(tiers, randomizer, delta=1e-6)
    assert "sum of scores" in merged.attack
    assert 0.999 * plain.epsilon < merged.epsilon < 1.0001 * plain.epsilon


def test_where_merging_changes_too_much_a_cut_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins that are wider than what is bounded."""
    monkeypatch.setattr(additive_noise, "FEW_SCALES", 10)
    monkeypatch.setattr(merged_scales, "RADIUS", 0.3)
    attack = lower_bound({0.5 + 0.05 * k: 100 for k in range(20)}, "laplace", delta=1e-6)
    assert "count of reports" in attack.attack
    assert attack.epsilon > 0.08
