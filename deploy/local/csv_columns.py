"""The columns of a CSV file, as spreadsheets and programs of many countries write it.

The separator is the one that divides the first lines evenly. A file that is not UTF-8 is read as Windows-1252, which
has a character for nearly every byte: what is assumed has to be said (`Columns.assumed`).
"""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from croupier.deploy.local.columns import Columns, Rows

if TYPE_CHECKING:
    from _csv import Reader

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_FIRST = 50
"""This many rows decide which separator a file has."""
_LONGEST_LINE = 1 << 20
"""The most characters of a line, in which a column may be as short as one character."""
_PIECE = 1 << 20
"""Characters of a CSV file that are read at once."""


def _lines(file: IO[str]) -> Iterator[str]:
    """Yields the lines of a file; raises csv.Error for one that is too long."""
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise csv.Error(f"a line has more than {_LONGEST_LINE:,} characters")
        yield line


class CsvFile(Columns):
    """A CSV file with a header."""

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
        named = {"utf-16": "the encoding UTF-16", "cp1252": "the encoding Windows-1252 (it is not UTF-8)"}
        encoding = [named[self._encoding]] if self._encoding in named else []
        return [*encoding, *([] if self._separator == "," else [f"{_SEPARATORS[self._separator]} between the columns"])]

    def has_decimal_commas(self, texts: Sequence[str]) -> bool:
        """See `Columns`; where commas do not separate columns, they are not needed for thousands, either."""
        return self._separator != "," or super().has_decimal_commas(texts)

    @contextmanager
    def rows(self) -> Iterator[Rows]:
        """See `Columns`."""
        with self._records(self._separator) as records:
            names = [name.strip() for name in next(records, [])]
            yield names, ((records.line_num, fields) for fields in records if fields)

    @cached_property
    def _encoding(self) -> str:
        try:
            decoder = codecs.getincrementaldecoder("utf-8")()
            with self.path.open("rb") as file:
                first = file.read(_PIECE)
                if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                piece = first
                while piece:
                    decoder.decode(piece)
                    piece = file.read(_PIECE)
                decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
        except FileNotFoundError as error:
            raise ValueError(f"{self.path} does not exist") from error
        except OSError as error:
            raise self._unreadable(error) from error
        return "utf-8-sig"

    @cached_property
    def _separator(self) -> str:
        """The separator that divides the first rows into the most columns, as many in each; commas if none does."""
        best, most = ",", 1
        for separator in _SEPARATORS:
            try:
                with self._records(separator) as records:
                    lengths = {len(fields) for fields in islice(records, _FIRST) if fields}
            except ValueError:  # a quote that other separators do not end; the chosen one says what is wrong
                continue
            if len(lengths) == 1 and max(lengths) > most:
                best, most = separator, max(lengths)
        return best

    @contextmanager
    def _records(self, separator: str) -> Iterator[Reader]:
        try:
            with self.path.open(newline="", encoding=self._encoding) as file:
                yield csv.reader(_lines(file), delimiter=separator)
        except (OSError, UnicodeError, csv.Error) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ValueError:
        return ValueError(f"{self.path} cannot be read; it must be a CSV file, or an Excel file (.xlsx): {error}")
