"""`pgr`: a point of the category's hyperplane, or a uniform one (Feldman, Nelson, Nguyen, Talwar 2022)."""

from __future__ import annotations

import secrets

from croupier.client.mechanisms.base import ScalarRandomizer
from croupier.client.thresholds import blanket_threshold
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.randomness import RandomSource


class _Projective(ScalarRandomizer[ProjectiveResponse]):
    def report(self, mechanism: ProjectiveResponse, value: float, epsilon: float, source: RandomSource) -> int:
        space = mechanism.space
        if source.bits64() < blanket_threshold(epsilon, space.num_points, space.block):
            return source.below(space.num_points)
        return space.on_hyperplane(int(value), 1 + source.below(space.q ** (space.t - 1) - 1))

    def any_value(self, mechanism: ProjectiveResponse) -> int:
        return secrets.randbelow(mechanism.k)


RANDOMIZER = _Projective()
