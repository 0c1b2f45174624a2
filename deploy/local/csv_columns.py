"""The columns of a CSV file, each of which is read once, however often it is asked for."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

__all__ = ["CsvFile"]


class CsvFile:
    """A CSV file in UTF-8 with a header, of which only the columns that are asked for are kept.

    Spaces around a column's name do not count.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        """Names the file; nothing is read yet.

        Args:
            path: of the file.
            limit: how many rows to use, from the first; None for all.
        """
        self.path = path
        self.limit = limit
        self._columns: dict[str, list[tuple[str, str]]] = {}

    def __repr__(self) -> str:
        return f"CsvFile({str(self.path)!r}, {self.limit})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; raises ValueError if the file cannot be read."""
        with self._rows() as rows:
            return tuple(rows.fieldnames or ())

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits of the SHA-256 hash of the file, which tell it from other files."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]

    def column(self, name: str) -> list[tuple[str, str]]:
        """Returns (line, text) of a column.

        Raises:
            ValueError: the file or the column does not exist, the file has no rows, or a row has more fields than line
                1.
        """
        name = name.strip()
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def forget(self) -> None:
        """Frees the memory of the columns that were read."""
        self._columns.clear()

    def check(self, wanted: Sequence[str | None]) -> None:
        """Raises ValueError for a file that cannot be read, or lacks a column; None is for one that is not needed."""
        for name in wanted:
            if name is not None:
                self._check(name.strip(), self.names)

    def _read(self, name: str) -> list[tuple[str, str]]:
        if self.limit is not None and self.limit < 1 and self.path.exists():
            raise ValueError(f"the number of rows to use is {self.limit}; it must be at least 1")
        found = []
        with self._rows() as rows:
            names = list(rows.fieldnames or ())
            for row, _ in zip(rows, range(1 << 62 if self.limit is None else self.limit), strict=False):
                if None in row:  # the fields that the header has no name for
                    extra = len(names) + len(row[None])
                    raise ValueError(
                        f"{self.path}: line {rows.line_num}: the number of fields is {extra}; it must be {len(names)}, "
                        f"as in the header{_not_by_commas(names)}"
                    )
                found.append((str(rows.line_num), row.get(name) or ""))
        self._check(name, names)
        if not found:
            raise ValueError(f"{self.path} has no rows")
        return found

    @contextmanager
    def _rows(self) -> Iterator[csv.DictReader[str]]:
        if not self.path.exists():
            raise ValueError(f"{self.path} does not exist")
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                rows = csv.DictReader(file)
                rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
                yield rows
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{self.path} cannot be read; it must be a CSV file in UTF-8: {error}") from error

    def _check(self, column: str, names: Sequence[str]) -> None:
        path = self.path
        if column not in names:
            mean = "; a mean is COLUMN:LOW:HIGH" if ":" in column else ""
            quoted = ", ".join(repr(name) if "," in name else name for name in names)
            raise ValueError(f"{path} has no column {column!r}; its columns are {quoted}{mean}{_not_by_commas(names)}")
        if names.count(column) > 1:
            raise ValueError(f"{path} has {names.count(column)} columns {column!r}; each must have a name of its own")


def _not_by_commas(names: Sequence[str]) -> str:
    """Returns a remark on a header whose columns are not separated by commas; "" where there is nothing to remark."""
    line = ",".join(names)
    found = [mark for mark in ";\t|" if line.count(mark) >= len(names)]
    return f"; between the columns it has {found[0]!r}, and only commas are read" if found else ""
