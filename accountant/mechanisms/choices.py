"""The bit of one option of a set: `rr` about an option that is drawn.

The 2k reports, an option with a bit, are like a sphere: the opposite of a report has the other bit, and a set of
options is the half of them that has one of each two opposites. So this is the hemisphere mechanism on another space,
and the proofs for half spheres, which use nothing but opposites, are proofs for it (docs/bounds.md, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.mechanisms.base import AlikeReports
from croupier.accountant.mechanisms.binary import BinaryRandomizedResponse, BitBlanket
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count
from croupier.protocol.codes import Assumption
from croupier.protocol.statements import Statement, state


@dataclass(frozen=True)
class MultipleChoice(BitBlanket):
    """One of k options, drawn uniformly, with its bit, which is flipped with probability 1/(1+e^v).

    Attributes:
        k: the number of options, at least 2.
    """

    kind: ClassVar[str] = "choices"
    k: int

    def __post_init__(self) -> None:
        check_count(self.k, "k", 2)

    @property
    def name(self) -> str:
        """See `Randomizer.name`; with k."""
        return f"choices(k={self.k})"

    @property
    def statement(self) -> Statement[Assumption]:
        """See `Randomizer.statement`; with k."""
        return state(Assumption.RUNS_CHOICES, k=self.k)

    @property
    def num_report_values(self) -> int:
        """Each option with each bit."""
        return 2 * self.k

    @property
    def fakes_weight(self) -> float:
        """At most that of one value: the fakes of an option's two bits weigh (1-π)² and π² (docs/estimators.md)."""
        return 1.0

    def total_variation(self, local_epsilon: float) -> float:
        """tanh(v/2), for a set and its complement."""
        return BinaryRandomizedResponse().total_variation(local_epsilon)

    def alike_reports(self, local_epsilon: float) -> AlikeReports:
        """For a set and its complement: the options with the one's bits, and with the other's."""
        bits = BinaryRandomizedResponse().alike_reports(local_epsilon)
        return tuple((self.k, first / self.k, second / self.k) for _, first, second in bits)

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2)/k, and 1/(4k) less a quarter of its square: the ones of an option, given how many drew it."""
        gain = np.tanh(local_epsilon / 2) / self.k
        return gain, 1 / (4 * self.k) - gain * gain / 4
