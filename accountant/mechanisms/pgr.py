"""Projective geometry response of one of k categories: a point on the category's hyperplane, or any other one.

With K points in the space, s on a hyperplane and l on two, Z = s e^v + K - s: a point of the category's hyperplane is
reported with probability e^v/Z, any other one with 1/Z. So a report is uniform with probability K/Z, and otherwise
uniform on the hyperplane. Any two categories are told apart equally well (docs/accounting.md, 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.attacks.projective import ProjectiveAttacks
from croupier.accountant.kernel import FiniteLaw
from croupier.accountant.mechanisms.base import variances_of_hits
from croupier.accountant.mechanisms.finite import FiniteRandomizer
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count
from croupier.protocol.projective import FIELDS, MAX_VECTORS, ProjectiveSpace, space_for


@dataclass(frozen=True)
class ProjectiveResponse(FiniteRandomizer):
    """One of k categories; a point of its hyperplane is e^v times as likely as any other point.

    Certificate: common blanket; among few people the exchange bound.
    Attack: count of points of one hyperplane, or of two.

    Attributes:
        k: the number of categories, at least 3.
        q: the size of the field, one of `protocol.projective.FIELDS`.
    """

    kind: ClassVar[str] = "pgr"
    no_attack: ClassVar[str | None] = None
    k: int
    q: int = 3

    def __post_init__(self) -> None:
        check_count(self.k, "k", 3)
        check_count(self.q, "q", FIELDS[0])
        space_for(self.k, self.q)

    @property
    def space(self) -> ProjectiveSpace:
        """The smallest space with a hyperplane for each category."""
        return space_for(self.k, self.q)

    @property
    def law(self) -> FiniteLaw:
        """Points of the category's hyperplane are e^v times as probable as others; two hyperplanes share some."""
        return FiniteLaw(self.space.num_points, self.space.block, self.space.common, self.space.third)

    @property
    def num_report_values(self) -> int:
        """The points."""
        return self.space.num_points

    @property
    def fakes_weight(self) -> float:
        """The variance of the fakes on a hyperplane, whose total is known: s (1 - s/K)."""
        return self.space.block * (1 - self.space.block / self.space.num_points)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """The weight w = (s-l)(e^v-1)/Z, and the variance of the hits of a category that no user holds."""
        gain = self._gain(local_epsilon)
        absent = self.absent(local_epsilon)
        return gain, absent * (1 - absent)

    def absent(self, local_epsilon: Floats) -> Floats:
        """The probability that a report is on the hyperplane of a category that is not the user's: (s-w)/K."""
        return (self.space.block - self._gain(local_epsilon)) / self.space.num_points

    def _gain(self, local_epsilon: Floats) -> Floats:
        decay = np.exp(-local_epsilon)
        whole = self.space.block + (self.space.num_points - self.space.block) * decay
        return np.asarray(-np.expm1(-local_epsilon) * self.space.apart / whole)

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`."""
        return variances_of_hits(self._gain(local_epsilon), self.absent(local_epsilon), count)

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        return ProjectiveAttacks(population, self.space)

    @classmethod
    def candidates(cls, k: int) -> tuple[Self, ...]:
        """See `Randomizer.candidates`: fields whose space is not too large, with hyperplanes of more than points."""
        return tuple(cls(k, q) for q in FIELDS if k > q + 1 and _vectors(k, q) <= MAX_VECTORS)


def _vectors(k: int, q: int) -> int:
    t = 2
    while ProjectiveSpace(q, t).num_points < k:
        t += 1
    return int(q**t)


RANDOMIZER = ProjectiveResponse
