"""Rules: how the question of a survey goes on from wave to wave, by the results of the waves before.

A survey states the rule beside its question, so that people consent to it and no operator chooses a question by hand.
The analyzer publishes the state of the rule with every result, and the manifest of the next wave states the same
(`protocol.publications.check_follows`). Without a rule a question stays the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from croupier.protocol.identity import canonical
from croupier.protocol.mechanisms.checks import check_number, check_positive
from croupier.protocol.mechanisms.krr import OPEN, KaryResponse
from croupier.protocol.mechanisms.vector import VectorMechanism
from croupier.protocol.mechanisms.vector_task import FLOAT_BYTES
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import value_of

MOST_WITH_MOMENTUM = 200_000
"""Parameters with a velocity beside them: a service is sent both twice, and a gradient, in one message of 4 MiB."""


@dataclass(frozen=True)
class Prefixes:
    """The search for frequent texts on no list, one letter a wave (docs/discover.md).

    Attributes:
        alphabet: the letters of the texts, 2 .. 1000 different ones; texts with any other letter, such as a capital,
            count as others, and nothing is promised about them.
        longest: the largest length at which texts are told from longer ones, 1 .. 64.
        fewest: a text that fewer people hold is listed with probability at most `false_listed`, at least 1.
        false_listed: β, of all such texts together, 1e-9 .. 0.5.
        missed: the probability that a text of `analyzer.prefix_tree.Level.found` people is not found, 1e-9 .. 0.5.

    Raises:
        ValueError: at construction, with the field, its value and its range.
    """

    alphabet: str
    longest: int = 10
    fewest: int = 1
    false_listed: float = 0.05
    missed: float = 0.05

    def __post_init__(self) -> None:
        letters = set(self.alphabet)
        if not 2 <= len(letters) == len(self.alphabet) <= 1000 or OPEN in letters or any(map(str.isspace, letters)):
            raise ValueError(
                f"alphabet is {self.alphabet[:80]!r}; it must be 2..1000 different letters, without spaces and {OPEN!r}"
            )
        check_number("longest", self.longest, 1, 64)
        check_number("fewest", self.fewest, 1, math.inf)
        check_number("false_listed", self.false_listed, 1e-9, 0.5)
        check_number("missed", self.missed, 1e-9, 0.5)

    def check(self, stated: Question, waves: int, budgets: int) -> None:
        """Checks the question of a survey, its number of waves that follow results, and its number of budgets.

        Raises:
            ValueError: a survey with this rule must have others.
        """
        if waves != self.waves or budgets > 1:
            raise ValueError(
                f"question {stated.name!r} has {waves} waves that follow results, and {budgets} budgets; by its rule "
                f"it must have {self.waves} waves and one budget"
            )
        if stated != self.question(stated):
            raise ValueError(f"question {stated.name!r} has other categories than those of the first wave by its rule")

    def asked(self, stated: Question, state: pb.RuleState | None, wave: int) -> Question:
        """Returns the question of a wave, as its manifest states it; raises ValueError as `kept` and `question`."""
        return self.question(stated, self.kept(state, wave))

    def begins(self, state: pb.RuleState) -> bool:
        """Returns whether no result has led to a state that a manifest states."""
        return not state.kept

    def published(self, state: pb.RuleState) -> pb.RuleState:
        """Returns the state that the analyzer publishes, where the next manifest states this one."""
        return state

    @property
    def waves(self) -> int:
        """The largest number of waves: one for each letter, and one for the ends of the longest texts."""
        return self.longest + 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of categories among which those of the dearest wave are.

        The last wave has three categories or more, every other one those of the alphabet or more. Which number is the
        dearest need not be exact: the accountant refuses a wave above the limits.
        """
        level = len(self.alphabet) + 1
        return tuple(sorted({3, 6, 12, level, 2 * level, 4 * level}))

    def categories(self, kept: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the next wave's categories, for the beginnings that were kept; ("",) at first."""
        if kept and len(kept[0]) >= self.longest:  # the last wave
            return (*kept, *(beginning + OPEN for beginning in kept), OPEN)
        longer = [beginning + letter + OPEN for beginning in kept for letter in self.alphabet]
        return (*(beginning for beginning in kept if beginning), *longer, OPEN)

    def question(self, stated: Question, kept: Sequence[str] = ("",)) -> Question:
        """Returns the question of a wave, for the beginnings that the wave before has kept.

        Raises:
            ValueError: there are more categories than a question may have.
        """
        names = self.categories(kept)
        return replace(stated, mechanism=KaryResponse(len(names), names))

    def kept(self, state: pb.RuleState | None, wave: int) -> tuple[str, ...]:
        """Returns the beginnings that a wave asks about, as its manifest states them.

        state: None in the first wave.

        Raises:
            ValueError: they are missing, or not beginnings of the length that this wave asks about.
        """
        if (state is None) != (wave == 1):
            raise ValueError(
                f"rule_state is {'missing' if state is None else 'stated'} in wave {wave}; waves from 2 on state it"
            )
        if state is None:
            return ("",)
        kept, letters = tuple(state.kept), set(self.alphabet)
        if not kept or len(set(kept)) < len(kept) or any(len(text) != wave - 1 or set(text) - letters for text in kept):
            raise ValueError(
                f"rule_state keeps {len(kept)} beginnings; they must be different texts of {wave - 1} letters of the "
                "alphabet, at least one"
            )
        return kept


@dataclass(frozen=True)
class Descent:
    """A training: every wave asks for the gradient at the parameters to which the wave before has led.

    How the steps are taken is `analyzer.descent`'s.

    Attributes:
        initial_sha256: of the parameters in the first wave.
        learning_rate: the length of a step, relative to the gradient; finite, > 0.
        momentum: the part of the last step that is kept, 0 <= momentum < 1.
        decaying: whether steps become shorter as 1/sqrt(step).
        by_operator: whether the operator's program decides on the parameters after every result, with an optimizer of
            its own; then learning_rate and momentum are 0, and decaying is False.

    Raises:
        ValueError: at construction, with the field, its value and its range.
    """

    sizes: ClassVar[tuple[int, ...]] = ()
    """A gradient has no categories; see `Prefixes.sizes`."""
    initial_sha256: bytes
    learning_rate: float = 0.0
    momentum: float = 0.0
    decaying: bool = False
    by_operator: bool = False

    def __post_init__(self) -> None:
        if len(self.initial_sha256) != hashlib.sha256().digest_size:
            raise ValueError(f"initial_sha256 has {len(self.initial_sha256)} bytes; it must have 32")
        if self.by_operator:
            if self.learning_rate or self.momentum or self.decaying:
                raise ValueError("by_operator is True; learning_rate and momentum must be 0, and decaying False")
            return
        check_positive("learning_rate", self.learning_rate)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum:g}; it must be 0 <= momentum < 1")

    def check(self, stated: Question, waves: int, budgets: int) -> None:
        """Checks the question of a survey, with any number of waves that follow results; see `Prefixes.check`."""
        task = stated.mechanism.task
        if task is None or task.parameters or not waves:
            raise ValueError(
                f"question {stated.name!r} goes on as a training; it must ask for a vector, state no parameters, and "
                "have waves that follow results"
            )
        if self.momentum and task.dimension > MOST_WITH_MOMENTUM:
            raise ValueError(
                f"dimension is {task.dimension:,}; with momentum it must be at most {MOST_WITH_MOMENTUM:,}, because no "
                "message has room for more"
            )
        order = task.sequential
        if order is not None and (self.momentum, self.decaying, self.learning_rate) != (0, False, order.learning_rate):
            raise ValueError(
                f"learning_rate is {self.learning_rate:g} and momentum {self.momentum:g}; in sequential order they "
                f"must be {order.learning_rate:g} and 0, and decaying False: the analyzer takes plain steps"
            )

    def asked(self, stated: Question, state: pb.RuleState | None, wave: int) -> Question:
        """Returns the question of a wave, at the parameters that its manifest states.

        Raises:
            ValueError: the state is missing, of another size or form, or not that of the beginning where it must be.
        """
        mechanism = stated.mechanism
        if state is None or not isinstance(mechanism, VectorMechanism):
            raise ValueError("rule_state is missing; every wave of a training states it")
        size, at = FLOAT_BYTES * mechanism.vector.dimension, state.steps
        velocity = size if self.momentum and at else 0
        if (len(state.parameters), len(state.velocity)) != (size, velocity) or state.kept or state.next_sha256:
            raise ValueError(
                f"rule_state has {len(state.parameters)} bytes of parameters and {len(state.velocity)} of velocity; it "
                f"must have {size} and {velocity}, and nothing else"
            )
        if at >= wave:
            raise ValueError(f"rule_state has {at} steps in wave {wave}; there must be fewer than waves")
        if not at and hashlib.sha256(state.parameters).digest() != self.initial_sha256:
            raise ValueError("rule_state has other parameters than those with which the training begins by its rule")
        return replace(
            stated, mechanism=replace(mechanism, vector=replace(mechanism.vector, parameters=state.parameters))
        )

    def begins(self, state: pb.RuleState) -> bool:
        """Returns whether no result has led to a state that a manifest states."""
        return not state.steps

    def published(self, state: pb.RuleState) -> pb.RuleState:
        """Returns the state that the analyzer publishes, where the next manifest states this one."""
        known = b"" if self.by_operator else hashlib.sha256(canonical(state)).digest()
        return pb.RuleState(steps=state.steps, next_sha256=known)


Rule = Prefixes | Descent
_RULES: dict[str, type[Rule]] = {"prefixes": Prefixes, "descent": Descent}


def read_rule(message: pb.SurveyQuestion) -> Rule | None:
    """Returns the rule of a survey's question; None for a question that stays the same; ValueError as the rules."""
    kind = message.WhichOneof("rule")
    return None if kind is None else value_of(_RULES[kind], getattr(message, kind))


def write_rule(rule: Rule, message: pb.SurveyQuestion) -> None:
    """Writes the rule of a survey's question."""
    (kind,) = (name for name, known in _RULES.items() if isinstance(rule, known))
    message.MergeFrom(pb.SurveyQuestion(**{kind: asdict(rule)}))  # type: ignore[arg-type]
