"""Two questions that are asked as one: its categories are the pairs of their answers, row by row.

The pairs are ordinary labels, "yes × good", so that every client can answer such a question, and the table is read off
the labels. Needs no library.
"""

from __future__ import annotations

from collections.abc import Sequence

_BETWEEN = " × "
_NAMES = "_x_"


def crossed(rows: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the label of every pair of answers: all with the first row, then all with the second.

    Raises:
        ValueError: an answer has the sign that is put between the two.
    """
    for answer in (*rows, *columns):
        if _BETWEEN in answer:
            raise ValueError(f"an answer is {answer!r}; in a table it must be without {_BETWEEN!r}")
    return tuple(f"{row}{_BETWEEN}{column}" for row in rows for column in columns)


def crossed_name(rows: str, columns: str) -> str:
    """Returns the name of the question of two names."""
    return f"{rows}{_NAMES}{columns}"


def factors(labels: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Returns the answers of both questions; None where the labels are not all pairs of answers, row by row."""
    pairs = [tuple(label.split(_BETWEEN)) for label in labels]
    if any(len(pair) != 2 for pair in pairs):
        return None
    rows, columns = (tuple(dict.fromkeys(pair[place] for pair in pairs)) for place in (0, 1))
    if len(rows) < 2 or len(columns) < 2 or tuple(labels) != crossed(rows, columns):
        return None
    return rows, columns


def factor_names(name: str) -> tuple[str, str]:
    """Returns the names of both questions, as `crossed_name` has put them together; "rows" and "columns" otherwise."""
    first, between, second = name.partition(_NAMES)
    return (first, second) if between and first and second else ("rows", "columns")
