"""The page of results: what its rows are called, on a small data set and after one epoch each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.protocol.codes import Assumption
from croupier.training.datasets import load_dataset
from research.sgd_results import PARTS, write_page
from tests.support.messages import naming
from tests.support.statements import codes


@pytest.mark.slow
def test_every_row_says_what_its_epsilon_is_worth(tmp_path: Path) -> None:
    """Reproduction: rows with components fitted to private data stood in a column called CERTIFIED."""
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- results -->\nold\n<!-- end of results -->\nbetween\n"
        "<!-- scattering -->\nold\n<!-- end of scattering -->\nafter\n"
    )
    said: list[str] = []
    digits = load_dataset("digits")
    few = replace(digits, train=digits.train.part(slice(0, 300)))
    outcomes = write_page(page, tmp_path / "out", few, said.append, epochs=1)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    before, curves = text.split("between")
    record, user = before.split("**simulated: 500 users")
    assert "**simulated: 100 clients with 5 records each" in record
    for part, grade, other in ((record, "HEURISTIC", "CERTIFIED"), (user, "CERTIFIED", "HEURISTIC")):
        rows = [line for line in part.splitlines() if line.startswith("| ") and "test accuracy" not in line]
        assert sum("not private" in row for row in rows) == 1
        assert sum(f" {grade} |" in row for row in rows) == len(rows) - 1 >= 3
        assert other not in part
    # The 200 examples on which these rows' settings were chosen are users above, and not here.
    assert "**simulated: 300 users" in curves
    rows = [line for line in curves.splitlines() if line.startswith("| ") and "central ε" not in line]
    assert ["CERTIFIED" in row for row in rows] == ["not private" not in row for row in rows] == [False] + [True] * 4
    documents = [record for part in PARTS for record in json.loads((tmp_path / "out" / f"sgd-{part}.json").read_text())]
    assert documents == [outcome.document() for outcome in outcomes]
    for document in documents:
        if document["certificate"] is not None:
            on_users = document["setting"]["unit"] == "user" and document["setting"]["features"] == "dct"
            assert Assumption.SIMULATED in codes(document["certificate"]["assumptions"])
            assert (Assumption.CHOSEN_ON_USERS in codes(document["certificate"]["assumptions"])) == on_users
    assert len(said) == len(outcomes) == 14


def test_a_page_without_a_place_for_rows_is_refused_before_training(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- results -->\n<!-- end of results -->\n")
    said: list[str] = []
    with pytest.raises(ValueError, match=naming("<!-- scattering -->", "<!-- end of scattering -->")):
        write_page(page, tmp_path, load_dataset("digits"), said.append, epochs=1)
    with pytest.raises(ValueError, match=naming("part", "'table'", "results or scattering")):
        write_page(page, tmp_path, load_dataset("digits"), said.append, epochs=1, parts=["table"])
    assert not said
