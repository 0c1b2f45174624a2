"""The sentences of all codes, in words for people: what stands in `texts.toml` beside this file, and in the mechanisms.

`TEXTS` has the exact sentence of every code, `PLAIN` a sentence without terms of the field for every assumption.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from croupier.protocol.codes import RUNS, Assumption, Code
from croupier.protocol.mechanisms.base import ANSWERS
from croupier.protocol.rounding import round_down, round_up

Value = int | float | str

_FILE: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "texts.toml").read_text(encoding="utf-8"))
TEXTS = _FILE["exact"] | {code: runs.sentence for code, (_, runs) in RUNS.items()}
SECRETS = {code: runs.secret for code, (_, runs) in RUNS.items()} | {Assumption.RUNS_TABLE: ANSWERS}
"""What an observer may want to find out about a person, by what people run."""

DEVICE_STEPS = {code: runs.device for code, (_, runs) in RUNS.items()} | {
    Assumption.RUNS_TABLE: "draws what it sends from the declared table {label}"
}
"""What a person's device does to an answer, after "The device"; {whose} is "your" or "the person's"."""
PLAIN = _FILE["plain"] | dict.fromkeys(DEVICE_STEPS, "The device of every honest person {does}.")
PLAIN_WITHOUT = _FILE["plain-without-dishonest"]
"""The plain sentences of assumptions where the number of dishonest people is 0."""


class _Whole(int):
    """A whole number that is written with separators, unless the text has a format of its own."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec or ",")


class _Rounded(float):
    """A number that a text can ask to be rounded: "up6", "down3", or any format of a float."""

    def __format__(self, spec: str) -> str:
        for side, rounded in (("up", round_up), ("down", round_down)):
            if spec[: len(side)] == side:
                return rounded(self, int(spec[len(side) :]))
        return super().__format__(spec)


def _shown(value: Value) -> Value:
    if isinstance(value, int):
        return _Whole(value)
    return _Rounded(value) if isinstance(value, float) else value


class _Filled(Formatter):
    """Puts parameters into a text; `number` writes them in the language of the text."""

    def __init__(self, number: Callable[[str], str]) -> None:
        self._number = number

    def format_field(self, value: Any, format_spec: str) -> str:
        """Returns a parameter as text."""
        shown: str = super().format_field(value, format_spec)
        return self._number(shown) if isinstance(value, int | float) else shown


Translate = Callable[[str], str]
"""Returns a text in another language, or a number as that language writes it."""


def _filled(text: str, parameters: Mapping[str, Value], number: Translate) -> str:
    return _Filled(number).format(text, **{name: _shown(value) for name, value in parameters.items()})


def sentence(code: Code, parameters: Mapping[str, Value], translated: Translate = str, number: Translate = str) -> str:
    """Returns what a code says in the words of the field."""
    return _filled(translated(TEXTS[code]), parameters, number)


def plain_sentence(
    code: Assumption, parameters: Mapping[str, Value], translated: Translate = str, number: Translate = str
) -> str:
    """Returns what an assumption says, for people who do not know the field."""
    without = PLAIN_WITHOUT.get(code) if parameters.get("dishonest") == 0 else None
    does = _filled(translated(DEVICE_STEPS.get(code, "")), {**parameters, "whose": "the person's"}, number)
    return _filled(translated(without or PLAIN[code]), {**parameters, "does": does}, number)


def describe_device_step(
    kind: str, whose: str, translated: Translate = str, number: Translate = str, **parameters: Value
) -> str | None:
    """Returns what a device does to an answer, in words that follow "The device"; None for an unknown kind.

    Args:
        kind: the field of `Question.mechanism`.
        whose: "your", or "the person's".
        translated: returns a text in the language of the page.
        number: returns a number as that language writes it.
        parameters: "records", for a person whose records are hidden one by one.
    """
    known = next((runs.device for name, runs in RUNS.values() if name == kind), None)
    return None if known is None else _filled(translated(known), {**parameters, "whose": whose}, number)
