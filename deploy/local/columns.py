"""The columns of a table of people, each of which is read once, however often it is asked for.

What kind of table it is, and what is assumed in order to read it, is left to `csv_columns` and `sheets`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import islice

from croupier.protocol.crossed import crossed

Rows = tuple[list[str], Iterator[tuple[int, list[str]]]]
"""The names of the columns, and each row with its line."""
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?", re.IGNORECASE)


class Columns(ABC):
    """A table with a header, of which only the columns that are asked for are kept.

    Spaces around a column's name do not count.
    """

    def __init__(self, name: str, limit: int | None = None) -> None:
        """Names the table; nothing is read yet.

        Args:
            name: of the table, for messages.
            limit: how many rows to use, from the first; None for all.
        """
        self.name = name
        self.limit = limit
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._with_commas: list[str] = []
        self._ordered: list[str] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.limit})"

    @abstractmethod
    def rows(self) -> AbstractContextManager[Rows]:
        """Opens the table; raises ValueError if it cannot be read."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sixteen hexadecimal digits of a SHA-256 hash of the table, which tell it from other tables."""

    def readings(self) -> list[str]:
        """Returns what was assumed about the table as a whole, in parts of a sentence; nothing for the usual."""
        return []

    def has_decimal_commas(self, texts: Sequence[str]) -> bool:
        """Returns whether the commas in a column of numbers are decimal: always if they are not thousands."""
        return any(not re.search(r",\d{3}$", text) for text in texts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; raises ValueError if the table cannot be read."""
        with self.rows() as (names, _):
            return tuple(names)

    @property
    def assumed(self) -> str:
        """A line on what was assumed about the table and the columns read so far; "" if nothing had to be."""
        commas = [f"a comma in {', '.join(self._with_commas)} as the decimal sign"] if self._with_commas else []
        parts = [*self.readings(), *commas, *self._ordered]
        return f"{self.name} is read with {', '.join(parts)}" if parts else ""

    def note_order(self, column: str, order: Sequence[str], why: str) -> None:
        """Adds to what is assumed that the categories of a column are in this order."""
        line = f"{why} for {column} ({', '.join(order)})"
        if line not in self._ordered:
            self._ordered.append(line)

    def column(self, name: str) -> list[tuple[str, str]]:
        """Returns (line, text) of a column.

        Raises:
            ValueError: the table or the column does not exist, the table has no rows, or a row has more fields than the
                header.
        """
        name = name.strip()
        if name not in self._columns:
            pair = self.pair(name)
            self._columns[name] = self._read(name) if pair is None else self._read_pairs(*pair)
        return self._columns[name]

    def pair(self, name: str) -> tuple[str, str] | None:
        """Returns the two columns that "ROWS*COLUMNS" names; None for a column."""
        first, star, second = name.partition("*")
        if not star or name.strip() in self.names:
            return None
        return first.strip(), second.strip()

    def _read_pairs(self, rows: str, columns: str) -> list[tuple[str, str]]:
        """Returns the pairs of two columns, as a question that asks both names them; "" where either has no value."""
        read = zip(self.column(rows), self.column(columns), strict=True)
        texts = ((line, first.strip(), second.strip()) for (line, first), (_, second) in read)
        return [(line, crossed([a], [b])[0] if a and b else "") for line, a, b in texts]

    def clear(self) -> None:
        """Frees the memory of the columns that were read."""
        self._columns.clear()

    def check(self, wanted: Sequence[str | None]) -> None:
        """Raises ValueError for a table that cannot be read, or lacks a column; None is for one that is not needed."""
        for name in wanted:
            if name is not None:
                for column in self.pair(name) or (name.strip(),):
                    self._check(column, self.names)

    def _read(self, name: str) -> list[tuple[str, str]]:
        cells = []
        with self.rows() as (names, rows):
            if self.limit is not None and self.limit < 1:
                raise ValueError(f"the number of rows to use is {self.limit}; it must be at least 1")
            place = names.index(name) if name in names else None
            for line, fields in islice(rows, self.limit):
                if len(fields) > len(names):
                    raise ValueError(
                        f"{self.name}: line {line}: the number of fields is {len(fields)}; it must be {len(names)}, as "
                        "in the header"
                    )
                cells.append((str(line), fields[place] if place is not None and place < len(fields) else ""))
        self._check(name, names)
        if not cells:
            raise ValueError(f"{self.name} has no rows")
        return self._with_points(name, cells)

    def _with_points(self, name: str, cells: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns a column of numbers with decimal commas as programs write them; any other as it is."""
        texts = {text.strip() for _, text in cells} - {""}
        commas = [text for text in texts if "," in text]
        if not commas or not all(map(_DECIMAL_COMMA.fullmatch, texts)) or not self.has_decimal_commas(commas):
            return cells
        if name not in self._with_commas:
            self._with_commas.append(name)
        return [(line, text.strip().replace(".", "").replace(",", ".")) for line, text in cells]

    def _check(self, column: str, names: Sequence[str]) -> None:
        if column not in names:
            mean = "; a mean is COLUMN:LOW:HIGH" if ":" in column else ""
            quoted = ", ".join(repr(name) if "," in name else name for name in names)
            raise ValueError(f"{self.name} has no column {column!r}; its columns are {quoted}{mean}")
        if names.count(column) > 1:
            raise ValueError(
                f"{self.name} has {names.count(column)} columns {column!r}; each must have a name of its own"
            )
