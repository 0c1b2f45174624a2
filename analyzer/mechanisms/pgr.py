"""`pgr`: the share of every category, from the counts of points on the hyperplanes of a projective space."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from croupier.analyzer.base import Batch, Floats
from croupier.analyzer.estimates import Fakes
from croupier.analyzer.laws import Laws, hit_laws
from croupier.analyzer.mechanisms.krr import CategoryEstimator
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.scalars import fakes_in_sum
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.projective import ProjectiveSpace

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


class _Projective(CategoryEstimator[ProjectiveResponse]):
    def laws(self, batch: Batch[ProjectiveResponse]) -> Laws:
        """How many reports are on the hyperplane of each category."""
        space = batch.mechanism.space
        values = np.bincount(batch.reports, minlength=space.num_points).astype(np.float64)
        hits = np.rint(on_hyperplanes(space, values, batch.mechanism.k))
        return hit_laws(hits, *point_weights(space, batch.epsilons), batch.counts, rounded=False)

    def with_noised_tiers(self, batch: Batch[ProjectiveResponse], laws: Laws, errors: TierErrors) -> Laws:
        """A uniform report says as much of every point, of which there are K instead of k."""
        space = batch.mechanism.space
        weights = point_weights(space, batch.epsilons)[1]
        return TierNoise.of(errors, weights, batch.counts, 1 - 1 / space.num_points).on(laws)

    def noise_of(self, mechanism: ProjectiveResponse, fakes: Fakes) -> tuple[float, float, float]:
        space = mechanism.space
        return fakes_in_sum(fakes, np.arange(space.num_points) < space.block)

    def hit(self, mechanism: ProjectiveResponse, epsilons: Floats) -> tuple[Floats, Floats]:
        return point_weights(mechanism.space, epsilons)

    def kept(self, mechanism: ProjectiveResponse, epsilons: Floats) -> Floats:
        space, weights = mechanism.space, point_weights(mechanism.space, epsilons)[1]
        return np.asarray(weights * (space.num_points - 1) / (space.num_points - space.block))

    def on_reports(self, mechanism: ProjectiveResponse, weights: Floats) -> Floats:
        space = mechanism.space
        placed = np.zeros(space.num_points)
        placed[: weights.size] = weights
        return on_hyperplanes(space, placed, space.num_points)

    def of_categories(self, mechanism: ProjectiveResponse, values: Floats) -> Floats:
        return on_hyperplanes(mechanism.space, values, mechanism.k) / mechanism.space.block


ESTIMATOR = _Projective()
