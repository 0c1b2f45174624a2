"""Plots of measurements and experiments, in the style of the commands' plots (`croupier.show.plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from croupier.protocol.names import JsonObject
from croupier.show.drawing import CERTIFIED, COMPARED, MEASURED, OTHERS
from croupier.show.plots import MARKERS, figure_file

_DASHES = ((0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (2.5, 1.2)), (0, (7, 1.5, 2, 1.5)), "-")


def plot_comparison(ratios: Sequence[tuple[str, float]], worse: float, path: Path) -> None:
    """Draws the ratio of each figure to that of the stored run; red from `worse` on."""
    names, values = [name for name, _ in ratios], [ratio for _, ratio in ratios]
    places = range(len(ratios))
    with figure_file(path, 1, width=9.6, height=1.2 + 0.2 * len(ratios)) as (_, ((axes,),)):
        colors = [MEASURED if value >= worse else COMPARED for value in values]
        axes.barh(places, [value - 1 for value in values], left=1, color=colors, height=0.7)
        axes.axvline(1, color="black", lw=1)
        axes.set_yticks(list(places), names, fontsize="small")
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(
            xlabel="cost, times that of the kept run: above 1 is worse", xlim=(min(0.5, *values), max(1.5, *values))
        )


def plot_experiment(document: JsonObject, path: Path) -> None:
    """Draws the panels of an experiment; a black cross marks where a published bound lies below an attack.

    Args:
        document: `research.experiments.runner.Outcome.document()`.
        path: PNG, SVG or PDF.
    """
    panels = [panel for panel in document["panels"] if any(line["points"] for line in panel["lines"])]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with figure_file(path, columns, rows, width=4.8, height=3.3 if rows > 1 else 4.4) as (figure, grid):
        places = [axes for row in grid for axes in row]
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        for panel, axes in zip(panels, places, strict=False):
            _draw_panel(panel, axes)
        shown = [axes.get_legend_handles_labels() for axes in places[: len(panels)]]
        named = {label: handle for handles, labels in shown for handle, label in zip(handles, labels, strict=True)}
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2)


def _draw_panel(panel: JsonObject, axes: Any) -> None:
    drawn = {"certified": 0, "attack": 0, "other": 0, "single": 0}
    crosses = []
    for line in panel["lines"]:
        role, _, chosen = line["role"].partition(" ")
        place = int(chosen) - 1 if chosen else drawn[role]
        drawn[role] += 1
        if line["points"]:
            look = _look(role, place) | {"label": line["label"], "markevery": -(-len(line["points"]) // 6)}
            (curve,) = axes.plot(*zip(*line["points"], strict=True), **look)
            if line["band"]:
                ends = list(zip(*line["band"], strict=True))
                axes.fill_between([x for x, _ in line["points"]], *ends, color=curve.get_color(), alpha=0.2, lw=0)
            crosses += line["below"]
    if crosses:
        style = {"ls": "", "marker": "x", "color": "black", "ms": 8, "mew": 2}
        axes.plot(*zip(*crosses, strict=True), label="a published bound below an attack", **style)
    axes.set(xlabel=panel["x_label"], ylabel=panel["y_label"], title=panel["title"])
    for name, axis, place in (("x", axes.xaxis, 0), ("y", axes.yaxis, 1)):
        if name in panel["log"]:
            axes.set(**{f"{name}scale": "log"})
            _plain_numbers(axis, [point[place] for line in panel["lines"] for point in line["points"]])


def _plain_numbers(axis: Any, values: Sequence[float]) -> None:
    """Labels a logarithmic axis with 0.02, 0.05, 0.1, unless it spans too much for that."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_minor_locator(NullLocator())
    if values and max(values) < 2000 * min(values):
        wide = max(values) > 200 * min(values)
        axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _look(role: str, place: int) -> dict[str, Any]:
    if role == "certified":
        return {"color": CERTIFIED, "lw": 2.4, "marker": "o" if place else None, "ls": "-"}
    if role == "attack":
        return {"color": MEASURED, "lw": 1.5, "marker": "v" if place else None, "ls": (0, (3 if place else 1, 1))}
    if role == "single":
        return {"color": MEASURED, "ls": "", "marker": "D"}
    index = place % len(OTHERS)
    return {"color": OTHERS[index], "lw": 1.3, "ls": _DASHES[index], "marker": MARKERS[index], "ms": 4}
