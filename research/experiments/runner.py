"""Runs figures: every point in a process of a pool, its numbers kept in a file of its own.

The file's name is a digest of all that the numbers depend on: the measurement, the point, the sources that compute it
and the libraries below them. So a run that was stopped goes on where it was, and changed code is run again.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.protocol.names import JsonObject
from croupier.runtime.cluster import Cluster, Sources
from croupier.show.documents import write_json
from research.experiments.figure import Figure, Finding, Point, Row, Settings, Verdict, value_at, worst
from research.plots import plot_experiment

_SOURCES = Sources(
    (
        *(
            f"croupier.{room}"
            for room in ("accountant", "analyzer", "client", "net", "protocol", "runtime", "shuffler")
        ),
        *(
            "research.bench",
            "research.experiments.measures",
            "croupier.deploy.local",
            "croupier.operator",
            "croupier.training",
        ),
    ),
    ("numpy", "scipy"),
)
"""Everything that turns a point into numbers."""


@dataclass(frozen=True)
class Outcome:
    """A figure with its numbers."""

    figure: Figure
    settings: Settings
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the whole figure."""
        return worst(self.findings)

    @property
    def reason(self) -> str:
        """Why, in a few sentences."""
        return " ".join(f"{finding.claim}: {finding.verdict}. {finding.evidence}" for finding in self.findings)

    def document(self) -> JsonObject:
        """Returns everything as JSON; "panels" is what is plotted."""
        figure = self.figure
        return {
            "name": figure.name,
            "paper": figure.paper,
            "title": figure.title,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "findings": [
                {"claim": finding.claim, "verdict": str(finding.verdict), "evidence": finding.evidence}
                for finding in self.findings
            ],
            "size": str(self.settings.size),
            "seed": self.settings.seed,
            "rows": [dict(row) for row in self.rows],
            "panels": [self._panel(index) for index in range(len(figure.panels))],
        }

    def _panel(self, index: int) -> JsonObject:
        panel = self.figure.panels[index]
        rows = [row for row in self.rows if all(value_at(row, key) == is_ for key, is_ in panel.where.items())]
        lines: list[JsonObject] = []
        for line in panel.lines:
            drawn = [(x, y, row) for row in rows for x, y in _points(value_at(row, panel.x), value_at(row, line.key))]
            known = [(x, y, row) for x, y, row in drawn if y is not None]
            below = [[x, y] for x, y, row in known if line.attack and _is_below(y, value_at(row, line.attack))]
            ends = [[value_at(row, end) for end in line.band] for *_, row in known] if line.band else None
            points = [[x, y] for x, y, _ in known]
            lines.append({"label": line.label, "role": line.role, "points": points, "below": below, "band": ends})
        return {
            "title": panel.title + (f" ({value_at(rows[0], panel.said)})" if panel.said and rows else ""),
            "x_label": panel.x_label,
            "y_label": panel.y_label,
            "log": panel.log,
            "lines": lines,
        }


def _points(x: Any, y: Any) -> list[tuple[Any, Any]]:
    """Returns the points of a row: one, or those of two lists."""
    return list(zip(x, y, strict=True)) if isinstance(y, list) else [(x, y)]


def _is_below(value: float, attack: float | None) -> bool:
    # Bounds and attacks are both rounded: what differs by rounding alone refutes nothing.
    return attack is not None and value < attack * (1 - 1e-6)


def run_figures(
    figures: Sequence[Figure],
    out: Path,
    settings: Settings,
    *,
    jobs: int | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[float, float, str], None] = lambda done, total, text: None,
) -> list[Outcome]:
    """Runs figures, and leaves a JSON document and a plot of each in `out`.

    Args:
        figures: which.
        out: a directory; `points` in it holds the numbers that need not be computed again.
        settings: what their points depend on.
        jobs: processes at once; None: as many as there are cores; 1: none but this one.
        cluster: whose workers measure instead, but for what is timed; they must have the files of `settings.data`.
        progress: called with how many points are done, of all, and what was done last.
    """
    wanted = {figure.name: figure.points(settings) for figure in figures}
    tasks = {_key(figure.measure, point): (figure, point) for figure in figures for point in wanted[figure.name]}
    store = out / "points"
    left = {key: task for key, task in tasks.items() if not (store / f"{key}.json").exists()}
    done = len(tasks) - len(left)
    progress(done, len(tasks), "")
    for key, measured in _measured(left, jobs or os.cpu_count() or 1, cluster):
        unfinished = store / f"{key}.new"
        write_json(unfinished, measured)
        unfinished.replace(store / f"{key}.json")
        done += 1
        progress(done, len(tasks), left[key][0].name)
    outcomes = []
    for figure in figures:
        kept = [store / f"{_key(figure.measure, point)}.json" for point in wanted[figure.name]]
        rows = tuple(
            {**point, **json.loads(file.read_text(encoding="utf-8"))}
            for point, file in zip(wanted[figure.name], kept, strict=True)
        )
        outcome = Outcome(figure, settings, rows, tuple(figure.judge(rows)))
        document = outcome.document()
        write_json(out / f"{figure.name}.json", document)
        if document["panels"]:
            plot_experiment(document, out / f"{figure.name}.svg")
        outcomes.append(outcome)
    return outcomes


def _measured(left: dict[str, tuple[Figure, Point]], jobs: int, cluster: Cluster | None) -> Any:
    """Yields (key, numbers) as they come."""
    shared = {key: task for key, task in left.items() if not task[0].alone}
    if (cluster or jobs > 1) and len(shared) > 1:
        with cluster.executor(_SOURCES) if cluster else _processes(min(jobs, len(shared))) as pool:
            under_way = {pool.submit(figure.measure, point): key for key, (figure, point) in shared.items()}
            for future in as_completed(under_way):
                yield under_way.pop(future), future.result()
        left = {key: task for key, task in left.items() if task[0].alone}
    for key, (figure, point) in left.items():
        yield key, figure.measure(point)


def _processes(number: int) -> Executor:
    return ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn"))


def _key(measure: Callable[[Point], Row], point: Point) -> str:
    whole = [measure.__module__, measure.__qualname__, dict(point), _SOURCES.digest()]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]
