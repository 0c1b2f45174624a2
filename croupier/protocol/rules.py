"""Rules: how the question of a survey goes on from wave to wave, by the results of the waves before.

A survey states the rule beside its question, so that people consent to it and no operator chooses a question by hand.
The analyzer publishes the state of the rule with every result, and the manifest of the next wave states the same
(`protocol.publications.check_follows`). Without a rule a question stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from croupier.protocol.mechanisms.krr import OPEN, KaryResponse
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb


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
        for name, value, least, most in (
            ("longest", self.longest, 1, 64),
            ("fewest", self.fewest, 1, math.inf),
            ("false_listed", self.false_listed, 1e-9, 0.5),
            ("missed", self.missed, 1e-9, 0.5),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} is {value:g}; it must be in {least:g}..{most:g}")

    @classmethod
    def of(cls, message: pb.SurveyQuestion) -> Prefixes | None:
        """Returns the rule of a survey's question; None for a question that stays the same; ValueError as above."""
        if not message.HasField("prefixes"):
            return None
        stated = message.prefixes
        return cls(stated.alphabet, stated.longest, stated.fewest, stated.false_listed, stated.missed)

    def message(self) -> pb.Prefixes:
        """Returns the message of the rule."""
        return pb.Prefixes(**asdict(self))

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
