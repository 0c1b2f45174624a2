"""Counts of points on the hyperplanes of a projective space: what reports of `pgr` say of every category at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from croupier.analyzer.laws import Laws, hit_laws
from croupier.protocol.projective import ProjectiveSpace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def point_weights(space: ProjectiveSpace, epsilons: Floats) -> tuple[Floats, Floats]:
    """Returns how likely a report is on a hyperplane that is not the user's, and how much likelier on the user's own.

    The first is (s - w)/K, the second w = (s-l)(e^v - 1)/(s e^v + K - s): K points, s on a hyperplane, l on two.
    Shape (T,) each.
    """
    decay = np.exp(-epsilons)
    weights = -np.expm1(-epsilons) * space.apart / (space.block + (space.num_points - space.block) * decay)
    return (space.block - weights) / space.num_points, np.asarray(weights)


def on_hyperplanes(space: ProjectiveSpace, values: Floats, categories: int) -> Floats:
    """Returns the sum of the values of the points on each of the first hyperplanes, exact to 1e-9 of their total.

    The number of multiples c with <c h, y> = 0 is q for a point y on the hyperplane of h and 1 for any other, so the
    sum over c of a Fourier transform at c h counts the points on it. The transform takes K log K steps.

    Args:
        space: whose hyperplanes.
        values: one for each point, (K,).
        categories: how many hyperplanes.

    Returns:
        Shape (categories,).
    """
    q, t = space.q, space.t
    vectors = _vectors(space)
    places = q ** np.arange(t - 1, -1, -1, dtype=np.int64)
    array = np.zeros(q**t)
    array[vectors @ places] = values
    transform = np.fft.fftn(array.reshape((q,) * t)).real.ravel()
    normals = vectors[:categories]
    total = sum(transform[(factor * normals % q) @ places] for factor in range(q))
    return np.asarray(total) / q


def _vectors(space: ProjectiveSpace) -> Ints:
    """Returns the vector of every point, (K, t), as `ProjectiveSpace.vector` has it."""
    q, t = space.q, space.t
    rows = []
    for after in range(t):
        digits = np.arange(q**after, dtype=np.int64)[:, None] // q ** np.arange(after - 1, -1, -1, dtype=np.int64) % q
        rows.append(np.hstack([np.tile([0] * (t - 1 - after) + [1], (q**after, 1)), digits]))
    return np.vstack(rows)


def point_laws(space: ProjectiveSpace, categories: int, reports: Ints, epsilons: Floats, counts: Floats) -> Laws:
    """Returns the laws of how many reports are on the hyperplane of each category."""
    values = np.bincount(reports, minlength=space.num_points).astype(np.float64)
    hits = np.rint(on_hyperplanes(space, values, categories))
    absent, weights = point_weights(space, epsilons)
    return hit_laws(hits, absent, weights, counts, rounded=False)
