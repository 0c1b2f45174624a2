"""People from a CSV file: one row a user, with a value for the question and a wished local budget."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from client.submission import Participant
from protocol.mechanisms import KaryResponse, OneBit, RandomizedResponse
from protocol.questions import Question

__all__ = ["DEFAULT_WISHES", "People", "WishGroup", "guess_question", "parse_wishes", "read_people"]


@dataclass(frozen=True)
class WishGroup:
    """A share of the users, and the local epsilon that they wish for."""

    epsilon: float
    share: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"a group's epsilon is {self.epsilon}; allowed are finite numbers above 0")
        if not (math.isfinite(self.share) and self.share > 0):
            raise ValueError(f"a group's share is {self.share}; allowed are finite numbers above 0")


# The conservative, the moderate and the liberal of GSPA's experiments.
DEFAULT_WISHES = (WishGroup(0.5, 0.54), WishGroup(1.0, 0.37), WishGroup(2.0, 0.09))


def parse_wishes(text: str) -> tuple[WishGroup, ...]:
    """Returns groups from "epsilon:share,epsilon:share"; shares are relative to each other.

    Raises:
        ValueError: naming the part that cannot be read.
    """
    groups = []
    for part in text.split(","):
        epsilon, _, share = part.partition(":")
        try:
            groups.append(WishGroup(float(epsilon), float(share or 1)))
        except ValueError as error:
            raise ValueError(
                f"budgets has the part {part!r}; expected is epsilon:share, as in 0.5:54 ({error})"
            ) from error
    return tuple(groups)


@dataclass(frozen=True)
class People:
    """Users by line of the file, their true values, and the lines that could not be used with the reason."""

    users: dict[str, Participant]
    rejected: dict[str, str]


def read_column(path: Path, column: str, limit: int | None = None) -> list[tuple[str, str]]:
    """Returns (line, text) of a column.

    Raises:
        ValueError: no such file or column, or no rows.
    """
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            names = rows.fieldnames or ()
            wanted = zip(rows, range(limit or 1 << 62), strict=False)
            found = [(str(rows.line_num), row.get(column) or "") for row, _ in wanted]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from error
    if column not in names:
        raise ValueError(f"{path} has no column {column!r}; its columns are {', '.join(names)}")
    if not found:
        raise ValueError(f"{path} has no rows")
    return found


def read_people(
    path: Path,
    column: str,
    question: Question,
    wishes: Sequence[WishGroup] = DEFAULT_WISHES,
    *,
    epsilon_column: str | None = None,
    limit: int | None = None,
) -> People:
    """Reads the users of a file; a row that cannot be used is left out and named, and disturbs nobody else.

    Args:
        wishes: the groups that users' wishes are drawn from, if no column states them.
        epsilon_column: where each user's wish stands.
        limit: use the first so many rows.

    Raises:
        ValueError: no such file or column, or no rows.
    """
    texts = read_column(path, column, limit)
    stated = read_column(path, epsilon_column, limit) if epsilon_column else None
    drawn = random.choices(  # noqa: S311 (plays people's wishes; protects nobody)
        [group.epsilon for group in wishes], [group.share for group in wishes], k=len(texts)
    )
    users: dict[str, Participant] = {}
    rejected: dict[str, str] = {}
    for index, (line, text) in enumerate(texts):
        try:
            wish = float(stated[index][1]) if stated else drawn[index]
            if not (math.isfinite(wish) and wish > 0):
                raise ValueError(f"the wished epsilon is {wish}; allowed are finite numbers above 0")
            users[line] = Participant(question.mechanism.parse_value(text), wish)
        except ValueError as error:
            rejected[line] = f"line {line}: {error}"
    return People(users, rejected)


def guess_question(path: Path, column: str, low: float | None, high: float | None, limit: int | None) -> Question:
    """Returns a question that fits a column: rr for bits, onebit if an interval is given, else krr over its letters.

    The letters are read from the data, which is fine for a demonstration; a real deployment states them beforehand.

    Raises:
        ValueError: too many different values for letters and no interval.
    """
    name = "".join(letter if letter.isalnum() else "_" for letter in column)
    if low is not None and high is not None:
        return Question(name, OneBit(low, high))
    texts = sorted({text.strip() for _, text in read_column(path, column, limit)})
    if set(texts) <= {"0", "1"}:
        return Question(name, RandomizedResponse())
    if len(texts) < 2:
        raise ValueError(f"{column!r} has one value only, {texts[0]!r}; give --low and --high to ask for its mean")
    if len(texts) > 64:
        raise ValueError(f"{column!r} has {len(texts)} different values; give --low and --high to ask for its mean")
    return Question(name, KaryResponse(len(texts), tuple(texts)))
