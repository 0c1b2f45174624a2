"""What a plot says: it travels without the page that explains it, so grades and modes stand in it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from croupier import privacy_profile
from croupier.protocol.names import JsonObject
from croupier.show.plots import plot_answers, plot_privacy_curve, plot_training
from croupier.show.profile import curve_of


def training(title: str, mode: str, unit: str, grade: str | None) -> JsonObject:
    epochs = ({"epoch": 1, "accuracy": 0.2, "epsilon": 0.5}, {"epoch": 2, "accuracy": 0.4, "epsilon": 0.8})
    changed: dict[str, object] = {"grade": grade} if grade else {"grade": None, "epsilon": None}
    history = [epoch | {"error": None} | changed for epoch in epochs]
    setting = {"mode": mode, "unit": unit, "delta": 1e-5}
    return {"title": title, "setting": setting, "history": history, "noise_free_accuracy": [], "noise_free_error": []}


def drawn(path: Path) -> str:
    return path.read_text().replace("&lt;", "<")


def test_a_training_shows_its_grade_and_whether_it_was_simulated(tmp_path: Path) -> None:
    deployed = training("deployed run", "deployed", "user", "CERTIFIED")
    plot_training([deployed], tmp_path / "deployed.svg")
    assert "central ε at δ = 1e-05, CERTIFIED<" in drawn(tmp_path / "deployed.svg")
    assert "without noise" not in drawn(tmp_path / "deployed.svg")
    plot_training([deployed | {"noise_free_accuracy": [0.4, 0.5]}], tmp_path / "deployed.svg")
    assert "the same without noise: not private<" in drawn(tmp_path / "deployed.svg")
    others = [training("noisy", "simulation", "record", "HEURISTIC"), training("bare", "simulation", "record", None)]
    plot_training(others, tmp_path / "new" / "simulated.svg")
    text = drawn(tmp_path / "new" / "simulated.svg")
    assert "ε of one record at δ = 1e-05, HEURISTIC, simulated<" in text
    assert "noisy" in text
    assert "bare" in text


def test_a_privacy_curve_shows_the_grade_of_every_line(tmp_path: Path) -> None:
    profile = privacy_profile({4.0: 1000}, "rr", deltas=(1e-4, 1e-6))
    plot_privacy_curve(curve_of(profile), tmp_path / "curve.svg")
    text = drawn(tmp_path / "curve.svg")
    joined = "published figures: at their marks; lines only join them<"
    for label in (
        joined,
        "rr, CERTIFIED<",
        "attack, LOWER_BOUND<",
        "GSPA Thm 1, CERTIFIED<",
        "ASYMPTOTIC, refuted<",
    ):
        assert label in text


TIER = {"local_epsilon": 1.0, "local_delta": 0.0, "up_to": False, "count": 50, "epsilon": 0.5, "delta": 1e-6}
CERTIFICATE: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "grade": "CERTIFIED", "tiers": [TIER], "num_users": 50}


def asked(column: str, group: str | None, labels: list[str] | None, numbers: list[tuple[float, float]]) -> Any:
    """A question of a demonstration: truths and estimates of shares, with intervals within [0, 1]."""
    truths = [truth for truth, _ in numbers]
    values = []
    for label, (_, estimate) in zip(labels or [""], numbers, strict=True):
        possible = min(max(estimate, 0.0), 1.0)
        interval = {"low": max(0.0, possible - 0.1), "high": min(1.0, possible + 0.1)}
        value = {"label": label, "estimate": estimate, "projected": possible, "standard_error": 0.05}
        values.append(value | {"confidence_interval": interval, "population_interval": interval})
    return {
        "column": column,
        "name": column if group is None else f"{column}, month={group}",
        "group": group,
        "quantity": "share",
        "truth": truths if labels else truths[0],
        "values": values,
        "confidence_level": 0.95,
        "certificate": CERTIFICATE,
    }


def figure_of(questions: list[Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    saved: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **kwargs: Any) -> None:
        saved.append(figure)
        save(figure, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", keep)
        demo: Any = {"questions": questions}
        plot_answers(demo, path)
    return saved[0]


@pytest.mark.parametrize("name", ["a", "a very long name of a category"])
def test_every_dot_lies_in_its_interval(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: an impossible estimate was drawn beyond the end of its own interval."""
    letters = asked("letters", None, [name, f"{name} 2", f"{name} 3"], [(0.01, -0.2), (0.9, 1.2), (0.5, 0.4)])
    axes = figure_of([letters], tmp_path / "answers.svg", monkeypatch).axes[0]
    upright = name == "a"
    segments = sorted(axes.collections[0].get_segments(), key=lambda ends: float(ends[0][0 if upright else 1]))
    dots = sorted(
        tuple(at) if upright else tuple(at)[::-1]
        for line in axes.get_lines()
        if line.get_label().startswith(("estimate", "nearest"))
        for at in line.get_xydata().tolist()
    )
    assert [place for place, _ in dots] == [0, 1, 2]
    for (_, dot), ends in zip(dots, segments, strict=True):
        low, high = sorted(end[1 if upright else 0] for end in ends.tolist())
        assert low <= dot <= high
    text = drawn(tmp_path / "answers.svg")
    assert ("estimate, 95 %<" in text, "nearest possible, 95 %<" in text) == (True, True)
    assert text.count(">share<") == 1  # Reproduction: the axis had no name


@pytest.mark.slow
def test_the_groups_of_a_question_share_a_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: twelve months were a strip of twelve panels, each with a scale of its own."""
    months = [f"month {number}" for number in range(1, 13)]
    questions = [
        asked(column, month, None, [(0.3, 0.05 * index)])
        for index, month in enumerate(months)
        for column in ("smokes", "drinks")
    ]
    figure = figure_of(questions, tmp_path / "answers.svg", monkeypatch)
    assert [axes.get_title() for axes in figure.axes] == ["smokes", "drinks", "", ""]
    for axes in figure.axes[:2]:
        assert [label.get_text() for label in axes.get_yticklabels()] == months
    assert [label.get_text() for label in figure.axes[2].get_yticklabels()] == [
        f"{month}: 50 users" for month in months
    ]
    letters = [asked("letter", month, ["a", "b"], [(0.3, 0.3), (0.7, 0.7)]) for month in months[:2]]
    axes = figure_of(letters, tmp_path / "letters.svg", monkeypatch).axes[0]
    shown = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert [text for text in shown if "month" in text] == ["month 1: a", "month 1: b", "month 2: a", "month 2: b"]


def test_many_and_long_names_stand_beside_their_bars(tmp_path: Path) -> None:
    """Reproduction: forty of them were written over each other."""
    labels = [f"category {number} of forty, whose names are very long" for number in range(40)]
    demo: Any = {"questions": [asked("letters", None, labels, [(0.025, 0.03)] * 40)]}
    plot_answers(demo, tmp_path / "answers.svg")
    texts = re.findall(r'<text[^>]*\by="([\d.]+)"[^>]*>(category \d+ of forty[^<]*)<', drawn(tmp_path / "answers.svg"))
    assert [label for _, label in texts] == [f"{label[:39]}…" for label in labels]
    heights = [float(height) for height, _ in texts]
    assert min(below - above for above, below in itertools.pairwise(heights)) > 8  # points; the letters have 8
    assert drawn(tmp_path / "answers.svg").count(">share<") == 1
