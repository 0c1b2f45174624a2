"""`onebit`: a number, rounded at random to a bit and reported by randomised response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.interval import IntervalMechanism


@dataclass(frozen=True)
class OneBit(IntervalMechanism):
    """A number in [low, high], rounded at random to one of the ends, which is reported as a bit."""

    kind: ClassVar[str] = "onebit"

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 1
