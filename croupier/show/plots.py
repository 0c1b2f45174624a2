"""Plots, each made from the JSON document that the same command prints with `--json`, and all in one style.

Certified values are blue, measured ones (an estimate, an attack, a throughput) red, those for comparison grey, and
refuted bounds black. Of several trainings each has a colour. Lines that share a plot differ in dashes or markers, too,
so that they can be told apart in grey.
"""

from __future__ import annotations

import errno
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from croupier.protocol.certificates import proved_epsilon
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.blocks import Curve, Line
from croupier.show.drawing import CERTIFIED, COMPARED, MEASURED, OTHERS, draw_tiers
from croupier.show.numbers import Number, level_of, numbers_of

_REFUTED = {"ls": ":", "lw": 1.6, "color": "black", "marker": "."}
MARKERS = ("s", "D", "^", "P", "X", "*")
_LETTERS_BELOW = 48
"""The number of letters that fit below one plot of a demonstration."""
_ENDINGS = (".png", ".svg", ".pdf")
_STYLE = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.fontsize": "small",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.dpi": 130,
    "svg.fonttype": "none",
    "svg.hashsalt": "croupier",  # the same numbers make the same file
}


def check_plot_file(path: Path) -> None:
    """Checks that a plot can be drawn in a file, before anything is computed for it.

    Raises:
        ValueError: its name has another ending than a plot's.
        OSError: the file or its directory is of another kind, or cannot be written.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{path} cannot be drawn; its name must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(above))
    if not os.access(written := path if path.exists() else above, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(written))


@contextmanager
def figure_file(
    path: Path, columns: int, rows: int = 1, *, width: float = 5.6, height: float = 4.2, first: float | None = None
) -> Iterator[Any]:
    """Yields (figure, axes as rows of columns); saves the figure at the end, without a display.

    The first row may have a height of its own.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "axes.prop_cycle": cycler(color=(CERTIFIED, MEASURED, *OTHERS))}):
        heights = [first or height, *[height] * (rows - 1)]
        figure = Figure(figsize=(width * columns, sum(heights)), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        if path.suffix == ".svg":
            path.write_text(_compact(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif path.suffix == ".png":
            _reduce(path)


def _reduce(path: Path) -> None:
    """Gives a PNG a palette of 256 colours, in a third of the bytes; lines and text have fewer."""
    from PIL import Image

    with Image.open(path) as drawn:
        reduced = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


def _compact(svg: str) -> str:
    """Returns the same drawing at half its length.

    Hundredths of a point are kept; indentation, comments, and names that are not used go; a style is written once.
    """
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|(?<=<g) id=\"[^\"]*\"", "", svg, flags=re.DOTALL)
    # Only in tags: the text between them is for readers, such as 0.005 at an axis.
    svg = re.sub(r">[^<]*<|(\d\.\d\d)\d+", lambda match: match[1] or match[0], svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    styles = list(dict.fromkeys(re.findall(r'style="([^"]*)"', svg)))
    rules = "\n".join(f".s{index}{{{style}}}" for index, style in enumerate(styles))
    svg = re.sub(r'style="([^"]*)"', lambda match: f'class="s{styles.index(match[1])}"', svg)
    return svg.replace("</style>", f"{rules}</style>", 1)


def plot_privacy_curve(curve: Curve, path: Path) -> None:
    """Draws delta against epsilon: the certificates, the attacks, and the published bounds."""
    styles = (
        {"ls": dashes, "lw": 1.2, "color": color, "marker": marker, "ms": 5}
        for dashes, marker in (("--", "."), ("-.", "D"))
        for color in OTHERS
    )
    with figure_file(path, 1, width=8.4, height=5.6) as (_, ((axes,),)):
        axes.plot(*zip(*curve.certified.points, strict=True), color=CERTIFIED, lw=2.4, label=_named(curve.certified))
        if curve.attacks.points:  # no line joins them, because nothing is known between them
            ends = zip(*curve.attacks.points, strict=True)
            axes.plot(*ends, "x", color=MEASURED, mew=2, label=_named(curve.attacks), zorder=3)
        for line in curve.published:
            style = _REFUTED if line.is_refuted else next(styles)
            axes.plot(*zip(*line.points, strict=True), label=_named(line), **style)
        # A straight line on this scale may promise a smaller delta than its ends prove.
        joined = "\npublished figures: at their marks; lines only join them" if curve.published else ""
        name = curve.certified.name
        axes.set(
            yscale="log", xlabel=f"central ε{joined}", ylabel="δ", title=f"{name}: what the shuffled batch reveals"
        )
        axes.legend()


def _named(line: Line) -> str:
    return f"{line.name}, {line.grade}{', refuted' if line.is_refuted else ''}"


def plot_answers(result: JsonObject, path: Path) -> None:
    """Draws a panel for each question of a demonstration, with the truth and the estimates, and one with the cost.

    The groups of a question share its panel, and so one scale.
    """
    panels: dict[str, list[JsonObject]] = {}
    for question in result["questions"]:
        panels.setdefault(question["column"], []).append(question)
    rows = {column: _answer_rows(asked) for column, asked in panels.items()}
    lying = [len(answer_rows) for answer_rows in rows.values() if not _fit_below([row.label for row in answer_rows])]
    first = max(3.6, 1.4 + 0.2 * max(lying, default=0))
    groups = max(map(len, panels.values()))
    with figure_file(
        path, len(panels), 2, width=4.6, height=max(3.6, 1.2 + 0.3 * groups if groups > 1 else 0), first=first
    ) as (figure, axes):
        for (column, asked), answers, budgets in zip(panels.items(), *axes, strict=True):
            _draw_answers(asked[0], rows[column], first, answers)
            answers.set_title(column)
            _draw_budgets(asked, budgets)
        learned, cost = "What the analyzer learned,", "and what it cost each "
        cost += "group" if groups > 1 else "tier of users"
        figure.suptitle(f"{learned}\n{cost}" if len(panels) == 1 else f"{learned} {cost}")


def _answer_rows(asked: Sequence[JsonObject]) -> list[Number]:
    """Returns the rows of a panel, by their labels: of the one question, or of one group after the other."""
    return [
        replace(number, label=": ".join(filter(None, (question["group"] or "", number.label))))
        for question in asked
        for number in numbers_of(question)
    ]


def _fit_below(labels: Sequence[str]) -> bool:
    """Says whether the labels of bars side by side can be read below them."""
    return sum(len(label) + 2 for label in labels) <= _LETTERS_BELOW


def _draw_answers(question: JsonObject, rows: Sequence[Number], height: float, axes: Any) -> None:
    """Draws vertical bars, or horizontal ones where their labels are too many or too long to be written below."""
    level = f"{100 * level_of(question):g} %"
    places, truths = range(len(rows)), [row.truth for row in rows]
    middles = [sum(row.participants) / 2 for row in rows]
    halves = [(row.participants[1] - row.participants[0]) / 2 for row in rows]
    # An unbiased estimate may be impossible, and then lies outside its interval: the nearest possible value is inside.
    dots = (
        ("o", f"estimate, {level}", [(at, row.shown) for at, row in enumerate(rows) if row.is_possible]),
        ("D", f"nearest possible, {level}", [(at, row.shown) for at, row in enumerate(rows) if not row.is_possible]),
    )
    upright = _fit_below([row.label for row in rows])
    if upright:
        axes.bar(places, truths, color=COMPARED, width=0.6, label="truth")
        axes.errorbar(places, middles, halves, fmt="none", ecolor=MEASURED, capsize=5)
    else:
        axes.barh(places, truths, color=COMPARED, height=0.6, label="truth")
        axes.errorbar(middles, places, xerr=halves, fmt="none", ecolor=MEASURED, capsize=2, lw=1.2)
    for marker, label, at in dots:
        if at:
            ends = zip(*at, strict=True) if upright else reversed([*zip(*at, strict=True)])
            face = MEASURED if marker == "o" else "white"
            axes.plot(*ends, marker, color=MEASURED, mfc=face, ms=5 if upright else 4, label=label, clip_on=False)
    if upright:
        axes.set_xticks(places, [row.label for row in rows])
        axes.set_xlim(-1, len(rows))
        axes.margins(y=0.25)
        axes.set_ylabel(question["quantity"])
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper left")
    else:
        axes.set_yticks(places, [_shortened(row.label) for row in rows], fontsize=8)
        axes.set_ylim(len(rows), -1)
        axes.set_xlabel(question["quantity"])
        axes.grid(visible=False, axis="y")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.8 / height), ncols=2)


def _shortened(label: str) -> str:
    return label if len(label) <= 40 else f"{label[:39]}…"


def _draw_budgets(asked: Sequence[JsonObject], axes: Any) -> None:
    """Draws local and central epsilon of every tier; of several groups, those of the largest budget of each."""
    certificates = [question["certificate"] for question in asked]
    if len(asked) > 1:
        names = [
            f"{_shortened(question['group'] or '')}: {question['certificate']['num_users']:,}" for question in asked
        ]
        local = [max(tier["local_epsilon"] for tier in certificate["tiers"]) for certificate in certificates]
        central = [proved_epsilon(certificate) for certificate in certificates]
    else:
        tiers = certificates[0]["tiers"]
        names = [f"{tier['count']:,}" for tier in tiers]
        local, central = [tier["local_epsilon"] for tier in tiers], [tier["epsilon"] for tier in tiers]
    labels = [round_up(epsilon, 4) for epsilon in central]
    grade = " or ".join(sorted({certificate["grade"] for certificate in certificates}))
    draw_tiers("", [f"{name} users" for name in names], local, central, labels, grade, axes)
    if len(asked) > 1:
        axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"ε at δ = {round_up(max(certificate['delta'] for certificate in certificates))}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2) if len(asked) > 1 else axes.legend(
        loc="lower right"
    )


def plot_study(
    rows: Sequence[JsonObject],
    titles: Mapping[str, str],
    path: Path,
    truth: Mapping[tuple[str, str], Mapping[int, float]] | None = None,
) -> None:
    """Draws every number of a study over its waves, with its interval for the people who took part.

    Args:
        rows: the results, of all waves.
        titles: a heading for each question, by its name.
        path: PNG, SVG or PDF.
        truth: the true number of each (question, value) by wave, where it is known; drawn in grey.
    """
    questions = list(dict.fromkeys(row["question"] for row in rows))
    columns = min(3, len(questions))
    lines = -(-len(questions) // columns)
    waves = sorted({row["wave"] for row in rows})
    with figure_file(path, columns, lines, width=4.8, height=3.6) as (_, axes):
        flat = [place for line in axes for place in line]
        for question, place in zip(questions, flat, strict=False):
            mine = [row for row in rows if row["question"] == question]
            _draw_trend(mine, place, truth or {}, question)
            place.set_title("\n".join(textwrap.wrap(titles.get(question, question), 40)), fontsize="medium")
            place.set_xlabel("wave (bars: 95 % intervals for the people who took part)", fontsize="small")
            place.set_xlim(waves[0] - 0.5, waves[-1] + 0.5)
            place.xaxis.get_major_locator().set_params(integer=True)
            empty = sorted({row["wave"] for row in mine if row["estimate"] is None and row["outcome"] != "to come"})
            for number, wave in enumerate(empty):
                place.axvspan(wave - 0.4, wave + 0.4, color=COMPARED, alpha=0.25, label="" if number else "no result")
            if place.get_legend_handles_labels()[0]:
                place.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)
        for place in flat[len(questions) :]:
            place.set_axis_off()


def _draw_trend(
    rows: Sequence[JsonObject],
    axes: Any,
    truth: Mapping[tuple[str, str], Mapping[int, float]],
    question: str,
) -> None:
    """Draws the numbers of one question; each has a colour, beside others of the same wave."""
    values = list(dict.fromkeys(row["value"] for row in rows if row["estimate"] is not None))
    colors = [MEASURED] if len(values) == 1 else [MEASURED, CERTIFIED, *OTHERS]
    for number, (value, color) in enumerate(zip(values, cycle(colors), strict=False)):
        mine = [row for row in rows if row["value"] == value and row["estimate"] is not None]
        aside = 0.06 * (number - (len(values) - 1) / 2)
        estimates = [row["estimate"] or 0.0 for row in mine]
        ends = [
            [max(0.0, estimate - (row["low"] or 0.0)) for row, estimate in zip(mine, estimates, strict=True)],
            [max(0.0, (row["high"] or 0.0) - estimate) for row, estimate in zip(mine, estimates, strict=True)],
        ]
        places = [row["wave"] + aside for row in mine]
        axes.errorbar(places, estimates, ends, fmt="o-", color=color, capsize=3, lw=1.2, label=value or "estimate")
        if known := truth.get((question, value)):
            places, told = [wave + aside for wave in known], "" if number else "truth"
            axes.plot(places, [*known.values()], "x", color="black", mew=1.6, ms=6, zorder=4, label=told)


def plot_throughput(rows: Sequence[JsonObject], path: Path) -> None:
    """Draws throughput, and the seconds of each stage per 1000 users, against the number of users."""
    users = [row["users"] for row in rows]
    with figure_file(path, 2) as (_, ((throughput, stages),)):
        floor = [row["users"] / row["floor_s"] for row in rows]
        throughput.loglog(users, floor, "--", color="black", label="floor: bare cryptography, same run")
        throughput.loglog(users, [row["users_per_s"] for row in rows], "o-", color=MEASURED, label="end to end")
        throughput.set(xlabel="users", ylabel="users per second", title="throughput")
        for stage, marker in zip(rows[0]["stages"], cycle(("o", *MARKERS)), strict=False):
            cost = [1000 * row["stages"][stage]["cpu_s"] / row["users"] for row in rows]
            stages.loglog(users, cost, marker=marker, label=stage)
        stages.set(xlabel="users", ylabel="CPU seconds per 1000 users", title="where the time goes")
        for axes in (throughput, stages):
            _number_plainly(axes.xaxis)
            axes.set_xticks(users, [f"{number:,}" for number in users])
            _number_plainly(axes.yaxis)
        throughput.legend()
        stages.legend(loc="upper left", bbox_to_anchor=(1, 1))


def plot_training(results: Sequence[JsonObject], path: Path) -> None:
    """Draws accuracy, or error, against epochs, and against epsilon with its grade, for one training or several.

    Args:
        results: `TrainingOutcome.document()` of each; all on classes, or all on numbers.
        path: PNG, SVG or PDF.
    """
    from matplotlib.ticker import MaxNLocator

    numbers = any(epoch["error"] is not None for result in results for epoch in result["history"])
    figure, label = ("error", "root mean squared error") if numbers else ("accuracy", "accuracy, %")
    with figure_file(path, 2) as (_, ((by_epoch, by_epsilon),)):
        for index, result in enumerate(results):
            history, color = result["history"], f"C{index}"
            reached = [_reached(epoch) for epoch in history]
            by_epoch.plot(
                [epoch["epoch"] for epoch in history], reached, color=color, marker=".", label=result["title"]
            )
            paid = [
                (epoch["epsilon"], value)
                for epoch, value in zip(history, reached, strict=True)
                if epoch["epsilon"] is not None
            ]
            if paid:
                by_epsilon.plot(*zip(*paid, strict=True), color=color, marker=".")
            noise_free = [100 * accuracy for accuracy in result["noise_free_accuracy"]] or result["noise_free_error"]
            if noise_free:
                epochs = range(1, len(noise_free) + 1)
                by_epoch.plot(
                    epochs, noise_free, ":", color=color, marker=".", label="the same without noise: not private"
                )
                by_epsilon.axhline(noise_free[-1], linestyle=":", color=color)
        by_epoch.set(xlabel="epoch", ylabel=label, title=f"{figure} against epoch")
        by_epsilon.set(xlabel=_cost_label(results), ylabel=label, title=f"{figure} against what it costs")
        by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
        epsilons = [
            epoch["epsilon"] for result in results for epoch in result["history"] if epoch["epsilon"] is not None
        ]
        if epsilons and max(epsilons) > 10 * min(epsilons):
            by_epsilon.set_xscale("log")
            _number_plainly(by_epsilon.xaxis)
        by_epoch.legend()


def _reached(epoch: JsonObject) -> float | None:
    """Returns the accuracy after an epoch, in percent, or the error if targets are numbers."""
    reached: float | None = epoch["error"] if epoch["accuracy"] is None else 100 * epoch["accuracy"]
    return reached


def _number_plainly(axis: Any) -> None:
    """Numbers a logarithmic axis at 1, 2, 5, 10 ..., and not as 6×10²."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:,.0f}" if at >= 1 else f"{at:g}"))
    axis.set_minor_formatter(NullFormatter())


def _cost_label(results: Sequence[JsonObject]) -> str:
    """Returns the subject of the epsilons, their delta and grades, because a plot travels without its page."""
    units = {result["setting"]["unit"] for result in results}
    grades = {epoch["grade"] for result in results for epoch in result["history"] if epoch["grade"] is not None}
    deltas = sorted({result["setting"]["delta"] for result in results})
    subject = " or ".join(sorted("ε of one record" if unit == "record" else "central ε" for unit in units))
    parts = [f"{subject} at δ = {' or '.join(map(round_up, deltas))}"]
    parts += [" or ".join(sorted(grades))] if grades else []
    parts += ["simulated"] if any(result["setting"]["mode"] == "simulation" for result in results) else []
    return ", ".join(parts)
