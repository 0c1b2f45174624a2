"""Shares of many categories from points of a projective space: exact counts, no bias, intervals at their level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier.analyzer.estimates import Estimate
from croupier.analyzer.estimators import estimate
from croupier.analyzer.mechanisms.pgr import on_hyperplanes, point_weights
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.projective import ProjectiveSpace
from croupier.protocol.questions import Question
from tests.analyzer.draws import LEVEL, Floats, dealt, incidence, least, points, with_fakes

TIERS = ((0.5, 108), (1.0, 74), (2.0, 18))
N = sum(count for _, count in TIERS)


@pytest.mark.parametrize(("k", "q"), [(7, 2), (3, 2), (13, 3), (50, 5), (300, 7), (12, 11)])
def test_points_on_hyperplanes_are_counted_exactly(k: int, q: int) -> None:
    space = ProjectiveResponse(k, (), q).space
    values = np.random.default_rng(1).integers(0, 10**6, space.num_points).astype(float)
    np.testing.assert_array_equal(np.rint(on_hyperplanes(space, values, k)), incidence(space)[:k] @ values)


def test_the_probabilities_of_a_hit_are_those_of_the_definition() -> None:
    space, epsilons = ProjectiveSpace(3, 3), np.array([0.3, 1.0, 5.0])
    on = incidence(space)
    absent, weights = point_weights(space, epsilons)
    for epsilon, other, weight in zip(epsilons, absent, weights, strict=True):
        masses = np.where(on == 1, math.exp(epsilon), 1.0)
        hits = masses / masses.sum(axis=1, keepdims=True) @ on.T
        np.testing.assert_allclose(np.diag(hits), other + weight, rtol=1e-12)
        np.testing.assert_allclose(hits[~np.eye(len(on), dtype=bool)], other, rtol=1e-12)


def coverage(rounds: int, *, noise: bool, population: bool) -> tuple[Floats, Floats]:
    """How often the interval of each category has its truth, and by how many standard errors the mean is off."""
    mechanism, source = ProjectiveResponse(9, (), 3), np.random.default_rng(44)
    shares = np.array([0.55, 0.25, 0.1, 0.05, 0.05, 0, 0, 0, 0])
    fixed = np.repeat(np.arange(9), (shares * N).astype(int))
    truth = shares if population else np.bincount(fixed, minlength=9) / N
    covered, off = np.zeros(9), np.zeros(9)
    for _ in range(rounds):
        values = source.choice(9, N, p=shares) if population else fixed
        reports, fakes = points(mechanism.space, values, dealt(TIERS, source), source), None
        if noise:
            reports, fakes = with_fakes(reports, HopNoise(1.0, 1e-6).law(mechanism.space.num_points), 2, source)
        result: Estimate = estimate(Question("word", mechanism), reports, TIERS, LEVEL, fakes=fakes)
        low, high = np.array(result.population_intervals if population else result.confidence_intervals).T
        covered += (low <= truth) & (truth <= high)
        off += (np.array(result.values) - truth) / np.array(result.standard_errors)
    return covered / rounds, off / math.sqrt(rounds)


def check(rounds: int, *, noise: bool, population: bool) -> None:
    """Each share is covered at its level, and its estimate has no bias, but for once in a million such tests."""
    covered, off = coverage(rounds, noise=noise, population=population)
    assert covered.min() >= least(rounds)
    assert np.abs(off).max() < 6.5


@pytest.mark.slow
@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("population", [False, True])
def test_shares_are_covered_over_ten_thousand_rounds(noise: bool, population: bool) -> None:
    check(10_000, noise=noise, population=population)


@pytest.mark.parametrize("noise", [False, True])
def test_shares_are_covered_over_some_rounds(noise: bool) -> None:
    check(300, noise=noise, population=False)
