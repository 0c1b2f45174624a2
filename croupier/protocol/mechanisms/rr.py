"""`rr`: randomised response about a bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.base import Form, Runs, ScalarMechanism
from croupier.protocol.mechanisms.checks import parse_number


@dataclass(frozen=True)
class RandomizedResponse(ScalarMechanism):
    """A bit, reported with probability e^v/(1+e^v) and flipped otherwise; v is the local epsilon."""

    kind: ClassVar[str] = "rr"
    form: ClassVar[Form] = Form.YES_OR_NO
    takes_fakes: ClassVar[bool] = True
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-rr",
            "every honest client runs binary randomised response with its own local epsilon",
            "whether a person answered yes or no",
            "sends {whose} true answer with a probability that follows from {whose} budget, and the opposite otherwise",
        ),
    )

    @property
    def num_choices(self) -> int:
        """See `Mechanism.num_choices`: the captions of 0 and of 1."""
        return 2

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 1

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if value not in (0, 1):
            raise ValueError(f"value is {value}; it must be 0 or 1")

    def parse_value(self, text: str) -> int:
        """Returns the bit; see `Mechanism.parse_value`."""
        value = parse_number(text)
        if value not in (0.0, 1.0):
            raise ValueError(f"value is {text.strip()!r}; it must be 0 or 1")
        return int(value)


MECHANISM = RandomizedResponse
