"""Text of others that people are shown: a terminal prints it as it is, and nothing around it changes.

It is refused where it enters (`check_shown`: names in a deployment file, wordings, labels), and every writer to a
terminal replaces it all the same (`sanitize_for_display`, `sanitize_lines`).

A dishonest operator or service could otherwise move the cursor of the person who reads what a round asks for and
promises, write over it, hide it, or turn its direction around.
"""

from __future__ import annotations

import re
from typing import Any

_MOVES = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "\u2028\u2029"  # ends of lines
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Unicode's Bidi_Control: marks, embeddings, overrides, isolates
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # invisible
    "\ud800-\udfff]"  # surrogates, which no UTF-8 has
)
"""Control characters, ends of lines, what turns the direction of writing, and what is invisible.

Persian, Indic scripts and emoji are written with U+200C, U+200D and variation selectors, which stay: they change how
their neighbours look. Code points are listed, not looked up by category: Python's tables differ between versions, and
services have to agree on which manifests are acceptable.
"""


def check_shown(name: str, text: str) -> None:
    """Raises ValueError, with the text and the character, for one that cannot be shown as it is."""
    match = _MOVES.search(text)
    if match:
        raise ValueError(
            f"{name} is {text!r}, with the character {match[0]!r}; it must have no control characters, ends of lines, "
            "controls of the direction of writing or invisible characters"
        )


def sanitize_lines(text: str) -> str:
    """Returns a text whose lines stay, with U+FFFD for each such character within them."""
    return "\n".join(_MOVES.sub("\N{REPLACEMENT CHARACTER}", line) for line in text.split("\n"))


def sanitize_for_display(document: Any) -> Any:
    """Returns a text, or all texts of a JSON document, with U+FFFD for each such character."""
    if isinstance(document, str):
        return _MOVES.sub("\N{REPLACEMENT CHARACTER}", document)
    if isinstance(document, list):
        return [sanitize_for_display(entry) for entry in document]
    if isinstance(document, dict):
        return {sanitize_for_display(key): sanitize_for_display(value) for key, value in document.items()}
    return document
