"""The papers' experiments: which claims hold at the smallest size, and that numbers are kept and drawn."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from croupier.protocol.rounding import round_down, round_up
from research.experiments.catalogue import FIGURES, chosen
from research.experiments.figure import Finding, Settings, Size, Verdict, value_at, worst
from research.experiments.measures.histograms import BOXES, read_checkins
from research.experiments.runner import run_figures
from research.plots import plot_experiment
from tests.support.command_line import answer, croupier, refused
from tests.support.messages import naming

pytestmark = pytest.mark.xdist_group("experiments")  # they are run once
QUICK = Settings(Size.QUICK)
VERDICTS = {
    "gspa-fig2": ["reproduced", "not reproduced", "not reproduced", "reproduced", "reproduced"],
    "gspa-theorem1": ["reproduced", "refuted"],
    "gspa-theorem2": ["refuted"],
    "gspa-fig3a": ["reproduced", "reproduced"],
    "gspa-fig3b": ["reproduced", "reproduced"],
    "gspa-fig4": ["not reproduced"],
    "krr-table1": ["reproduced", "refuted", "refuted"],
    "krr-table3": ["reproduced", "refuted", "refuted"],
    "krr-table4": ["refuted", "reproduced", "not reproduced"],
    "krr-table5": ["refuted", "reproduced"],
    "krr-fig2": ["reproduced"],
    "krr-fig3": ["reproduced", "reproduced", "not reproduced"],
    "psp-fig3": ["reproduced", "reproduced"],
    "psp-fig4": ["reproduced", "reproduced", "reproduced", "reproduced"],
    "psp-table2": ["not reproduced", "partly reproduced", "reproduced", "reproduced", "not reproduced"],
    "psp-theorem2": ["refuted"],
    "utility": ["reproduced", "reproduced"],
    "personal-budgets": ["reproduced", "reproduced"],
    "dependence": ["reproduced", "reproduced", "reproduced"],
    "tightness": ["reproduced"],
    "throughput": ["reproduced"],
    "hop-noise": ["reproduced", "reproduced", "reproduced", "reproduced", "not reproduced", "reproduced"],
}
"""The verdict on every claim, in its order: a reader of the page relies on it."""


PUBLISHED = {
    "hop-noise": ["reproduced", "reproduced", "not reproduced", "not reproduced", "not reproduced", "reproduced"],
}
"""The verdicts at the size of docs/experiments.md, where they differ."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All experiments, in this process: the numbers take less time than starting others."""
    out = tmp_path_factory.mktemp("experiments")
    run_figures(FIGURES, out, QUICK, jobs=1)
    return out


def document(ran: Path, name: str) -> Any:
    return json.loads((ran / f"{name}.json").read_text())


def test_every_experiment_is_expected() -> None:
    assert [figure.name for figure in FIGURES] == list(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.slow
def test_the_verdict_of_every_claim(ran: Path, name: str) -> None:
    experiment = document(ran, name)
    assert [finding["verdict"] for finding in experiment["findings"]] == VERDICTS[name]


def on_the_page(name: str) -> list[str]:
    """The verdicts of a figure's claims in docs/experiments.md."""
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    first = rows.index(["claim", "verdict", "what came out"])
    return [row[1] for row in rows[first + 1 :] if len(row) == 3 and not row[0].startswith("-")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_page_has_the_verdicts_of_its_size(name: str) -> None:
    """They come from the figure's run at this size: test_the_published_verdicts_come_out_again."""
    assert on_the_page(name) == PUBLISHED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_verdicts_come_out_again(tmp_path: Path, name: str) -> None:
    run_figures(chosen([name]), tmp_path, Settings(Size.NORMAL))
    assert [finding["verdict"] for finding in document(tmp_path, name)["findings"]] == PUBLISHED[name]


@pytest.mark.slow
def test_no_certificate_is_below_an_attack(ran: Path) -> None:
    """Whatever is measured: where a row has both for a mechanism, the certificate is the larger."""
    pairs = [
        (row["certified"][name], row["attack"][name])
        for figure in FIGURES
        for row in document(ran, figure.name)["rows"]
        for name in row.get("certified", {})
        if name in row.get("attack", {})
    ]
    assert pairs
    assert all(certified >= attack * (1 - 1e-9) for certified, attack in pairs)


@pytest.mark.slow
def test_sentences_round_certificates_up_and_attacks_down(ran: Path) -> None:
    """Reproduction: "1.31e-06 is CERTIFIED" stood above a table that said 1.32e-06."""
    experiment = document(ran, "krr-table1")
    first, said = experiment["rows"][0], experiment["findings"][2]["evidence"]
    certified, attack = first["certified"]["krr"], first["attack"]["krr"]
    assert f"{certified:.3g}" != round_up(certified, 3)  # else nothing is shown here
    assert f"where {round_up(certified, 3)} is CERTIFIED" in said
    assert re.search(naming(round_down(attack, 3)), said)


@pytest.mark.slow
def test_points_below_an_attack_are_marked_and_grades_stand_in_the_plot(ran: Path) -> None:
    panels = document(ran, "gspa-fig2")["panels"]
    below = {line["label"] for panel in panels for line in panel["lines"] if line["below"]}
    assert below == {"FMT22 numeric, max ε, HEURISTIC", "GSPA Thm 1, HEURISTIC for Laplace"}
    drawn = (ran / "gspa-fig2.svg").read_text()
    for label in (*below, "a published bound below an attack", "croupier rr, CERTIFIED", "LOWER_BOUND"):
        assert label in drawn


@pytest.mark.slow
def test_every_key_of_a_line_or_column_is_measured(ran: Path) -> None:
    """A key that no row has would drop a line from a plot without a word."""
    not_in_quick = {"deployed", "rmse:onebit", "rmse:laplace", "attack:laplace", "ratio:laplace"}
    not_in_quick |= {f"accuracy:{name}" for name in ("U(0.5, 1)", "U(0.01, 1)", "U(0.01, 2)", "half 0.5, half 0.01")}
    for figure in FIGURES:
        rows = document(ran, figure.name)["rows"]
        keys = [column.key for column in figure.columns]
        keys += [line.key for panel in figure.panels for line in panel.lines]
        keys += [panel.x for panel in figure.panels]
        missing = [key for key in keys if all(value_at(row, key) is None for row in rows)]
        assert not [key for key in missing if key not in not_in_quick and not key.startswith("certified:")], figure.name


@pytest.mark.slow
def test_the_papers_training_is_of_the_data_that_are_there(ran: Path, tmp_path: Path) -> None:
    rows = {row["distribution"]: row for row in document(ran, "gspa-fig4")["rows"]}
    assert {row["data"] for row in rows.values()} == {"digits"}
    assert rows["no noise"]["reached"] > 0.5
    assert rows["no noise"]["spent"] is None
    assert (rows["all 0.5"]["grade"], len(rows["all 0.5"]["accuracy"]["all 0.5"])) == ("HEURISTIC", 10)
    (figure,) = chosen(["gspa-fig4"])
    assert {point["files"] for point in figure.points(Settings(Size.FULL, data=tmp_path))} == {None}
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    paper = figure.points(Settings(Size.FULL, data=tmp_path))
    assert {(point["data"], point["clients"], point["trained_epochs"]) for point in paper} == {("MNIST", 100, 50)}


@pytest.mark.slow
def test_claims_about_mnist_are_judged_on_mnist(ran: Path) -> None:
    (figure,) = chosen(["gspa-fig4"])
    reached = {"no noise": 0.92, "all 0.5": 0.90, "U(0.5, 1)": 0.91, "U(0.01, 2)": 0.68}
    rows = [
        {
            "distribution": name,
            "data": "MNIST",
            "reached": accuracy,
            "spent": 4.0 if noisy else None,
            "grade": "HEURISTIC" if noisy else None,
            "asymptotic": 8.0,
        }
        for noisy, (name, accuracy) in enumerate(reached.items())
    ]
    assert [verdict.verdict for verdict in figure.judge(rows)] == [
        "not reproduced",
        "reproduced",
        "reproduced",
        "not reproduced",
    ]


@pytest.mark.slow
def test_numbers_are_kept_for_what_they_depend_on(ran: Path) -> None:
    """A second run computes nothing; another seed does."""
    calls: list[tuple[float, float]] = []
    figures = chosen(["gspa-theorem2"])
    run_figures(figures, ran, QUICK, jobs=1, progress=lambda done, total, _: calls.append((done, total)))
    assert calls == [(4, 4)]
    calls.clear()
    run_figures(
        figures, ran, Settings(Size.QUICK, 1), jobs=1, progress=lambda done, total, _: calls.append((done, total))
    )
    assert calls == [(done, 4) for done in range(5)]


@pytest.mark.slow
def test_the_command_answers_in_json_and_writes_the_page(ran: Path, tmp_path: Path) -> None:
    listed = answer("experiment", "list")["figures"]
    assert [entry["name"] for entry in listed] == list(VERDICTS)
    page = tmp_path / "page.md"
    options: tuple[str | Path, ...] = ("--quick", "--jobs", "1", "--out", ran, "--page", page)
    result = answer("experiment", "run", "gspa-fig2", *options)["figures"]
    assert [set(experiment) for experiment in result] == [{"name", "paper", "verdict", "reason"}]
    assert result[0]["verdict"] == "partly reproduced"
    assert "**partly reproduced**" in page.read_text()
    assert (tmp_path / "page" / "gspa-fig2.svg").stat().st_size <= 60_000
    assert "gspa-fig2 (GSPA" in croupier("experiment", "run", "gspa-fig2", *options).stdout


def test_numbers_at_an_axis_are_drawn_whole(tmp_path: Path) -> None:
    points = [[1.0, 0.005], [2.0, 0.02]]
    line = {"label": "ε at 0.005", "role": "other", "points": points, "below": [], "band": None}
    panel = {"title": "0.125", "x_label": "n", "y_label": "ε", "log": "y", "lines": [line]}
    plot_experiment({"panels": [panel]}, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    for text in (">0.005</text>", ">0.125</text>", ">ε at 0.005</text>"):
        assert text in drawn


def test_plots_of_the_pages_are_small() -> None:
    docs = Path(__file__).parents[2] / "docs"
    plots = [*docs.glob("sgd-*.png"), *docs.glob("experiments/*.svg")]
    assert len(plots) > 10
    assert not [plot.name for plot in plots if plot.stat().st_size > 60_000]


def test_checkins_are_read_in_the_format_of_snap(tmp_path: Path) -> None:
    box, inside, outside = BOXES["Paris"], "48.8401\t2.2901", "37.78\t-122.42"
    lines = [f"{user}\t2010-10-19T23:55:27Z\t{place}\t22847" for user, place in enumerate((inside, outside, inside))]
    lines.append("9\t2010-10-19T23:55:27Z\t48.8799\t2.3699\t22847")
    plain, packed = tmp_path / "loc-gowalla_totalCheckins.txt", tmp_path / "packed" / "totalCheckins.txt.gz"
    plain.write_text("\n".join(lines) + "\n")
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for file in (plain, packed):
        assert Settings(data=file.parent).checkins == file
        assert read_checkins(file, box, 12).tolist() == [0, 0, 143]
    plain.write_text("1\t2010\tnorth\t2.29\t3\n")
    with pytest.raises(ValueError, match=naming("line 1")):
        read_checkins(plain, BOXES["San Francisco"], 12)
    plain.write_text(lines[1] + "\n")
    with pytest.raises(ValueError, match=naming("check-in")):
        read_checkins(plain, box, 16)


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    assert re.search(naming("'fig9'"), refused("experiment", "run", "fig9", "--out", tmp_path))
    said = refused("experiment", "all", "--quick", "--full", "--out", tmp_path)
    assert re.search(naming("--quick", "--full"), said)


def test_the_verdict_of_a_figure() -> None:
    held, fell, broken = (
        Finding("claim", verdict, "found") for verdict in (Verdict.REPRODUCED, Verdict.NOT, Verdict.REFUTED)
    )
    assert worst([held]) is Verdict.REPRODUCED
    assert worst([held, fell]) is Verdict.PARTLY
    assert worst([fell, fell]) is Verdict.NOT
    assert worst([held, fell, broken]) is Verdict.REFUTED
