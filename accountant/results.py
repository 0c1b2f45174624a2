"""What the accountant answers with: frozen, checked at construction, and never an epsilon without its grade."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Certificate", "Comparison", "Grade", "Guarantee", "TierCertificate"]


class Grade(enum.StrEnum):
    """How much a stated epsilon is worth.

    CERTIFIED: a proved upper bound for the declared randomizers at the actual number of users, numerical error
    included. ASYMPTOTIC: true as n → ∞, with an unquantified error at the actual n. HEURISTIC: a published formula
    whose proof has a gap or whose assumptions are not met. LOWER_BOUND: an attack; nothing below it can be true.
    """

    CERTIFIED = "CERTIFIED"
    ASYMPTOTIC = "ASYMPTOTIC"
    HEURISTIC = "HEURISTIC"
    LOWER_BOUND = "LOWER_BOUND"


def _check_guarantee(epsilon: float, delta: float) -> None:
    if not (epsilon >= 0):
        raise ValueError(f"epsilon is {epsilon}; allowed is epsilon ≥ 0")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta is {delta}; allowed is 0 ≤ delta ≤ 1")


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-DP of one stated grade, with everything that it rests on."""

    epsilon: float
    delta: float
    grade: Grade
    method: str
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_guarantee(self.epsilon, self.delta)


@dataclass(frozen=True)
class TierCertificate:
    """Central guarantee of the users who share one local budget; same delta, grade and assumptions as the whole."""

    local_epsilon: float
    local_delta: float
    count: int
    epsilon: float


@dataclass(frozen=True)
class Comparison:
    """A published bound beside the certificate.

    Attributes:
        epsilon: None where the bound does not apply; `note` then names its range.
        status: "valid", "refuted", "out of range", or empty where no attack was run.
    """

    name: str
    epsilon: float | None
    grade: Grade
    reference: str
    status: str = ""
    note: str = ""


@dataclass(frozen=True)
class Certificate:
    """What is certified for one released batch.

    Attributes:
        epsilon, delta: central guarantee of the worst-off tier, against replacing one user's value.
        num_users: users whose budgets were counted.
        dishonest: f; the guarantee holds although that many of them collude with the reader.
        numerical_slack: what was added to delta for truncation and round-off.
        everyone_else_colludes: the guarantee when nobody else is honest: the local budget.
    """

    epsilon: float
    delta: float
    grade: Grade
    method: str
    assumptions: tuple[str, ...]
    randomizer: str
    num_users: int
    dishonest: int
    numerical_slack: float
    tiers: tuple[TierCertificate, ...]
    everyone_else_colludes: Guarantee
    comparison: tuple[Comparison, ...] = field(default=())

    def __post_init__(self) -> None:
        _check_guarantee(self.epsilon, self.delta)
        if not self.tiers:
            raise ValueError("tiers are empty; a certificate is about at least one user")
        if self.epsilon < max(tier.epsilon for tier in self.tiers):
            raise ValueError(f"epsilon is {self.epsilon}, below that of its worst tier")

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `croupier certify --json` prints."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "grade": self.grade.value,
            "method": self.method,
            "assumptions": list(self.assumptions),
            "randomizer": self.randomizer,
            "num_users": self.num_users,
            "dishonest": self.dishonest,
            "numerical_slack": self.numerical_slack,
            "tiers": [
                {"local_epsilon": tier.local_epsilon, "count": tier.count, "epsilon": tier.epsilon}
                for tier in self.tiers
            ],
            "everyone_else_colludes": {
                "epsilon": self.everyone_else_colludes.epsilon,
                "delta": self.everyone_else_colludes.delta,
                "grade": self.everyone_else_colludes.grade.value,
            },
            "comparison": [
                {
                    "name": bound.name,
                    "epsilon": bound.epsilon if bound.epsilon is None or math.isfinite(bound.epsilon) else None,
                    "grade": bound.grade.value,
                    "status": bound.status,
                }
                for bound in self.comparison
            ],
        }
