"""A result as a CSV file, for spreadsheets.

Labels and the round's name come from others, and a spreadsheet runs a text that looks like a formula. Such a text gets
an apostrophe before the formula, as OWASP advises against CSV injection. What a program reads exactly is the JSON.
"""

from __future__ import annotations

import csv
import io
import math
import re

from croupier.show.distribution import shares_of, statistics_of
from croupier.show.views.results import ResultView, numbers_of

__all__ = ["result_csv", "spreadsheet_text"]

# A spreadsheet may end a cell at a semicolon, too, and it passes over spaces and quotes before a formula.
_FORMULA = re.compile(r'(?:^|(?<=;))([\s"]*)(?=[=+\-@＝＋－＠])')
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def result_csv(result: ResultView) -> str:
    """Returns a table with a line for each number of a result, and what the result cost on each line."""
    certificate, out = result["certificate"], io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    numbers = ("estimate", "projected", "standard_error", "low", "high")
    writer.writerow(["round_id", "label", *numbers, "confidence_level", "num_reports", "epsilon", "delta", "grade"])
    cost = [certificate["epsilon"], certificate["delta"], certificate["grade"]]
    round_id = spreadsheet_text(result["round_id"])
    listed = [*numbers_of(result), *statistics_of(result)]
    listed += [number._replace(label=f"share at {number.label}") for number in shares_of(result)]
    for number in listed if certificate["granted"] else []:
        error = "" if math.isnan(number.standard_error) else number.standard_error
        estimate = [number.estimate, number.projected, error, *number.interval]
        line = [round_id, spreadsheet_text(number.label), *estimate, result["confidence_level"], result["num_reports"]]
        writer.writerow([*line, *cost])
    return out.getvalue()


def spreadsheet_text(text: str) -> str:
    """Returns a text that no spreadsheet takes for a formula; a number stays one."""
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub(r"\1'", text)
