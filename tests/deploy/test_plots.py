"""What a plot says: it travels without the page that explains it, so grades and modes stand in it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from accountant.certified_profile import certified_line
from croupier import privacy_profile
from deploy.show.plots import plot_answers, plot_privacy_curve, plot_training


def training(title: str, mode: str, unit: str, grade: str | None) -> dict[str, Any]:
    epochs = ({"epoch": 1, "accuracy": 0.2, "epsilon": 0.5}, {"epoch": 2, "accuracy": 0.4, "epsilon": 0.8})
    history = [one | {"grade": grade} if grade else one | {"grade": None, "epsilon": None} for one in epochs]
    setting = {"mode": mode, "unit": unit, "delta": 1e-5}
    return {"title": title, "setting": setting, "history": history, "noise_free_accuracy": []}


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
    points = [point.certificate.to_json() for point in profile.points]
    plot_privacy_curve("rr", points, certified_line(profile), tmp_path / "curve.svg")
    text = drawn(tmp_path / "curve.svg")
    joined = "published figures: at their marks; lines only join them<"
    for label in (
        joined,
        "croupier, CERTIFIED<",
        "attack, LOWER_BOUND<",
        "GSPA Thm 1, CERTIFIED<",
        "ASYMPTOTIC, refuted<",
    ):
        assert label in text


def test_an_impossible_estimate_is_drawn_outside_its_interval(tmp_path: Path) -> None:
    """Reproduction: the demonstration ended without a plot where the noise had carried a small share below 0."""
    tier = {"local_epsilon": 1.0, "local_delta": 0.0, "up_to": False, "count": 50, "epsilon": 0.5, "delta": 1e-6}
    certificate = {"epsilon": 0.5, "delta": 1e-6, "grade": "CERTIFIED", "tiers": [tier], "lower_bound": None}
    shares = {"truth": [0.01, 0.99], "estimate": [-0.02, 1.02], "confidence_interval": [[0.0, 0.03], [0.97, 1.0]]}
    letters = {"name": "letters", "quantity": "share", "labels": ["a", "b"]}
    asked = {**letters, "confidence_level": 0.95, "certificate": certificate}
    plot_answers({"questions": [asked | shares] * 2}, tmp_path / "answers.svg")
    assert drawn(tmp_path / "answers.svg").count("estimate, 95 %") == 2
    assert drawn(tmp_path / "answers.svg").count(">share<") == 2  # Reproduction: the axis had no name


def test_many_and_long_names_stand_beside_their_bars(tmp_path: Path) -> None:
    """Reproduction: forty of them were written over each other."""
    tier = {"local_epsilon": 1.0, "local_delta": 0.0, "up_to": False, "count": 50, "epsilon": 0.5, "delta": 1e-6}
    certificate = {"epsilon": 0.5, "delta": 1e-6, "grade": "CERTIFIED", "tiers": [tier], "lower_bound": None}
    labels = [f"category {number} of forty, whose names are very long" for number in range(40)]
    shares = {"truth": [0.025] * 40, "estimate": [0.03] * 40, "confidence_interval": [[0.0, 0.06]] * 40}
    letters = {"name": "letters", "quantity": "share", "labels": labels}
    asked = {**letters, "confidence_level": 0.95, "certificate": certificate}
    plot_answers({"questions": [asked | shares]}, tmp_path / "answers.svg")
    found = re.findall(r'<text[^>]*\by="([\d.]+)"[^>]*>(category \d+ of forty[^<]*)<', drawn(tmp_path / "answers.svg"))
    assert [label for _, label in found] == [f"{label[:39]}…" for label in labels]
    heights = [float(height) for height, _ in found]
    assert min(below - above for above, below in itertools.pairwise(heights)) > 8  # points; the letters have 8
    assert drawn(tmp_path / "answers.svg").count(">share<") == 1
