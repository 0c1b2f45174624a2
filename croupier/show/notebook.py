"""HTML for notebooks, from `_repr_html_` methods. It has no style, so that it is readable on any background.

Text is escaped here. Numbers come as text, rounded to their sound side by the caller, who knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def html_table(caption: str, rows: Sequence[Mapping[str, str]]) -> str:
    """Returns a table with a caption; the first row's keys are the header."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0]) if rows else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape(text)}</p>"


def folded_list(title: str, lines: Iterable[str]) -> str:
    """Returns a list that opens when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary><ul>{_items(lines)}</ul></details>"


def html_sections(sections: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> str:
    """Returns sections: title, paragraphs, list."""
    parts: list[str] = []
    for title, paragraphs, points in sections:
        parts += [f"<h4>{escape(title)}</h4>", *map(paragraph, paragraphs)]
        if points:
            parts.append(f"<ul>{_items(points)}</ul>")
    return "".join(parts)


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{escape(line)}</li>" for line in lines)
