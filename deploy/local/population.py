"""A population from a CSV file: one participant a row, with a value for the question and a local budget.

Participants are known by a column of the file, or by the file's digest and the line: then another file holds other
people, and the same file again the same ones.

Which budgets a population has is drawn from groups (`deploy.local.budget_groups`), or stated in a column of the file.
"""

from __future__ import annotations

import csv
import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.client.submission import Participant
from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.protocol.mechanisms import IntervalMechanism, KaryResponse, Mechanism, OneBit, RandomizedResponse
from croupier.protocol.questions import Question, choose_budget

__all__ = [
    "Participants",
    "PopulationFile",
    "Rows",
    "check_columns",
    "column_names",
    "guess_question",
    "read_groups",
    "read_population",
]

_MAX_CATEGORIES = 64


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
    """A CSV file of participants, and how its rows are read.

    Attributes:
        path: of the file.
        column: where the values stand.
        groups: what each participant's `max_local_epsilon` is drawn from, if no column states it.
        epsilon_column: where each participant's `max_local_epsilon` stands.
        id_column: which column names the participant; without it, every line of every file is another person.
        clamp: a number outside the question's interval counts as the nearer end, instead of being left out.
        limit: how many rows to use, from the first; None for all.
        where: which of these; None for all.
    """

    path: Path
    column: str
    groups: Sequence[BudgetGroup]
    epsilon_column: str | None = None
    id_column: str | None = None
    clamp: bool = False
    limit: int | None = None
    where: Rows | None = None


@dataclass(frozen=True)
class Participants:
    """The participants of a file.

    Attributes:
        participants: by name.
        rejected: for each line that cannot be used the reason.
        clamped: by name, the values in the file that were outside the question's interval.
    """

    participants: dict[str, Participant]
    rejected: dict[str, str]
    clamped: dict[str, float]


def _read_column(path: Path, column: str, limit: int | None = None) -> list[tuple[str, str]]:
    """Returns (line, text) of a column; spaces around a column's name do not count.

    Raises:
        ValueError: the file or the column does not exist, the file has no rows, or a row has more fields than line 1.
    """
    column = column.strip()
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    if limit is not None and limit < 1:
        raise ValueError(f"the number of rows to use is {limit}; it must be at least 1")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            names = rows.fieldnames = _names(rows)
            wanted = zip(rows, range(1 << 62 if limit is None else limit), strict=False)
            found = []
            for row, _ in wanted:
                if None in row:  # the fields that the header has no name for
                    extra = len(names) + len(row[None])
                    raise ValueError(
                        f"{path}: line {rows.line_num}: the number of fields is {extra}; it must be {len(names)}, as "
                        f"in the header{_not_by_commas(names)}"
                    )
                found.append((str(rows.line_num), row.get(column) or ""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read; it must be a CSV file in UTF-8: {error}") from error
    _check_column(path, column, names)
    if not found:
        raise ValueError(f"{path} has no rows")
    return found


def _names(rows: csv.DictReader[str]) -> list[str]:
    return [name.strip() for name in rows.fieldnames or ()]


def _check_column(path: Path, column: str, names: Sequence[str]) -> None:
    if column not in names:
        mean = "; a mean is COLUMN:LOW:HIGH" if ":" in column else ""
        quoted = ", ".join(repr(name) if "," in name else name for name in names)
        raise ValueError(f"{path} has no column {column!r}; its columns are {quoted}{mean}{_not_by_commas(names)}")
    if names.count(column) > 1:
        raise ValueError(f"{path} has {names.count(column)} columns {column!r}; each must have a name of its own")


def _not_by_commas(names: Sequence[str]) -> str:
    """Returns what to say of a header in which something else stands where commas are expected, else nothing."""
    line = ",".join(names)
    found = [mark for mark in ";\t|" if line.count(mark) >= len(names)]
    return f"; between the columns it has {found[0]!r}, and only commas are read" if found else ""


def read_population(file: PopulationFile, question: Question, grid: Sequence[float] = ()) -> Participants:
    """Reads the participants of a file; a row that cannot be used is left out and named, and the others are not.

    Args:
        file: where the rows are, and how they are read.
        question: what the values answer.
        grid: the budgets of the round; a row that can afford none of them is left out. Empty: not checked.

    Raises:
        ValueError: the file or a column does not exist, or the file has no rows, or none of these.
    """
    path, limit, id_column, where = file.path, file.limit, file.id_column, file.where
    texts = _read_column(path, file.column, limit)
    stated = _read_column(path, file.epsilon_column, limit) if file.epsilon_column else None
    people = _read_column(path, id_column, limit) if id_column else None
    told = _read_column(path, where.column, limit) if where else None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    drawn = random.choices(  # noqa: S311 (which budget a played participant has is not a secret)
        [group.max_local_epsilon for group in file.groups], [group.share for group in file.groups], k=len(texts)
    )
    participants: dict[str, Participant] = {}
    rejected: dict[str, str] = {}
    line_of: dict[str, str] = {}
    clamped: dict[str, float] = {}
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
            outside = _outside(question.mechanism, text) if file.clamp else None
            if outside is not None:
                clamped[person], text = outside
            participants[person] = Participant(question.mechanism.parse_value(text), epsilon)
            line_of[person] = line
        except ValueError as error:
            rejected[line] = f"line {line}: {error}"
    if where and not participants and not rejected:
        raise ValueError(f"no row of {path} has {where}")
    return Participants(participants, rejected, clamped)


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


def column_names(path: Path) -> tuple[str, ...]:
    """Returns the columns of a CSV file; raises ValueError if it cannot be read."""
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return tuple(_names(csv.DictReader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read; it must be a CSV file in UTF-8: {error}") from error


def check_columns(path: Path, wanted: Sequence[str | None]) -> None:
    """Raises ValueError for a file that cannot be read, or lacks a column; None stands for one that is not needed."""
    names = column_names(path)
    for column in wanted:
        if column is not None:
            _check_column(path, column.strip(), names)


def read_groups(path: Path, column: str, limit: int | None) -> list[Rows]:
    """Returns the groups that a column divides the rows into, which every row must name one of.

    Raises:
        ValueError: the file or the column does not exist, a row has no group, or there are fewer than two or too many.
    """
    found = _read_column(path, column, limit)
    for line, text in found:
        if not text.strip():
            raise ValueError(f"{path}: line {line}: {column!r} is empty; every person must be in one group")
    values = sorted({text.strip() for _, text in found})
    if not 2 <= len(values) <= _MAX_CATEGORIES:
        raise ValueError(f"{path}: {column!r} has {len(values)} different values; groups must be 2..{_MAX_CATEGORIES}")
    if "=" in column:
        raise ValueError(f"the column is {column!r}; the name of one that makes groups must be without '='")
    return [Rows(column, value) for value in values]


def guess_question(path: Path, column: str, low: float | None, high: float | None, limit: int | None) -> Question:
    """Returns a question that fits a column: rr for bits, onebit if an interval is given, else krr over its categories.

    The categories are read from the data, which is fine for a demonstration; a real deployment states them beforehand.
    An empty cell is no category.

    Raises:
        ValueError: the column has one value only, or too many, and no interval is given; or only one end of it is; or a
            value cannot be shown to participants.
    """
    name = "".join(character if character.isalnum() else "_" for character in column)
    if (low is None) != (high is None):
        raise ValueError("only one of low and high is given; a mean needs both")
    if low is not None and high is not None:
        return Question(name, OneBit(low, high))
    texts = sorted({text.strip() for _, text in _read_column(path, column, limit)} - {""})
    if not texts:
        raise ValueError(f"{path}: {column!r} has no values")
    if set(texts) <= {"0", "1"}:
        return Question(name, RandomizedResponse())
    hint = "give --low and --high to ask for its mean"
    if len(texts) < 2:
        raise ValueError(f"{path}: {column!r} has one value only, {texts[0]!r}; {hint}")
    if len(texts) > _MAX_CATEGORIES:
        raise ValueError(
            f"{path}: {column!r} has {len(texts):,} different values; it must have at most {_MAX_CATEGORIES}, or {hint}"
        )
    try:
        return Question(name, KaryResponse(len(texts), tuple(texts)))
    except ValueError as error:
        raise ValueError(f"{path}: {column!r} cannot be asked about: {error}") from error
