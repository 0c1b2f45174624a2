"""A population from a CSV file: one participant a row, with a value for the question and a local budget.

Participants are known by a column of the file, or by the file's digest and the line: then another file holds other
people, and the same file again the same ones.

Which budgets a population has is drawn from groups (`deploy.local.budget_groups`), or stated in a column of the file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.client.submission import Participant
from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.scales import in_order
from croupier.protocol.crossed import crossed, crossed_name
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question, choose_budget

_MAX_CATEGORIES = 1024
"""The most values of a column that becomes a histogram."""
_MAX_GROUPS = 64
"""The most values of a column that divides people into groups."""


@dataclass(frozen=True)
class Rows:
    """Those rows of a file that have this value, without the spaces around it, in this column."""

    column: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Rows:
        """Returns what "COLUMN=VALUE" means; raises ValueError for a text without "="."""
        column, equals, value = text.partition("=")
        if not equals or not column:
            raise ValueError(f"where is {text!r}; it must be COLUMN=VALUE")
        return cls(column, value.strip())

    def __str__(self) -> str:
        return f"{self.column}={self.value}"


@dataclass(frozen=True)
class PopulationFile:
    """A table of participants, and how its rows are read.

    Attributes:
        csv: the table.
        column: the column of the values.
        groups: what each participant's `max_local_epsilon` is drawn from, if no column states it.
        epsilon_column: the column of each participant's `max_local_epsilon`.
        id_column: which column names the participant; without it, every line of every file is another person.
        clamp: a number outside the question's interval counts as the nearer end, instead of being left out.
        where: which rows are used; None for all.
    """

    csv: Columns
    column: str
    groups: Sequence[BudgetGroup]
    epsilon_column: str | None = None
    id_column: str | None = None
    clamp: bool = False
    where: Rows | None = None


@dataclass(frozen=True)
class Participants:
    """The participants of a file.

    Attributes:
        participants: by name.
        rejected: for each line that cannot be used the reason.
        clamped: by name, the values in the file that were outside the question's interval and count as its nearer end.
        outside: the lines of those that were outside and were left out, which are among `rejected`.
    """

    participants: dict[str, Participant]
    rejected: dict[str, str]
    clamped: dict[str, float]
    outside: frozenset[str] = frozenset()


def read_population(file: PopulationFile, question: Question, grid: Sequence[float] = ()) -> Participants:
    """Reads the participants of a file; a row that cannot be used is left out and named, and the others are not.

    Args:
        file: where the rows are, and how they are read.
        question: what the values answer.
        grid: the budgets of the round; a row that can afford none of them is left out. Empty: not checked.

    Raises:
        ValueError: the file or a column does not exist, or the file has no rows, or none of these.
    """
    id_column, where = file.id_column, file.where
    texts = file.csv.column(file.column)
    stated = file.csv.column(file.epsilon_column) if file.epsilon_column else None
    people = file.csv.column(id_column) if id_column else None
    told = file.csv.column(where.column) if where else None
    digest = file.csv.digest
    drawn = random.choices(  # noqa: S311 (which budget a played participant has is not a secret)
        [group.max_local_epsilon for group in file.groups], [group.share for group in file.groups], k=len(texts)
    )
    participants: dict[str, Participant] = {}
    rejected: dict[str, str] = {}
    line_of: dict[str, str] = {}
    clamped: dict[str, float] = {}
    beyond: set[str] = set()
    for index, (line, text) in enumerate(texts):
        if where and told and told[index][1].strip() != where.value:
            continue
        try:
            epsilon = float(stated[index][1]) if stated else drawn[index]
            if not (math.isfinite(epsilon) and epsilon > 0):
                raise ValueError(f"max_local_epsilon is {epsilon}; it must be a finite number > 0")
            if grid:
                choose_budget(epsilon, grid)
            person = people[index][1].strip() if people else f"{digest}:{line}"
            if not person:
                raise ValueError(f"{id_column!r} is empty; it must name the participant")
            if person in line_of:
                raise ValueError(f"{id_column!r} is {person!r}, as in line {line_of[person]}; a person answers once")
            outside = _outside(question.mechanism, text)
            if outside is not None and file.clamp:
                clamped[person], text = outside
            elif outside is not None:
                beyond.add(line)
            participants[person] = Participant(question.mechanism.parse_value(text), epsilon)
            line_of[person] = line
        except ValueError as error:
            rejected[line] = f"line {line}: {error}"
    if where and not participants and not rejected:
        raise ValueError(f"no row of {file.csv.name} has {where}")
    return Participants(participants, rejected, clamped, frozenset(beyond))


def _outside(mechanism: Mechanism, text: str) -> tuple[float, str] | None:
    """Returns a number outside the mechanism's interval, and the nearer end of that as it would be written."""
    if not isinstance(mechanism, IntervalMechanism):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or mechanism.low <= number <= mechanism.high:
        return None
    return number, repr(mechanism.low if number < mechanism.low else mechanism.high)


def read_groups(file: Columns, column: str) -> list[Rows]:
    """Returns the groups that a column divides the rows into, which every row must name one of.

    Raises:
        ValueError: the file or the column does not exist, a row has no group, or there are fewer than two or too many.
    """
    cells = file.column(column)
    for line, text in cells:
        if not text.strip():
            raise ValueError(f"{file.name}: line {line}: {column!r} is empty; every person must be in one group")
    values = sorted({text.strip() for _, text in cells})
    if not 2 <= len(values) <= _MAX_GROUPS:
        raise ValueError(f"{file.name}: {column!r} has {len(values)} different values; groups must be 2..{_MAX_GROUPS}")
    if "=" in column:
        raise ValueError(f"the column is {column!r}; the name of one that makes groups must be without '='")
    return [Rows(column, value) for value in values]


def guess_question(
    file: Columns,
    column: str,
    low: float | None,
    high: float | None,
    orders: Sequence[Sequence[str]] = (),
    levels: int | None = None,
) -> Question:
    """Returns a question that fits a column: rr for bits, onebit if an interval is given, else krr over its categories.

    With a number of `levels` and an interval it is asked on ordered levels. "ROWS*COLUMNS" asks two columns as one.

    The categories are read from the data, which is fine for a demonstration; a real deployment states them beforehand.
    An empty cell is not a category. Categories are in the order of the first of `orders` that has them all, of
    numbers, of a known scale, or of the alphabet.

    Raises:
        ValueError: the column has one value only, or too many, and no interval is given; or only one end of it is; or a
            value cannot be shown to participants.
    """
    name = "".join(character if character.isalnum() else "_" for character in column)
    if (low is None) != (high is None):
        raise ValueError("only one of low and high is given; a mean needs both")
    if (pair := file.pair(column)) is not None:
        if low is not None:
            raise ValueError(f"the column is {column!r} with low and high; a table is of categories")
        rows, columns = (guess_question(file, part, None, None, orders) for part in pair)
        labels = crossed(*(each.mechanism.categories or ("0", "1") for each in (rows, columns)))
        return Question(crossed_name(rows.name, columns.name), KaryResponse(len(labels), labels))
    if low is not None and high is not None:
        return Question(name, OneBit(low, high) if levels is None else Levels(low, high, levels))
    values = {text.strip() for _, text in file.column(column)} - {""}
    texts, why = in_order(sorted(values), orders)
    if why:
        file.note_order(column, texts, why)
    if not texts:
        raise ValueError(f"{file.name}: {column!r} has no values")
    if set(texts) <= {"0", "1"}:
        return Question(name, RandomizedResponse())
    hint = "give --low and --high to ask for its mean"
    if len(texts) < 2:
        raise ValueError(f"{file.name}: {column!r} has one value only, {texts[0]!r}; {hint}")
    if len(texts) > _MAX_CATEGORIES:
        raise ValueError(
            f"{file.name}: {column!r} has {len(texts):,} different values; it must have at most {_MAX_CATEGORIES:,}, "
            f"or {hint}"
        )
    try:
        return Question(name, KaryResponse(len(texts), texts))
    except ValueError as error:
        raise ValueError(f"{file.name}: {column!r} cannot be asked about: {error}") from error
