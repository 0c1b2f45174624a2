"""Tables as spreadsheets keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from openpyxl import Workbook


def write_book(file: Path, rows: Iterable[Sequence[object]]) -> Path:
    """Writes an Excel workbook of one sheet, and returns its path; a row without cells is an empty line."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(list(row))
    book.save(file)
    return file
