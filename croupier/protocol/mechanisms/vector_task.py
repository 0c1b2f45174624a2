"""What the clients of a vector round compute: a gradient of a model, all at once or one client after the other."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.protocol.mechanisms.checks import check_count, check_positive
from croupier.protocol.shown import check_shown

MAX_DIMENSION = 1 << 18
FLOAT_BYTES = 4
_MAX_PERIOD_MS = 600_000


@dataclass(frozen=True)
class SequentialOrder:
    """Clients answer one after the other, and the analyzer takes a step after each (GSPA, Algorithm 3).

    Attributes:
        period_ms: the time that each client has; its answer is passed on when the time is over. 1 .. 600,000.
        learning_rate: the length of the analyzer's step, relative to the answer; finite, > 0.
    """

    period_ms: int
    learning_rate: float

    def __post_init__(self) -> None:
        check_count("period_ms", self.period_ms, 1, _MAX_PERIOD_MS)
        check_positive("learning_rate", self.learning_rate)


@dataclass(frozen=True)
class VectorTask:
    """The model whose gradient is asked for, and where.

    Attributes:
        dimension: 1 .. 2^18.
        clipping_norm: the largest length of a client's vector (gaussian_vector: of a record's); finite, > 0.
        model: a name for people; the client brings the model.
        parameters: the point at which the gradient is asked for, float32, little-endian; in a sequential round
            the first client's. Empty where a rule decides on them (`protocol.rules.Descent`).
        sequential: None where all clients answer at once.
    """

    dimension: int
    clipping_norm: float
    model: str
    parameters: bytes
    sequential: SequentialOrder | None = None

    def __post_init__(self) -> None:
        check_count("dimension", self.dimension, 1, MAX_DIMENSION)
        check_positive("clipping_norm", self.clipping_norm)
        needed = FLOAT_BYTES * self.dimension
        if len(self.parameters) not in (0, needed):
            raise ValueError(
                f"parameters have {len(self.parameters)} bytes; {self.dimension} of them must have {needed}"
            )
        check_shown("model", self.model)
