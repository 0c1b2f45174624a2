"""Tables as the world has them: separators, encodings, decimal commas, workbooks, data frames, and what was assumed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import openpyxl
import pandas
import polars
import pytest

from croupier.deploy.local.budget_groups import parse_budget_groups
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.demo_questions import ask_about
from croupier.deploy.local.population import PopulationFile, guess_question, read_population
from croupier.deploy.local.scales import in_order
from croupier.deploy.local.sheets import Frame, open_table
from croupier.protocol.mechanisms import KaryResponse, OneBit
from croupier.protocol.questions import Question
from tests.support.messages import naming

HOURS = Question("hours", OneBit(0.0, 24.0))


def values_of(file: Columns, question: Question = HOURS) -> list[float]:
    population = read_population(PopulationFile(file, question.name, parse_budget_groups("1")), question)
    assert population.rejected == {}
    return [float(participant.value) for participant in population.participants.values()]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hours,site\n3.5,north\n8,south\n", ""),
        (
            b"\xef\xbb\xbfhours;site\r\n3,5;north\r\n8;south\r\n",
            "semicolons between the columns, a comma in hours as the",
        ),
        (b"site\thours\nnorth\t3.5\nsouth\t8\n", "tabs between the columns"),
        (b"hours|site\n3.5|north\n8|a, b\n", "bars between the columns"),
        (
            "hours;site\n3,5;Köln\n8;München\n".encode("cp1252"),
            "the encoding Windows-1252 (it is not UTF-8), semicolons",
        ),
        ("hours\tsite\n3.5\tKöln\n8\tx\n".encode("utf-16"), "the encoding UTF-16, tabs between the columns"),
        (b'hours,site\n"3,5",north\n8,south\n', "a comma in hours as the decimal sign"),
    ],
)
def test_files_as_spreadsheets_of_many_countries_write_them(tmp_path: Path, content: bytes, said: str) -> None:
    """Reproductions: only commas and UTF-8 were read, and 3,5 was refused as a number."""
    (path := tmp_path / "people.csv").write_bytes(content)
    file = open_table(path)
    assert values_of(file) == [3.5, 8.0]
    assert file.assumed.startswith(f"{path} is read with {said}") if said else file.assumed == ""


def test_commas_that_may_be_thousands_are_not_taken_for_decimal_signs(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text('hours,site\n"1,250",north\n"2,500",south\n')
    assert [text for _, text in open_table(path).column("hours")] == ["1,250", "2,500"]
    (path := tmp_path / "b.csv").write_text("hours;site\n1.250,5;north\n12;south\n")
    file = open_table(path)
    assert [text for _, text in file.column("hours")] == ["1250.5", "12"]
    assert "decimal sign" in file.assumed
    (path := tmp_path / "c.csv").write_text("hours;site\n1,5;a,b\n")
    assert [text for _, text in open_table(path).column("site")] == ["a,b"]


def test_a_workbook(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for row in (
        ["hours", "smokes", "mood", None],
        [3.5, True, "good", None],
        [8, 0, "bad"],
        [None] * 3,
        [2.0, False, ""],
    ):
        sheet.append(row)
    book.save(path := tmp_path / "people.xlsx")
    file = open_table(path)
    assert values_of(file) == [3.5, 8.0, 2.0]
    assert [cell[1] for cell in file.column("smokes")] == ["1", "0", "0"]
    assert [cell[0] for cell in file.column("mood")] == ["2", "3", "5"]  # the lines of the sheet
    assert guess_question(file, "smokes", None, None).mechanism.kind == "rr"
    assert (file.names, file.assumed) == (("hours", "smokes", "mood"), "")
    book.create_sheet("notes")
    book.save(path)
    again = open_table(path, 2)
    assert values_of(again) == [3.5, 8.0]
    assert re.search(naming(path, "'Sheet'"), again.assumed)
    path.write_bytes(b"hours\n1\n")
    with pytest.raises(ValueError, match=naming("people.xlsx")):
        open_table(path).check(["hours"])
    with pytest.raises(ValueError, match=naming("b.xlsx")):
        open_table(tmp_path / "b.xlsx").check(["hours"])
    with pytest.raises(ValueError, match=naming("(.xlsx)", "CSV")):
        open_table(tmp_path / "old.xls")


@pytest.mark.parametrize("library", [pandas, polars], ids=lambda library: library.__name__)
def test_a_data_frame(library: Any) -> None:
    frame = library.DataFrame({"hours": [3.5, 8, 2], "smokes": [True, False, None], "mood": ["good", None, "bad"]})
    file = Frame(frame)
    assert values_of(file) == [3.5, 8.0, 2.0]
    assert [text for _, text in file.column("smokes")] == ["1", "0", ""]
    assert [text for _, text in file.column("mood")] == ["good", "", "bad"]
    assert guess_question(file, "mood", None, None).mechanism == KaryResponse(2, ("bad", "good"))
    assert file.digest == Frame(frame).digest != Frame(frame[:2]).digest
    with pytest.raises(ValueError, match=naming("'site'", "hours, smokes, mood")):
        file.check(["site"])
    with pytest.raises(ValueError, match=naming("data", "int")):
        Frame(3)


def test_categories_are_in_the_order_of_their_scale(tmp_path: Path) -> None:
    """Reproduction: answers on a Likert scale were shown in the order of the alphabet, and 10 before 2."""
    assert in_order(["Agree", "Neutral", "Strongly disagree"])[0] == ("Strongly disagree", "Neutral", "Agree")
    assert in_order(["oft", "nie", "immer"])[0] == ("nie", "oft", "immer")
    assert in_order(["10", "2", "1"]) == (("1", "2", "10"), "")
    assert in_order(["red", "blue"]) == (("blue", "red"), "")
    (path := tmp_path / "people.csv").write_text("often,size,site\nAlways,L,n\nNever,S,s\nSometimes,L,n\n")
    file, asked = ask_about(path, ["often", "size", "site"], None, None, None, ["S;M;L"])
    assert [column.question.mechanism.categories for column in asked] == [
        ("Never", "Sometimes", "Always"),
        ("S", "M", "L"),  # M, too, which nobody has chosen
        ("n", "s"),
    ]
    assert file.assumed == (
        f"{path} is read with its order as a known scale for often (Never, Sometimes, Always), the order that was "
        "given for size (S, M, L)"
    )
    with pytest.raises(ValueError, match=naming("ordered", "'S;M;L'")):
        ask_about(path, ["often"], None, None, None, ["S;M;L"])
    with pytest.raises(ValueError, match=naming("'never;sometimes;often'")):
        ask_about(path, ["size"], None, None, None, ["S;S"])
