"""A result in words: the statistic, a sentence for each number with both intervals, and ways to halve its error.

The input is the JSON document of a result (`publication_json`), which may come from anybody's file: an invalid document
is refused with a sentence. Interval ends are rounded outwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from statistics import NormalDist
from typing import Any, cast

from croupier.accountant.accuracy import halving, people_for_margin
from croupier.accountant.budgets import Budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.hop_fakes import NO_FAKES, Fakes
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import stated_randomizer
from croupier.accountant.recertification import fakes_of
from croupier.analyzer.differences import Interval, Reach, apart, reach
from croupier.protocol.mechanisms import form_of
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.show.distribution import shares_of, statistics_of
from croupier.show.views.published_results import NumberView, Precision, ResultView, numbers_of
from croupier.show.views.questions import QuestionView, WordingView

_MOST_DIGITS = 6
_PEOPLE, _SAME_MIX = "To halve the error: ask", "with the same mix of budgets"
_USABLE = 0.25
"""The largest margin of a usable mean: its interval is at most half of its range."""

_NO_WORDING = WordingView(language="", question="", title="", help_text="", choices=(), unit="", low="", high="")
_NOT_STATED = QuestionView(question="", wordings=[], randomizer="", parameters={})
"""The question of a result of an early version, which does not state it."""


@dataclass(frozen=True)
class Number:
    """A number of a result: a share or a mean.

    Attributes:
        label: the caption of a share's answer; "" for a mean, else the name of the number, such as "median".
        estimate: the nearest value to the estimate in its range.
        moved: the estimate itself, if it is outside the possible range because of the noise; else None.
        participants: the interval for the people who took part.
        population: the interval for a population of which they are a random sample; None in an early version's result.
        standard_error: of the estimate; NaN for a quantile, which has none.
    """

    label: str
    estimate: float
    moved: float | None
    participants: Interval
    population: Interval | None
    standard_error: float

    @property
    def unbiased(self) -> float:
        """The estimate as the noise has left it."""
        return self.estimate if self.moved is None else self.moved


@dataclass(frozen=True)
class Statistic:
    """The estimates of a round.

    Attributes:
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
        return f"{exact + 0:,}".replace("-", "−")

    def interval(self, ends: Interval, *, of_differences: bool = False) -> str:
        """Returns an interval as text, its ends rounded outwards; differences of shares are points."""
        length = ends[1] - ends[0]
        low, high = (
            self._digits(end, length, way) for end, way in zip(ends, (ROUND_FLOOR, ROUND_CEILING), strict=True)
        )
        return f"{low} to {high}{' points' if of_differences and self.is_share else self._after}"

    def at_most(self, value: float) -> str:
        """Returns an upper limit of a change as text, rounded up; changes of shares are points."""
        return f"{round_up(100 * value, 3)} points" if self.is_share else f"{round_up(value, 3)}{self._after}"

    def estimate(self, number: Number) -> str:
        """Returns the number as text."""
        low, high = number.participants
        return self.written(number.estimate, high - low)

    def sentence(self, number: Number) -> str:
        """Returns one sentence on a number, with both intervals."""
        level = f"{100 * self.level:g} % interval"
        subject = f"The estimated {number.label or 'mean'} is " if not self.is_share else "An estimated "
        answered = f" answered “{number.label}”" if self.is_share else ""
        moved, preposition = "", "of" if self.is_share else "for"
        if number.moved is not None:
            outside = self.estimate(replace(number, estimate=number.moved))
            if outside != self.estimate(number):  # else it is outside by less than the digits show
                moved = f" (the noise carried the estimate to {outside}, which is impossible)"
        both = f"{self.interval(number.participants)} {preposition} the {self.people:,} people who took part"
        if number.population is not None:
            level += "s"
            both += (
                f", and {self.interval(number.population)} {preposition} a population that they are a random sample of"
            )
        return f"{subject}{self.estimate(number)}{answered}{moved}: {both} ({level})."


def statistic(result: Mapping[str, Any], language: str = "") -> Statistic:
    """Returns the estimates of a result.

    Args:
        result: from `publication_json`, or the same read from a file.
        language: of the wording; the first one if there is none in it.

    Raises:
        ValueError: the document is not that of a result.
    """
    try:
        return _read(cast(ResultView, sanitize_for_display(dict(result))), language)
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(
            "the document is not a result; it must be what 'croupier survey results --json' or 'croupier demo --json' "
            f"printed ({type(error).__name__}: {error})"
        ) from error


def _read(result: ResultView, language: str) -> Statistic:
    asked = result.get("asked") or _NOT_STATED
    kind, parameters = asked.get("randomizer", ""), asked.get("parameters", {})
    wording = _wording(asked.get("wordings", []), language)
    name = str(asked.get("question") or result["round_id"])
    labels, captions = result["labels"], list(wording.get("choices", ()))
    form = form_of(kind)
    is_share = (form is not None and form.is_share) or (not kind and labels is not None)
    if form is Form.YES_OR_NO:
        captions = captions[1:] or ["yes"]
        about = f"the share of people who answered “{captions[0]}”"
    elif form is Form.SEVERAL_CHOICES:
        about = "the share of people who chose each option; one person may choose several, so they need not add up to 1"
    elif is_share:
        about = "the share of people who gave each answer"
    elif form is Form.VECTOR:
        about = "a mean of vectors, which a program computes with"
    else:
        about = "the mean answer"
    unit = str(wording.get("unit", ""))
    scale: Interval | None = (0.0, 1.0) if is_share else None
    if not is_share and "low" in parameters:
        scale = float(parameters["low"]), float(parameters["high"])
        about += f", of numbers from {scale[0]:g} to {scale[1]:g}{f' {unit}' if unit else ''}"
    numbers = () if result["sealed"] or result["estimate"] is None else tuple(_numbers(result, captions))
    return Statistic(
        name=name,
        title=str(wording.get("title") or wording.get("question") or name),
        question=str(wording.get("question", "")),
        help_text=str(wording.get("help_text", "")),
        language=str(wording.get("language", "")),
        about=about,
        is_share=is_share,
        numbers=numbers,
        details=tuple(map(_beside, statistics_of(result))),
        histogram=tuple(map(_beside, shares_of(result))),
        scale=scale,
        unit=unit,
        ends=(str(wording.get("low", "")), str(wording.get("high", ""))),
        level=float(result["confidence_level"] or 0),
        people=int(result["num_reports"]),
    )


def _beside(number: NumberView) -> Number:
    low, high = number.interval
    population = None if number.population is None else (number.population[0], number.population[1])
    return Number(number.label, number.projected, None, (low, high), population, number.standard_error)


def _wording(wordings: Sequence[WordingView], language: str) -> WordingView:
    chosen = [wording for wording in wordings if wording["language"].lower() == language.lower()]
    return (chosen or [*wordings] or [_NO_WORDING])[0]


def _numbers(result: ResultView, captions: list[str]) -> Iterable[Number]:
    for index, number in enumerate(numbers_of(result)):
        own, population = number.interval, number.population
        numbers = [*map(float, (number.estimate, number.projected, number.standard_error, *own, *(population or ())))]
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"a number of the result is {numbers}; every one must be finite")
        caption = captions[index] if index < len(captions) else str(number.label)
        yield Number(
            caption,
            float(number.shown),
            None if number.is_possible else float(number.estimate),
            (float(own[0]), float(own[1])),
            None if population is None else (float(population[0]), float(population[1])),
            float(number.standard_error),
        )


# ------------------------------------------------------------------------------------------------------- differences


@dataclass(frozen=True)
class Difference:
    """The difference of a number between two groups, with intervals.

    Attributes:
        label: of the number; see `Number`.
        groups: the group, and the one that it is compared with.
        estimate: the difference of the estimates.
        participants, population: its intervals, as in `Number`.
    """

    label: str
    groups: tuple[str, str]
    estimate: float
    participants: Interval
    population: Interval | None

    @property
    def is_seen(self) -> bool:
        """Whether the interval for the people who took part leaves out 0."""
        return not self.participants[0] <= 0 <= self.participants[1]

    def sentence(self, statistic: Statistic) -> str:
        """Returns one sentence on the difference, with both intervals."""
        first, second = self.groups
        level = f"{100 * statistic.level:g} % interval"

        about = f"“{self.label}”: " if self.label else ""
        length = self.participants[1] - self.participants[0]
        size = statistic.written(abs(self.estimate), length).replace(" %", " points")
        direction = "higher" if self.estimate > 0 else "lower"
        said = f"{first} is {direction} than {second} by an estimated {size}"
        if not self.is_seen:
            said = f"no difference between {first} and {second} can be told from the noise"
        own = statistic.interval(self.participants, of_differences=True)
        both = f"{first} minus {second} is {own} for the people who took part"
        if self.population is not None:
            whole = statistic.interval(self.population, of_differences=True)
            both, level = f"{both}, and {whole} for the populations that they are random samples of", f"{level}s"
        sentence = f"{said}: {both} ({level})."
        return f"{about}{sentence}" if about else sentence[0].upper() + sentence[1:]


def differences(groups: Sequence[tuple[str, Statistic]]) -> list[Difference]:
    """Returns the difference of every number between every two groups, which hold different people.

    The noise of two rounds is independent, and so are samples of different people; see `analyzer.differences`.
    """
    compared = []
    for (name, statistic), (other_name, other) in itertools.combinations(groups, 2):
        for number, against in zip(statistic.numbers, other.numbers, strict=True):
            estimate, population = number.estimate - against.estimate, None
            if number.population is not None and against.population is not None:
                reaches = _reach(statistic, number, number.population), _reach(other, against, against.population)
                population = _difference(*reaches, statistic, estimate)
            own = _reach(statistic, number, number.participants), _reach(other, against, against.participants)
            compared.append(
                Difference(
                    number.label,
                    (name, other_name),
                    estimate,
                    _difference(*own, statistic, estimate),
                    population,
                )
            )
    return compared


def _reach(statistic: Statistic, number: Number, interval: Interval) -> Reach:
    margin = NormalDist().inv_cdf((1 + statistic.level) / 2) * number.standard_error
    return reach(number.unbiased, interval, margin, statistic.scale or (-math.inf, math.inf))


def _difference(first: Reach, second: Reach, statistic: Statistic, estimate: float) -> Interval:
    """Returns the interval of a difference, which holds the difference of the numbers that are shown."""
    low, high = apart(first, second, math.inf if statistic.scale is None else statistic.scale[1] - statistic.scale[0])
    return min(low, estimate), max(high, estimate)


# ------------------------------------------------------------------------------------------------- halving the error


def halving_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns ways to halve the error of a result, by its certificate's budgets; nothing without an estimate.

    For a result that is too noisy to use, half of the error may be as useless: the line then gives the number of people
    that would make it usable, if it can be computed.

    The variance of every estimate decreases with the number of people, in the same mix of budgets, except for the hops'
    part. So a number of people can always be given. Budgets are given if the certificate has everybody's, which it has
    not if very many are certified in groups.
    """
    document = result["certificate"]
    if not document.get("granted", True) or result["estimate"] is None:
        return []
    if document.get("num_answers") is not None:  # a model that learns from one answer after the other
        return []
    try:
        certificate = Certificate.from_json(document)
        budgets = certificate.likely_budgets
        randomizer = stated_randomizer(certificate.assumptions)
        fakes: Fakes = NO_FAKES
        if randomizer is not None and result.get("hop_influence") is not None:
            fakes = fakes_of(certificate, randomizer)
    except ValueError:  # a document of another version
        return []
    if result.get("precision") in (Precision.COVERS_RANGE, Precision.HIDES_SHARES):
        known = randomizer is not None and (result.get("hop_influence") is None or bool(fakes))
        return _usable_lines(result, budgets, randomizer, fakes) if randomizer is not None and known else []
    if result.get("hop_influence") is not None and not fakes:
        return [f"{_PEOPLE} at most four times as many people, {4 * budgets.num_users:,}, {_SAME_MIX}."]
    if randomizer is None or any(tier.grouped for tier in certificate.tiers):
        num_users = (
            halving(budgets, randomizer, fakes).num_users if fakes and randomizer is not None else 4 * budgets.num_users
        )
        return [f"{_ask_for(num_users, budgets)}."]
    return [line] if (line := halving_line(budgets, randomizer, fakes)) else []


def _usable_lines(result: Mapping[str, Any], budgets: Budgets, randomizer: Randomizer, fakes: Fakes) -> list[str]:
    """Returns how many people make a result usable, whatever the truth is (`analyzer.estimates.precision_of`).

    Among k categories one has a share of 1/k or more: its interval must begin above 0, and two standard errors, which
    are less than this margin, must not exceed it.
    """
    labels = result.get("labels")
    margin = min(_USABLE, 0.95 / len(labels)) if labels else _USABLE
    try:
        people = people_for_margin(budgets, randomizer, margin, fakes.variance)
    except ValueError:  # vectors, or a table
        return []
    return [f"To make it usable: ask about {people:,} people, {_SAME_MIX}."]


def _ask_for(people: int, budgets: Budgets) -> str:
    times = people / budgets.num_users
    said = "four" if math.isclose(times, 4, rel_tol=1e-6) else round_up(times, 2)
    return f"{_PEOPLE} {said} times as many people, {people:,}, {_SAME_MIX}"


def halving_remarks(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns `halving_lines` for the questions of a demonstration, each line once with the names that it is about."""
    about: dict[str, list[str]] = {}
    for question in questions:
        for line in halving_lines(question):
            about.setdefault(line, []).append(question["name"])
    return [f"{'; '.join(names)}: {line}" for line, names in about.items()]


def halving_line(budgets: Budgets, randomizer: Randomizer, fakes: Fakes = NO_FAKES) -> str:
    """Returns a sentence on what would halve the error of answers with these budgets; "" for a table, which has none.

    fakes: the noise of hops, which is unchanged.
    """
    try:
        halved = halving(budgets, randomizer, fakes)
    except ValueError:
        return ""
    line = _ask_for(halved.num_users, budgets)
    if halved.budgets is None:
        beside = " beside this hop noise" if fakes else ""
        return f"{line}. No local budgets that a client accepts would do it for the same people{beside}."
    before, after = (_spread(mix) for mix in (budgets, halved.budgets))
    return (
        f"{line}; or, for the same people, have each device add less noise (local ε {after} instead of "
        f"{before}), which protects them less."
    )


def _spread(budgets: Budgets) -> str:
    low, high = (round_down(float(budgets.local_epsilon[end]), 3) for end in (0, -1))
    return low if low == high else f"{low} to {high}"
