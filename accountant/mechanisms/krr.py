"""Randomised response of one of k categories."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from croupier.accountant.attacks.binary import BinaryAttacks
from croupier.accountant.attacks.event_tests import AlikeReports, Attacks, Population, Target
from croupier.accountant.attacks.kary import KaryAttacks
from croupier.accountant.bounds.closed_forms import kary_losses
from croupier.accountant.bounds.profile import Curve, Others, Victim
from croupier.accountant.mechanisms.base import variances_of_hits
from croupier.accountant.mechanisms.closed_form import ClosedFormRandomizer
from croupier.accountant.mechanisms.rr import BinaryRandomizedResponse
from croupier.accountant.numerics.binomial import UNIT, Floats, lowered
from croupier.accountant.numerics.count_law import CountLaw
from croupier.accountant.numerics.loss_sums import mean_excess
from croupier.accountant.ranges import check_count

POINTS = 100.0
"""Lattice points per standard deviation of a loss: epsilon grows by less than 10^-4, and time with them."""


@dataclass(frozen=True)
class KaryRandomizedResponse(ClosedFormRandomizer):
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
    def clones_are_fair_bits(self) -> bool:
        """Only with two categories."""
        return self.k == 2

    @property
    def num_report_values(self) -> int:
        """The categories."""
        return self.k

    def total_variation(self, local_epsilon: float) -> float:
        """(e^v-1)/(e^v+k-1)."""
        decay = math.exp(-local_epsilon)
        return min(1.0, -math.expm1(-local_epsilon) / (1 + (self.k - 1) * decay) * (1 + 16 * UNIT))

    def alike_reports(self, local_epsilon: float) -> AlikeReports:
        """The two values, and those that are neither."""
        kept = 1 / (1 + (self.k - 1) * math.exp(-local_epsilon))
        other = kept * math.exp(-local_epsilon)
        both = (1, kept, other), (1, other, kept)
        return both if self.k == 2 else (*both, (self.k - 2, other, other))

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """(e^v-1)/Z, and (1/Z)(1-1/Z), the variance of a category that no user holds, Z = e^v+k-1."""
        other = 1 / (np.exp(local_epsilon) + self.k - 1)
        return np.expm1(local_epsilon) * other, other * (1 - other)

    def gamma(self, local_epsilon: Floats) -> Floats:
        """k/(e^v+k-1)."""
        decay = np.exp(-local_epsilon)
        return lowered(self.k * decay / (1 + (self.k - 1) * decay))

    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """See `mean_excess`; two values are binary randomised response."""
        if self.k == 2:
            return BinaryRandomizedResponse().averaged(local_epsilon, law, tail)

        def mean(epsilon: float) -> tuple[float, float]:
            if epsilon >= local_epsilon:
                return 0.0, 0.0
            return mean_excess(kary_losses(local_epsilon, self.k, epsilon), law, POINTS)

        return mean

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.exchange_profile`; two values are bits, with more the blanket loses next to nothing."""
        if self.k == 2:
            return BinaryRandomizedResponse().exchange_profile(victim, others, delta)
        return super().exchange_profile(victim, others, delta)

    def divergence(self, local_epsilon: float) -> float:
        """2 k (e^v-1)^2 / (e^v+k-1)^2."""
        decay = math.exp(-local_epsilon)
        return 2 * self.k * ((1 - decay) / (1 + (self.k - 1) * decay)) ** 2

    def buckets(self, mean: float) -> int:
        """Fewer where a count matters less: the relative loss in epsilon is about 3/(buckets * sqrt(mean))."""
        return 2048 if self.k == 2 else int(np.clip(20_000 / max(mean, 1.0) ** 0.5, 32, 1024))

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
