"""CSV files that people open in spreadsheets: every one is written here.

Labels and names come from others, and a spreadsheet runs a text that looks like a formula, which can send away the
secret links beside it. Such a text gets an apostrophe in front, as OWASP advises against CSV injection. What a program
reads exactly is the JSON; lists that this program reads again are read by `csv_records`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from croupier.protocol.names import JsonObject
from croupier.show.distribution import shares_of, statistics_of
from croupier.show.numbers import numbers_of

# A spreadsheet may also end a cell at a semicolon or a tab, and it passes over spaces and quotes before a formula.
# Apostrophes are passed over here as well: so each such text gets one more in front, and `plain_text` takes it away.
_START = r"(?:^|(?<=[;\t\n]))"
_FORMULA = r"(?='*[\t\n]|(?:[^\S\t\n]|[\"'])*[=+\-@＝＋－＠])"
_BEFORE_FORMULA = re.compile(_START + _FORMULA)
_APOSTROPHE = re.compile(f"{_START}'{_FORMULA}")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table as CSV: no text in it is a formula, numbers stay numbers, and None is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def csv_records(text: str) -> list[dict[str, str]]:
    """Returns the rows of a table written by `csv_text`, with their original texts."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return [{name: plain_text(cell or "") for name, cell in row.items()} for row in rows]


def result_csv(result: JsonObject) -> str:
    """Returns a table with a line for each number of a result, and the cost of the result on each line."""
    certificate = result["certificate"]
    numbers = ("estimate", "projected", "standard_error", "low", "high")
    columns = ["round_id", "label", *numbers, "confidence_level", "num_reports", "epsilon", "delta", "grade"]
    cost = [certificate["epsilon"], certificate["delta"], certificate["grade"]]
    listed = [*numbers_of(result), *statistics_of(result)]
    listed += [replace(number, label=f"share at {number.label}") for number in shares_of(result)]
    rows: list[Sequence[object]] = []
    for number in listed if certificate["granted"] else []:
        error = None if math.isnan(number.standard_error) else number.standard_error
        estimate = [number.estimate, number.projected, error, *number.participants]
        line = [result["round_id"], number.label, *estimate, result["confidence_level"], result["num_reports"]]
        rows.append([*line, *cost])
    return csv_text(columns, rows)


def spreadsheet_text(text: str) -> str:
    """Returns a text that no spreadsheet takes for a formula; a number stays one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # Python 3.11 does not quote "\r", which would end a row
    return text if _NUMBER.fullmatch(text) else _BEFORE_FORMULA.sub("'", text)


def plain_text(text: str) -> str:
    """Returns the text for which `spreadsheet_text` has written this one."""
    return _APOSTROPHE.sub("", text)
