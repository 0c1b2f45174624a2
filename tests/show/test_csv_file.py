"""The CSV file of a result: no spreadsheet runs a cell of it, and numbers stay numbers."""

from __future__ import annotations

import csv
import io
from itertools import product
from typing import Any

import pytest

from croupier.show.csv_file import csv_records, csv_text, plain_text, result_csv, spreadsheet_text


def lines(labels: list[str], round_id: str = "mood-1") -> list[dict[str, str]]:
    result: Any = {
        "round_id": round_id,
        "values": [
            {
                "label": label,
                "estimate": -0.25,
                "projected": 0.0,
                "standard_error": 0.5,
                "confidence_interval": {"low": -1e-07, "high": 0.5},
                "population_interval": {"low": -1e-07, "high": 0.5},
            }
            for label in labels
        ],
        "confidence_level": 0.95,
        "num_reports": 100,
        "sealed": False,
        "certificate": {"granted": True, "epsilon": 0.1, "delta": 1e-6, "grade": "CERTIFIED"},
    }
    return list(csv.DictReader(io.StringIO(result_csv(result))))


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("=cmd()", "'=cmd()"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+1+cmd()", "'+1+cmd()"),
        ("-1+cmd()", "'-1+cmd()"),
        (" =cmd()", "' =cmd()"),
        ("\tcalm", "'\tcalm"),
        ("\ncalm", "'\ncalm"),
        ("'=cmd()", "''=cmd()"),
        ("\N{FULLWIDTH EQUALS SIGN}cmd()", "'\N{FULLWIDTH EQUALS SIGN}cmd()"),
        ("a;=cmd()", "a;'=cmd()"),  # a cell of its own where lists are parted by semicolons
        ('a;"=cmd()', "a;'\"=cmd()"),
        ("a\t=cmd()", "a\t'=cmd()"),
        ('a,"=cmd()', 'a,"=cmd()'),  # one cell, which begins with "a"
    ],
)
def test_no_label_and_no_name_of_a_round_is_a_formula(label: str, written: str) -> None:
    assert spreadsheet_text(label) == written
    assert plain_text(written) == label
    (line,) = lines([label], round_id=label)
    assert (line["label"], line["round_id"]) == (written, written)


def test_what_no_spreadsheet_runs_is_written_as_it_is() -> None:
    labels = ["calm", "-1", "+2.5e3", "18-24", "a=b", 'so "so", la la', ""]
    read = lines(labels)
    assert [line["label"] for line in read] == labels
    assert [read[0][name] for name in ("estimate", "low", "epsilon")] == ["-0.25", "-1e-07", "0.1"]


def test_every_text_is_read_again_as_it_was() -> None:
    texts = ["".join(text) for length in range(6) for text in product("=-1'; \t", repeat=length)]
    assert [row["text"] for row in csv_records(csv_text(["text", "n"], ((text, 1) for text in texts)))] == texts
    assert csv_records("") == []
    (row,) = csv_records(csv_text(["text", "n"], [("calm\r=cmd()", 1)]))
    assert row == {"text": "calm\n=cmd()", "n": "1"}
