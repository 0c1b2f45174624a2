"""The common interface of privacy profiles: an upper bound on delta for each epsilon, and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from croupier.accountant.ranges import check_delta
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

Proof = tuple[Statement[Method], ...]
"""The methods by which a number was proved, each built on the previous one."""


@dataclass(frozen=True)
class Bounded:
    """An upper bound on delta, and the part of it that covers truncation and rounding. 0 <= slack <= value <= 1."""

    value: float
    slack: float

    def __post_init__(self) -> None:
        """Raises ValueError for a value or slack outside [0, 1]."""
        check_delta(self.value, "value")
        check_delta(self.slack, "slack")


class PrivacyProfile(Protocol):
    """Certified upper bounds on the hockey-stick divergence of one victim among the others, as epsilon varies."""

    @property
    def method(self) -> Proof:
        """The proof of the bound."""
        ...

    def delta(self, epsilon: float) -> Bounded:
        """Returns a bound H_{e^epsilon} <= .value for epsilon >= 0, replace-one neighbours, both directions."""
        ...

    def guess(self, delta: float) -> float:
        """Returns roughly the epsilon with this delta; any number is sound, a good one is fast."""
        ...

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns one statement for each step: blanket, count of blanket messages, mass lost, errors."""
        ...
