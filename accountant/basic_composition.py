"""Basic composition, without numpy: a person's guarantee over several rounds whatever all other people do.

Epsilons and deltas add up, however each round was chosen by the results of earlier ones. A client adds them up itself,
before a person consents to a study. Guarantees that rest on other people compose to less: `composed_certificates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from croupier.accountant.guarantees import Grade, Guarantee
from croupier.accountant.guessing import right_at_most
from croupier.accountant.numerics.decimals import as_decimal, decimal_above
from croupier.accountant.ranges import outside
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.statements import Statement
from croupier.protocol.surveys import QuestionTerms


def basic_composition(guarantees: Iterable[Guarantee], times: int = 1) -> Guarantee:
    """Returns the sum of CERTIFIED guarantees, each of them given `times` times.

    They are added as decimals, as people write budgets: three times 0.1 is 0.3; a float is within 2^-53 of its
    decimal form, relatively. Neighbouring relation: replace-one. Direction of error: the sums are rounded up.

    Raises:
        ValueError: no guarantee, or one that is not CERTIFIED.
    """
    several = tuple(guarantees)
    whole, rounds = weakest(several), times * len(several)
    if rounds == 1:
        return whole
    epsilon, delta = (
        decimal_above(times * sum((as_decimal(value) for value in values), Fraction()))
        for values in zip(*((each.epsilon, each.delta) for each in several), strict=True)
    )
    method = (*whole.method, Statement.of(Method.BASIC_COMPOSITION, rounds=rounds))
    return replace(whole, epsilon=epsilon, delta=min(1.0, delta), method=method)


def weakest(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Returns the guarantee of a person who has any of several CERTIFIED ones: the largest epsilon and delta of all.

    It rests on the assumptions of all of them.

    Raises:
        ValueError: no guarantee, or one that is not CERTIFIED.
    """
    several = tuple(guarantees)
    if not several:
        raise ValueError("guarantees is empty; it must hold at least one")
    for each in several:
        if each.grade is not Grade.CERTIFIED:
            raise outside("grade", str(each.grade), f"{Grade.CERTIFIED} in every certificate")
    epsilon, delta = (max(getattr(each, field) for each in several) for field in ("epsilon", "delta"))
    methods = dict.fromkeys(statement for each in several for statement in each.method)
    assumptions = dict.fromkeys(line for each in several for line in each.assumptions)
    notes = dict.fromkeys(note for each in several for note in each.notes)
    return Guarantee(epsilon, delta, Grade.CERTIFIED, tuple(methods), tuple(assumptions), tuple(notes))


@dataclass(frozen=True)
class WorstCases:
    """A person's guarantees whatever all other people do.

    Attributes:
        no_honest_hop: if no hop is honest: the person's own noise, a local budget.
        one_honest_hop: if one hop is honest, also by the person's own noise if that gives less; None without hop
            noise.
    """

    no_honest_hop: Guarantee
    one_honest_hop: Guarantee | None = None

    def __post_init__(self) -> None:
        """Takes the own noise if its guarantee is stronger than that of one honest hop."""
        hop, alone = self.one_honest_hop, self.no_honest_hop
        if hop is not None and right_at_most(alone.epsilon, alone.delta) < right_at_most(hop.epsilon, hop.delta):
            object.__setattr__(self, "one_honest_hop", alone)

    @classmethod
    def of(cls, terms: QuestionTerms, local_epsilon: float, waves: int = 1) -> WorstCases:
        """Returns the guarantees of several waves of a round together for a person with this budget in each of them.

        In a permanent study the own noise is drawn once, for an answer that stays the same; hop noise in every wave.
        """
        assumed = Statement.of(Assumption.EVERYONE_ELSE_DISHONEST)
        local = Guarantee(
            local_epsilon, terms.local_delta, Grade.CERTIFIED, (Statement.of(Method.LOCAL_BUDGET),), (assumed,)
        )
        alone, fakes = basic_composition([local], waves if terms.permanent is None else 1), terms.fakes
        if fakes is None:
            return cls(alone)
        noise, assumed = fakes.noise, fakes.noise.assumption(fakes.hops)
        hop = Guarantee(noise.epsilon, noise.delta, Grade.CERTIFIED, (Statement.of(Method.HOP_NOISE),), (assumed,))
        return cls(alone, basic_composition([hop], waves))


def all_together(rounds: Sequence[WorstCases]) -> WorstCases:
    """Returns the guarantees of all rounds together; one without hop noise counts with its own noise in both."""
    alone = basic_composition(cases.no_honest_hop for cases in rounds)
    if all(cases.one_honest_hop is None for cases in rounds):
        return WorstCases(alone)
    return WorstCases(alone, basic_composition(cases.one_honest_hop or cases.no_honest_hop for cases in rounds))
