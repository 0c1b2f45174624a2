"""Participants from a file: which rows are used, and what is said about the others."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from croupier.deploy.local.budget_groups import parse_budget_groups
from croupier.deploy.local.csv_columns import CsvFile
from croupier.deploy.local.demo_plan import DemoQuestion, PlannedRound, ask_about
from croupier.deploy.local.population import (
    PopulationFile,
    Rows,
    guess_question,
    read_groups,
    read_population,
)
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.questions import Question
from tests.support.messages import naming

GROUPS = parse_budget_groups("1")
HOURS = Question("hours", OneBit(0.0, 5.0))


def answered(file: Path, *, clamp: bool) -> PlannedRound:
    population = read_population(PopulationFile(CsvFile(file), "hours", GROUPS, clamp=clamp), HOURS)
    nothing: Any = SimpleNamespace()
    return PlannedRound("hours", DemoQuestion(HOURS, "hours"), None, population, nothing)


def test_values_outside_the_range_are_counted_and_clamped_ones_not_true(tmp_path: Path) -> None:
    """Reproductions: 553 of 600 rows were dropped in silence; the mean of clamped values was called the truth."""
    file = tmp_path / "hours.csv"
    file.write_text("hours\n1\n3\n8\n-2\ninf\nmany\n")
    clamped, dropped = answered(file, clamp=True), answered(file, clamp=False)
    assert clamped.truth() == ((1 + 3 + 8 - 2) / 4,)
    first, second = clamped.data_notes()
    assert re.search(naming(2, "4 values (50.0", "0 to 5", "2.2500", "not the truth"), first)
    assert re.search(naming(2, "6 rows", "line 6", "'inf'"), second)
    assert dropped.truth() == (2.0,)
    first, second = dropped.data_notes()
    assert re.search(naming(2, "6 values (33.3", "0 to 5", "left out"), first)
    assert re.search(naming(2, "6 rows", "line 6", "'inf'"), second)
    assert dropped.population.outside == frozenset({"4", "5"})


def test_another_file_holds_other_people_and_the_same_file_the_same(tmp_path: Path) -> None:
    for name, text in (("a", "hours\n1\n2\n"), ("b", "hours\n3\n4\n"), ("copy", "hours\n1\n2\n")):
        (tmp_path / name).write_text(text)
    a, b, copy = (
        set(read_population(PopulationFile(CsvFile(tmp_path / name), "hours", GROUPS), HOURS).participants)
        for name in ("a", "b", "copy")
    )
    assert a == copy
    assert not a & b


def test_a_row_with_more_fields_than_the_header_is_refused(tmp_path: Path) -> None:
    """Reproduction: of 1,250 hours one was read, and nothing was said."""
    file = tmp_path / "people.csv"
    file.write_text("hours,site\n3,north\n1,250,south\n")
    said = f"{file}: line 3: the number of fields is 3; it must be 2, as in the header"
    for column in ("hours", "site"):
        with pytest.raises(ValueError, match=re.escape(said)):
            read_population(PopulationFile(CsvFile(file), column, GROUPS), HOURS)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_groups(CsvFile(file), "site")
    assert len(read_population(PopulationFile(CsvFile(file, 1), "hours", GROUPS), HOURS).participants) == 1


def test_an_empty_cell_is_no_category(tmp_path: Path) -> None:
    """Reproduction: of a 0/1 column with gaps the share of '', 0 and 1 was asked."""
    file = tmp_path / "people.csv"
    file.write_text("smokes,mood,blank\n1,good,\n0, ,\n,bad,\n")
    for column, kind, empty in (("smokes", "rr", 4), ("mood", "krr", 3)):
        question = guess_question(CsvFile(file), column, None, None)
        population = read_population(PopulationFile(CsvFile(file), column, GROUPS), question)
        assert (question.mechanism.kind, len(population.participants), list(population.rejected)) == (
            kind,
            2,
            [str(empty)],
        )
    with pytest.raises(ValueError, match=naming("'blank'")):
        guess_question(CsvFile(file), "blank", None, None)


def test_a_value_that_cannot_be_shown_is_named_with_its_file(tmp_path: Path) -> None:
    """Reproduction: the message named neither the file nor the column."""
    file = tmp_path / "people.csv"
    file.write_text("mood\ngood\n\x1b\n")
    with pytest.raises(ValueError, match=naming(file, "'mood'", "'\\x1b'")):
        guess_question(CsvFile(file), "mood", None, None)


def test_names_of_columns_as_people_write_them(tmp_path: Path) -> None:
    """Reproductions: spaces around a name counted and were not seen; a comma in one looked like two columns."""
    file = tmp_path / "people.csv"
    file.write_text(' hours ,"site, town",x,x\n3,north,1,0\n2,south,0,1\n')
    for name in ("hours", " hours "):
        assert len(read_population(PopulationFile(CsvFile(file), name, GROUPS), HOURS).participants) == 2
    assert ask_about(file, ["hours:0:5", "site, town"], None, None, None)[1][0].question == HOURS
    with pytest.raises(ValueError, match=naming("'town'", "hours, 'site, town', x, x")):
        CsvFile(file).check(["town"])
    with pytest.raises(ValueError, match=naming(2, "'x'")):
        read_population(PopulationFile(CsvFile(file), "x", GROUPS), HOURS)


def test_several_columns_are_several_questions(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("smokes,hours,a:0:9\n1,3,x\n0,30,y\n")
    asked = ask_about(file, ["smokes", "hours:0:24", "a:0:9"], None, None, None)[1]
    assert [(column.column, column.question.mechanism.kind) for column in asked] == [
        ("smokes", "rr"),
        ("hours", "onebit"),
        ("a:0:9", "krr"),
    ]
    assert asked[1].question.mechanism == OneBit(0.0, 24.0)
    assert ask_about(file, ["hours"], 0.0, 24.0, None)[1][0].question == asked[1].question
    for columns, low, why in (
        (["smokes", "hours"], 0.0, "--value-column"),
        (["smokes", "smokes"], None, "column"),
        (["hours:0:many"], None, "'many'"),
    ):
        with pytest.raises(ValueError, match=why):
            ask_about(file, columns, low, None, None)


def test_groups_divide_the_rows_and_each_person_is_in_one(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("hours,site\n1,north\n2, south \n3,north\n4,a=b\n9,north\n")
    groups = read_groups(CsvFile(file), "site")
    assert groups == [Rows("site", "a=b"), Rows("site", "north"), Rows("site", "south")]
    populations = [
        read_population(PopulationFile(CsvFile(file), "hours", GROUPS, where=group), HOURS) for group in groups
    ]
    assert [[participant.value for participant in part.participants.values()] for part in populations] == [
        [4.0],
        [1.0, 3.0],
        [2.0],
    ]
    assert [list(part.rejected) for part in populations] == [[], ["6"], []]
    everybody = read_population(PopulationFile(CsvFile(file), "hours", GROUPS), HOURS).participants
    assert sorted(name for part in populations for name in part.participants) == sorted(everybody)
    assert [Rows.parse(str(group)) for group in groups] == groups
    with pytest.raises(ValueError, match=naming("COLUMN=VALUE")):
        Rows.parse("north")
    with pytest.raises(ValueError, match="has site=west"):
        read_population(PopulationFile(CsvFile(file), "hours", GROUPS, where=Rows("site", "west")), HOURS)
    with pytest.raises(ValueError, match=naming(1, "groups")):
        read_groups(CsvFile(file, 1), "site")
    file.write_text("hours,site\n1,north\n2, \n")
    with pytest.raises(ValueError, match=naming("people.csv: line 3: 'site'")):
        read_groups(CsvFile(file), "site")
