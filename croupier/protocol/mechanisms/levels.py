"""`levels`: a number, rounded at random to a neighbouring one of k ordered levels and reported as in `krr`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.base import NUMBERS, Runs
from croupier.protocol.mechanisms.checks import check_count
from croupier.protocol.mechanisms.interval import IntervalMechanism

MAX_LEVELS = 1024
"""At a thousandth of the range, rounding adds less to any error than the randomizers of a million people do."""


@dataclass(frozen=True)
class Levels(IntervalMechanism):
    """A number in [low, high] on k ordered levels, low + j (high - low)/(k - 1) for j = 0 .. k-1.

    The number is rounded at random to one of the two levels around it, so that its mean is kept. The level is then
    reported by randomised response: each other level with probability 1/(e^v+k-1).

    Attributes:
        k: the number of levels, 2 .. 1,024.
    """

    kind: ClassVar[str] = "levels"
    takes_fakes: ClassVar[bool] = True
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-levels",
            "every honest client clips its value, rounds it at random to one of {k} equally spaced levels and runs "
            "{k}-ary randomised response with its own local epsilon",
            NUMBERS,
            "rounds {whose} number at random to one of the two levels around it, and sends that level with a "
            "probability that follows from {whose} budget, and otherwise one of the others, all equally likely",
        ),
    )
    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("k", self.k, 2, MAX_LEVELS)

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels, ascending: the first is low, the last high."""
        inner = (self.low + (self.high - self.low) * (level / (self.k - 1)) for level in range(self.k - 1))
        return (*inner, self.high)

    @property
    def num_beside(self) -> int:
        """See `Mechanism.num_beside`: the share and the cumulative share of each level."""
        return 2 * self.k

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`: a level, by its number."""
        return 0, self.k - 1


MECHANISM = Levels
