"""The table of all benches beside the run that was kept: medians, ratios, machines; and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from croupier.show.documents import write_json
from research.bench.comparison import add_run, compare, comparison_lines, machine, page_parts
from research.page_parts import part_of_page
from tests.support.command_line import answer, croupier, refused

DOCS = Path(__file__).parents[2] / "docs"


def document(*runs: dict[str, list[Any]], **where: Any) -> Any:
    return {"machine": machine() | where, "runs": list(runs)}


def test_figures_are_medians_and_ratios_are_costs() -> None:
    before = document({"speed": [100.0, "users/s"], "time": [4.0, "s"], "gone": [1.0, "s"]})
    now = document(
        {"speed": [40.0, "users/s"], "time": [5.0, "s"]},
        {"speed": [50.0, "users/s"], "time": [6.0, "s"], "new": [7.0, "MB"]},
        {"speed": [60.0, "users/s"], "time": [1.0, "s"]},
    )
    figures = {figure.name: (figure.now, figure.before, figure.ratio) for figure in compare(now, before)}
    assert figures == {"speed": (50.0, 100.0, 2.0), "time": (5.0, 4.0, 1.25), "new": (7.0, None, None)}
    text = "\n".join(comparison_lines(now, before))
    assert "| speed | users/s | 100 | 50 | **2.00** |" in text
    assert "| new | MB |  | 7 |  |" in text
    assert "medians of 3 runs" in text
    assert "two machines" not in text
    assert "two machines" in "\n".join(comparison_lines(now, document(before["runs"][0], cores=-1)))


def test_a_run_is_added_once_and_runs_of_another_machine_are_dropped() -> None:
    figures = {"time": (4.0, "s")}
    once = add_run(None, figures)
    assert add_run(once, figures) == once
    assert add_run(once, {"time": (5.0, "s")})["runs"] == [{"time": [4.0, "s"]}, {"time": [5.0, "s"]}]
    assert add_run(document(once["runs"][0], cores=-1), {"time": (5.0, "s")})["runs"] == [{"time": [5.0, "s"]}]


def test_the_command_names_what_became_worse_and_keeps_a_run(tmp_path: Path) -> None:
    out, kept, page = tmp_path / "out", tmp_path / "kept", tmp_path / "page.md"
    where = ("research", "bench-report", "--out", out, "--kept", kept, "--page", page)
    assert "nothing" in refused(*where)
    page.write_text("# A page\n<!-- measured -->\n<!-- end of measured -->\n")

    def measured(seconds: float) -> None:
        write_json(out / "accountant.json", [{"case": "rr", "processor_s": seconds}])

    measured(2.0)
    (first,) = answer(*where, "--keep")["compared"]
    assert (first["now"], first["before"], first["ratio"]) == (2.0, None, None)
    assert "| certificate, rr | 2 | CPU s |" in page.read_text()
    (out / "benchmarks.json").unlink()
    measured(3.0)
    assert "worse: certificate, rr: 3 CPU s, 2 before" in croupier(*where).stderr
    assert "**1.50**" in (out / "benchmarks.md").read_text(encoding="utf-8")
    assert (out / "benchmarks.png").exists()


@pytest.mark.parametrize("part", ["measured", "load", "stores"])
def test_the_page_shows_the_run_that_is_kept(part: str) -> None:
    _, inside, _ = part_of_page(DOCS / "benchmarks.md", part)
    assert inside == "\n" + "\n".join(page_parts(DOCS / "bench")[part])
    assert json.loads((DOCS / "bench" / "benchmarks.json").read_text(encoding="utf-8"))["machine"]["cores"]
