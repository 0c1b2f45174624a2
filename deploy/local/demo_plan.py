"""The rounds of a demonstration: one for each question and, with groups, for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.demo_questions import DemoQuestion
from croupier.deploy.local.population import Participants, PopulationFile, Rows, read_groups, read_population
from croupier.operator.round_settings import RoundSettings, check_settings


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


@dataclass(frozen=True)
class DemoPlan:
    """What a demonstration asks whom, all of it checked.

    Attributes:
        rounds: one after the other.
        delta: the central delta to certify at.
    """

    rounds: tuple[PlannedRound, ...]
    delta: float


def plan_demo(
    file: Columns,
    questions: Sequence[DemoQuestion],
    groups: Sequence[BudgetGroup],
    *,
    group_by: str | None = None,
    delta: float,
    clamp: bool,
    hop_noise: float | None = None,
) -> DemoPlan:
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
    return DemoPlan(tuple(rounds), delta)


def _check_enough(file: str, asked: DemoQuestion, group: Rows | None, population: Participants) -> None:
    """Raises ValueError where a round could not be: it needs two people."""
    usable, of_group = len(population.participants), f" with {group}" if group else ""
    if usable < 2:
        why = f": {next(iter(population.rejected.values()))}" if population.rejected else ""
        raise ValueError(f"{usable} rows of {file}{of_group} can be used for {asked.column!r}; 2 are needed{why}")
