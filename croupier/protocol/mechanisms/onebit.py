"""`onebit`: a number, rounded at random to a bit and reported by randomised response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.base import NUMBERS, Runs
from croupier.protocol.mechanisms.interval import IntervalMechanism


@dataclass(frozen=True)
class OneBit(IntervalMechanism):
    """A number in [low, high], rounded at random to one of the ends, which is reported as a bit."""

    kind: ClassVar[str] = "onebit"
    takes_fakes: ClassVar[bool] = True
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-onebit",
            "every honest client clips its value, rounds it at random to one bit and runs binary randomised response "
            "with its own local epsilon",
            NUMBERS,
            "rounds {whose} number at random to one end of the range, and sends that end with a probability that "
            "follows from {whose} budget, and the other end otherwise",
        ),
    )

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 1


MECHANISM = OneBit
