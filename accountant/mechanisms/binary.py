"""What kinds share whose reports are a bit, or one of two halves of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.accountant.attacks.binary import BinaryAttacks
from croupier.accountant.attacks.event_tests import Attacks, Population, Target
from croupier.accountant.kernel import BITS, FiniteLaw
from croupier.accountant.mechanisms.finite import FiniteRandomizer


@dataclass(frozen=True)
class BitBlanket(FiniteRandomizer):
    """A report has probability e^v/(1+e^v) on one half of a fair space, 1/(1+e^v) on the other; v is the local epsilon.

    The bound is that of one bit among fair bits, whatever the space is.
    """

    no_attack: ClassVar[str | None] = None
    attacked: ClassVar[tuple[str, ...]] = ()
    """The data sets and the statistic of the attacks in words, where they are not bits and their ones."""

    @property
    def law(self) -> FiniteLaw:
        """A bit: which half it is."""
        return BITS

    def attacks(self, population: Population, target: Target) -> Attacks:
        """See `Randomizer.attacks`."""
        return BinaryAttacks(population, *self.attacked)


@dataclass(frozen=True)
class BitReports(BitBlanket):
    """Bits are all that users report: then the number of ones is all that a batch shows."""

    @property
    def num_report_values(self) -> int:
        """Two."""
        return 2
