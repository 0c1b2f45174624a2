"""Reports and fakes drawn from the definitions, and how often intervals have to cover the truth of such rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from croupier.analyzer.estimates import Fakes
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.projective import ProjectiveSpace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LEVEL = 0.95


def least(rounds: int) -> float:
    """Returns the share of rounds that 95 % intervals miss in one of a million such simulations: fewer cover."""
    return float(binom(rounds, LEVEL).ppf(1e-6)) / rounds


def dealt(tiers: Sequence[tuple[float, int]], source: np.random.Generator) -> Floats:
    """Returns everybody's budget: budgets are dealt to people at random."""
    return source.permutation(np.repeat(*np.array(tiers).T.tolist()))


def responses(k: int, values: npt.ArrayLike, budgets: Floats, source: np.random.Generator) -> Ints:
    """Returns the reports of randomised response with k values."""
    blank = source.random(budgets.size) < k / (np.exp(budgets) + k - 1)
    return np.where(blank, source.integers(0, k, budgets.size), values).astype(np.int64)


def incidence(space: ProjectiveSpace) -> Ints:
    """Returns which points are on which hyperplane, from the definition."""
    vectors = np.array([space.vector(point) for point in range(space.num_points)])
    return np.asarray(vectors @ vectors.T % space.q == 0, dtype=np.int64)


def points(space: ProjectiveSpace, values: Ints, budgets: Floats, source: np.random.Generator) -> Ints:
    """Returns the reports of projective geometry response."""
    members = np.array([np.flatnonzero(row) for row in incidence(space)])
    size, block = space.num_points, space.block
    blank = source.random(budgets.size) < size / (block * np.exp(budgets) + size - block)
    own = members[values, source.integers(0, block, budgets.size)]
    return np.asarray(np.where(blank, source.integers(0, size, budgets.size), own))


def with_fakes(reports: Ints, law: FakeLaw, hops: int, source: np.random.Generator) -> tuple[Ints, Fakes]:
    """Returns the reports with the fakes that each hop adds."""
    noise = np.arange(-law.radius, law.radius + 1)
    weights = np.exp(-np.abs(noise) / law.scale)
    drawn = source.choice(noise, size=(hops, law.num_values), p=weights / weights.sum())
    if law.is_paired:
        drawn[:, 1] = -drawn[:, 0]
    added = (drawn + law.radius).sum(axis=0)
    return np.concatenate([reports, np.repeat(np.arange(law.num_values), added)]), Fakes(
        law, hops, int(added.sum()), law.most
    )
