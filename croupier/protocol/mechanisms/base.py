"""What every kind of mechanism declares, and the wire form of reports that are integers."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from croupier.protocol.mechanisms.vector_task import VectorTask

_INTEGER_BYTES = 8


class Form(StrEnum):
    """What a question asks for: what people see of a kind, on every page and in every result, depends on this alone."""

    YES_OR_NO = "yes or no"
    ONE_CHOICE = "one choice"
    SEVERAL_CHOICES = "several choices"
    NUMBER = "number"
    VECTOR = "vector"
    """A program computes it, and people do not write it down."""

    @property
    def is_share(self) -> bool:
        """Whether the result is the share of the people who gave an answer, or of each answer."""
        return self in (Form.YES_OR_NO, Form.ONE_CHOICE, Form.SEVERAL_CHOICES)


ANSWERS = "which of two answers a person gave"
NUMBERS = "which of two numbers a person gave, however far apart they are"


@dataclass(frozen=True)
class Runs:
    """What a certificate says that every honest client runs, in words.

    Attributes:
        code: of the assumption. The sentence names its parameters, which are those of the accountant's randomizer.
        sentence: in the words of the field.
        secret: what an observer may want to find out about a person.
        device: what a person's device does to an answer, after "The device"; {whose} is "your" or "the person's".
    """

    code: str
    sentence: str
    secret: str
    device: str


@dataclass(frozen=True)
class Mechanism(ABC):
    """A local randomizer that every client of a round runs, with its public parameters.

    Raises:
        ValueError: at construction, with the parameter, its value and what it must be.
    """

    kind: ClassVar[str]
    """The name of the field of `Question.mechanism`, and of each role's module for it."""
    form: ClassVar[Form]
    """What a question asks for."""
    runs: ClassVar[tuple[Runs, ...]]
    """What a certificate says that clients run: one for each set of parameters that it may state."""
    takes_fakes: ClassVar[bool] = False
    """Whether hops can add fake reports: the analyzer takes what they add out of its estimate."""

    @property
    def num_choices(self) -> int:
        """How many captions the answers have in a wording; 0 where people do not choose an answer."""
        return len(self.categories)

    @property
    def num_report_values(self) -> int | None:
        """How many different reports there are if hops can add fakes of each; None for noise and vectors."""
        return None

    @property
    def num_beside(self) -> int:
        """How many numbers a result has beside its shares or its mean."""
        return 0

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """The exact size of a report."""

    @property
    def budget_delta(self) -> float:
        """The delta of every local budget; 0 where a report is epsilon-private by itself."""
        return 0.0

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories whose shares are asked for; empty where a number or a vector is asked for."""
        return ()

    @property
    def task(self) -> VectorTask | None:
        """What the values are gradients of; None where values are not vectors."""
        return None

    @classmethod
    def describe(cls, parameter: str) -> str:
        """Returns the description of a parameter in the docstring of the kind or of a class that it extends, or ""."""
        for described in map(inspect.getdoc, cls.__mro__):
            if found := re.search(
                rf"^    {parameter}: (.*?)\.?$(?!\n     )", described or "", re.MULTILINE | re.DOTALL
            ):
                return " ".join(found[1].split())
        return ""

    @abstractmethod
    def parse_value(self, text: str) -> Any:
        """Returns the value that a user has written down.

        Raises:
            ValueError: with the text and what it must be. Nothing is clipped silently.
        """

    @abstractmethod
    def encode_report(self, report: Any) -> bytes:
        """Returns the bytes of a report on the wire."""

    def check_budget(self, epsilon: float) -> None:  # noqa: B027 (most kinds take every budget that a manifest may have)
        """Raises ValueError for a local epsilon in (0, 20] that no client can report with."""


@dataclass(frozen=True)
class ScalarMechanism(Mechanism):
    """A mechanism whose report is one integer: a signed 64-bit one, big-endian."""

    @property
    def num_report_values(self) -> int | None:
        """See `Mechanism.num_report_values`."""
        return self.report_range[1] + 1 if self.takes_fakes else None

    @property
    def report_bytes(self) -> int:
        """See `Mechanism.report_bytes`."""
        return _INTEGER_BYTES

    @property
    @abstractmethod
    def report_range(self) -> tuple[int, int]:
        """The smallest and the largest report that a client can send."""

    @abstractmethod
    def check_value(self, value: float) -> None:
        """Raises ValueError for a value that is not in the domain."""

    def encode_report(self, report: int) -> bytes:
        """See `Mechanism.encode_report`."""
        return report.to_bytes(_INTEGER_BYTES, "big", signed=True)

    def decode_report(self, plaintext: bytes) -> int:
        """Returns the report of these bytes.

        Raises:
            ValueError: no client that follows the protocol can have sent them.
        """
        if len(plaintext) != _INTEGER_BYTES:
            raise ValueError(f"a report has {len(plaintext)} bytes; it must be {_INTEGER_BYTES}")
        report = int.from_bytes(plaintext, "big", signed=True)
        low, high = self.report_range
        if not low <= report <= high:
            raise ValueError(f"report is {report}; it must be {low}..{high}")
        return report
