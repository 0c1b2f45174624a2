"""How a question is put to people: its text and the captions of its answers, in one or more languages.

Wordings are in the signed manifest, so that everybody who answers a round has been asked the same. They are text for
people alone, which every service and client checks before it signs or answers: nothing in them can move the cursor,
hide the text beside them, or be taken for markup. What a wording says is the operator's word; no check reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from croupier.protocol.mechanisms.base import Form, Mechanism
from croupier.protocol.shown import check_shown

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")
_MARKUP = re.compile(r"<[A-Za-z/!?]|&(#|[A-Za-z][A-Za-z0-9]*;)")
"""What HTML and XML begin a tag, a comment or an entity with. "x < 3" and "R & D" are no markup."""
_MAX_BYTES = {"title": 200, "question": 1000, "help_text": 4000, "unit": 100, "low": 200, "high": 200}
_MAX_CHOICE_BYTES = 400
_MAX_WORDINGS = 32
_MAX_BYTES_TOGETHER = 1 << 16  # terms are fetched by everybody, and shown on telephones


class _InALanguage(Protocol):
    @property
    def language(self) -> str: ...


@dataclass(frozen=True)
class Wording:
    """A question as people read it, in one language.

    Attributes:
        language: a language tag (BCP 47), such as "en" or "de-CH".
        question: the question itself, 1 .. 1000 bytes of UTF-8.
        title: a heading, at most 200 bytes; may be empty.
        help_text: what helps to answer, at most 4000 bytes; may be empty.
        choices: none, or a caption for each answer that can be chosen, in the order of their numbers, at most 400 bytes
            each. Of rr: 0, then 1.
        unit: of the number that is asked for, at most 100 bytes; may be empty.
        low, high: what the ends of its range mean, at most 200 bytes each; may be empty.

    Raises:
        ValueError: at construction, with the text and what it must be.
    """

    language: str
    question: str
    title: str = ""
    help_text: str = ""
    choices: tuple[str, ...] = ()
    unit: str = ""
    low: str = ""
    high: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))
        check_language(self.language)
        if not self.question:
            raise ValueError("question is empty; a wording needs the question itself")
        for name, most in _MAX_BYTES.items():
            check_text(name, getattr(self, name), most)
        for choice in self.choices:
            check_text("a choice", choice, _MAX_CHOICE_BYTES)
        if "" in self.choices or len(set(self.choices)) != len(self.choices):
            raise ValueError(f"choices are {', '.join(self.choices[:12])}; they must be different, and none empty")


def check_wordings(wordings: Sequence[Wording], mechanism: Mechanism) -> None:
    """Checks that the wordings of a question fit each other and its mechanism.

    Raises:
        ValueError: with what is wrong and what it must be.
    """
    check_together(wordings)
    for wording in wordings:
        needed = mechanism.num_choices
        if wording.choices and len(wording.choices) != needed:
            must = f"{mechanism.kind} must have {needed}" if needed else f"{mechanism.kind} has none"
            raise ValueError(f"the wording in {wording.language} has {len(wording.choices)} choices; {must}")
        if (wording.unit or wording.low or wording.high) and mechanism.form is not Form.NUMBER:
            raise ValueError(
                f"the wording in {wording.language} has a unit, low or high; {mechanism.kind} asks for no number"
            )


def check_together(wordings: Sequence[_InALanguage]) -> None:
    """Checks that there is one wording for each language, and not too much text for a telephone.

    Raises:
        ValueError: with what is wrong and what it must be.
    """
    languages = [wording.language.lower() for wording in wordings]
    if len(set(languages)) != len(languages):
        raise ValueError(f"the languages are {', '.join(languages)}; each can have one wording")
    size = sum(len("".join(map("".join, vars(wording).values())).encode()) for wording in wordings)
    if len(wordings) > _MAX_WORDINGS or size > _MAX_BYTES_TOGETHER:
        raise ValueError(
            f"there are {len(wordings)} wordings of {size} bytes; at most {_MAX_WORDINGS}, of {_MAX_BYTES_TOGETHER} "
            "bytes together, are allowed"
        )


def check_language(language: str) -> None:
    """Raises ValueError for what is not a language tag (BCP 47)."""
    if not _LANGUAGE.fullmatch(language):
        raise ValueError(f"language is {language!r}; it must be a language tag such as en or de-CH")


def check_text(name: str, text: str, most: int) -> None:
    """Raises ValueError, with the text, for one that has too many bytes or cannot be shown to people as it is."""
    size = len(text.encode(errors="surrogatepass"))
    if size > most:
        raise ValueError(f"{name} has {size} bytes; at most {most} are allowed")
    check_shown(name, text)
    if text != text.strip(" "):
        raise ValueError(f"{name} is {text!r}; it must not begin or end with a space")
    if match := _MARKUP.search(text):
        raise ValueError(f"{name} is {text!r}, with {match[0]!r}; it is shown as it is, and must have no markup")
