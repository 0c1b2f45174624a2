"""`croupier quantile`: a quantile of a number in a large range, through a whole deployment on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.cli.console import DEMONSTRATE, Json, note, note_left_out, plain_errors, show
from croupier.cli.option_groups import with_option_groups

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the command of this module to the command line."""
    app.command(rich_help_panel=DEMONSTRATE)(with_option_groups(quantile))


@dataclass(frozen=True)
class NumberOptions:
    """Options of 'quantile': whose numbers."""

    csv: Annotated[Path, typer.Option(help="The people, one a row: CSV, or Excel (.xlsx).")]
    value_column: Annotated[str, typer.Option(help="The column of the numbers.")]
    low: Annotated[float, typer.Option(help="The smallest possible number.")]
    high: Annotated[float, typer.Option(help="The largest possible number.")]
    clamp: Annotated[
        bool,
        typer.Option("--clamp", help="Count numbers outside LOW..HIGH as the nearer end, instead of leaving them out."),
    ] = False
    budgets: Annotated[str, typer.Option(help="Groups epsilon:share that the people's budgets are drawn from.")] = "1:1"


@dataclass(frozen=True)
class SearchOptions:
    """Options of 'quantile': which quantile, and how it is searched."""

    q: Annotated[float, typer.Option("--quantile", help="The part of the people, above 0 and below 1.")] = 0.5
    groups: Annotated[
        int, typer.Option(help="How many groups of people; each is asked one yes/no question, at least 2.")
    ] = 12
    logarithmic: Annotated[
        bool, typer.Option("--logarithmic", help="Halve the logarithms of the numbers; low must be above 0.")
    ] = False


def quantile(
    numbers: NumberOptions,
    search: SearchOptions,
    hops: Annotated[int, typer.Option(help="The number of shufflers.")] = 2,
    hop_noise: Annotated[
        float | None, typer.Option(help="Every hop adds fake reports: the epsilon that one honest hop guarantees.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The central delta to certify at, 0 < delta <= 0.1.")] = DEFAULT_DELTA,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="A running deployment, which keeps the result; one on loopback if not given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find a quantile in a large range: each person's device draws a group, and every group is asked one question.

    All rounds together cost a person what the round of their own group costs.
    """
    with plain_errors(extra="demo"):
        import asyncio

        from croupier.analyzer.quantile_search import QuantileSearch
        from croupier.deploy.local.budget_groups import parse_budget_groups
        from croupier.deploy.local.population import PopulationFile, read_population
        from croupier.deploy.local.processes import temporary_deployment
        from croupier.deploy.local.quantiles import FoundQuantile, drawn_groups, search_quantile
        from croupier.deploy.local.sheets import open_table
        from croupier.operator.quantiles import check_search_is_new, keep_search
        from croupier.operator.round_settings import RoundSettings
        from croupier.protocol.mechanisms import OneBit
        from croupier.protocol.questions import Question
        from croupier.show.quantile_search import quantile_json, quantile_sentence, steps_table

        searched = QuantileSearch(search.q, numbers.low, numbers.high, search.groups, logarithmic=search.logarithmic)
        parsed = parse_budget_groups(numbers.budgets)
        grid = tuple(sorted({group.max_local_epsilon for group in parsed}))
        name = "".join(character if character.isalnum() else "_" for character in numbers.value_column)
        if directory is not None:
            check_search_is_new(directory, name)
        question = Question(name, OneBit(numbers.low, numbers.high))
        rows = PopulationFile(open_table(numbers.csv), numbers.value_column, parsed, clamp=numbers.clamp)
        people = read_population(rows, question, grid)
        note_left_out(people.rejected)
        drawn_groups(people.participants, search.groups)  # too few people are missed before anything starts
        settings = RoundSettings(
            question,
            grid,
            delta=delta,
            epsilon_max=max(grid),
            min_batch_size=2,
            hop_noise=hop_noise,
        )

        def searched_in(place: Path) -> FoundQuantile:
            return asyncio.run(
                search_quantile(
                    place,
                    searched,
                    people.participants,
                    settings,
                    lambda step: note(
                        f"at most {step.threshold:.6g}: {100 * step.share:.1f} % of {step.people:,} people of one group"
                    ),
                )
            )

        if directory is not None:
            result = searched_in(directory)
        else:
            note(f"starting {hops} shufflers, the accountant and the analyzer, each in its own process, over TLS …")
            with temporary_deployment(hops) as local:
                result = searched_in(local.directory)
        document = quantile_json(name, result.quantile, result.guarantee, result.rounds)
        if directory is not None:
            keep_search(directory, document)
        show(as_json, document, steps_table(document), quantile_sentence(document))
