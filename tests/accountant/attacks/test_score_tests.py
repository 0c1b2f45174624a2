"""Tests by a sum of scores: never more than the law multiplied out, and nearly as much."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from accountant.attacks.event_tests import Target
from accountant.attacks.score_tests import ScoreTest

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize("epsilon", [0.02, 0.2, 0.5])
def test_scores_add_up(epsilon: float) -> None:
    """Against the law multiplied out: the best threshold's divergence, and never more."""
    generator = np.random.default_rng(5)
    laws = generator.dirichlet(np.ones(6), size=4)
    game = ScoreTest(laws[0], laws[1], laws[2:], np.array([7.0, 12.0]), 1e-15)
    total = np.ones(1)
    for law, users in zip(laws[2:], (7, 12), strict=True):
        for _ in range(users):
            total = np.convolve(total, law)
    first, second = np.convolve(total, laws[0]), np.convolve(total, laws[1])
    gain = first - math.exp(epsilon) * second
    loss = second - math.exp(epsilon) * first
    exact = max(float(np.cumsum(gain[::-1]).max()), float(np.cumsum(loss).max()))
    found = game.best(Target(epsilon=epsilon)).score
    assert exact - 1e-10 < found <= exact
