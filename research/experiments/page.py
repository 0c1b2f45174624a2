"""docs/experiments.md: every verdict in one table, then each figure with its claims, its plot and its numbers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from croupier.protocol.rounding import round_down, round_up
from research.experiments.figure import Column, value_at
from research.experiments.runner import Outcome

_ROWS_SHOWN = 40


def write_experiments_page(outcomes: Sequence[Outcome], out: Path, page: Path) -> None:
    """Writes the page, and the plots that lie in `out` into a folder beside it that is named as the page."""
    runs = " ".join(
        dict.fromkeys(f"size {outcome.settings.size}, seed {outcome.settings.seed}" for outcome in outcomes)
    )
    lines = [
        "# The papers' experiments, repeated",
        "",
        "This page repeats the experiments of three papers and says what came out as the paper says (*reproduced*) and",
        "what an attack or an exact value contradicts (*refuted*). It is for readers who want to know which published",
        "figures they can rely on.",
        "",
        f"Every number and verdict is the output of `croupier experiment all --page docs/experiments.md` ({runs};",
        "sizes are quick, normal, full). All users are simulated, with randomness from a seed; images are those of",
        "public data sets. Only the rounds of GSPA's Figure 3 and of *throughput* go through a deployment, on one",
        "machine. Size full takes about 40 minutes of processor time.",
        "Every ε carries its [grade](accounting.md); being printed here does not make a published figure a guarantee.",
        "A run that was stopped goes on where it was; `--scheduler tls://HOST:PORT` measures on a",
        "[Dask cluster](cluster.md), whose workers have the same version of croupier, and the files of `--data` at the",
        "same place.",
        "",
        "| experiment | of | what it shows | verdict |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{figure.name}](#{figure.name}) | {figure.paper} | {figure.title} | **{verdict}** |"
        for figure, verdict in ((outcome.figure, outcome.verdict) for outcome in outcomes)
    ]
    for outcome in outcomes:
        lines += _section(outcome, page)
        if outcome.figure.panels:
            plots = page.with_suffix("")
            plots.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / f"{outcome.figure.name}.svg", plots / f"{outcome.figure.name}.svg")
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(outcome: Outcome, page: Path) -> list[str]:
    figure = outcome.figure
    lines = [
        "",
        f"## {figure.name}",
        "",
        f"**{figure.paper}, {figure.title}: {outcome.verdict}.** {figure.how}",
        "",
        "| claim | verdict | what came out |",
        "|---|---|---|",
        *(f"| {finding.claim} | {finding.verdict} | {finding.evidence} |" for finding in outcome.findings),
    ]
    if figure.panels:
        lines += ["", f"![{figure.title}]({page.stem}/{figure.name}.svg)"]
    lines += ["", *_numbers(outcome)]
    return lines


def _numbers(outcome: Outcome) -> list[str]:
    columns, rows = outcome.figure.columns, outcome.rows
    kept = rows[:: -(-len(rows) // _ROWS_SHOWN)]
    return [
        "| " + " | ".join(column.header for column in columns) + " |",
        "|---" * len(columns) + "|",
        *("| " + " | ".join(number(value_at(row, column.key), column) for column in columns) + " |" for row in kept),
    ]


def number(value: Any, column: Column) -> str:
    """Returns a value as its column shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if column.rounding:
        return (round_up if column.rounding == "up" else round_down)(value, column.digits)
    return f"{value:.{column.digits}g}"
