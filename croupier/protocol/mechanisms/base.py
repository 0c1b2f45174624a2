"""What every kind of mechanism declares, and the wire form of reports that are integers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from croupier.protocol.mechanisms.vector_task import VectorTask

_INTEGER_BYTES = 8


@dataclass(frozen=True)
class Mechanism(ABC):
    """A local randomizer that every client of a round runs, with its public parameters.

    Raises:
        ValueError: at construction, with the parameter, its value and what it must be.
    """

    kind: ClassVar[str]
    """The name of the field of `Question.mechanism`; all registries are keyed by it."""
    values_are_text: ClassVar[bool] = True
    """Whether people can write their values down, one to a line."""

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
    def read(cls, message: Any) -> Self:
        """Returns the mechanism that a message of this kind states.

        Raises:
            ValueError: a parameter is missing or out of range.
        """
        return cls(**{parameter.name: getattr(message, parameter.name) for parameter in fields(cls)})

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
