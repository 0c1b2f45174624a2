"""A text in sections, for tables, pages and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict


class SectionView(TypedDict):
    """A part of a text: a title, paragraphs, a list of points, and lines that are not wrapped."""

    title: str
    paragraphs: Sequence[str]
    points: Sequence[str]
    lines: NotRequired[Sequence[str]]
