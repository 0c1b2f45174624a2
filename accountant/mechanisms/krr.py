"""Randomised response of one of k categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from croupier.accountant.attacks.binary import BinaryAttacks
from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.attacks.kary import KaryAttacks
from croupier.accountant.kernel import FiniteLaw
from croupier.accountant.mechanisms.base import variances_of_hits
from croupier.accountant.mechanisms.finite import FiniteRandomizer
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count


@dataclass(frozen=True)
class KaryRandomizedResponse(FiniteRandomizer):
    """One of k values, kept with probability e^v/(e^v+k-1), each other value with 1/(e^v+k-1).

    Certificate: common blanket; with k = 2 also the docs/exchange-bound.md.
    Attack: count of one category, or of two.
    """

    kind: ClassVar[str] = "krr"
    no_attack: ClassVar[str | None] = None
    k: int

    def __post_init__(self) -> None:
        check_count(self.k, "k", 2)

    @property
    def law(self) -> FiniteLaw:
        """The category itself is e^v times as probable as each other one."""
        return FiniteLaw(self.k)

    @property
    def num_report_values(self) -> int:
        """The categories."""
        return self.k

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """(e^v-1)/Z, and (1/Z)(1-1/Z), the variance of a category that no user holds, Z = e^v+k-1."""
        other = 1 / (np.exp(local_epsilon) + self.k - 1)
        return np.expm1(local_epsilon) * other, other * (1 - other)

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`."""
        gain, _ = self.signal(local_epsilon, local_delta)
        return variances_of_hits(gain, 1 / (np.expm1(local_epsilon) + self.k), count)

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        return BinaryAttacks(population, "categories") if self.k == 2 else KaryAttacks(population, self.k)

    @classmethod
    def candidates(cls, k: int) -> tuple[Self, ...]:
        """See `Randomizer.candidates`."""
        return (cls(k),)


RANDOMIZER = KaryRandomizedResponse
