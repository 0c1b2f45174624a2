"""A certificate: the largest central guarantee over all victims, and everything behind it, with its written forms.

`certification` computes the numbers. The accountant's service signs and stores a certificate, and adds the fields of a
round. The forms are those of `protocol.certificates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from croupier.accountant.budgets import Budgets
from croupier.accountant.drawable import Drawable
from croupier.accountant.guarantees import Comparison, Grade, Guarantee, LowerBound, Status, TierCertificate
from croupier.accountant.guessing import right_at_most
from croupier.accountant.privacy_curve import Proof
from croupier.accountant.ranges import Linkage, check_count, check_delta, check_linkage, check_text, outside
from croupier.accountant.witness import Witness
from croupier.protocol.certificates import (
    READABLE,
    assumptions_of,
    certificate_json,
    method_of,
    read_certificate,
)
from croupier.protocol.codes import Assumption, Method, Note
from croupier.protocol.documents import document_of, read_json
from croupier.protocol.names import JsonObject
from croupier.protocol.notes import certificate_notes
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import SCHEMA, Statement, joined, messages_of, read_messages
from croupier.protocol.tier_counts import EXACT, TierCounts, counts_of
from croupier.protocol.v1 import messages_pb2 as pb


@dataclass(frozen=True)
class Certificate(Drawable):
    """The accountant's answer: the largest central guarantee over all victims, and everything behind it.

    epsilon and delta hold for every user under `assumptions`: one secret order, and all but `dishonest` of the other
    clients honest. `everyone_else_colludes` holds without that: it is the local budget. With hop noise `one_honest_hop`
    is what its fake reports guarantee by themselves; None without. `counted_by` says how users were counted: with
    budget privacy the tiers are the budgets of a round's grid, and count only some of the `num_users`
    (docs/accounting.md, 7.2). `numerical_slack` is the part of delta that was added for truncation and rounding (it is
    inside delta already: the reader adds nothing).
    """

    epsilon: float
    delta: float
    grade: Grade
    method: Proof
    assumptions: tuple[Statement[Assumption], ...]
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
    one_honest_hop: Guarantee | None = None
    counted_by: TierCounts = EXACT

    def __post_init__(self) -> None:
        """Raises ValueError for a field outside its range."""
        Guarantee(self.epsilon, self.delta, self.grade, self.method, self.assumptions)
        noised = self.counted_by != EXACT
        check_count(self.num_users, "num_users", 0 if noised else 1)
        check_count(self.dishonest, "dishonest")
        check_count(self.rounds, "rounds", 1)
        check_delta(self.numerical_slack, "numerical_slack")
        check_text(self.randomizer)
        check_linkage(self.linkage)
        if not self.tiers:
            raise ValueError("tiers is empty; it must hold at least one tier")
        counted, exact = sum(tier.count for tier in self.tiers), "at most " if noised else ""
        if counted > self.num_users or (counted < self.num_users and not noised):
            raise ValueError(f"tiers hold {counted} users; they must hold {exact}{self.num_users}")
        if not noised and (empty := [tier for tier in self.tiers if not tier.count]):
            raise outside("count", empty[0].count, "at least 1")
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
        self._check_hop_noise()
        if self.series is not None and any(
            assumption.code is Assumption.UNIFORM_ORDER for assumption in self.assumptions
        ):
            raise ValueError(
                f"the certificate assumes {Assumption.SAME_REPORT} and {Assumption.UNIFORM_ORDER}; it must be one of "
                "them: where reports are kept for several waves, no bound of the shuffle holds"
            )

    @property
    def series(self) -> PermanentSeries | None:
        """The waves in which every client sends the same report, all covered by the guarantee; None without."""
        stated = [assumption for assumption in self.assumptions if assumption.code is Assumption.SAME_REPORT]
        return PermanentSeries(stated[0]["waves"], stated[0]["series"]) if stated else None

    def _check_hop_noise(self) -> None:
        """Raises ValueError if the certificate does not state the hop noise behind its own number."""
        hop = self.one_honest_hop
        stated = [assumption for assumption in self.assumptions if assumption.code is Assumption.ONE_HONEST_HOP]
        if stated and (hop is None or stated[0] not in hop.assumptions):
            raise ValueError("one_honest_hop is missing; a certificate that rests on hop noise must state it")
        if hop is None:
            return
        if hop.grade is not Grade.CERTIFIED:
            raise outside("grade of one_honest_hop", str(hop.grade), f"{Grade.CERTIFIED} in a certificate")
        if not any(assumption.code is Assumption.ONE_HONEST_HOP for assumption in hop.assumptions):
            raise ValueError(f"one_honest_hop does not assume {Assumption.ONE_HONEST_HOP}; it must")

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for the people with the largest budget, with its notes."""
        return Guarantee(self.epsilon, self.delta, self.grade, self.method, self.assumptions, self.notes)

    @property
    def rounds_certified(self) -> int | PermanentSeries:
        """The argument `rounds` of `certify` for another certificate of the same releases."""
        return self.rounds if self.series is None else self.series

    @property
    def notes(self) -> tuple[Statement[Note], ...]:
        """Notes on the numbers for the reader: a delta that protects nobody, tiers that are not amplified."""
        return certificate_notes(self.to_message())

    def check_not_refuted(self) -> None:
        """Raises ValueError if the attack beside the certificate refutes it."""
        lower = self.lower_bound
        if lower is not None and self._is_refuted_by(lower):
            raise ValueError(
                f"the document contradicts itself: it certifies ε = {self.epsilon:g} at δ = {self.delta:g}, and its "
                f"own attack shows that no ε below {lower.epsilon:g} can be true at δ = {lower.delta:g}; it is not as "
                "an accountant made it"
            )

    def check_attack(self, lower: LowerBound | None) -> None:
        """Raises RuntimeError if an attack on the same release shows that the bounds are wrong."""
        if lower is not None and self._is_refuted_by(lower):
            raise RuntimeError(
                f"an attack reaches ε = {lower.epsilon!r} at δ = {lower.delta!r}, the certificate says ε = "
                f"{self.epsilon!r} at δ = {self.delta!r}: this is a defect of croupier; please report it with the "
                "budgets"
            )

    def _is_refuted_by(self, lower: LowerBound) -> bool:
        """Says whether an attack proves more: a certificate at (epsilon, delta) holds at any larger values as well."""
        own = (self.epsilon, self.delta)
        return lower.epsilon >= own[0] and lower.delta >= own[1] and (lower.epsilon, lower.delta) != own

    def _check_local_budget(self) -> None:
        """Raises ValueError if `everyone_else_colludes` is below the largest local budget over all rounds."""
        largest, alone = max(tier.local_epsilon for tier in self.tiers), self.everyone_else_colludes.epsilon
        if Fraction(alone) < Fraction(largest) * self.rounds:
            raise ValueError(
                f"the document contradicts itself: if everyone else colludes it certifies ε = {alone:g}, and the "
                f"largest local budget, in {self.rounds} rounds, is {largest:g}; it is not as an accountant made it"
            )

    @property
    def budgets(self) -> Budgets:
        """The budgets behind the certificate, for `certify` with the same `counted_by`.

        With noised counts they include a victim of every tier.
        """
        victims = self.counted_by.victims
        return Budgets.from_tiers([(tier.local_epsilon, tier.count + victims, tier.local_delta) for tier in self.tiers])

    @property
    def likely_budgets(self) -> Budgets:
        """About the number of users of each budget: with noised counts, the mean number of omitted users is added.

        It is for plans, and no guarantee uses it.
        """
        left_out = self.counted_by.radius
        tiers = [tier for tier in self.tiers if tier.count]
        return Budgets.from_tiers([(tier.local_epsilon, tier.count + left_out, tier.local_delta) for tier in tiers])

    def tier_of(self, local_epsilon: float) -> TierCertificate:
        """Returns the tier that covers this budget: the first that is not below it; many budgets share one.

        Of tiers that differ only in their local delta it is the one with the largest epsilon.

        Raises:
            ValueError: for a budget above all tiers.
        """
        above = [tier for tier in self.tiers if tier.local_epsilon >= local_epsilon]
        if above:
            least = min(tier.local_epsilon for tier in above)
            return max((t for t in above if t.local_epsilon == least), key=lambda tier: (tier.epsilon, tier.delta))
        raise outside("local_epsilon", local_epsilon, f"at most {self.tiers[-1].local_epsilon}")

    def __str__(self) -> str:
        """Returns one line for people: numbers rounded to the sound side, each with its grade."""
        text = (
            f"{self.grade} ε = {round_up(self.epsilon)} at δ = {round_up(self.delta)} for {self.num_users:,} users of "
            f"{self.randomizer}" + (f" over {self.rounds:,} rounds" if self.rounds > 1 else "")
        )
        if self.dishonest:
            text += f", of the others at most {self.dishonest:,} dishonest"
        if self.lower_bound is not None:
            text += f"; {Grade.LOWER_BOUND} {self.lower_bound.says(self.delta)}"
        if self.one_honest_hop is not None:
            text += f"; if one hop is honest ε = {round_up(self.one_honest_hop.epsilon)}"
        alone = round_up(self.everyone_else_colludes.epsilon)
        return f"{text}; if everyone else colludes ε = {alone} ({joined(self.method)})"

    def rows(self) -> list[JsonObject]:
        """Returns one dictionary for each tier, CERTIFIED, for `pandas.DataFrame` and `polars.DataFrame`."""
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

    def to_json(self, *, steps: bool = False) -> JsonObject:
        """Returns the document for other programs, of plain JSON values; `from_json` reads it back.

        steps: with the steps of every tier, in the order of "tiers", which `from_json` ignores.
        """
        document = certificate_json(self.to_message())
        return document | {"steps": document_of([tier.steps for tier in self.tiers])} if steps else document

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | bytes) -> Self:
        """Reads the document of `to_json` or of a granted round, or the JSON text of it.

        The document is not certified again: its numbers and grade are taken as they are. The reader must know its
        author by other means; the certificate of a round is signed.

        Raises:
            ValueError: the text is not JSON, or the document lacks a field, holds a value outside its range, or is
                refuted by its own attack.
        """
        if isinstance(document, str | bytes):
            try:
                document = read_json(document)
            except ValueError as error:
                raise ValueError(f"the text is not JSON ({error}); {READABLE}") from error
        return cls.from_message(read_certificate(document))

    def to_message(self) -> pb.Certificate:
        """Returns the message of the wire, without the fields of a round; steps and curves are not in it."""
        lower, alone = self.lower_bound, self.everyone_else_colludes
        message = pb.Certificate(
            schema=SCHEMA,
            epsilon=self.epsilon,
            delta=self.delta,
            grade=self.grade,
            method=messages_of(self.method),
            assumptions=messages_of(self.assumptions),
            num_users=self.num_users,
            dishonest=self.dishonest,
            numerical_slack=self.numerical_slack,
            tiers=[
                pb.Tier(
                    local_epsilon=tier.local_epsilon,
                    local_delta=tier.local_delta,
                    count=tier.count,
                    epsilon=tier.epsilon,
                    delta=tier.delta,
                    up_to=tier.grouped,
                    witness=None if tier.witness is None else tier.witness.to_message(),
                )
                for tier in self.tiers
            ],
            everyone_else_colludes_epsilon=alone.epsilon,
            everyone_else_colludes_delta=alone.delta,
            everyone_else_colludes_method=messages_of(alone.method),
            everyone_else_colludes_assumptions=messages_of(alone.assumptions),
            one_honest_hop=None if self.one_honest_hop is None else _guarantee_message(self.one_honest_hop),
            comparison=[
                pb.ComparedBound(
                    name=bound.name,
                    epsilon=bound.epsilon,
                    grade=bound.grade,
                    status=bound.status,
                    reference=bound.reference,
                    notes=messages_of(bound.notes),
                )
                for bound in self.comparison
            ],
            lower_bound_epsilon=None if lower is None else lower.epsilon,
            lower_bound_delta=None if lower is None else lower.delta,
            lower_bound_attack="" if lower is None else lower.attack,
            randomizer=self.randomizer,
            linkage=self.linkage,
            rounds=self.rounds,
        )
        self.counted_by.write_into(message)
        return message

    @classmethod
    def from_message(cls, message: pb.Certificate) -> Self:
        """Reads a message of `to_message`, or the certificate of a granted round.

        Raises:
            ValueError: as `from_json`.
        """
        attack = [message.HasField("lower_bound_epsilon"), message.HasField("lower_bound_delta")]
        if len({*attack, bool(message.lower_bound_attack)}) > 1:
            raise ValueError(
                "lower_bound_epsilon, lower_bound_delta and lower_bound_attack must all be given, or none of them"
            )
        certificate = cls(
            epsilon=max(message.epsilon, message.unknown_budget_epsilon),
            delta=message.delta,
            grade=Grade(message.grade),
            method=method_of(message),
            assumptions=assumptions_of(message),
            num_users=message.num_users,
            dishonest=message.dishonest,
            numerical_slack=message.numerical_slack,
            tiers=tuple(
                TierCertificate(
                    tier.local_epsilon,
                    tier.local_delta,
                    tier.count,
                    tier.epsilon,
                    tier.delta,
                    grouped=tier.up_to,
                    witness=Witness.from_message(tier.witness) if tier.HasField("witness") else None,
                )
                for tier in message.tiers
            ),
            everyone_else_colludes=Guarantee(
                message.everyone_else_colludes_epsilon,
                message.everyone_else_colludes_delta,
                Grade.CERTIFIED,
                read_messages(Method, message.everyone_else_colludes_method),
                read_messages(Assumption, message.everyone_else_colludes_assumptions),
            ),
            comparison=tuple(
                Comparison(
                    bound.name,
                    bound.epsilon if bound.HasField("epsilon") else None,
                    Grade(bound.grade),
                    Status(bound.status),
                    bound.reference,
                    read_messages(Note, bound.notes),
                )
                for bound in message.comparison
            ),
            lower_bound=LowerBound(message.lower_bound_epsilon, message.lower_bound_delta, message.lower_bound_attack)
            if all(attack)
            else None,
            randomizer=message.randomizer,
            linkage=check_linkage(message.linkage),
            rounds=message.rounds,
            one_honest_hop=_read_guarantee(message.one_honest_hop) if message.HasField("one_honest_hop") else None,
            counted_by=counts_of(message),
        )
        certificate.check_not_refuted()
        certificate._check_local_budget()
        return certificate


def _guarantee_message(guarantee: Guarantee) -> pb.Guarantee:
    return pb.Guarantee(
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        method=messages_of(guarantee.method),
        assumptions=messages_of(guarantee.assumptions),
    )


def _read_guarantee(message: pb.Guarantee) -> Guarantee:
    method, assumptions = read_messages(Method, message.method), read_messages(Assumption, message.assumptions)
    return Guarantee(message.epsilon, message.delta, Grade.CERTIFIED, method, assumptions)
