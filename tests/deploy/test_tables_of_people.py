"""Tables as the world has them: separators, encodings, decimal commas, workbooks, data frames, and what was assumed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import openpyxl
import pandas
import polars
import pytest

from croupier.deploy.local import sheets
from croupier.deploy.local.budget_groups import parse_budget_groups
from croupier.deploy.local.columns import Columns
from croupier.deploy.local.demo_plan import ask_about
from croupier.deploy.local.population import PopulationFile, guess_question, read_population
from croupier.deploy.local.scales import in_order
from croupier.deploy.local.sheets import Frame, open_table
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.questions import Question
from tests.support.messages import naming
from tests.support.sheets import write_book

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


def workbook_of(path: Path, sheet: str) -> Path:
    """Writes a workbook whose sheet is this XML."""
    write_book(path.with_suffix(".part.xlsx"), [("label",)])
    with ZipFile(path.with_suffix(".part.xlsx")) as made, ZipFile(path, "w", ZIP_DEFLATED) as book:
        for name in made.namelist():
            text = f'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{sheet}</worksheet>'
            book.writestr(name, text if name.endswith("sheet1.xml") else made.read(name))
    return path


def test_a_small_workbook_that_stands_for_a_large_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: files of some kilobytes took half a minute and 615 MB."""
    header = '<row r="1"><c r="A1" t="inlineStr"><is><t>label</t></is></c></row>'
    # The sizes in the archive are looked at before anything is unpacked.
    book = workbook_of(tmp_path / "large.xlsx", f"<sheetData>{header}</sheetData>{' ' * (32 << 20)}")
    assert book.stat().st_size < 50_000
    table = open_table(book)
    with monkeypatch.context() as patched:
        patched.setattr(openpyxl, "load_workbook", lambda *_, **__: pytest.fail("it was unpacked"))
        with pytest.raises(ValueError, match=naming(book, "33,554,432", "CSV")):
            table.column("label")
    # A sheet of one person that states a million rows of 16,384 columns is read as it is.
    stated = f'<dimension ref="A1:XFD1048576"/><sheetData>{header}<row r="3"><c r="A3"><v>1</v></c></row></sheetData>'
    file = open_table(workbook_of(tmp_path / "stated.xlsx", stated))
    assert file.column("label") == [("3", "1")]
    monkeypatch.setattr(sheets, "MOST_CELLS", 20_000)
    far = "".join(f'<row r="{row}"><c r="XFD{row}"><v>1</v></c></row>' for row in (1, 2))
    book = workbook_of(tmp_path / "far.xlsx", f"<sheetData>{far}</sheetData>")
    with pytest.raises(ValueError, match=naming(book, "20,000 cells", "CSV")):
        open_table(book).column("1")
    long = f"<sheetData>{header.replace('label', 'a' * 32_768)}</sheetData>"
    file = open_table(workbook_of(tmp_path / "long.xlsx", long))
    with pytest.raises(ValueError, match=naming("long.xlsx", "32,767")):
        file.check(["label"])


def test_a_row_that_states_a_number_beyond_the_last_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: a file of 1.5 kB, whose second row says that it is the 999,999,999th, was read for ever."""
    monkeypatch.setattr(sheets, "LAST_ROW", 1000)
    header = '<row r="1"><c r="A1" t="inlineStr"><is><t>label</t></is></c></row>'
    for name, rows in (("far", '<row r="999999999"><c r="A999999999"><v>1</v></c></row>'), ("empty", "<row/>" * 1000)):
        book = workbook_of(tmp_path / f"{name}.xlsx", f"<sheetData>{header}{rows}</sheetData>")
        with pytest.raises(ValueError, match=naming(book, "1,000 rows")):
            open_table(book).column("label")


def test_a_line_of_a_csv_file_has_an_end(tmp_path: Path) -> None:
    """A million columns of one character each took 100 bytes each."""
    (path := tmp_path / "wide.csv").write_text("," * ((1 << 20) + 1))
    with pytest.raises(ValueError, match=naming(path, "1,048,576 characters")):
        open_table(path).check(["label"])


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
