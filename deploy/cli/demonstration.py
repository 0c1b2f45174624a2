"""Commands that show what the system does: the demonstration, and the benchmark."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.console import Json, plain_errors, show

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    app.command()(demo)
    app.command()(bench)


def demo(
    csv: Annotated[Path | None, typer.Option(help="A file of your own, one row a person.")] = None,
    value_column: Annotated[str | None, typer.Option(help="The column to ask about.")] = None,
    low: Annotated[float | None, typer.Option(help="For a mean: the smallest possible value.")] = None,
    high: Annotated[float | None, typer.Option(help="For a mean: the largest possible value.")] = None,
    users: Annotated[int | None, typer.Option(help="Use the first so many rows.")] = None,
    budgets: Annotated[
        str, typer.Option(help="Groups epsilon:share that users' wishes are drawn from; shares are relative.")
    ] = "0.5:54,1:37,2:9",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    delta: Annotated[float, typer.Option(help="The central delta to certify at, above 0, at most 0.1.")] = 1e-6,
    plot: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path("out/demo.png"),
    as_json: Json = False,
) -> None:
    """Run a whole deployment on loopback and answer questions about real people."""
    from rich.console import Console

    from deploy.local.demo import SURVEY, SURVEY_QUESTIONS, DemoQuestion, demo_json, run_demo
    from deploy.local.people import guess_question, parse_wishes
    from deploy.local.processes import LocalDeployment
    from deploy.render import demo_table, plot_demo, privacy_table, stage_table

    say = Console(stderr=True)
    with plain_errors(), tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        questions: tuple[DemoQuestion, ...] = SURVEY_QUESTIONS
        if csv is not None or value_column is not None:
            if csv is None or value_column is None:
                raise ValueError("a file of your own needs both --csv and --value-column")
            questions = (DemoQuestion(guess_question(csv, value_column, low, high, users), value_column),)
        wishes = parse_wishes(budgets)
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        say.print(f"starting {hops} shufflers, the accountant and the analyzer, each in its own process, over TLS …")
        try:
            local.up()
            answers = asyncio.run(
                run_demo(local.directory, csv or SURVEY, questions, wishes, limit=users, delta=delta, quiet=as_json)
            )
        finally:
            local.down()
        result = demo_json(answers)
        plot_demo(result, plot)
        show(as_json, result, demo_table(result), privacy_table(result), stage_table(result), f"plot: {plot}")


def bench(
    users: Annotated[str, typer.Option(help="Numbers of users, separated by commas.")] = "100,1000,10000,100000",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    out: Annotated[Path, typer.Option(help="Directory for bench.json and bench.png.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Measure throughput against the number of users, beside the bare cryptography."""
    from rich.console import Console

    from deploy.bench.throughput import bench as measure
    from deploy.local.processes import LocalDeployment
    from deploy.render import bench_table, plot_bench

    say = Console(stderr=True)
    with plain_errors(), tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        try:
            sizes = [int(float(part)) for part in users.split(",")]
        except ValueError as error:
            raise ValueError(f"users is {users!r}; whole numbers separated by commas are expected") from error
        if min(sizes) < 2:
            raise ValueError(f"users is {users!r}; at least 2 are needed")
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        try:
            local.up()
            result = asyncio.run(
                measure(
                    local.directory,
                    sizes,
                    lambda row: say.print(
                        f"{row['users']:,} users: {row['wall_s']:.2f} s, {row['ratio_to_floor']:.2f} of the floor"
                    ),
                )
            )
        finally:
            local.down()
        plot_bench(result["rows"], out / "bench.png")
        (out / "bench.json").write_text(json.dumps(result, indent=1))
        show(as_json, result, bench_table(result["rows"]), f"{out / 'bench.json'}, {out / 'bench.png'}")
