"""Mechanisms whose value is a number in an interval."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from croupier.protocol.mechanisms.base import NUMBERS, Form, Runs, ScalarMechanism
from croupier.protocol.mechanisms.checks import parse_number

_MAX_LATTICE_REPORT = 1 << 62


@dataclass(frozen=True)
class IntervalMechanism(ScalarMechanism):
    """A number in [low, high].

    Attributes:
        low: the smallest value, finite.
        high: the largest value, finite and above low.
    """

    form: ClassVar[Form] = Form.NUMBER
    low: float
    high: float

    def __post_init__(self) -> None:
        width = self.high - self.low
        if not (math.isfinite(self.low) and math.isfinite(self.high) and math.isfinite(width) and width > 0):
            raise ValueError(f"the interval is [{self.low}, {self.high}]; it must be finite with low < high")

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if not self.low <= value <= self.high:
            raise ValueError(f"value is {value}; it must be a number in [{self.low:g}, {self.high:g}]")

    def parse_value(self, text: str) -> float:
        """Returns the number; see `Mechanism.parse_value`."""
        value = parse_number(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"value is {text.strip()!r}; it must be a number in [{self.low:g}, {self.high:g}]")
        return value


def runs_noise(code: str, sentence: str, noise: str, what: str = "number", secret: str = NUMBERS) -> Runs:
    """Returns the words of clients that add this noise, "Laplace" or "Gaussian"."""
    device = f"adds random ({noise}) noise to {{whose}} {what}: the smaller {{whose}} budget, the more"
    return Runs(code, sentence, secret, device)


@dataclass(frozen=True)
class LatticeMechanism(IntervalMechanism):
    """A number rounded to low + j (high - low)/lattice, j = 0..lattice, plus integer noise; the report is a position j.

    The position may lie outside 0..lattice. The analyzer counts one that lies farther outside than `margin` as if it
    lay there, so that one false report moves a mean by a bounded amount.

    Attributes:
        lattice: the number of steps between low and high.
    """

    lattice: int = field(kw_only=True)

    def margin(self, least_epsilon: float) -> int:
        """Returns how many steps outside 0..lattice a report still counts as it is.

        least_epsilon: the smallest budget of the round's grid, whose noise is the largest.
        """
        return min(math.ceil(self.noise_steps(least_epsilon)), _MAX_LATTICE_REPORT - self.lattice)

    @abstractmethod
    def noise_steps(self, epsilon: float) -> float:
        """Returns how many steps of noise a report with this budget exceeds with a probability below 0.0004."""

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return -_MAX_LATTICE_REPORT, _MAX_LATTICE_REPORT
