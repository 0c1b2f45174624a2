"""Plots of certificates and curves with matplotlib, which is loaded at the first drawing.

Certified values are blue, measured ones, such as an attack, red, and those for comparison grey. The plots of commands
are in `plots`, in the same colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CERTIFIED, MEASURED, COMPARED = "#2a6f97", "#b8336a", "#c9d6df"
OTHERS = ("#e09f3e", "#6a994e", "#7b5ea7", "#2a9d8f", "#8d6b4f", "#5c677d")


def _axes(axes: Any) -> Any:
    """Returns the given axes, or those of a new figure.

    Raises ValueError for anything but axes, and an ImportError that names the extra if matplotlib is missing.
    """
    if axes is not None:
        if not hasattr(axes, "barh"):
            raise ValueError(
                f"axes is {axes!r}; it must be matplotlib axes, or left out: plot().figure.savefig(path) saves a plot"
            )
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib; it comes with 'croupier[plots]'") from error
    return Figure(figsize=(6.4, 4.4), layout="constrained").subplots()


def draw_curve(
    name: str,
    certified: Sequence[tuple[float, float]],
    between: Sequence[tuple[float, float]],
    attacks: Sequence[tuple[float, float]],
    axes: Any,
) -> Any:
    """Draws delta against epsilon: certified points, the certified line between them, and attacks. Returns the axes.

    between: a line on a logarithmic scale; empty if the points are too far apart for one.
    """
    axes = _axes(axes)
    drawn = sum(line.get_marker() != "x" for line in axes.get_lines()) // 2
    color = OTHERS[(drawn - 1) % len(OTHERS)] if drawn else CERTIFIED
    label = f"{name}, CERTIFIED"
    axes.plot(*(zip(*between, strict=True) if between else ([], [])), color=color, label=label if between else None)
    axes.plot(
        *zip(*certified, strict=True),
        "." if between else "o",
        color=color,
        mfc=color if between else "none",
        label=None if between else label,
    )
    if attacks:
        style = {"ls": "none", "marker": "x", "color": color if drawn else MEASURED}
        axes.plot(*zip(*attacks, strict=True), label=f"{name}, attack, LOWER_BOUND", **style)
    axes.set(yscale="log", xlabel="central ε", ylabel="δ", title="What the shuffled batch reveals")
    axes.legend()
    return axes


def draw_tiers(
    title: str,
    names: Sequence[str],
    local: Sequence[float],
    central: Sequence[float],
    labels: Sequence[str],
    grade: str,
    axes: Any,
) -> Any:
    """Draws the local and the certified central epsilon of every tier or group, the latter labelled.

    Returns the axes.
    """
    axes = _axes(axes)
    rows = range(len(names))
    axes.barh([row + 0.2 for row in rows], local, 0.36, color=COMPARED, label="local ε")
    axes.barh([row - 0.2 for row in rows], central, 0.36, color=CERTIFIED, label=f"central ε, {grade}")
    for row, epsilon, label in zip(rows, central, labels, strict=True):
        axes.text(epsilon, row - 0.2, f" {label}", va="center", fontsize="small")
    axes.set_yticks(list(rows), names)
    axes.set(xlabel="ε", title=title)
    axes.legend()
    return axes
