"""One table of what has been measured, beside the run that was kept last: medians, ratios, and the machine of each.

The figures are taken from the documents that the benches write. A ratio is a cost over the cost before: above 1 is
worse, whatever the unit. Between two machines it says nothing about the program.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.protocol.names import JsonObject
from research.bench.load import load_lines
from research.bench.stores import store_lines

KEPT = ("benchmarks.json", "load.json", "stores.json")
"""What is kept of a run: all that the page is made of."""

WORSE = 1.15
"""From this ratio on a figure is pointed out."""
_LARGER_IS_BETTER = ("users/s", "envelopes/s", "of the floor", "MB/s", "bodies/s")


@dataclass(frozen=True)
class BenchmarkChange:
    """A figure, its unit, its median now, and that of the run that was kept; None where that run did not have it."""

    name: str
    unit: str
    now: float
    before: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as costly it is as before; None where that is not known."""
        if not self.before or not self.now:
            return None
        return self.before / self.now if self.unit in _LARGER_IS_BETTER else self.now / self.before


def machine() -> JsonObject:
    """Returns what a figure depends on beside the program."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        memory = 0
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


Figures = Mapping[str, tuple[float, str]]
"""(value, unit) by name."""


def figures_of(folder: Path) -> Figures:
    """Returns all that the documents in a folder say; benches that have not run are left out.

    Where a bench has measured the same several times, the median.
    """
    return _medians(
        (name, value, unit)
        for file, read in _READERS.items()
        if (folder / file).exists()
        for name, value, unit in read(json.loads((folder / file).read_text(encoding="utf-8")))
    )


def _medians(figures: Iterable[tuple[str, float, str]]) -> Figures:
    values: dict[str, list[tuple[float, str]]] = {}
    for name, value, unit in figures:
        values.setdefault(name, []).append((value, unit))
    return {name: (statistics.median(value for value, _ in pairs), pairs[0][1]) for name, pairs in values.items()}


Read = Iterator[tuple[str, float, str]]


def _certificates(rows: Sequence[Mapping[str, Any]]) -> Read:
    for row in rows:
        yield f"certificate, {row['case']}", row["processor_s"], "CPU s"


def _throughput(document: Mapping[str, Any]) -> Read:
    for row in document["rows"]:
        size, hop_1 = f"{row['users']:,} users", row["peak_memory_bytes"]["shuffler-1"]
        yield f"{size}, end to end", row["users_per_s"], "users/s"
        yield f"{size}, end to end, in one run", row["ratio_to_floor"], "of the floor"
        yield f"{size}, from close to result", row["close_s"], "s"
        yield "tickets of a user, at the client", 1e6 * row["floor_cpu_s_per_user"]["tickets_client"], "CPU µs/user"
        accountant_s = row["floor_cpu_s_per_user"]["tickets_accountant"]
        yield "tickets of a user, at the accountant", 1e6 * accountant_s, "CPU µs/user"
        yield f"{size}, all processes", 1000 * sum(row["cpu_s"].values()) / row["users"], "CPU ms/user"
        yield f"{size}, peak memory of hop 1", hop_1 / 1e6, "MB"
        yield f"{size}, disk", row["disk_bytes_per_user"], "bytes/user"


def _scaling(document: Mapping[str, Any]) -> Read:
    for row in document["rows"]:
        yield f"a cluster of {row['workers']} workers", row["items_per_s"], "envelopes/s"


def _load(document: Mapping[str, Any]) -> Read:
    for row in document["rows"]:
        name = f"{row['clients']:,} clients, {row['at_once']:,} at once, {row['bad']} bad peers"
        yield f"{name}: half have submitted", row["all_s"]["0.5"], "s"
        yield f"{name}: 99 % have submitted", row["all_s"]["0.99"], "s"
        yield f"{name}: half of the submissions are answered", row["submit_s"]["0.5"], "s"
        yield f"{name}: 99 % of the submissions are answered", row["submit_s"]["0.99"], "s"
        yield f"{name}: hop 1", 1000 * row["cpu_s"] / row["clients"], "CPU ms/user"
        yield f"{name}: memory of hop 1", row["memory_bytes"] / 1e6, "MB"


def _stores(document: Mapping[str, Any]) -> Read:
    for row in document["rows"]:
        name = f"{row['store']}, {row['bodies']:,} bodies"
        yield f"{name}: commit of 30", 1000 * row["commits"]["30"]["median_s"], "ms"
        yield f"{name}: kept in commits of 1,000", row["fill"]["bodies_per_s"], "bodies/s"
        yield f"{name}: opened", row["opening_bytes_per_s"] / 1e6, "MB/s"
        yield f"{name}: disk", row["bytes_per_body"], "bytes/user"
        yield f"{name}: longest wait for its erasure", row["longest_wait_s"], "s"


_READERS: dict[str, Callable[[Any], Read]] = {
    "accountant.json": _certificates,
    "bench.json": _throughput,
    "cluster.json": _scaling,
    "load.json": _load,
    "stores.json": _stores,
}


def add_run(document: JsonObject | None, figures: Figures) -> JsonObject:
    """Returns the document of all runs on this machine with one more, if it is a new one.

    Args:
        document: of earlier runs; those of another machine are dropped.
        figures: see `figures_of`.
    """
    here, run = machine(), {name: [value, unit] for name, (value, unit) in figures.items()}
    runs = document["runs"] if document and document["machine"] == here else []
    return {"machine": here, "runs": runs if run in runs else [*runs, run]}


def _medians_of(document: JsonObject) -> Figures:
    return _medians((name, value, unit) for run in document["runs"] for name, (value, unit) in run.items())


def compare(now: JsonObject, before: JsonObject | None) -> list[BenchmarkChange]:
    """Returns every figure of the runs `now` beside those `before`; both as `add_run` returns them."""
    old = _medians_of(before) if before else {}
    return [
        BenchmarkChange(name, unit, value, old[name][0] if name in old else None)
        for name, (value, unit) in _medians_of(now).items()
    ]


def page_parts(folder: Path) -> dict[str, list[str]]:
    """Returns the parts of docs/benchmarks.md that the documents in a folder give."""
    runs = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    rows = [f"| {name} | {_number(value)} | {unit} |" for name, (value, unit) in _medians_of(runs).items()]
    parts = {"measured": [_place(runs), "", "| measured | median | |", "|---|---|---|", *rows, ""]}
    for name, lines_of in (("load", load_lines), ("stores", store_lines)):
        file = folder / f"{name}.json"
        if file.exists():
            parts[name] = [*lines_of(json.loads(file.read_text(encoding="utf-8"))), ""]
    return parts


def comparison_lines(now: JsonObject, before: JsonObject | None) -> list[str]:
    """Returns a Markdown table of `compare`, and above it the machines."""
    lines = [f"Now: {_place(now)}", ""]
    if before:
        lines += [f"Kept: {_place(before)}", ""]
    if before and before["machine"] != now["machine"]:
        lines += ["**These are two machines: the ratios are about them, too.**", ""]
    lines += ["| measured | | kept | now | ratio, above 1 is worse |", "|---|---|---|---|---|"]
    for row in compare(now, before):
        kept = "" if row.before is None else _number(row.before)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        marked = f"**{ratio}**" if row.ratio and row.ratio >= WORSE else ratio
        lines.append(f"| {row.name} | {row.unit} | {kept} | {_number(row.now)} | {marked} |")
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _place(document: Mapping[str, Any]) -> str:
    where, runs = document["machine"], len(document["runs"])
    times = "one run" if runs == 1 else f"medians of {runs} runs"
    return (
        f"{where['processor']}, {where['cores']} cores, {where['memory_gb']} GB, {where['system']}, "
        f"Python {where['python']}; {times}."
    )
