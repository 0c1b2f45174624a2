"""Commands that show what the system does: the demonstration, and the throughput of a deployment."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.cli.console import Hops, Json, note, note_left_out, progress_bar, progress_of, show
from croupier.cli.mechanism_options import HopNoiseOption
from croupier.cli.web import serve_page
from croupier.deploy.local.budget_groups import GSPA_BUDGETS, HOP_NOISE_BUDGETS, parse_budget_groups
from croupier.deploy.local.demo import run_demo
from croupier.deploy.local.demo_plan import ask_about, plan_demo
from croupier.deploy.local.demo_study import Truth, play_study, study_file
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.local.throughput import conditions, kept_rows, measure_throughput, seconds_left
from croupier.operator.keys import check_hops
from croupier.protocol.names import JsonObject
from croupier.show.blocks import Block
from croupier.show.demonstration import (
    answers_blocks,
    composition_lines,
    privacy_cost_table,
    stage_seconds_table,
)
from croupier.show.documents import write_json
from croupier.show.plots import check_plot_file, plot_answers, plot_study, plot_throughput
from croupier.show.study_results import study_blocks
from croupier.show.text import counted
from croupier.show.throughput import throughput_table

_WORTH = (
    "Here one machine has everything, and the truth is shown beside the estimate: the ε is what people would be "
    "promised if several organisations ran these servers."
)
"""What the numbers of a demonstration are worth to the people in its file."""


@Parameter(name="*", group="A file of people")
@dataclass(frozen=True)
class FileOptions:
    """Options of 'demo': which file, and what is asked about it."""

    csv: Annotated[Path | None, Parameter(help="A file of your own, one participant a row: CSV, or Excel (.xlsx).")] = (
        None
    )
    value_column: Annotated[
        list[str] | None,
        Parameter(help="A column to ask about; for a mean also COLUMN:LOW:HIGH. May be repeated: a round for each."),
    ] = None
    group_by: Annotated[
        str | None, Parameter(help="Ask in a round for each value of this column; who is in which group is public.")
    ] = None
    low: Annotated[float | None, Parameter(help="For a mean: the smallest possible value.")] = None
    high: Annotated[float | None, Parameter(help="For a mean: the largest possible value.")] = None
    clamp: Annotated[
        bool, Parameter(help="Count values outside LOW..HIGH as the nearer end, instead of leaving them out.")
    ] = False
    ordered: Annotated[
        list[str] | None,
        Parameter(
            help="The order of categories, such as 'never;sometimes;often', for each column that has only these. Usual "
            "scales are recognised. May be repeated."
        ),
    ] = None
    users: Annotated[int | None, Parameter(help="How many rows to use, from the first; all if not given.")] = None
    study: Annotated[
        bool, Parameter(help="Play a study instead: five questions in four waves, with a known trend.")
    ] = False


def demo(
    *,
    asked: FileOptions = FileOptions(),
    noise: HopNoiseOption = HopNoiseOption(),
    budgets: Annotated[
        str | None,
        Parameter(
            help="Groups epsilon:share that the participants' budgets are drawn from; shares are relative. Default: "
            f"{GSPA_BUDGETS}, with --hop-noise {HOP_NOISE_BUDGETS}."
        ),
    ] = None,
    hops: Hops = 2,
    delta: Annotated[float, Parameter(help="The central delta to certify at, 0 < delta <= 0.1.")] = DEFAULT_DELTA,
    plot: Annotated[Path, Parameter(help="Where to save the plot (PNG, SVG or PDF); its directory is made.")] = Path(
        "out/demo.png"
    ),
    open_page: Annotated[
        bool, Parameter("--open", help="Watch it on a page in the browser, which stays until Ctrl-C.")
    ] = False,
    verbose: Annotated[
        bool, Parameter(help="Also show the published figure of GSPA, the throughput, and stage times.")
    ] = False,
    as_json: Json = False,
) -> None:
    if open_page:
        import croupier.console.server  # noqa: F401 (an extra that is missing is missed before anything starts)
    check_hops(hops)
    check_plot_file(plot)
    if asked.study:
        _demo_study(hops, plot, as_json)
        return
    file, questions = ask_about(
        asked.csv, asked.value_column or (), asked.low, asked.high, asked.users, asked.ordered or ()
    )
    plan = plan_demo(
        file,
        questions,
        parse_budget_groups(budgets or (HOP_NOISE_BUDGETS if noise.is_given else GSPA_BUDGETS)),
        group_by=asked.group_by,
        delta=delta,
        clamp=asked.clamp,
        **asdict(noise),
    )
    if file.assumed:
        note(file.assumed)
    for planned in plan:
        note_left_out(planned.population.rejected)
    started = f"starting {counted(hops, 'shuffler')}, the accountant and the analyzer"
    note(f"{started}, each in its own process, over TLS …")
    with temporary_deployment(hops) as local:

        async def play() -> None:
            with progress_bar() as move:

                def progress(name: str, done: int, total: int) -> None:
                    progress_of(move, name)(done, total)

                result = await run_demo(local.directory, plan, progress)
            plot_answers(result, plot)
            cost: tuple[Block | str, ...] = (privacy_cost_table(result, verbose=verbose), *composition_lines(result))
            times = [stage_seconds_table(result)] if verbose else []
            show(as_json, result, *answers_blocks(result), *cost, _WORTH, *times, f"plot: {plot}")

        if open_page:
            serve_page(local.directory, work=play, open_page=True)
        else:
            asyncio.run(play())


def _demo_study(hops: int, plot: Path, as_json: bool) -> None:
    """Plays the study of the demonstration, and draws it with the truth beside it."""
    with temporary_deployment(hops) as local:
        played = asyncio.run(play_study(local.directory, note))
    rows = played.results["rows"]
    plot_study(rows, {question.name: question.question for question in study_file().questions}, plot, played.truth)
    last = [each for each in played.results["differences"] if each["wave"] == len(played.results["waves"])]
    missed = sum(not _holds(row, played.truth) for row in rows)
    show(
        as_json,
        {**played.results, "truth": [{"question": q, "value": v, "waves": t} for (q, v), t in played.truth.items()]},
        *study_blocks(played.results | {"differences": last}),
        f"{len(rows) - missed} of the {len(rows)} intervals (95 %) contain the truth.",
        _WORTH,
        f"plot: {plot}",
    )


def _holds(row: JsonObject, truth: Truth) -> bool:
    """Whether the interval of a number contains the truth of its wave."""
    if row["low"] is None or row["high"] is None:
        return False
    return bool(row["low"] <= truth[row["question"], row["value"]][row["wave"]] <= row["high"])


def bench(
    *,
    users: Annotated[str, Parameter(help="Numbers of users, separated by commas.")] = "100,1000,10000,100000",
    hops: Hops = 2,
    out: Annotated[Path, Parameter(help="Directory for bench.json and bench.png.")] = Path("out"),
    times: Annotated[int, Parameter(help="Rounds of each size, the floor in between; the median is shown.")] = 1,
    resume: Annotated[
        bool, Parameter(help="Keep what bench.json has of these numbers, and measure the others.")
    ] = False,
    as_json: Json = False,
) -> None:
    try:
        sizes = [int(float(part)) for part in users.split(",")]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"users is {users!r}; it must be whole numbers separated by commas") from error
    file = out / "bench.json"
    rows = kept_rows(json.loads(file.read_text(encoding="utf-8")), sizes, hops) if resume and file.exists() else []
    for row in rows:
        note(f"{row['users']:,} users: kept from {file}")

    def keep(row: JsonObject) -> None:
        rows.append(row)
        write_json(file, {**conditions(hops), "rows": rows})
        left = f"; about {times * seconds_left(rows, sizes) / 60:.0f} min left" if len(rows) < len(set(sizes)) else ""
        note(f"{row['users']:,} users: {row['wall_s']:.2f} s, {row['ratio_to_floor']:.2f} of the floor{left}")

    missing = [size for size in sizes if size not in {row["users"] for row in rows}]
    if missing:
        with progress_bar(transient=True) as move:
            measure_throughput(missing, hops, keep, lambda done, size: move(done, size, f"{size:,} users"), times)
    rows.sort(key=lambda row: sizes.index(row["users"]))  # those that were kept are among the others
    write_json(file, {**conditions(hops), "rows": rows})
    plot_throughput(rows, out / "bench.png")
    show(as_json, {**conditions(hops), "rows": rows}, throughput_table(rows), f"{file}, {out / 'bench.png'}")
