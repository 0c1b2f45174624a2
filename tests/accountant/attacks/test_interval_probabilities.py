"""Probabilities that a noisy report falls between two cuts, against sums over the noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest

from croupier.accountant.attacks.interval_probabilities import GaussianIntervals, LaplaceIntervals

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize(
    "noise", [LaplaceIntervals(), LaplaceIntervals(5), GaussianIntervals(), GaussianIntervals(5)], ids=str
)
def test_interval_probabilities_are_those_of_sums(noise: LaplaceIntervals | GaussianIntervals) -> None:
    """Riemann sums on the line, plain sums on the lattice."""
    steps = noise.lattice or 2000
    z = np.arange(-60 * steps, 60 * steps) + (0 if noise.lattice else 0.5)
    for scale, at in itertools.product((0.3, 2.0), (0.0, 1.0, 0.4)):
        d = np.abs(z / steps) / scale
        mass = np.exp(-d) if isinstance(noise, LaplaceIntervals) else np.exp(-d * d / 2)
        mass = mass / mass.sum()
        for low, high in ((-0.3, 0.3), (0.5, 1.3), (-math.inf, 0.1), (0.9, math.inf), (-3.1, -1.1), (0.3, 0.5)):
            low, high = noise.cut(low), noise.cut(high)
            exact = float(mass[(z / steps + at > low) & (z / steps + at < high)].sum())
            inside, outside = noise.between(np.array([scale]), at, np.array([low]), np.array([high]))
            assert float(inside[0]) == pytest.approx(exact, rel=1e-9 if noise.lattice else 1e-5)
            assert float(inside[0] + outside[0]) == pytest.approx(1, abs=1e-12)
