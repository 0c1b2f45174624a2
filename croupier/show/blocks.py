"""What documents for people are made of: blocks, which `terminal` and `html` draw.

One function makes the blocks of a kind of document, so that a terminal, a report, a page of the console and a notebook
say the same. Numbers in blocks are text, rounded to their sound side by the function that knows it. Positions of bars
are parts of the width, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]


class Tone(Enum):
    """How loud a sentence is; an alarm comes before what it is about."""

    PLAIN = ""
    QUIET = "small"
    ALARM = "verdict"


@dataclass(frozen=True)
class Heading:
    """A heading; level 2 begins a part of a page. The language is that of a text of others, such as "de"."""

    text: str
    level: int = 2
    language: str = ""


@dataclass(frozen=True)
class Sentence:
    """A paragraph. The language is that of a text of others."""

    text: str
    tone: Tone = Tone.PLAIN
    language: str = ""


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    lines: Sequence[str]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Section:
    """A question that a reader has, and its answer: paragraphs, then a list, then commands, whose lines stay whole."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    commands: Sequence[str] = ()


@dataclass
class Table:
    """A table, whose rows may be in groups."""

    columns: list[str]
    title: str
    caption: str
    groups: list[list[tuple[str, ...]]] = field(default_factory=lambda: [[]])

    def __init__(self, *columns: str, title: str = "", caption: str = "") -> None:
        """Makes a table without rows; empty headings of all columns mean that it has none."""
        self.columns, self.title, self.caption, self.groups = [*columns], title, caption, [[]]

    def row(self, *cells: str) -> None:
        """Adds a row."""
        self.groups[-1].append(cells)

    def end_group(self) -> None:
        """Begins another group, if the last one has a row."""
        if self.groups[-1]:
            self.groups.append([])

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group]


@dataclass(frozen=True)
class Bar:
    """A number with its intervals.

    Attributes:
        label: what the number is of.
        estimate: the number, inside its range.
        error: its standard error; "" for a number without one.
        impossible: the estimate as the noise has left it, where that is outside the range; else "".
        people, population: the intervals.
        sentence: all of it in one sentence; "" where the numbers are enough.
        at, from_people, from_population: the positions of the number and the intervals.
        noisy: the result cannot be used: no estimate is drawn.
        truth: the true number; "" if nobody knows it.
    """

    label: str
    estimate: str
    error: str
    impossible: str
    people: str
    population: str
    sentence: str
    at: float
    from_people: Interval
    from_population: Interval
    noisy: bool = False
    truth: str = ""


@dataclass(frozen=True)
class Bars:
    """Numbers on one scale.

    Attributes:
        bars: the numbers.
        scale: the texts below, from the left end to the right one; empty for no scale.
        filled: bars begin at the left end, as shares do.
        confidence: the level of the intervals, such as 0.95.
    """

    bars: Sequence[Bar]
    scale: Sequence[str]
    filled: bool
    confidence: float

    @property
    def level(self) -> str:
        """The level as text, such as "95 %"."""
        return f"{100 * self.confidence:g} %"


@dataclass(frozen=True)
class Line:
    """A line of a curve: its points (x, y), its name, its grade, and whether an attack refutes it."""

    name: str
    grade: str
    points: Sequence[tuple[float, float]]
    is_refuted: bool = False


@dataclass(frozen=True)
class Curve:
    """Delta (logarithmic) against epsilon: a certified line, attacks as crosses, published lines, and the numbers.

    Where there is room for text only, the table is shown alone.
    """

    certified: Line
    attacks: Line
    published: Sequence[Line]
    numbers: Table


@dataclass(frozen=True)
class Folded:
    """Blocks that a page shows when their title is clicked."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Heading | Sentence | Points | Section | Table | Bars | Curve | Folded
