"""The bit of one option of a set: `rr` about an option that is drawn.

The 2k reports, an option with a bit, are like a sphere: the opposite of a report has the other bit, and a set of
options is the half of them that has one of each two opposites. So this is the hemisphere mechanism on another space,
and the proofs for half spheres, which use nothing but opposites, are proofs for it (docs/bounds.md, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from croupier.accountant.kernel import FiniteLaw
from croupier.accountant.mechanisms.binary import BitBlanket
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.ranges import check_count


@dataclass(frozen=True)
class MultipleChoice(BitBlanket):
    """One of k options, drawn uniformly, with its bit, which is flipped with probability 1/(1+e^v).

    Certificate: common blanket, docs/exchange-bound.md, at every k.
    Attack: count of ones where everybody chooses all or nothing.

    Attributes:
        k: the number of options, at least 2.
    """

    kind: ClassVar[str] = "choices"
    attacked: ClassVar[tuple[str, ...]] = (
        "sets of options, all or none,",
        "count of reports that an option is chosen",
    )
    """Where everybody chooses all options or none, the ones are those of `rr`, whatever the drawn options are."""
    k: int

    def __post_init__(self) -> None:
        check_count(self.k, "k", 2)

    @property
    def law(self) -> FiniteLaw:
        """The options with the bits of a set, against those with the bits of its complement."""
        return FiniteLaw(2 * self.k, self.k)

    @property
    def num_report_values(self) -> int:
        """Each option with each bit."""
        return 2 * self.k

    @property
    def fakes_weight(self) -> float:
        """At most that of one value: the fakes of an option's two bits weigh (1-π)² and π² (docs/estimators.md)."""
        return 1.0

    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """tanh(v/2)/k, and 1/(4k) less a quarter of its square: the ones of an option, given how many drew it."""
        gain = np.tanh(local_epsilon / 2) / self.k
        return gain, 1 / (4 * self.k) - gain * gain / 4

    def variances(self, local_epsilon: Floats, local_delta: Floats, count: Floats) -> tuple[float, float]:
        """See `Randomizer.variances`: the people who drew an option, of whom each one's bit is reported."""
        gain, _ = self.signal(local_epsilon, local_delta)
        drawn = float(count.sum()) / self.k
        return drawn / 4 - float(gain @ count) ** 2 / (4 * float(count.sum())), drawn / 4


RANDOMIZER = MultipleChoice
