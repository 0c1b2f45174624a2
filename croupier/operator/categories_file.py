"""The categories of a question in a file."""

from __future__ import annotations

from pathlib import Path

from croupier.protocol.shown import check_shown


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
