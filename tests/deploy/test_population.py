"""Participants from a file: which rows are used, and what is said about the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deploy.local.budget_groups import parse_budget_groups
from deploy.local.demo import DemoQuestion, _AnsweredQuestion
from deploy.local.population import read_population
from protocol.mechanisms import OneBit
from protocol.questions import Question

GROUPS = parse_budget_groups("1")
HOURS = Question("hours", OneBit(0.0, 5.0))


def answered(file: Path, *, clamp: bool) -> _AnsweredQuestion:
    population = read_population(file, "hours", HOURS, GROUPS, clamp=clamp)
    nothing: Any = SimpleNamespace()
    return _AnsweredQuestion(DemoQuestion(HOURS, "hours"), population, nothing)


def test_a_demonstration_clamps_and_names_the_truth_of_the_whole_column(tmp_path: Path) -> None:
    """Reproduction: 553 of 600 rows were dropped, and the mean of the 47 kept was called the truth."""
    file = tmp_path / "hours.csv"
    file.write_text("hours\n1\n3\n8\n-2\ninf\nmany\n")
    clamped, dropped = answered(file, clamp=True), answered(file, clamp=False)
    assert clamped.truth() == ((1 + 3 + 5 + 0) / 4,)
    assert clamped.truth(as_stated=True) == ((1 + 3 + 8 - 2) / 4,)
    first, second = clamped.notes()
    assert first.startswith("2 of 4 values (50.0%) are outside the interval and count as its nearer end")
    assert first.endswith("their mean is 2.5000")
    assert second.startswith("2 of 6 rows were left out, also of the truth; line 6: value is 'inf'")
    assert dropped.truth() == dropped.truth(as_stated=True) == (2.0,)
    assert dropped.notes()[0].startswith("4 of 6 rows were left out, also of the truth; line 4: value is '8'")


def test_another_file_holds_other_people_and_the_same_file_the_same(tmp_path: Path) -> None:
    for name, text in (("a", "hours\n1\n2\n"), ("b", "hours\n3\n4\n"), ("copy", "hours\n1\n2\n")):
        (tmp_path / name).write_text(text)
    a, b, copy = (
        set(read_population(tmp_path / name, "hours", HOURS, GROUPS).participants) for name in ("a", "b", "copy")
    )
    assert a == copy
    assert not a & b
