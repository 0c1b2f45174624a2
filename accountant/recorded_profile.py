"""A certified privacy profile as points that can be stored, and those points as a curve again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from croupier.accountant.numerics.chords import Chords
from croupier.accountant.privacy_curve import Bounded, PrivacyProfile, Proof
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

Profile = tuple[tuple[float, float], ...]
"""Points (epsilon, delta) of a certified profile: epsilon increases, delta does not increase."""
PROFILE_POINTS = 48
"""The number of evaluations of a curve: more of them bring the chords closer to it, and take time and storage."""


@dataclass(frozen=True, eq=False)
class RecordedProfile:
    """A stored profile as a curve: the largest of several tiers' chords in e^epsilon. See `PrivacyProfile`.

    A certified profile lies above a convex function of e^epsilon, and so do the chords between its points.
    """

    profiles: Sequence[Sequence[tuple[float, float]]]
    method: Proof = (Statement.of(Method.STORED_PROFILE),)

    def delta(self, epsilon: float) -> Bounded:
        """Returns the chord's delta: the last point's delta beyond it, and 1 before the first point."""
        return Bounded(max(chords.above(epsilon) for chords in self._chords), 0.0)

    @cached_property
    def _chords(self) -> list[Chords]:
        return [Chords([e for e, _ in profile], [d for _, d in profile]) for profile in self.profiles]

    def guess(self, delta: float) -> float:
        """Returns the epsilon at which the points of every tier have at most this delta."""
        first = [next((e for e, d in profile if d <= delta), profile[-1][0]) for profile in self.profiles]
        return max(first)

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""
        return (Statement.of(ProofStep.STORED_TIERS, tiers=len(self.profiles)),)


def profile_of(curve: PrivacyProfile, epsilon: float, local_epsilon: float) -> Profile:
    """Returns points of a certified curve, for a randomizer whose local budgets have delta 0.

    Args:
        curve: certified.
        epsilon: the certified epsilon, > 0; the points reach from 0 to twice this.
        local_epsilon: the local budget, the last point; its delta is 0.
    """
    grid = np.linspace(0.0, min(2 * epsilon, local_epsilon * (1 - 1e-9)), PROFILE_POINTS)
    values = np.minimum.accumulate([curve.delta(float(point)).value for point in grid])
    return (*zip(grid.tolist(), values.tolist(), strict=True), (local_epsilon, 0.0))
