"""Blocks in a terminal: tables with lines, bars as tables of their numbers, and texts in lines of 80 characters."""

from __future__ import annotations

import re
import textwrap

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from croupier.show.blocks import Bars, Block, Curve, Folded, Heading, Points, Section, Sentence, Table

GLUE = "\N{NO-BREAK SPACE}"
"""A space at which no line may end; `wrapped` puts the space there."""
_PARTS = re.compile(r"(?<=\d) (?=%)|(?<=[εδ]) (?=[=≥\d])|(?<=[=≥]) (?=\d)")
"""Spaces that are glue in every text."""
_NUMBER = re.compile(r"[≤≥±+−-]? ?\d[^a-z]*")
"""The first cell of a column that is aligned at the right."""
_MOST_BARS = 40


def drawn(block: Block | RenderableType) -> RenderableType:
    """Returns what rich prints for a block; a text by itself is printed as it is, and may be longer than a line."""
    match block:
        case Table():
            return _table(block)
        case Bars():
            return _table(_numbers(block))
        case Curve():
            return _table(block.numbers)
        case Section():
            return _section(block)
        case Folded():
            return Group(Text(block.title, "bold"), *map(drawn, block.blocks))
        case Heading():
            return Text(f"\n{block.text}", "bold")
        case Points():
            return Text("\n".join(wrapped(line, "  · ") for line in block.lines), no_wrap=True)
        case Sentence():
            return block.text
        case _:
            return block


def _table(table: Table) -> RenderableType:
    drawing = RichTable(title=table.title or None, caption=table.caption or None, show_header=any(table.columns))
    rows = table.rows
    for place, name in enumerate(table.columns):
        first = next((row[place] for row in rows if place < len(row) and row[place]), "")
        drawing.add_column(name, justify="right" if place and _NUMBER.fullmatch(first) else "left", overflow="fold")
    for group in table.groups:
        for row in group:
            drawing.add_row(*row)
        drawing.add_section()
    return drawing


def _numbers(bars: Bars) -> Table:
    """Returns the numbers of bars as a table, without the columns in which there is nothing."""
    level = f"{bars.level} interval"
    columns = [
        "",
        "truth",
        "estimate",
        "± standard error",
        f"{level}: these people",
        f"{level}: population",
        "unbiased estimate",
    ]
    rows = [
        (bar.label, bar.truth, bar.estimate, bar.error, bar.people, bar.population, bar.impossible)
        for bar in bars.bars[:_MOST_BARS]
    ]
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    table = Table(*(columns[place] for place in kept))
    for row in rows:
        table.row(*(row[place] for place in kept))
    table.caption = (
        f"one {bars.level} interval in {1 / (1 - bars.confidence):.3g} misses the truth; 'population' is the one that "
        "these people are drawn from at random"
    )
    if len(bars.bars) > _MOST_BARS:
        table.caption += f"; {len(bars.bars) - _MOST_BARS} more are in --json"
    return table


def _section(section: Section) -> Text:
    lines = [*map(wrapped, section.paragraphs), *(wrapped(point, "  · ") for point in section.points)]
    text = Text(no_wrap=True)  # commands can be copied
    text.append(f"{section.title}\n" if section.title else "", "bold")
    text.append("".join(f"{line}\n" for line in (*lines, *section.commands)))
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
