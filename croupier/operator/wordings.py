"""The wording of a question in a file for several languages, and its categories in a file.

The file (TOML) has one table `[[wording]]` for each language, with the fields of `protocol.wordings.Wording`; the first
is shown to people who read none of the languages.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from croupier.protocol.shown import check_shown
from croupier.protocol.toml_file import read_toml
from croupier.protocol.wordings import Wording


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    wording: tuple[Wording, ...]


def read_wordings(file: Path) -> tuple[Wording, ...]:
    """Returns the wordings in a file.

    Raises:
        ValueError: there is no such file, or it has no wording, or a field is missing, unknown or out of range.
    """
    try:
        wordings = read_toml(file, _File, "file of wordings").wording
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; --wording takes a TOML file with [[wording]] tables") from error
    if not wordings:
        raise ValueError(f"{file} has no wording; write one [[wording]] table for each language")
    return wordings


def read_categories(file: Path) -> tuple[str, ...]:
    """Returns the categories in a text file, one a line, without the spaces around them; it may end in empty lines.

    Raises:
        ValueError: there is no such file, it is not UTF-8, a line is empty or repeats another, or a category cannot be
            shown to people; the message has the line.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; --categories takes a text file with one category a line") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    labels: dict[str, int] = {}
    for number, line in enumerate(text.rstrip().split("\n"), 1):
        label = line.strip()
        if not label:
            raise ValueError(f"{file}: line {number} is empty; every line must be a category")
        if label in labels:
            raise ValueError(f"{file}: line {number} is {label!r}, as line {labels[label]} is; categories must differ")
        try:
            check_shown("a category", label)
        except ValueError as error:
            raise ValueError(f"{file}: line {number}: {error}") from error
        labels[label] = number
    return tuple(labels)
