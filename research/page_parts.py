"""Parts of pages that hold what was measured, between the comments `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def part_of_page(page: Path, part: str) -> tuple[str, str, str]:
    """Returns the text of a Markdown page before, between and after the comments of a part.

    Raises:
        ValueError: the page does not have them.
    """
    text, begin, end = page.read_text(encoding="utf-8"), f"<!-- {part} -->", f"<!-- end of {part} -->"
    if begin not in text or end not in text:
        raise ValueError(f"{page} must have {begin} and {end}; what is measured is written between them")
    before, _, rest = text.partition(begin)
    inside, _, after = rest.partition(end)
    return before + begin, inside, end + after


def write_part(page: Path, part: str, lines: Sequence[str]) -> None:
    """Writes lines between the comments of a part."""
    before, _, after = part_of_page(page, part)
    page.write_text(f"{before}\n{chr(10).join(lines)}{after}", encoding="utf-8")
