"""What a figure of a paper is here: its points, what is measured at each, its lines, and the claims that are judged.

A description is data: a paper's file holds one for each figure. Running is left to `runner`, drawing to
`show.plots`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Point = Mapping[str, Any]
"""What a measurement depends on, beside the code: numbers, strings and lists, as they stand in JSON."""
Row = Mapping[str, Any]
"""A point with what was measured there."""


class Size(StrEnum):
    """How much is run: seconds, as much as a plot needs, or as much as the paper."""

    QUICK = "quick"
    NORMAL = "normal"
    FULL = "full"


@dataclass(frozen=True)
class Settings:
    """What points depend on.

    Attributes:
        size: how much is run.
        seed: of everything that is drawn.
        data: a directory of MNIST's IDX files and Gowalla's check-ins; None for what is bundled or synthetic.
    """

    size: Size = Size.NORMAL
    seed: int = 0
    data: Path | None = None

    @property
    def checkins(self) -> Path | None:
        """The file of check-ins; None where there is none."""
        files = [] if self.data is None else sorted(self.data.glob("*totalCheckins.txt*"))
        return files[0] if files else None

    @property
    def mnist(self) -> Path | None:
        """The directory of MNIST's files; None where they are not."""
        return self.data if self.data is not None and any(self.data.glob("train-images-idx3-ubyte*")) else None


class Verdict(StrEnum):
    """What became of a claim, or of all claims of a figure."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT = "not reproduced"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Finding:
    """A claim of a paper and what became of it.

    Attributes:
        claim: what the paper says.
        verdict: `REFUTED` only where an attack, or an exact value, contradicts it.
        evidence: what came out here, with its numbers, and why it differs; "unexplained" where that is not known.
    """

    claim: str
    verdict: Verdict
    evidence: str

    @classmethod
    def whether(cls, claim: str, holds: bool, evidence: str) -> Finding:
        """Returns a claim that is reproduced or not."""
        return cls(claim, Verdict.REPRODUCED if holds else Verdict.NOT, evidence)


@dataclass(frozen=True)
class Line:
    """A line of a plot: a point from each row, or as many as there are in the lists of a row.

    Attributes:
        label: for the legend; of an epsilon it ends in the grade.
        key: the place of its value in a row, parts separated by ":".
        role: "certified", "attack", "other", or "single" for points that no line joins: what it is decides how it
            looks. "other 3" has the look of the third other line, which it stands for in another panel.
        attack: key of the attack that refutes it where the line lies below; "" for none.
        band: keys of the ends of its confidence band; "" for none.
    """

    label: str
    key: str
    role: str = "other"
    attack: str = ""
    band: tuple[str, str] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes: the rows in which `where` holds, by `x`.

    `said` is the key of what the title must say as well, such as whether the data are synthetic.
    """

    title: str
    x: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    log: str = "xy"
    said: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the table of numbers. `digits` are significant; `rounding`: "up", "down", or "" for the nearest."""

    header: str
    key: str
    digits: int = 4
    rounding: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper.

    Attributes:
        name: for the command line.
        paper: whose it is.
        title: what it shows.
        how: how it is repeated, and what the paper leaves open.
        measure: takes a point to what is measured there; a function of `research.experiments.measures`.
        points: returns the points of a run.
        judge: returns the findings from the rows, which come in the order of the points.
        panels: what is plotted; none for a table.
        columns: the table of numbers.
        alone: whether nothing else may run while a point is measured, because it is timed.
    """

    name: str
    paper: str
    title: str
    how: str
    measure: Callable[[Point], Row]
    points: Callable[[Settings], list[Point]]
    judge: Callable[[Sequence[Row]], list[Finding]]
    columns: tuple[Column, ...]
    panels: tuple[Panel, ...] = ()
    alone: bool = False


def value_at(row: Row, key: str) -> Any:
    """Returns the value in a row under a key such as "published:Echo"; None where there is nothing."""
    value: Any = row
    for part in key.split(":"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def worst(findings: Sequence[Finding]) -> Verdict:
    """Returns a figure's verdict: refuted if any claim is; partly reproduced if some claims are and some are not."""
    verdicts = {finding.verdict for finding in findings}
    if Verdict.REFUTED in verdicts:
        return Verdict.REFUTED
    return verdicts.pop() if len(verdicts) == 1 else Verdict.PARTLY
