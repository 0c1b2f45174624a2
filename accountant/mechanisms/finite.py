"""Pure randomizers whose report has one of finitely many values: their law, and the bounds that it has."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flint import arb

from croupier.accountant.bounds.blanket import FiniteBlanket, finite_weights
from croupier.accountant.bounds.exact_binary import ExactBinaryProfile, is_enumerable
from croupier.accountant.bounds.exchange_binary import exchange_binary_profile
from croupier.accountant.bounds.exchange_finite import likely_sets_exchange
from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.kernel import Classes, FiniteLaw, Weights
from croupier.accountant.mechanisms.base import Randomizer
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement

LEAST_BLANKET = 30.0
"""With fewer blanket users on average the blanket bound is sharper than the exchange bound, or nearly as sharp."""
MOST_BLANKET = 500.0
"""With more, and reports that are no bits, the exchange bound is smaller by at most about a hundredth."""


@dataclass(frozen=True)
class FiniteRandomizer(Randomizer):
    """A pure randomizer with a `FiniteLaw`, or one that shows as much as one."""

    smaller_budgets_mix: ClassVar[bool] = True
    """Yes, with the uniform blanket."""

    @property
    @abstractmethod
    def law(self) -> FiniteLaw:
        """The law of a report, for the blanket and for what a report shows by itself."""

    @property
    def clones_are_fair_bits(self) -> bool:
        """Where the law is that of a bit."""
        return self.law.is_bit

    def report_pairs(self, local_epsilon: float) -> Sequence[Classes]:
        """The classes of the law, because all pairs show as much; none for points of a sphere."""
        return () if self.num_report_values is None else (self.law.classes(arb(local_epsilon)),)

    def least_mass(self, local_epsilon: float) -> float:
        """The blanket's weight, because the blanket is the normalised least density."""
        return math.nextafter(float(self.law.gamma(arb(local_epsilon)).lower()), 0.0)

    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.profile`."""
        weights = self._weights(others)
        blanket = Statement.of(ProofStep.NO_BLANKET, randomizer=self.name)
        if weights:
            shares = [float(weight) for weight, _ in weights]
            blanket = Statement.of(ProofStep.UNIFORM_BLANKET, randomizer=self.name, least=min(shares), most=max(shares))
        return FiniteBlanket(weights, victim.local_epsilon, self.law, blanket)

    def _weights(self, others: Others) -> Weights:
        return others.once(self.law, lambda these: finite_weights(self.law, these))

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """See `Randomizer.exchange_profile`; not where one of many values is likely: the blanket is sharp there."""
        blanket = sum(float(weight) * number for weight, number in self._weights(others))
        if not self.law.is_bit and (self.law.inside == 1 or blanket > MOST_BLANKET):
            return super().exchange_profile(victim, others, delta)
        if blanket < LEAST_BLANKET:
            return NoAmplification(Statement.of(ProofStep.EXCHANGE_NEEDS_BLANKET, least=LEAST_BLANKET))
        if self.law.is_bit:
            return exchange_binary_profile(victim, others, delta)
        return likely_sets_exchange(self.law, victim, others, delta)

    def worst_case(self, victim: Victim, others: Others) -> Curve | None:
        """See `Randomizer.worst_case`; None where the splits of the others' bits are too many to look at all."""
        if self.num_report_values != 2 or victim.span is not None:
            return None
        if not is_enumerable(others.count, others.dishonest):
            return None
        count = others.count - (others.dishonest if others.count.size == 1 else 0)
        return ExactBinaryProfile(victim.local_epsilon, others.local_epsilon, count)
