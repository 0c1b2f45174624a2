"""Plain text in lines of 80 characters: sections with a title, paragraphs and a list."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from croupier.protocol.certificate_views import StatementView
from croupier.protocol.rounding import round_up
from croupier.show.views.text import SectionView

GLUE = "\0"
"""A space at which no line may end; `wrapped` puts the space there."""
_PARTS = re.compile(r"(?<=\d) (?=%)|(?<=[εδ]) (?=[=≥\d])|(?<=[=≥]) (?=\d)")
"""Spaces that are glue in every text."""


def note_lines(notes: Iterable[StatementView]) -> list[str]:
    """Returns a line on each note of a certificate, or another guarantee."""
    return [f"Note: {note['text']}." for note in notes]


def tier_budget(local_epsilon: float, local_delta: float, *, up_to: bool) -> str:
    """Returns the local budget of a tier: "2", "up to 2", or "2, local δ 1e-06" where the randomizer spends a delta."""
    spent = f", local δ {round_up(local_delta)}" if local_delta else ""
    return f"{'up to ' if up_to else ''}{round_up(local_epsilon)}{spent}"


def sections_text(sections: Sequence[SectionView]) -> Text:
    """Returns sections (title, paragraphs, points, and lines that are not wrapped) one below the other."""
    text = Text(no_wrap=True)
    for section in sections:
        text.append(f"{section['title']}\n", "bold")
        for paragraph in section["paragraphs"]:
            text.append(f"{wrapped(paragraph)}\n")
        for point in section["points"]:
            text.append(f"{wrapped(point, '  · ')}\n")
        for line in section.get("lines", ()):
            text.append(f"{line}\n")
        text.append("\n")
    text.rstrip()
    return text


def wrapped(line: str, first: str = "") -> str:
    """Returns a line in several of 80 characters, which do not part a number from its noun.

    first: the beginning of the first line, by whose width the others are indented.
    """
    glued = _PARTS.sub(GLUE, line)
    return textwrap.fill(
        glued,
        80,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(GLUE, " ")
