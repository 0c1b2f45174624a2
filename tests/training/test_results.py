"""The page of results: what its rows are called, on a small data set and after one epoch each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from deploy.training.datasets import load_dataset
from deploy.training.results import write_page


def test_every_row_says_what_its_epsilon_is_worth(tmp_path: Path) -> None:
    """Reproduction: rows with components fitted to private data stood in a column called CERTIFIED."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    said: list[str] = []
    digits = load_dataset("digits")
    few = replace(digits, train=digits.train.part(slice(0, 300)))
    outcomes = write_page(page, tmp_path / "out", few, said.append, epochs=1)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    record, user = text.split("**simulated: 500 users")
    assert "**simulated: 100 clients with 5 records each" in record
    for part, grade, other in ((record, "HEURISTIC", "CERTIFIED"), (user, "CERTIFIED", "HEURISTIC")):
        rows = [line for line in part.splitlines() if line.startswith("| ") and "test accuracy" not in line]
        assert sum("not private" in row for row in rows) == 1
        assert sum(f" {grade} |" in row for row in rows) == len(rows) - 1 >= 3
        assert other not in part
    documents = json.loads((tmp_path / "out" / "sgd.json").read_text())
    assert documents == [one.document() for one in outcomes]
    for one in documents:
        if one["certificate"] is not None:
            assert any("protected no user" in line for line in one["certificate"]["assumptions"])
            assert any(line.startswith("not covered: step size") for line in one["certificate"]["assumptions"]) == one[
                "title"
            ].startswith("user")
    assert len(said) == len(outcomes) == 9
