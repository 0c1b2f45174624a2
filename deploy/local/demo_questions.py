"""What a demonstration asks: about the survey in deploy/examples, or about the columns of a file that are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.local.columns import Columns
from croupier.deploy.local.population import guess_question
from croupier.deploy.local.scales import parse_orders
from croupier.deploy.local.sheets import open_table
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question

SURVEY = Path(__file__).parents[1] / "examples" / "affairs.csv"


@dataclass(frozen=True)
class DemoQuestion:
    """A question, and the column of the file that holds the participants' values."""

    question: Question
    column: str


SURVEY_QUESTIONS = (
    DemoQuestion(Question("had_affair", RandomizedResponse()), "had_affair"),
    DemoQuestion(Question("rate_marriage", KaryResponse(5, ("1", "2", "3", "4", "5"))), "rate_marriage"),
    DemoQuestion(Question("yrs_married", OneBit(0.0, 25.0)), "yrs_married"),
)


def ask_about(
    path: Path | None,
    columns: Sequence[str],
    low: float | None,
    high: float | None,
    limit: int | None,
    ordered: Sequence[str] = (),
) -> tuple[Columns, tuple[DemoQuestion, ...]]:
    """Returns the file to read, and the questions: those about the survey, or one for each column of another file.

    Args:
        path: the CSV file; None, with no column either, for the survey.
        columns: to ask about, each "COLUMN", "COLUMN:LOW:HIGH" for a mean, or "COLUMN:LOW:HIGH:LEVELS" for the
            distribution of a number, too.
        low: for a mean, the smallest possible value, where there is one column.
        high: for a mean, the largest possible value.
        limit: how many rows to use, from the first; None for all.
        ordered: orders of categories, each such as "never;sometimes;often".

    Raises:
        ValueError: one of file and column is missing, a column is named twice, an order fits no column, or no question
            fits a column.
    """
    if path is None and not columns:
        return open_table(SURVEY, limit), SURVEY_QUESTIONS
    if path is None or not columns:
        raise ValueError("a file of your own needs both --csv and --value-column")
    if len(columns) > 1 and (low is not None or high is not None):
        raise ValueError("--low and --high are for one column; of several write --value-column COLUMN:LOW:HIGH")
    file = open_table(path, limit)
    return file, questions_on(file, columns, low, high, ordered)


def questions_on(
    file: Columns, columns: Sequence[str], low: float | None, high: float | None, ordered: Sequence[str]
) -> tuple[DemoQuestion, ...]:
    """Returns a question for each column of a table; see `ask_about`."""
    orders, asked = parse_orders(ordered), []
    for text in columns:
        column, least, most, levels = text.strip(), low, high, None
        match = re.fullmatch(r"(.+?):([^:]+):([^:]+?)(?::([0-9]+))?", text)
        if match and column not in file.names:
            column, least, most = match[1].strip(), _number(match[2]), _number(match[3])
            levels = int(match[4]) if match[4] else None
        asked.append(DemoQuestion(guess_question(file, column, least, most, orders, levels), column))
    if len({demo_question.column for demo_question in asked}) < len(asked):
        raise ValueError("a column is named twice; each is asked about once")
    for order in orders:
        if order not in {demo_question.question.mechanism.categories for demo_question in asked}:
            raise ValueError(f"ordered is {';'.join(order)!r}; no column that is asked about has only these values")
    return tuple(asked)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number; a mean is COLUMN:LOW:HIGH") from error
