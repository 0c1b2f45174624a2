"""Mechanisms whose value is a vector, and the wire form of their reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from croupier.protocol.mechanisms.base import Form, Mechanism
from croupier.protocol.mechanisms.vector_task import FLOAT_BYTES, VectorTask


@dataclass(frozen=True)
class VectorMechanism(Mechanism):
    """A mechanism whose report is a vector, float32 (dimension,), little-endian.

    Attributes:
        vector: what is asked for.
    """

    form: ClassVar[Form] = Form.VECTOR
    vector: VectorTask

    @property
    def report_bytes(self) -> int:
        """See `Mechanism.report_bytes`."""
        return FLOAT_BYTES * self.vector.dimension

    @property
    def task(self) -> VectorTask:
        """See `Mechanism.task`."""
        return self.vector

    def parse_value(self, text: str) -> Any:
        """Raises ValueError: people do not write vectors down."""
        raise ValueError(f"value is {text!r}; this round takes gradients, see 'croupier train'")

    def encode_report(self, report: Any) -> bytes:
        """See `Mechanism.encode_report`; the report is a float32 array."""
        return bytes(report.astype("<f4").tobytes())
