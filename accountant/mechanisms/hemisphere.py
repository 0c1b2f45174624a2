"""A point of the half sphere around a unit vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from croupier.accountant.mechanisms.binary import BitBlanket
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count


@dataclass(frozen=True)
class HemisphereMechanism(BitBlanket):
    """A unit vector in R^d in, a uniform point of its half sphere with probability e^v/(1+e^v), else of the other half.

    Certificate: common blanket, docs/exchange-bound.md: as for bits, in every dimension.
    Attack: count of reports on one side.

    The blanket bound is that of a bit in any dimension (docs/bounds.md, section 2.1); the exact worst case is not.
    """

    kind: ClassVar[str] = "hemisphere"
    attacked: ClassVar[tuple[str, ...]] = ("directions (along one line)", "count of reports on the positive side")
    dimension: int = 2

    def __post_init__(self) -> None:
        check_count(self.dimension, "dimension", 1)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """One coordinate of a mean of vectors in the unit ball: tanh(v/2) E|z_1| and 1/d."""
        d = self.dimension
        length = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
        return np.tanh(local_epsilon / 2) * length, np.full(local_epsilon.shape, 1 / d)

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """See `Randomizer.of`."""
        return cls(mechanism.vector.dimension)


RANDOMIZER = HemisphereMechanism
