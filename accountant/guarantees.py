"""The accountant's results: grades, guarantees, the certified tiers of users, and the figures beside them.

Every epsilon that leaves this package travels in one of these frozen types, together with its `Grade`, the method that
produced it and its assumptions. The types check themselves at construction, so a nonsensical guarantee cannot be built.
All of them together are a `certificate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from croupier.accountant.privacy_curve import PrivacyProfile, Proof
from croupier.accountant.ranges import check_count, check_delta, check_epsilon, check_text, outside
from croupier.accountant.witness import Witness
from croupier.protocol.codes import Assumption, Code, Method, Note, ProofStep
from croupier.protocol.documents import fields_of
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import Statement, joined


class Grade(StrEnum):
    """The strength of the claim that an epsilon makes (docs/accounting.md, section 1)."""

    CERTIFIED = "CERTIFIED"
    """A proved upper bound for the declared randomizers at the actual n, numerical error included."""
    ASYMPTOTIC = "ASYMPTOTIC"
    """True as n grows without bound, with an unquantified error at the actual n."""
    HEURISTIC = "HEURISTIC"
    """A published formula whose proof has a gap, or whose assumptions the deployment does not meet."""
    LOWER_BOUND = "LOWER_BOUND"
    """An attack: no (epsilon, delta) below it can be true."""


class Status(StrEnum):
    """The comparison of a published figure with the best attack."""

    VALID = "valid"
    REFUTED = "refuted"
    OUT_OF_RANGE = "out of range"
    NOT_CHECKED = "not checked"


def _check_statements(name: str, codes: type[Code], statements: object) -> None:
    if not isinstance(statements, tuple) or not all(
        isinstance(statement, Statement) and isinstance(statement.code, codes) for statement in statements
    ):
        raise ValueError(
            f"{name} is {statements!r:.60}; it must be a tuple of statements with a code of {codes.__name__}"
        )


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) with its grade, proof, assumptions and notes. Neighbours: replace-one."""

    epsilon: float
    delta: float
    grade: Grade
    method: Proof
    assumptions: tuple[Statement[Assumption], ...] = ()
    notes: tuple[Statement[Note], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.grade, Grade):
            raise outside("grade", self.grade, f"one of {', '.join(Grade)}")
        _check_statements("method", Method, self.method)
        _check_statements("assumptions", Assumption, self.assumptions)
        _check_statements("notes", Note, self.notes)
        if not self.method:
            raise ValueError("method is empty; it must say how this number was proved")

    def __str__(self) -> str:
        """Returns one line for people, rounded up, without the assumptions."""
        return f"{self.grade} ε = {round_up(self.epsilon)} at δ = {round_up(self.delta)} ({joined(self.method)})"

    def to_json(self) -> JsonObject:
        """Returns plain JSON values."""
        return fields_of(self)


@dataclass(frozen=True)
class TierCertificate:
    """The certified central guarantee of the users whose local budget is at most (local_epsilon, local_delta).

    Attributes:
        local_epsilon, local_delta: the tier's budget.
        count: how many users have it; 0 only where the counts are noised (`Certificate.counted_by`).
        epsilon, delta: certified for each of them.
        grouped: the tier includes users of several smaller budgets, certified together.
        witness: of the proof, or of one round's part of it where the rounds are added up; None: a document has none.
        privacy_profile: the curve of one round behind the number. None if there is no curve, or only one for a span of
            budgets, which bounds nothing but the number.
        steps: the derivation of the number, and its times; they take no part in comparisons.
    """

    local_epsilon: float
    local_delta: float
    count: int
    epsilon: float
    delta: float
    grouped: bool = field(default=False, kw_only=True)
    witness: Witness | None = field(default=None, kw_only=True)
    privacy_profile: PrivacyProfile | None = field(default=None, repr=False, compare=False, kw_only=True)
    steps: tuple[Statement[ProofStep], ...] = field(default=(), repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.local_epsilon, "local_epsilon")
        check_delta(self.local_delta, "local_delta")
        check_count(self.count, "count")
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.grouped, bool):
            raise outside("grouped", self.grouped, "true or false")


@dataclass(frozen=True)
class Comparison:
    """A published figure printed beside a certificate, at the certificate's delta. Never a guarantee by itself.

    epsilon is None if the formula gives no number here; `notes` then say why (the validity range, for instance).
    """

    name: str
    epsilon: float | None
    grade: Grade
    status: Status
    reference: str
    notes: tuple[Statement[Note], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        if not self.name or not self.reference:
            raise ValueError(f"name is {self.name!r} and reference {self.reference!r}; both must be non-empty")
        check_text(self.name, self.reference)
        _check_statements("notes", Note, self.notes)
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        elif not self.notes:
            raise ValueError("notes are empty; without an epsilon they must say why there is none")


@dataclass(frozen=True)
class LowerBound:
    """An attack on one concrete pair of neighbouring data sets: no smaller epsilon can be true at this delta."""

    epsilon: float
    delta: float
    attack: str

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not self.attack:
            raise ValueError("attack is empty; it must describe data set and statistic")
        check_text(self.attack)

    def says(self, delta: float) -> str:
        """Returns the bound beside a certificate of this delta: on epsilon if both deltas are equal, else on delta.

        At a larger delta than its own it is no bound on epsilon, and at delta 0 on nothing at all.
        """
        if self.delta == delta > 0:
            return f"ε ≥ {round_down(self.epsilon)}"
        return f"δ ≥ {round_down(self.delta)} at ε = {round_down(self.epsilon)}"
