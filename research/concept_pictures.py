"""The pictures of docs/concepts.md, computed exactly: local noise, what a crowd hides, and what ε and δ are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from croupier.show.drawing import CERTIFIED, COMPARED, MEASURED
from croupier.show.plots import figure_file

Floats = npt.NDArray[np.float64]

LOCAL_EPSILON = 1.0
PEOPLE = 1_000
_YES, _NO = CERTIFIED, MEASURED


def write_pictures(folder: Path) -> list[Path]:
    """Draws the three pictures into a folder and returns their paths."""
    draw = {"local-noise.svg": _local_noise, "shuffle.svg": _shuffle, "epsilon-delta.svg": _epsilon_delta}
    for name, picture in draw.items():
        picture(folder / name)
    return [folder / name for name in draw]


def _truth() -> float:
    """The probability that a report is the truth."""
    return 1 / (1 + math.exp(-LOCAL_EPSILON))


def _counts(answer: int, others: int, yes: int) -> Floats:
    """The law of the number of reports "yes" of one person and `others` more, of whom `yes` would say yes."""
    truth = _truth()
    crowd = np.convolve(
        binom.pmf(np.arange(yes + 1), yes, truth), binom.pmf(np.arange(others - yes + 1), others - yes, 1 - truth)
    )
    own = [1 - truth, truth] if answer else [truth, 1 - truth]
    return np.convolve(crowd, own)


def _local_noise(path: Path) -> None:
    truth = _truth()
    with figure_file(path, 2, width=3.6, height=2.6) as (_, axes):
        for axis, answer, shares, colour in zip(
            axes[0], ("yes", "no"), ((truth, 1 - truth), (1 - truth, truth)), (_YES, _NO), strict=True
        ):
            bars = axis.bar(["report “yes”", "report “no”"], shares, color=colour, width=0.6)
            axis.bar_label(bars, [f"{100 * share:.0f} %" for share in shares])
            axis.set_title(f"your answer is “{answer}”", fontsize="medium")
            axis.set_ylim(0, 1)
            axis.set_yticks([])
            axis.grid(visible=False)
            axis.spines["left"].set_visible(False)


def _shuffle(path: Path) -> None:
    with figure_file(path, 2, width=3.9, height=2.8) as (_, axes):
        alone, crowd = axes[0]
        truth = _truth()
        places = np.array([0.0, 1.0])
        alone.bar(places - 0.2, [truth, 1 - truth], 0.38, color=_NO, label="your answer is “no”")
        alone.bar(places + 0.2, [1 - truth, truth], 0.38, color=_YES, label="your answer is “yes”")
        alone.set_xticks(places, ["“no”", "“yes”"])
        alone.set_xlabel("your report, read alone")
        alone.set_title("without the shuffle", fontsize="medium")
        laws = [_counts(answer, PEOPLE - 1, PEOPLE // 2) for answer in (0, 1)]
        counts = np.arange(PEOPLE + 1)
        near = slice(PEOPLE // 2 - 55, PEOPLE // 2 + 56)
        for law, colour, answer in zip(laws, (_NO, _YES), ("no", "yes"), strict=True):
            crowd.step(counts[near], law[near], where="mid", color=colour, label=f"your answer is “{answer}”")
        crowd.set_xlabel(f"number of “yes” among {PEOPLE:,} reports in random order")
        crowd.set_title("with the shuffle", fontsize="medium")
        crowd.legend(loc="upper right", fontsize="x-small")
        alone.legend(loc="upper center", fontsize="x-small")
        alone.set_ylim(0, 1)
        crowd.set_ylim(0, 1.3 * laws[0].max())
        for axis in (alone, crowd):
            axis.set_yticks([])
            axis.set_ylabel("probability")


def _epsilon_delta(path: Path) -> None:
    people, epsilon = 60, 0.15
    first, second = (_counts(answer, people - 1, people // 2) for answer in (1, 0))
    counts = np.arange(people + 1)
    near = slice(people // 2 - 12, people // 2 + 14)
    limit = math.exp(epsilon) * second
    with figure_file(path, 1, width=6.6, height=3.2) as (_, axes):
        axis = axes[0][0]
        above = np.maximum(first - limit, 0.0)
        axis.bar(counts[near], np.minimum(first, limit)[near], 0.86, color=COMPARED, label="your answer is “yes”")
        axis.bar(
            counts[near],
            above[near],
            0.86,
            bottom=limit[near],
            color=_NO,
            label=f"above the limit: together δ = {above.sum():.4f}",
        )
        axis.step(counts[near], second[near], where="mid", color="#444444", lw=1.1, label="your answer is “no”")
        axis.step(counts[near], limit[near], where="mid", color=_YES, label=f"limit: e^ε times “no”, ε = {epsilon:g}")
        axis.set_xlabel(f"number of “yes” among {people} reports")
        axis.set_ylabel("probability")
        axis.set_yticks([])
        axis.set_ylim(0, 1.12 * limit.max())
        axis.legend(loc="upper left", fontsize="small")
