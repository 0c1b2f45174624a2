"""The rounds of a demonstration: one for each question and, with groups, for each group.

The questions are about the survey in deploy/examples, or about the columns of a file that are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.population import (
    Participants,
    PopulationFile,
    Rows,
    guess_question,
    read_groups,
    read_population,
)
from croupier.deploy.local.scales import parse_orders
from croupier.deploy.local.sheets import open_table
from croupier.operator.round_settings import RoundSettings, check_settings
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.interval import IntervalMechanism
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


def true_numbers(mechanism: Mechanism, values: Sequence[float]) -> tuple[float, ...]:
    """Returns the share of every category among values, or their mean where there are no categories."""
    categories = range(len(mechanism.categories))
    shares = tuple(sum(value == category for value in values) / len(values) for category in categories)
    return shares or (sum(values) / len(values),)


@dataclass(frozen=True)
class PlannedRound:
    """A round that the demonstration will play.

    Attributes:
        name: the column that is asked about, and the group that is asked.
        asked: the question.
        group: the rows of the file that are asked; None for all.
        population: who takes part.
        settings: of the round.
    """

    name: str
    asked: DemoQuestion
    group: Rows | None
    population: Participants
    settings: RoundSettings

    def truth(self, *, as_answered: bool = False) -> tuple[float, ...]:
        """Returns the share, mean, or share of every category of these very participants, by the values in the file.

        as_answered: by the values that were answered: a value outside the question's interval is clamped to it.
        """
        stated = {} if as_answered else self.population.clamped
        values = [stated.get(name, participant.value) for name, participant in self.population.participants.items()]
        return true_numbers(self.asked.question.mechanism, values)

    def data_notes(self) -> list[str]:
        """Returns a sentence on the values outside the range, and one on the rows that cannot be used."""
        population, mechanism = self.population, self.asked.question.mechanism
        used, rejected = len(population.participants), population.rejected
        rows, notes = used + len(rejected), []
        if isinstance(mechanism, IntervalMechanism):
            scale = f"outside the range from {mechanism.low:g} to {mechanism.high:g}"
            if clamped := len(population.clamped):
                (answered,) = self.truth(as_answered=True)
                notes.append(
                    f"{clamped:,} of {used:,} values ({100 * clamped / used:.1f} %) are {scale} and count as its "
                    f"nearer end: what is estimated is the mean of the values so clamped, {answered:.4f}, and not the "
                    "truth"
                )
            if outside := len(population.outside):
                notes.append(
                    f"{outside:,} of {rows:,} values ({100 * outside / rows:.1f} %) are {scale} and were left out, "
                    "also of the truth; clamp them if they are numbers, and not a code such as 99 for no answer"
                )
        others = [reason for line, reason in rejected.items() if line not in population.outside]
        if others:
            notes.append(f"{len(others):,} of {rows:,} rows were left out, also of the truth; {others[0]}")
        return notes


def plan_demo(
    file: Columns,
    questions: Sequence[DemoQuestion],
    groups: Sequence[BudgetGroup],
    *,
    group_by: str | None = None,
    delta: float,
    clamp: bool,
    hop_noise: float | None = None,
) -> tuple[PlannedRound, ...]:
    """Returns the rounds of a demonstration, before anything is started for them.

    Args:
        file: the participants, one a row.
        questions: at least one.
        groups: what the participants' budgets are drawn from.
        group_by: a column: every question is asked in a round for each of its values.
        delta: the central delta to certify at.
        clamp: numbers outside a question's interval count as its nearer end; else their rows are left out.
        hop_noise: the epsilon that the fakes of one honest hop guarantee in every round; None: hops add none.

    Raises:
        ValueError: the file, a budget or the delta cannot be used.
    """
    grid = tuple(sorted({group.max_local_epsilon for group in groups}))
    among: Sequence[Rows | None] = read_groups(file, group_by) if group_by else [None]
    rounds = []
    for group in among:
        for asked in questions:
            rows = PopulationFile(file, asked.column, groups, clamp=clamp, where=group)
            population = read_population(rows, asked.question, grid)
            _check_enough(file.name, asked, group, population)
            smallest = max(2, min(100, len(population.participants)))
            settings = RoundSettings(
                asked.question,
                grid,
                delta=delta,
                epsilon_max=max(grid),
                min_batch_size=smallest,
                hop_noise=hop_noise,
            )
            check_settings(settings)
            name = f"{asked.column}, {group}" if group else asked.column
            rounds.append(PlannedRound(name, asked, group, population, settings))
    file.clear()
    return tuple(rounds)


def _check_enough(file: str, asked: DemoQuestion, group: Rows | None, population: Participants) -> None:
    """Raises ValueError where a round could not be: it needs two people."""
    usable, of_group = len(population.participants), f" with {group}" if group else ""
    if usable < 2:
        why = f": {next(iter(population.rejected.values()))}" if population.rejected else ""
        raise ValueError(f"{usable} rows of {file}{of_group} can be used for {asked.column!r}; 2 are needed{why}")
