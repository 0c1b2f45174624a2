"""What kinds share whose reports are a bit, or one of two halves of a space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.attacks.binary import BinaryAttacks
from croupier.accountant.attacks.event_tests import AlikeReports, Attacks, Population, Target
from croupier.accountant.bounds.closed_forms import binary_delta
from croupier.accountant.bounds.exact_binary import ExactBinaryProfile, is_enumerable
from croupier.accountant.bounds.exchange_binary import exchange_binary_profile
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.mechanisms.closed_form import ClosedFormRandomizer
from croupier.accountant.numerics.binomial import UNIT, Floats, lowered
from croupier.accountant.numerics.count_law import CountLaw
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

LEAST_BLANKET = 30.0
"""With fewer blanket users on average the blanket bound is sharper than the exchange bound, or nearly as sharp."""


@dataclass(frozen=True)
class BitBlanket(ClosedFormRandomizer):
    """A report has probability e^v/(1+e^v) on one half of a fair space, 1/(1+e^v) on the other; v is the local epsilon.

    The bound is that of one bit among fair bits, whatever the space is.
    """

    no_attack: ClassVar[str | None] = None
    attacked: ClassVar[tuple[str, ...]] = ()
    """The data sets and the statistic of the attacks in words, where they are not bits and their ones."""

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        return BinaryAttacks(population, *self.attacked)

    @property
    def clones_are_fair_bits(self) -> bool:
        """Yes: which half it is."""
        return True

    def gamma(self, local_epsilon: Floats) -> Floats:
        """2/(1+e^v)."""
        decay = np.exp(-local_epsilon)
        return lowered(2 * decay / (1 + decay))

    def averaged(self, local_epsilon: float, law: CountLaw, tail: float) -> Callable[[float], tuple[float, float]]:
        """See `binary_delta`."""

        def mean(epsilon: float) -> tuple[float, float]:
            value, error = binary_delta(local_epsilon, epsilon, law.counts)
            return float(law.mass @ value), float(law.mass @ error)

        return mean

    def divergence(self, local_epsilon: float) -> float:
        """4 tanh^2(v/2)."""
        return 4 * math.tanh(local_epsilon / 2) ** 2

    def buckets(self, mean: float) -> int:
        """Enough for a relative error of epsilon below 1e-4 at any size."""
        return 2048

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.exchange_profile`; proved for bits and for half spheres."""
        if self.count_law(others, delta).mean < LEAST_BLANKET:
            return NoAmplification(Statement.of(ProofStep.EXCHANGE_NEEDS_BLANKET, least=LEAST_BLANKET))
        return exchange_binary_profile(victim, others, delta)


@dataclass(frozen=True)
class BitReports(BitBlanket):
    """Bits are all that users report: then the number of ones is all that a batch shows."""

    @property
    def num_report_values(self) -> int:
        """Two."""
        return 2

    def total_variation(self, local_epsilon: float) -> float:
        """tanh(v/2)."""
        return min(1.0, math.tanh(local_epsilon / 2) * (1 + 8 * UNIT))

    def alike_reports(self, local_epsilon: float) -> AlikeReports:
        """The bit that is kept, and the other one."""
        flip = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
        return (1, 1 - flip, flip), (1, flip, 1 - flip)

    def worst_case(self, victim: Victim, others: Others) -> Curve | None:
        """See `Randomizer.worst_case`; None where the splits of the others' bits are too many to look at all."""
        if victim.span is not None or not is_enumerable(others.count, others.dishonest):
            return None
        count = others.count - (others.dishonest if others.count.size == 1 else 0)
        return ExactBinaryProfile(victim.local_epsilon, others.local_epsilon, count)
