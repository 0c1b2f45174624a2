"""A simulation: the estimates, certificates and sentences of rounds, computed from a data frame without a server."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

import croupier
from tests.support.messages import naming
from tests.support.randomness import SeededRandom

PEOPLE = 3000


def columns() -> dict[str, list[Any]]:
    source = random.Random(33)
    return {
        "smokes": [source.random() < 0.3 for _ in range(PEOPLE)],
        "hours": [source.uniform(0, 10) for _ in range(PEOPLE)],
        "mood": [source.choice(("Good", "Good", "Fair", "Poor")) for _ in range(PEOPLE)],
        "site": [source.choice(("north", "south")) for _ in range(PEOPLE)],
    }


@pytest.mark.parametrize("library", [pandas, polars], ids=lambda library: library.__name__)
def test_a_frame_is_asked_what_a_deployment_would_ask(library: Any) -> None:
    frame = library.DataFrame(columns())
    simulation = croupier.simulate(frame, ["smokes", "hours:0:10", "mood"], source=SeededRandom(1))
    assert [question.name for question in simulation.questions] == ["smokes", "hours", "mood"]
    rows = simulation.rows()
    assert [row["label"] for row in rows] == ["yes", "", "Poor", "Fair", "Good"]
    for row in rows:
        assert (row["grade"], 0 < row["epsilon"] < 0.5) == ("CERTIFIED", True)
        assert row["low"] <= row["estimate"] <= row["high"]
        assert abs(row["estimate"] - row["truth"]) < 0.1 * (10 if row["question"] == "hours" else 1)
    assert "known scale" in simulation.assumed.replace("its order", "the order")
    assert croupier.explain(simulation.questions[0].result).sections[0].title == "What was learned"
    assert len(library.DataFrame(rows)) == 5


def test_a_simulation_of_a_file_by_groups_makes_a_report(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    pandas.DataFrame(columns()).astype({"smokes": int}).to_csv(path, sep=";", decimal=",", index=False)
    simulation = croupier.simulate(path, "smokes", group_by="site", budgets="1", source=SeededRandom(2))
    assert [question.group for question in simulation.questions] == ["north", "south"]
    assert simulation.assumed == f"{path} is read with semicolons between the columns"
    certified = croupier.certify([1.0] * simulation.questions[0].result["num_reports"], "rr", delta=1e-6)
    assert simulation.questions[0].result["certificate"]["epsilon"] == certified.epsilon
    page = simulation.report("Before we ask")
    for text in ("Before we ask", "This is a simulation", "Differences between groups", "semicolons", "not checked"):
        assert text in page


def test_what_cannot_be_simulated_is_refused() -> None:
    frame = pandas.DataFrame(columns())
    with pytest.raises(ValueError, match=naming("columns", "[]")):
        croupier.simulate(frame, [])
    with pytest.raises(ValueError, match=naming("'x'")):
        croupier.simulate(frame, "x")
    with pytest.raises(ValueError, match="delta"):
        croupier.simulate(frame, "smokes", delta=2.0)


@pytest.mark.parametrize("clamp", [False, True])
def test_a_code_for_no_answer_is_counted_in_every_output(clamp: bool) -> None:
    """Reproduction: 99 counted as 10, nothing said so, and the clamped mean was called the truth."""
    hours = [4.0] * 900 + [99.0] * 100
    simulation = croupier.simulate(
        pandas.DataFrame({"hours": hours}), "hours:0:10", budgets="4", clamp=clamp, source=SeededRandom(3)
    )
    (question,), (row,) = simulation.questions, simulation.rows()
    counts = (100, 0) if clamp else (0, 100)
    assert (question.clamped, question.outside) == (row["clamped"], row["outside"]) == counts
    assert row["truth"] == (13.5 if clamp else 4.0)
    assert question.result["num_reports"] == (1000 if clamp else 900)
    about = naming(100, "1,000 values (10.0 %)", "0 to 10")
    assert re.search(about, question.result["data_notes"][0])
    for text in (simulation.report(), str(croupier.explain(question.result))):
        assert re.search(about, text.replace("\N{NO-BREAK SPACE}", " "))


def test_the_axis_of_a_histogram_ends_at_a_round_number() -> None:
    """Reproduction: a bar of 30 % filled 62 % of the width, and no axis said why."""
    hours = [0.0] * 900 + [5.0] * 1200 + [10.0] * 900
    frame = pandas.DataFrame({"hours": hours})
    page = croupier.simulate(frame, "hours:0:10:3", budgets="5", source=SeededRandom(4)).report()
    _, _, histogram = page.partition("How the numbers are distributed")
    (marks,) = re.findall(r'<p class="scale" aria-hidden="true">(.*)</p>', histogram)
    assert re.findall(r"([0-9.]+) %", marks) == ["0", "25", "50"]
    shares = [float(share) for share in re.findall(r"<strong>([0-9.]+).%</strong>", histogram)[:3]]
    widths = [float(width) for width in re.findall(r'class="bar"[^>]* width="([0-9.]+)"', histogram)]
    assert [width / 2 for width in widths] == pytest.approx(shares, abs=0.6)
