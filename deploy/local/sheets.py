"""The columns of an Excel file and of a data frame, as texts; and which kind of file a path is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from croupier.deploy.local.columns import Columns, Rows
from croupier.deploy.local.csv_columns import CsvFile

_MOST_UNPACKED = 32 << 20
"""The most bytes of an Excel file when it is unpacked, some 800,000 cells; a CSV file has room for more."""
MOST_CELLS = 10_000_000
"""The most cells of a sheet or a Parquet file, empty ones between others included: a few bytes can stand for many."""
LAST_ROW = 1_048_576
"""The last row of a sheet in Excel. A row states its own number, and all rows before it are read as empty ones."""
_LONGEST_CELL = 32_767
"""The most characters that Excel allows in a cell; one long text can be referred to by every cell."""


def open_table(path: Path, limit: int | None = None) -> Columns:
    """Returns the table in a file, by the ending of its name: Excel's .xlsx and .xlsm, else CSV; nothing is read yet.

    Raises:
        ValueError: the file is of the format that Excel wrote before 2007.
    """
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        return ExcelFile(path, limit)
    if path.suffix.lower() in (".xls", ".ods", ".numbers"):
        raise ValueError(f"{path} cannot be read; save it as an Excel workbook (.xlsx) or as CSV")
    return CsvFile(path, limit)


def read_lines(path: Path) -> tuple[list[tuple[int, list[str]]], str]:
    """Returns every line of a table that may have no header, with its number, and what was assumed in order to read it.

    Raises:
        ValueError: the file does not exist, or cannot be read.
    """
    table = open_table(path)
    with table.rows() as (first, others):
        return [(1, first), *others], table.assumed


def _text(value: object) -> str:
    """Returns a cell as CSV has it: a whole number without a point, true and false as 1 and 0, nothing as ""."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


class ExcelFile(Columns):
    """The first sheet of an Excel workbook, whose first row is the header; formulas count as their last result."""

    def __init__(self, path: Path, limit: int | None = None) -> None:
        """Names the file; see `Columns`."""
        super().__init__(str(path), limit)
        self.path = path

    @cached_property
    def digest(self) -> str:
        """See `Columns`; of the file's bytes."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]

    def readings(self) -> list[str]:
        """See `Columns`."""
        first, *others = self._sheets
        return [f"only its first sheet, {first!r}"] if others else []

    def has_decimal_commas(self, texts: Sequence[str]) -> bool:
        """See `Columns`; a number in a sheet is not text, and has no comma of either kind."""
        return False

    @cached_property
    def _sheets(self) -> list[str]:
        with self._book() as book:
            return [*book.sheetnames]

    @contextmanager
    def _book(self) -> Iterator[Any]:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException

        if not self.path.exists():
            raise ValueError(f"{self.path} does not exist")
        try:
            with ZipFile(self.path) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
            if unpacked > _MOST_UNPACKED:
                raise ValueError(
                    f"it has {unpacked:,} bytes when it is unpacked, and at most {_MOST_UNPACKED:,} are read: save it "
                    "as CSV"
                )
            book = load_workbook(self.path, read_only=True, data_only=True)
        except (OSError, KeyError, ValueError, BadZipFile, InvalidFileException) as error:
            raise ValueError(f"{self.path} cannot be read; it must be an Excel workbook: {error}") from error
        try:
            yield book
        finally:
            book.close()

    @contextmanager
    def rows(self) -> Iterator[Rows]:
        """See `Columns`; rows without a cell are passed over, and so are empty cells behind the last column."""
        with self._book() as book:
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # which the file states, and which need not be true
            rows = self._texts(sheet)
            names = [name.strip() for name in next(rows, [])]
            while names and not names[-1]:
                names.pop()

            def filled() -> Iterator[tuple[int, list[str]]]:
                for line, cells in enumerate(rows, start=2):
                    while len(cells) > len(names) and not cells[-1]:
                        cells.pop()
                    if any(cells):
                        yield line, cells

            yield names, filled()

    def _texts(self, sheet: Any) -> Iterator[list[str]]:
        """Yields the cells of each row as texts; raises ValueError for too many rows or cells, and for a long cell."""
        cells = 0
        for line, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            if line > LAST_ROW:
                raise ValueError(f"{self.path} has more than {LAST_ROW:,} rows; Excel writes no more")
            cells += len(row)
            if cells > MOST_CELLS:
                raise ValueError(f"{self.path} has more than {MOST_CELLS:,} cells; save it as CSV")
            texts = [_text(cell) for cell in row]
            if any(len(text) > _LONGEST_CELL for text in texts):
                raise ValueError(
                    f"{self.path} has a cell of more than {_LONGEST_CELL:,} characters; Excel writes no more"
                )
            yield texts


class Frame(Columns):
    """A data frame of pandas or polars; a row is named by its place, from 1."""

    def __init__(self, frame: Any) -> None:
        """Keeps the frame.

        Raises:
            ValueError: it is no data frame.
        """
        super().__init__("the data frame")
        if not (hasattr(frame, "columns") and hasattr(frame, "__getitem__") and hasattr(frame, "shape")):
            raise ValueError(f"data is of type {type(frame).__name__}; it must be a data frame or the path of a file")
        self._frame = frame

    @cached_property
    def digest(self) -> str:
        """See `Columns`; of all its cells as texts."""
        hashed = hashlib.sha256()
        with self.rows() as (names, rows):
            hashed.update("\x1f".join(names).encode())
            for _, cells in rows:
                hashed.update(("\x1e" + "\x1f".join(cells)).encode(errors="surrogatepass"))
        return hashed.hexdigest()[:16]

    @contextmanager
    def rows(self) -> Iterator[Rows]:
        """See `Columns`."""
        columns = [[_cell(value) for value in self._frame[name].to_list()] for name in self._frame.columns]
        names = [str(name).strip() for name in self._frame.columns]
        yield names, ((line, [*cells]) for line, cells in enumerate(zip(*columns, strict=True), start=1))


def _cell(value: object) -> str:
    """Returns a value of a frame as text; what pandas has for a missing value is ""."""
    missing = type(value).__name__ in ("NAType", "NaTType")
    return "" if missing else _text(value)
