"""A result as a statistic: what was estimated, of whom, and each number with its intervals, as text and in a sentence.

The input is the JSON document of a result (`publication_json`), which may come from anybody's file: an invalid document
is refused with a sentence. Interval ends are rounded outwards. Needs no library: clients use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any

from croupier.protocol.mechanisms import form_of
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.show.blocks import Interval
from croupier.show.distribution import shares_of, statistics_of
from croupier.show.language import number as in_words
from croupier.show.language import say
from croupier.show.numbers import Number, labels_of, numbers_of

_MOST_DIGITS = 6
_NO_WORDING = JsonObject(language="", question="", title="", help_text="", choices=(), unit="", low="", high="")
_NOT_STATED = JsonObject(question="", wordings=[], randomizer="", parameters={})
"""The question of a result that does not state it."""


@dataclass(frozen=True)
class Statistic:
    """The result of a round.

    Attributes:
        result: its document.
        group: the people of the round, if others answered the same question in another one; else "".
        name: the question's short name.
        title: a heading; the wording's, or the name.
        question: the text for people; "" if no wording is known.
        help_text: below the question; may be empty.
        language: of the wording, such as "de"; "" if none is known.
        about: the statistic in words: "the share of people who answered “yes”".
        is_share: the numbers are shares.
        numbers: one for a share or mean, one for each category; none if the result is sealed or refused.
        details: beside a mean of numbers on levels: their standard deviation and quantiles, by name.
        histogram: the shares of people on the levels, labelled with the level; shares, whatever `is_share` says.
        scale: the possible range, if known.
        unit: of a mean; may be empty.
        ends: the meaning of the ends of the range, in words; may be empty.
        level: of the intervals.
        people: the number of counted answers.
    """

    result: JsonObject = field(repr=False)
    group: str
    name: str
    title: str
    question: str
    help_text: str
    language: str
    about: str
    is_share: bool
    numbers: tuple[Number, ...]
    details: tuple[Number, ...]
    histogram: tuple[Number, ...]
    scale: Interval | None
    unit: str
    ends: tuple[str, str]
    level: float
    people: int

    @property
    def granted(self) -> bool:
        """Whether the accountant has certified the round."""
        return bool(self.result["certificate"]["granted"])

    def written(self, value: float, length: float, *, direction: str = ROUND_HALF_EVEN) -> str:
        """Returns a value as text, with digits that an interval of this length leaves meaning to."""
        return self._digits(value, length, direction) + self._after

    @property
    def _after(self) -> str:
        return " %" if self.is_share else f" {self.unit}" if self.unit else ""

    def _digits(self, value: float, length: float, direction: str) -> str:
        factor = 100 if self.is_share else 1
        step = factor * length / 10
        digits = min(_MOST_DIGITS, max(0, math.ceil(-math.log10(step)))) if step > 0 else _MOST_DIGITS
        exact = (Decimal(repr(float(value))) * factor).quantize(Decimal(1).scaleb(-digits), rounding=direction)
        return in_words(f"{exact + 0:,}".replace("-", "−"))

    def interval(self, ends: Interval, *, of_differences: bool = False) -> str:
        """Returns an interval as text, its ends rounded outwards; differences of shares are points."""
        length = ends[1] - ends[0]
        low, high = (
            self._digits(end, length, way) for end, way in zip(ends, (ROUND_FLOOR, ROUND_CEILING), strict=True)
        )
        unit = say(" points") if of_differences and self.is_share else self._after
        return say("{low} to {high}", low=low, high=high) + unit

    def at_most(self, value: float) -> str:
        """Returns an upper limit of a change as text, rounded up; changes of shares are points."""
        if self.is_share:
            return in_words(round_up(100 * value, 3)) + say(" points")
        return in_words(round_up(value, 3)) + self._after

    def estimate(self, number: Number) -> str:
        """Returns the number as text."""
        return self._shown(number, number.shown)

    def truth(self, number: Number) -> str:
        """Returns the true number as text; "" if nobody knows it."""
        return "" if number.truth is None else self._shown(number, number.truth)

    def _shown(self, number: Number, value: float) -> str:
        return self.written(value, number.participants[1] - number.participants[0])

    def error(self, number: Number) -> str:
        """Returns the standard error of a number as text; "" for a quantile, which has none."""
        if math.isnan(number.standard_error):
            return ""
        return in_words(f"{(100 if self.is_share else 1) * number.standard_error:.2g}") + self._after

    def impossible(self, number: Number) -> str:
        """Returns the estimate as the noise has left it; "" if it is possible, but for digits that are not shown."""
        outside = self._shown(number, number.estimate)
        return "" if number.is_possible or outside == self.estimate(number) else outside

    def sentence(self, number: Number) -> str:
        """Returns one sentence on a number, with both intervals."""
        outside, moved = self.impossible(number), ""
        if outside:
            moved = say(" (the noise carried the estimate to {outside}, which is impossible)", outside=outside)
        values = {
            "label": number.label or say("mean"),
            "estimate": self.estimate(number) + ("" if self.is_share else moved),
            "moved": moved,
            "own": self.interval(number.participants),
            "whole": self.interval(number.population),
            "people": self.people,
            "level": self.level_text,
        }
        if self.is_share:
            return say(
                "An estimated {estimate} answered “{label}”{moved}: {own} of the {people} people who took part, and "
                "{whole} of a population that they are a random sample of ({level} intervals).",
                **values,
            )
        return say(
            "The estimated {label} is {estimate}: {own} for the {people} people who took part, and {whole} for a "
            "population that they are a random sample of ({level} intervals).",
            **values,
        )

    @property
    def level_text(self) -> str:
        """The level of the intervals, such as "95 %"."""
        return f"{100 * self.level:g} %"


def statistic(result: Mapping[str, Any], language: str = "", group: str = "") -> Statistic:
    """Reads a result.

    Args:
        result: from `publication_json`, or the same read from a file.
        language: of the wording; the first one if there is none in it.
        group: see `Statistic`.

    Raises:
        ValueError: the document is not that of a result.
    """
    try:
        return _read(sanitize_for_display(dict(result)), language, group)
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(
            "the document is not a result; it must be what 'croupier survey results --json' or 'croupier demo --json' "
            f"printed ({type(error).__name__}: {error})"
        ) from error


def _read(result: JsonObject, language: str, group: str) -> Statistic:
    asked = result.get("asked") or _NOT_STATED
    kind, parameters = asked.get("randomizer", ""), asked.get("parameters", {})
    wording = _wording(asked.get("wordings", []), language)
    name = str(asked.get("question") or result["round_id"])
    captions = list(wording.get("choices", ()))
    form = form_of(kind)
    is_share = (form is not None and form.is_share) or (not kind and bool(labels_of(result)))
    if form is Form.YES_OR_NO:
        captions = captions[1:] or [say("yes")]
        about = say("the share of people who answered “{answer}”", answer=captions[0])
    elif form is Form.SEVERAL_CHOICES:
        about = say(
            "the share of people who chose each option; one person may choose several, so they need not add up to 1"
        )
    elif is_share:
        about = say("the share of people who gave each answer")
    elif form is Form.VECTOR:
        about = say("a mean of vectors, which a program computes with")
    else:
        about = say("the mean answer")
    unit = str(wording.get("unit", ""))
    scale: Interval | None = (0.0, 1.0) if is_share else None
    if not is_share and "low" in parameters:
        scale = float(parameters["low"]), float(parameters["high"])
        ends = [in_words(f"{end:g}") for end in scale]
        about += say(", of numbers from {low} to {high}{unit}", low=ends[0], high=ends[1], unit=f" {unit}" * bool(unit))
    numbers = [] if result["sealed"] else numbers_of(result)
    captions += [""] * (len(numbers) - len(captions))
    return Statistic(
        result=result,
        group=group,
        name=name,
        title=str(wording.get("title") or wording.get("question") or name),
        question=str(wording.get("question", "")),
        help_text=str(wording.get("help_text", "")),
        language=str(wording.get("language", "")),
        about=about,
        is_share=is_share,
        numbers=tuple(
            replace(each, label=caption or each.label) for each, caption in zip(numbers, captions, strict=False)
        ),
        details=tuple(statistics_of(result)),
        histogram=tuple(replace(each, estimate=each.projected) for each in shares_of(result)),
        scale=scale,
        unit=unit,
        ends=(str(wording.get("low", "")), str(wording.get("high", ""))),
        level=float(result["confidence_level"] or 0),
        people=int(result["num_reports"]),
    )


def _wording(wordings: Sequence[JsonObject], language: str) -> JsonObject:
    chosen = [wording for wording in wordings if wording["language"].lower() == language.lower()]
    return (chosen or [*wordings] or [_NO_WORDING])[0]
