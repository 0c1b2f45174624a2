"""The language of a document: English, or one of `locales`, which translates every sentence of a report.

The code has the English sentence, and the file of a language has another one for it; braces name what is put in. A
language without a file is English. `speaking` sets the language for the functions that it calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from croupier.protocol import texts
from croupier.protocol.codes import Assumption, Code
from croupier.protocol.statements import Statement, read_statements

LOCALES = Path(__file__).parent / "locales"
_sentences: ContextVar[Mapping[str, str]] = ContextVar("sentences", default={})  # noqa: B039 (nothing writes to it)
_COMMAS = str.maketrans(".,", ",.")


@cache
def _read(language: str) -> Mapping[str, str]:
    file = LOCALES / f"{language}.json"
    sentences: dict[str, str] = (
        json.loads(file.read_text(encoding="utf-8")) if language.isalpha() and file.exists() else {}
    )
    return sentences


@contextmanager
def speaking(language: str) -> Iterator[str]:
    """Has `say` speak a language, such as "de" or "de-AT"; yields the language that it speaks."""
    short = language.lower().partition("-")[0]
    token = _sentences.set(_read(short))
    try:
        yield short if _read(short) else "en"
    finally:
        _sentences.reset(token)


def translated(text: str) -> str:
    """Returns a sentence, with its braces, in the language."""
    return _sentences.get().get(text, text)


def say(text: str, **values: object) -> str:
    """Returns a sentence in the language; a whole number is written with separators, every other value as it is."""
    return translated(text).format(**{name: _written(value) for name, value in values.items()})


def _written(value: object) -> object:
    return number(f"{value:,}") if isinstance(value, int) else value


def number(text: str) -> str:
    """Returns a number that is written in English, such as "1,000.5 %", with the separators of the language."""
    return text.translate(_COMMAS) if _sentences.get() else text


def sentences(codes: type[Code], documents: object) -> list[str]:
    """Returns what the JSON objects of statements say, from their codes; raises ValueError for an unknown one."""
    return [
        texts.sentence(each.code, dict(each.parameters), translated, number)
        for each in read_statements(codes, documents)
    ]


def plain_sentences(assumptions: Iterable[Statement[Assumption]]) -> list[str]:
    """Returns assumptions for people who do not know the field, each once."""
    said = (texts.plain_sentence(each.code, dict(each.parameters), translated, number) for each in assumptions)
    return list(dict.fromkeys(said))


def device_step(kind: str, whose: str, **parameters: Any) -> str | None:
    """Returns what a device does to an answer; see `texts.describe_device_step`."""
    return texts.describe_device_step(kind, whose, translated, number, **parameters)
