"""What is asked: a name for people, and the mechanism that every client must run.

Every role reads a `Question` from the manifest. `protocol.mechanisms` says what a mechanism is; how a value is
randomized is the client's room, how reports are counted the analyzer's, what they cost the accountant's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.vector_task import SequentialOrder
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import value_of
from croupier.protocol.wordings import Wording, check_wordings

ANSWER_KEY_BYTES = 32
"""Sequential rounds: instead of a report a client submits a fresh Ed25519 key, which will sign its answer."""
_SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Question:
    """A question and the local randomizer that every client must run for it.

    Attributes:
        name: short, for people: 1..64 letters, digits, '-' and '_'.
        mechanism: the local randomizer with its parameters.
        wordings: how it is put to people, one for each language; none where people see only the name.

    Raises:
        ValueError: at construction, with the name or wording and what it must be.
    """

    name: str
    mechanism: Mechanism
    wordings: tuple[Wording, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 64 or not self.name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"name is {self.name!r}; it must be 1..64 letters, digits, '-' and '_'")
        check_wordings(self.wordings, self.mechanism)

    @classmethod
    def read(cls, message: pb.Question) -> Self:
        """Returns the question that a message states; the inverse of `message`.

        Raises:
            ValueError: a field that is missing or out of range, with its value and what it must be.
        """
        kind = message.WhichOneof("mechanism")
        if kind is None:
            raise ValueError(f"mechanism is missing; it must be one of {', '.join(MECHANISMS)}")
        wordings = tuple(value_of(Wording, wording) for wording in message.wordings)
        return cls(message.name, value_of(MECHANISMS[kind], getattr(message, kind)), wordings)

    def message(self) -> pb.Question:
        """Returns the message of a question."""
        wordings = [pb.Wording(**asdict(wording)) for wording in self.wordings]
        mechanism = {self.mechanism.kind: asdict(self.mechanism)}
        return pb.Question(name=self.name, wordings=wordings, **mechanism)  # type: ignore[arg-type]

    @property
    def sequential(self) -> SequentialOrder | None:
        """The sequential order; None where clients answer all at once."""
        task = self.mechanism.task
        return None if task is None else task.sequential

    @property
    def submitted_bytes(self) -> int:
        """The exact size of what a client submits beside its budget: its report, or the key of a later answer."""
        return self.mechanism.report_bytes if self.sequential is None else ANSWER_KEY_BYTES

    @property
    def answer_bytes(self) -> int:
        """Sequential rounds: the exact size of an answer: key, signature and report."""
        return ANSWER_KEY_BYTES + _SIGNATURE_BYTES + self.mechanism.report_bytes


def choose_budget(max_local_epsilon: float, grid: Sequence[float]) -> float:
    """Returns the largest local epsilon of the grid that is at most `max_local_epsilon`.

    Raises:
        ValueError: `max_local_epsilon` is not a finite number > 0, or is below every budget of the grid.
    """
    if not (math.isfinite(max_local_epsilon) and max_local_epsilon > 0):
        raise ValueError(f"max_local_epsilon is {max_local_epsilon}; it must be a finite number > 0")
    within = [budget for budget in grid if budget <= max_local_epsilon]
    if not within:
        raise ValueError(
            f"max_local_epsilon is {max_local_epsilon}; it must be at least {min(grid)}, this round's smallest"
        )
    return max(within)
