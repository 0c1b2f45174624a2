"""Text of others that people are shown: it stands on a terminal as it is, and changes nothing around it.

A dishonest operator or service could otherwise move the cursor of the person who reads what a round asks for and
promises, write over it, hide it, or turn its direction around.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["as_shown", "check_shown"]

_MOVES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, ends of lines, and what overrides the direction of writing."""


def check_shown(name: str, text: str) -> None:
    """Raises ValueError, with the text and the character, for one that cannot be shown as it is."""
    found = _MOVES.search(text)
    if found:
        raise ValueError(
            f"{name} is {text!r}, with the character {found[0]!r}; it must have no control characters, ends of lines "
            "or overrides of the direction of writing"
        )


def as_shown(document: Any) -> Any:
    """Returns a text, or all texts of a JSON document, with U+FFFD in the place of each such character."""
    if isinstance(document, str):
        return _MOVES.sub("\N{REPLACEMENT CHARACTER}", document)
    if isinstance(document, list):
        return [as_shown(one) for one in document]
    if isinstance(document, dict):
        return {as_shown(key): as_shown(value) for key, value in document.items()}
    return document
