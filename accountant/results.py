"""What the accountant answers with: grades, guarantees and certificates.

Every epsilon that leaves this package travels in one of these frozen types, together with the word that says what it
is worth (`Grade`), the method that produced it and the assumptions it rests on. The types check themselves at
construction, so a nonsensical guarantee cannot be built. How the numbers are computed is left to the other modules;
signing and storing a certificate is left to the accountant service.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol, Self

from croupier.accountant.ranges import (
    Linkage,
    check_count,
    check_delta,
    check_epsilon,
    check_linkage,
    check_text,
    outside,
)
from croupier.accountant.rich_display import folded_list, html_table, paragraph

__all__ = [
    "Bounded",
    "Certificate",
    "Comparison",
    "Grade",
    "Guarantee",
    "LowerBound",
    "PrivacyProfile",
    "Status",
    "TierCertificate",
    "delta_too_large",
    "difference",
    "percent",
    "right_at_most",
    "round_down",
    "round_up",
    "sum_above",
    "written",
]


def round_up(value: float, digits: int = 6) -> str:
    """Returns a number >= 0 in that many significant digits, never below it: for all certified figures that are shown.

    A float stands for its shortest decimal form, so that 0.1 stays 0.1.
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 6) -> str:
    """As `round_up`, never above it: for attacks, and for what remains of a limit."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    exact = Decimal(repr(float(value)))
    if exact.is_finite() and exact:
        exact = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=direction)
    return f"{float(exact):.{digits}g}"


def sum_above(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers, rounded up."""
    exact = sum((Fraction(value) for value in values), Fraction(0))
    return float(exact) if Fraction(float(exact)) >= exact else math.nextafter(float(exact), math.inf)


def written(value: float) -> Fraction:
    """Returns what a person wrote who wrote this finite float: its shortest decimal form, exactly.

    Decimals of up to 15 digits come back as they were written, and so their sums compare as on paper: 3 times 0.1 is at
    most 0.3, which no sum of the floats is. A float is within 2^-53 of its decimal form, relatively.
    """
    return Fraction(repr(float(value)))


def difference(left: float, right: float) -> float:
    """Returns left - right, to be shown: that of the numbers as they are written, so that 0.8 - 0.7 is 0.1."""
    return float(written(left) - written(right))


def right_at_most(epsilon: float, delta: float = 0.0) -> float:
    """How often anyone can be right about which of two equally likely values a person had.

    Args:
        epsilon: a finite number >= 0.
        delta: 0 <= delta <= 1; for every event A, P(A) <= e^epsilon Q(A) + delta and Q(A) <= e^epsilon P(A) + delta, P
            and Q the laws of what is observed under the two values.

    Returns:
        (e^epsilon + delta)/(e^epsilon + 1), in [1/2, 1], rounded up: no observer, whatever it computes, is right more
        often. Guessing reaches 1/2.

    Write E for e^epsilon, and let the observer say "the first value" on A. It is right with probability
    1/2 (P(A) + 1 - Q(A)). From P(A) <= E Q(A) + delta, and from 1 - Q(A) <= E (1 - P(A)) + delta for the complement of
    A, one gets by adding (E + 1) (P(A) - Q(A)) <= E - 1 + 2 delta. So it is right with probability at most
    1/2 + 1/2 (E - 1 + 2 delta)/(E + 1) = (E + delta)/(E + 1). One that draws lots is a mixture of such. The bound is
    attained by showing the value with probability delta and randomised response with epsilon otherwise.

    Raises ValueError for an epsilon or delta outside its range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    decay = math.exp(-epsilon)
    return min(1.0, (1 + delta * decay) / (1 + decay) * (1 + 2e-15))  # which is above the rounding of ten operations


def _lines(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise TypeError(f"assumptions are {given!r:.60}, and no list")
    return tuple(given)


def delta_too_large(delta: float, num_users: int) -> str:
    """Returns what a delta of one in the number of people, or more, allows; of a smaller one, nothing."""
    if Fraction(delta) * num_users < 1:
        return ""
    return (
        f"Beware: δ = {round_up(delta)} is not below one in the number of people, "
        f"{round_down(1 / num_users, 3)}. Whatever ε is, it allows to show everybody the answer of one of "
        "them; ask for a δ that is far smaller."
    )


def percent(share: float) -> str:
    """Returns a share in per cent, four digits, rounded up: what a guarantee shows of `right_at_most`."""
    return f"{round_up(100 * share, 4)} %"


class Grade(StrEnum):
    """What an epsilon is worth (docs/accounting.md, section 1)."""

    CERTIFIED = "CERTIFIED"
    """A proved upper bound for the declared randomizers at the actual n, numerical error included."""
    ASYMPTOTIC = "ASYMPTOTIC"
    """True as n grows without bound, with an unquantified error at the actual n."""
    HEURISTIC = "HEURISTIC"
    """A published formula whose proof has a gap, or whose assumptions the deployment does not meet."""
    LOWER_BOUND = "LOWER_BOUND"
    """An attack: no (epsilon, delta) below it can be true."""


class Status(StrEnum):
    """How a published figure stands against the best attack that was run."""

    VALID = "valid"
    REFUTED = "refuted"
    OUT_OF_RANGE = "out of range"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) with its grade, the method that gave it, and what it assumes. Neighbours: replace-one."""

    epsilon: float
    delta: float
    grade: Grade
    method: str
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.grade, Grade):
            raise outside("grade", self.grade, f"one of {', '.join(Grade)}")
        if not self.method:
            raise ValueError("method is empty; it must name the method that gave this number")
        check_text(self.method, *self.assumptions)

    def __str__(self) -> str:
        """One line for people, rounded up, without the assumptions."""
        return f"{self.grade} ε = {round_up(self.epsilon)} at δ = {round_up(self.delta)} ({self.method})"


@dataclass(frozen=True)
class Bounded:
    """An upper bound on delta, and the part of it that stands for truncation and rounding. 0 <= slack <= value <= 1."""

    value: float
    slack: float

    def __post_init__(self) -> None:
        """Raises ValueError for a value or slack outside [0, 1]."""
        check_delta(self.value, "value")
        check_delta(self.slack, "slack")


class PrivacyProfile(Protocol):
    """Certified upper bounds on the hockey-stick divergence of one victim among the others, as epsilon varies."""

    @property
    def method(self) -> str:
        """How the bound is proved, in the words of a certificate."""
        ...

    def delta(self, epsilon: float) -> Bounded:
        """H_{e^epsilon} <= .value for every epsilon >= 0, replace-one neighbours, both directions."""
        ...

    def guess(self, delta: float) -> float:
        """Where delta(epsilon) = delta roughly is; any number is sound, a good one is fast."""
        ...

    def explain(self) -> tuple[str, ...]:
        """One line per step: blanket, count of blanket messages, mass lost, errors."""
        ...


@dataclass(frozen=True)
class TierCertificate:
    """The certified central guarantee of the users whose local budget is at most (local_epsilon, local_delta).

    `grouped`: users of several smaller budgets are among them, and are answered together.
    `privacy_profile` is that of one round, from which the number was read. None where there is none, or only one for a
    span of budgets, which says nothing away from the number.
    """

    local_epsilon: float
    local_delta: float
    count: int
    epsilon: float
    delta: float
    grouped: bool = field(default=False, kw_only=True)
    privacy_profile: PrivacyProfile | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        check_epsilon(self.local_epsilon, "local_epsilon")
        check_delta(self.local_delta, "local_delta")
        check_count(self.count, "count", 1)
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.grouped, bool):
            raise outside("grouped", self.grouped, "true or false")


@dataclass(frozen=True)
class Comparison:
    """A published figure printed beside a certificate, at the certificate's delta. Never a guarantee by itself.

    epsilon is None where the formula gives no number here; `note` then says why (the validity range, for instance).
    """

    name: str
    epsilon: float | None
    grade: Grade
    status: Status
    reference: str
    note: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        if not self.name or not self.reference:
            raise ValueError(f"name is {self.name!r} and reference {self.reference!r}; both must be non-empty")
        check_text(self.name, self.reference, self.note)
        if self.epsilon is None:
            if not self.note:
                raise ValueError("note is empty; without an epsilon it must say why there is none")
        else:
            check_epsilon(self.epsilon)


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
        """What it proves, beside a certificate of this delta: of epsilon where both deltas are the same, else of delta.

        At a larger delta than its own it proves nothing of epsilon, and at delta 0 nothing at all.
        """
        if self.delta == delta > 0:
            return f"ε ≥ {round_down(self.epsilon)}"
        return f"δ ≥ {round_down(self.delta)} at ε = {round_down(self.epsilon)}"


@dataclass(frozen=True)
class Certificate:
    """The accountant's answer: the largest central guarantee over all victims, and everything behind it.

    epsilon and delta hold for every user under `assumptions`: one secret order, and all but `dishonest` of the other
    clients honest. `everyone_else_colludes` holds without that: it is the local budget. `numerical_slack` is the part
    of delta that was added for truncation and rounding (it is inside delta already: the reader adds nothing). `steps`
    lists how the number came about, one line per step, and with what time; it takes no part in comparisons.
    """

    epsilon: float
    delta: float
    grade: Grade
    method: str
    assumptions: tuple[str, ...]
    num_users: int
    dishonest: int
    numerical_slack: float
    tiers: tuple[TierCertificate, ...]
    everyone_else_colludes: Guarantee
    comparison: tuple[Comparison, ...]
    lower_bound: LowerBound | None
    randomizer: str
    linkage: Linkage
    rounds: int
    steps: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        Guarantee(self.epsilon, self.delta, self.grade, self.method, self.assumptions)
        check_count(self.num_users, "num_users", 1)
        check_count(self.dishonest, "dishonest")
        check_count(self.rounds, "rounds", 1)
        check_delta(self.numerical_slack, "numerical_slack")
        check_text(self.randomizer)
        check_linkage(self.linkage)
        if not self.tiers:
            raise ValueError("tiers is empty; it must hold at least one tier")
        if sum(tier.count for tier in self.tiers) != self.num_users:
            raise ValueError(f"tiers hold {sum(t.count for t in self.tiers)} users; they must hold {self.num_users}")
        if self.epsilon < max(tier.epsilon for tier in self.tiers):
            raise outside("epsilon", self.epsilon, "at least that of every tier")
        if self.delta < max(tier.delta for tier in self.tiers):
            raise outside("delta", self.delta, "at least that of every tier")
        for name, grade in (
            ("grade", self.grade),
            ("grade of everyone_else_colludes", self.everyone_else_colludes.grade),
        ):
            if grade is not Grade.CERTIFIED:
                raise outside(name, str(grade), f"{Grade.CERTIFIED} in a certificate")

    def check_not_refuted(self) -> None:
        """Raises ValueError where the attack beside the certificate shows that what it says is not true.

        Of (epsilon, delta) the same follows for any larger ones, so that the attack's may be larger in both.
        """
        lower, own = self.lower_bound, (self.epsilon, self.delta)
        if lower is None or lower.epsilon < self.epsilon or lower.delta < self.delta:
            return
        if (lower.epsilon, lower.delta) != own:
            raise ValueError(
                f"the document contradicts itself: it certifies ε = {own[0]:g} at δ = {own[1]:g}, and its own attack "
                f"shows that no ε below {lower.epsilon:g} can be true at δ = {lower.delta:g}; it is not as an "
                "accountant made it"
            )

    def _check_local_budget(self) -> None:
        """Raises ValueError where less is certified if everyone else colludes than the local budgets come to."""
        largest, alone = max(tier.local_epsilon for tier in self.tiers), self.everyone_else_colludes.epsilon
        if Fraction(alone) < Fraction(largest) * self.rounds:
            raise ValueError(
                f"the document contradicts itself: if everyone else colludes it certifies ε = {alone:g}, and the "
                f"largest local budget, in {self.rounds} rounds, is {largest:g}; it is not as an accountant made it"
            )

    def tier_of(self, local_epsilon: float) -> TierCertificate:
        """Returns the tier in which this budget was answered: the first that is not below it; many budgets share one.

        Of tiers that differ in their local delta alone it is the one with the largest epsilon.

        Raises:
            ValueError: for a budget above all tiers.
        """
        above = [tier for tier in self.tiers if tier.local_epsilon >= local_epsilon]
        if above:
            least = min(tier.local_epsilon for tier in above)
            return max((t for t in above if t.local_epsilon == least), key=lambda tier: (tier.epsilon, tier.delta))
        raise outside("local_epsilon", local_epsilon, f"at most {self.tiers[-1].local_epsilon}")

    def __str__(self) -> str:
        """One line for people: numbers rounded to the sound side, each with its grade."""
        text = (
            f"{self.grade} ε = {round_up(self.epsilon)} at δ = {round_up(self.delta)} for {self.num_users:,} users of "
            f"{self.randomizer}" + (f" over {self.rounds:,} rounds" if self.rounds > 1 else "")
        )
        if self.dishonest:
            text += f", of the others at most {self.dishonest:,} dishonest"
        if self.lower_bound is not None:
            text += f"; {Grade.LOWER_BOUND} {self.lower_bound.says(self.delta)}"
        return f"{text}; if everyone else colludes ε = {round_up(self.everyone_else_colludes.epsilon)} ({self.method})"

    def plot(self, axes: Any = None) -> Any:
        """Draws the local and the central epsilon of every tier on matplotlib axes (None: new ones); returns the axes.

        Raises ImportError without matplotlib, which the extra `plots` brings. `axes.figure.savefig(path)` saves it.
        """
        from croupier.accountant.drawing import draw_tiers

        central = [tier.epsilon for tier in self.tiers]
        return draw_tiers(
            f"{self.randomizer} at δ = {round_up(self.delta)}",
            [f"{tier.count:,} users" for tier in self.tiers],
            [tier.local_epsilon for tier in self.tiers],
            central,
            [round_up(epsilon, 4) for epsilon in central],
            self.grade,
            axes,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each tier, CERTIFIED: what `pandas.DataFrame` and `polars.DataFrame` take."""
        return [
            {
                "local_epsilon": tier.local_epsilon,
                "local_delta": tier.local_delta,
                "count": tier.count,
                "epsilon": tier.epsilon,
                "delta": tier.delta,
                "grade": str(self.grade),
                "right_at_most": right_at_most(tier.epsilon, tier.delta),
            }
            for tier in self.tiers
        ]

    def _repr_html_(self) -> str:
        """For notebooks: the tiers as a table, and what the numbers rest on."""
        rows = [
            {
                "local ε": f"{'up to ' if tier.grouped else ''}{round_up(tier.local_epsilon)}",
                "users": f"{tier.count:,}",
                f"central ε, {self.grade}": round_up(tier.epsilon),
                "right at most": percent(right_at_most(tier.epsilon, tier.delta)),
            }
            for tier in self.tiers
        ]
        lower = self.lower_bound
        attack = f"{Grade.LOWER_BOUND}: {lower.says(self.delta)}, {lower.attack}" if lower else "No attack was run."
        return html_table(str(self), rows) + paragraph(attack) + folded_list("This holds if", self.assumptions)

    def to_json(self) -> dict[str, Any]:
        """The interface that other programs read: a dictionary of plain JSON values; `from_json` reads it back."""
        lower, alone = self.lower_bound, self.everyone_else_colludes
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "grade": str(self.grade),
            "method": self.method,
            "assumptions": list(self.assumptions),
            "num_users": self.num_users,
            "dishonest": self.dishonest,
            "numerical_slack": self.numerical_slack,
            "tiers": [
                {
                    "local_epsilon": tier.local_epsilon,
                    "local_delta": tier.local_delta,
                    "up_to": tier.grouped,
                    "count": tier.count,
                    "epsilon": tier.epsilon,
                    "delta": tier.delta,
                }
                for tier in self.tiers
            ],
            "everyone_else_colludes": {
                "epsilon": alone.epsilon,
                "delta": alone.delta,
                "grade": str(alone.grade),
                "method": alone.method,
                "assumptions": list(alone.assumptions),
            },
            "comparison": [
                {
                    "name": one.name,
                    "epsilon": one.epsilon,
                    "grade": str(one.grade),
                    "status": str(one.status),
                    "reference": one.reference,
                    "note": one.note,
                }
                for one in self.comparison
            ],
            "lower_bound": {
                "epsilon": None if lower is None else lower.epsilon,
                "delta": None if lower is None else lower.delta,
                "attack": None if lower is None else lower.attack,
            },
            "randomizer": self.randomizer,
            "linkage": self.linkage,
            "rounds": self.rounds,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | bytes) -> Self:
        """Reads what `to_json` gave, or the JSON text of it. The steps, and the curves of the tiers, are not in it.

        Nothing is certified anew: the document's numbers are taken as they stand, its grade with them. Who has written
        it has to be known otherwise; the certificate of a round is signed.

        Raises ValueError for a text that is not JSON, and a document that lacks something, holds a value outside its
        range, or says more than its own attack leaves possible.
        """
        if isinstance(document, str | bytes):
            try:
                document = json.loads(document)
            except (RecursionError, ValueError) as error:
                raise ValueError(f"the text is not JSON ({error}); it must be what to_json gave, as text") from error
        if not isinstance(document, Mapping):
            raise ValueError(f"the document is {document!r:.60}; it must be what to_json gave, or that as JSON text")
        try:
            alone, lower = document["everyone_else_colludes"], document["lower_bound"]
            found = cls(
                epsilon=document["epsilon"],
                delta=document["delta"],
                grade=Grade(document["grade"]),
                method=document["method"],
                assumptions=_lines(document["assumptions"]),
                num_users=document["num_users"],
                dishonest=document["dishonest"],
                numerical_slack=document["numerical_slack"],
                tiers=tuple(
                    TierCertificate(
                        one["local_epsilon"],
                        one["local_delta"],
                        one["count"],
                        one["epsilon"],
                        one["delta"],
                        grouped=one["up_to"],
                    )
                    for one in document["tiers"]
                ),
                everyone_else_colludes=Guarantee(
                    alone["epsilon"],
                    alone["delta"],
                    Grade(alone["grade"]),
                    alone["method"],
                    _lines(alone["assumptions"]),
                ),
                comparison=tuple(
                    Comparison(
                        one["name"],
                        one["epsilon"],
                        Grade(one["grade"]),
                        Status(one["status"]),
                        one["reference"],
                        one["note"],
                    )
                    for one in document["comparison"]
                ),
                lower_bound=None
                if lower["epsilon"] is None
                else LowerBound(lower["epsilon"], lower["delta"], lower["attack"]),
                randomizer=document["randomizer"],
                linkage=document["linkage"],
                rounds=document["rounds"],
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"the document is no certificate ({error!r}); it must be what to_json gave") from error
        found.check_not_refuted()
        found._check_local_budget()
        return found
