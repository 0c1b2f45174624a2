"""survey.toml: a survey in an operator's words, and the questions and budgets that follow from it.

Texts are in one language, with translations by language. A question with `choices` is a histogram (with `several`, the
share of each), one with `low` and `high` a mean (with `levels` its distribution, too), any other one a share of those
who say yes: the participants' page can ask these. A question with `cross` asks two others as one, which then have no
round of their own.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.operator.categories_file import read_categories
from croupier.protocol.crossed import crossed
from croupier.protocol.envelope import SuiteName
from croupier.protocol.kinds import split_name
from croupier.protocol.mechanisms import MECHANISMS, mechanism_from, parameters_in
from croupier.protocol.mechanisms.base import Form, Mechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Digest
from croupier.protocol.questions import Question
from croupier.protocol.rules import Prefixes
from croupier.protocol.schedules import MOST_WAVES, Calendar, Period, Results, Schedule
from croupier.protocol.surveys import MOST_QUESTIONS, LeftOut, SurveyWording, check_survey_id
from croupier.protocol.toml_file import in_words, read_toml
from croupier.protocol.wordings import Wording

_DIGITS = Context(prec=4, rounding=ROUND_FLOOR)
"""Rounds the part of a budget for one question to few digits: people read it."""
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OFFERED = tuple(kind for kind, mechanism in MECHANISMS.items() if mechanism.form is not Form.VECTOR)
"""The randomizers that a question can have. A vector's question carries a model; 'croupier train' asks it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _QuestionTexts(_Strict):
    question: str = ""
    title: str = ""
    help_text: str = ""
    choices: tuple[str, ...] = ()
    unit: str = ""
    low_caption: str = ""
    high_caption: str = ""

    def wording(self, language: str) -> Wording:
        return Wording(
            language,
            self.question,
            self.title,
            self.help_text,
            self.choices,
            self.unit,
            self.low_caption,
            self.high_caption,
        )


def _read_if_file(given: Any, info: ValidationInfo) -> Any:
    """Returns the categories of a question: those in the named file beside this one, or those written here."""
    return read_categories(Path(info.context or ".") / given) if isinstance(given, str) else given


class SurveyQuestion(_QuestionTexts):
    """One of [[questions]] in survey.toml.

    Attributes:
        question: the text for people, which only a survey of one question that is asked once may lack. Without
            `choices`, and without `low` and `high`, they say yes or no.
        title: a heading above the question.
        help_text: a text below the question.
        choices: the answers; a person chooses one.
        several: whether a person may choose several of the choices, or none; the result has the share of each.
        unit: the unit of a number, for example "minutes".
        low_caption: the meaning of the low end of the range.
        high_caption: the meaning of the high end of the range.
        name: a name that no other question of the survey has.
        low: the low end of the range of a number, whose mean is estimated.
        high: the high end of that range.
        levels: the number of levels to which the number is rounded, so that its distribution is estimated as well.
        categories: many answers, or the name of a file that has one a line (docs/day-to-day.md).
        cross: two other questions with choices, which are asked as one; the result has their cross table.
        randomizer: another mechanism than the usual one for such an answer, such as "laplace" (docs/mechanisms.md).
        alphabet: the letters of texts that are on no list: frequent ones are found, one letter a wave
            (docs/discover.md). The next four are for such a question.
        longest: the number of letters up to which texts are told from longer ones.
        fewest: a text that fewer people hold is listed with probability at most `false_listed`.
        false_listed: the probability that any such text is listed.
        missed: the probability that a frequent text is missed.
        share: how much of each budget of the survey the question gets, beside the shares of the other questions.
        budgets: budgets of this question alone. Then all questions have as many of their own, and the survey has none.
    """

    name: str
    low: float | None = None
    high: float | None = None
    levels: int | None = None
    categories: Annotated[tuple[str, ...], BeforeValidator(_read_if_file)] = ()
    several: bool = False
    cross: tuple[str, str] | None = None
    randomizer: str = ""
    alphabet: str = ""
    longest: int = 10
    fewest: int = 1
    false_listed: float = 0.05
    missed: float = 0.05
    share: _Positive = 1.0
    budgets: tuple[_Positive, ...] = ()

    @property
    def rule(self) -> Prefixes | None:
        """How the question goes on by results; None where it stays the same. Raises ValueError as `Prefixes`."""
        if not self.alphabet:
            return None
        return Prefixes(self.alphabet, self.longest, self.fewest, self.false_listed, self.missed)

    def mechanism(self) -> Mechanism:
        """Returns the mechanism that answers the question. Raises ValueError for settings that exclude each other."""
        usual = self._usual_mechanism()
        if not self.randomizer:
            return usual
        if split_name(self.randomizer)[0] not in OFFERED:
            raise ValueError(
                f"randomizer is {self.randomizer!r}; it must be one of {', '.join(OFFERED)}; for vectors: croupier "
                "train"
            )
        kind, named = parameters_in(self.randomizer)
        forms = {MECHANISMS[kind].form, usual.form}
        if len(forms) == 1:
            return mechanism_from(kind, asdict(usual) | named)
        # The captions of yes and no; or answers that have numbers only, as in krr(k=5).
        if usual == RandomizedResponse() or (forms == {Form.YES_OR_NO, Form.ONE_CHOICE} and not self.categories):
            return mechanism_from(kind, named)
        raise ValueError(
            f"randomizer is {self.randomizer!r}, for a question of another form; this one asks for {usual.form}"
        )

    def _usual_mechanism(self) -> Mechanism:
        if self.rule is not None:
            names = self.rule.categories([""])
            return KaryResponse(len(names), names)
        if self.several and not (self.categories or self.choices):
            raise ValueError(f"question {self.name!r} has several = true, but no choices; several is for choices")
        if self.low is not None and self.high is not None:
            return OneBit(self.low, self.high) if self.levels is None else Levels(self.low, self.high, self.levels)
        if self.low is not None or self.high is not None:
            raise ValueError(f"question {self.name!r} has one of low and high; a number needs both")
        if self.levels is not None:
            raise ValueError(f"question {self.name!r} has levels, but no low and high; levels are for a number")
        labels = self.categories or self.choices
        if self.several:
            return MultipleChoice(len(labels), labels)
        return KaryResponse(len(labels), labels) if labels else RandomizedResponse()


class _Translation(_Strict):
    title: str
    consent: str
    introduction: str = ""
    questions: dict[str, _QuestionTexts]


DEFAULT_TOTAL_DELTA = 1e-5
"""The δ of all waves together: ten times that of one round, so that a filter has room for the tails of many rounds."""
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
Weekday = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _seconds(given: Any) -> Any:
    """Returns the seconds of a text such as "5 days"; anything else unchanged, for the model to refuse."""
    if not isinstance(given, str):
        return given
    duration = re.fullmatch(r"(\d{1,6}) (second|minute|hour|day)s?", given.strip())
    if duration is None:
        raise ValueError(f"it is {given!r}, and must be such as '5 days', '12 hours' or '30 minutes'")
    return int(duration[1]) * _UNITS[duration[2]]


class CalendarFile(_Strict):
    """The opening times of the waves.

    Attributes:
        first: the earliest opening of the first wave, a local time of `timezone`.
        every: "once", "day" or "week"; "result" for a question with an alphabet: each wave opens once the wave before
            has its result.
        on: the weekday of a weekly study: waves open on the first such day at or after `first`; None: that of `first`.
        waves: the number of waves; with every "result" it follows from the question.
        timezone: a name of the IANA time zone database.
        open_for: the time for which a wave takes answers, in seconds; in the file a text such as "5 days".
    """

    first: datetime
    every: Period
    on: Weekday | None = None
    waves: int = Field(1, ge=1, le=MOST_WAVES)
    timezone: str = "UTC"
    open_for: Annotated[int, BeforeValidator(_seconds)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.on is not None and self.every != "week":
            raise ValueError(f"on is {self.on} with every {self.every}; it is for every week")
        if self.every in ("once", "result") and self.waves != 1:
            raise ValueError(f"waves is {self.waves} with every {self.every}; leave it out")
        self.calendar().opens(0)
        return self

    def calendar(self) -> Calendar:
        """Returns the calendar that the lines state."""
        first = self.first
        if self.on is not None:
            first += timedelta(days=(_WEEKDAYS.index(self.on) - first.weekday()) % 7)
        return Calendar(first, self.every, self.timezone, self.open_for)


class SurveyFile(_Strict):
    """The contents of survey.toml.

    Attributes:
        name: unique within the deployment, for ever. The rounds are NAME-1, NAME-2 and so on.
        language: the language of the texts.
        title: the heading of the page that people see; one question that is asked once needs neither this nor
            `consent`.
        consent: the text that a person agrees to by answering.
        introduction: who asks, and for which purpose.
        budgets: the ε of all answers together that a person can choose from, ascending. Each is split over the
            questions by their `share`, and the parts add up to it. By default four, up to the largest (at most 4) that
            puts no question at risk at the minimum.
        left_out: the answer for a question that a person leaves out: nothing ("missing"), or a random answer
            ("random"); see docs/ask-people.md.
        closes: the time at which all rounds close, with its zone; by default you close them.
        min_batch_size: with fewer people nothing is read.
        max_batch_size: with this number of people a round is full; 0: any number.
        epsilon_max: the largest certified ε of a question; above it the question is refused.
        epsilon_max_of: another one for people with this budget of a question, as in `epsilon_max_of = {"4" = 2}`.
        delta: the δ of each question's certificate.
        dishonest: the number of people who may be dishonest; each certificate allows for them.
        hop_noise: the ε of the hop noise of every question (docs/hop-noise.md), without it none. Clients accept budgets
            of one question up to 8 then. The page states the total of all questions.
        hop_noise_delta: the δ of the hop noise; `delta` by default.
        budget_privacy: the ε with which the counts of every certificate hide one person's budget
            (docs/day-to-day.md); 0: not at all; by default 1 if many people take part.
        budget_privacy_delta: its δ; 10⁻⁶ by default.
        hpke_suite: how everything that people send is encrypted (docs/another-language.md).
        questions: the questions, in the order in which they are asked.
        translations: the texts in other languages, by language, for every question.
        calendar: when waves open, of a survey that is asked again and again; without it, it is asked once.
        epsilon_total: with a calendar, the largest total cost of all waves for one person; a calendar needs it.
        delta_total: with a calendar, the δ of that cost; 10⁻⁵ by default.
        permanent: with a calendar, whether a client sends the same report again while its answer is the same.
        results: with a calendar, who reads the results.
    """

    name: str
    language: str = "en"
    title: str = ""
    consent: str = ""
    introduction: str = ""
    budgets: tuple[_Positive, ...] = ()
    left_out: LeftOut = "missing"
    closes: AwareDatetime | None = None
    min_batch_size: int = Field(100, ge=2, lt=2**31)
    max_batch_size: int = Field(0, ge=0, lt=2**31)
    epsilon_max: float = 1.0
    epsilon_max_of: dict[float, float] = {}
    delta: float = DEFAULT_DELTA
    dishonest: int = Field(0, ge=0, lt=2**31)
    hop_noise: float | None = None
    hop_noise_delta: float | None = None
    budget_privacy: float | None = None
    budget_privacy_delta: float | None = None
    hpke_suite: SuiteName = "x25519-sha256-chacha20poly1305"
    questions: tuple[SurveyQuestion, ...] = Field(min_length=1, max_length=MOST_QUESTIONS)
    translations: dict[str, _Translation] = {}
    calendar: CalendarFile | None = None
    epsilon_total: _Positive | None = None
    delta_total: float = Field(DEFAULT_TOTAL_DELTA, gt=0, le=0.1)
    permanent: bool = False
    results: Results = "public"

    @model_validator(mode="after")
    def _check_calendar(self) -> Self:
        if self.calendar is None:
            for name in ("epsilon_total", "delta_total", "permanent", "results"):
                if name in self.model_fields_set and getattr(self, name) is not None:
                    raise ValueError(f"{name} is for the waves of a [calendar], which is missing")
        elif self.epsilon_total is None:
            raise ValueError("epsilon_total is missing; with a [calendar] it is the most that all waves may cost")
        elif self.closes is not None:
            raise ValueError("closes is for a survey that is asked once; waves close after calendar.open_for")
        check_survey_id(self.name, has_schedule=self.calendar is not None)
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [question.name for question in self.questions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two questions have the name {name!r}; each needs its own")
        sent = [question.name for question in self.sent]
        own = [question.name for question in self.sent if question.budgets]
        if self.budgets and own:
            raise ValueError(f"the survey has budgets, and question {own[0]!r}, too; give one of them")
        if not self.budgets and own and len(own) < len(sent):
            missing = next(name for name in sent if name not in own)
            raise ValueError(f"budgets is missing: give those of the whole survey, or question {missing!r} its own")
        if len({len(question.budgets) for question in self.sent}) > 1:
            raise ValueError("the questions have different numbers of budgets; a person chooses one place in all lists")
        for language, translation in self.translations.items():
            if other := sorted(set(names) ^ set(translation.questions)):
                raise ValueError(
                    f"translations.{language} must have the questions {', '.join(names)}; check {', '.join(other)}"
                )
        self.wordings()
        for question in self.questions:
            self._crossed(question)
        self.asked()
        if not self.needs_budgets:
            self.grids()
        return self

    @property
    def needs_budgets(self) -> bool:
        """Whether neither the survey nor its questions have budgets."""
        return not self.budgets and not any(question.budgets for question in self.sent)

    def schedule(
        self, version: int = 1, previous_hash: Digest | None = None, change: str = "", first_wave: int = 1
    ) -> Schedule | None:
        """Returns the schedule of a version with these questions; None for a survey that is asked once."""
        if self.calendar is None or self.epsilon_total is None:
            return None
        return Schedule(
            version,
            previous_hash,
            change,
            self.calendar.calendar(),
            first_wave,
            first_wave + self.waves - 1,
            self.epsilon_total,
            self.delta_total,
            self.permanent,
            self.results,
        )

    @property
    def waves(self) -> int:
        """The number of waves, at most: of the calendar, or of a question that goes on by results; 1 without either."""
        rule = self.questions[0].rule
        return rule.waves if rule else self.calendar.waves if self.calendar else 1

    def wordings(self) -> tuple[SurveyWording, ...]:
        """Returns the texts of the survey, one for each language; none where the question's are all that people see."""
        if not (self.title or self.consent or self.calendar or self.translations or len(self.questions) > 1):
            return ()
        here = SurveyWording(self.language, self.title, self.consent, self.introduction)
        others = self.translations.items()
        return (
            here,
            *(
                SurveyWording(tag, translation.title, translation.consent, translation.introduction)
                for tag, translation in others
            ),
        )

    @property
    def sent(self) -> tuple[SurveyQuestion, ...]:
        """The questions with a round, without those that another question asks together."""
        parts = {name for question in self.questions for name in question.cross or ()}
        return tuple(question for question in self.questions if question.name not in parts)

    def _crossed(self, question: SurveyQuestion) -> SurveyQuestion:
        """Returns a question whose answers are the pairs of two others, in every language, with those answers."""
        if question.cross is None:
            return question
        parts = {each.name: each for each in self.questions if each.cross is None and each.choices and not each.several}
        if len(set(question.cross)) < 2 or not set(question.cross) <= set(parts):
            raise ValueError(f"cross is {list(question.cross)}; it must be two different questions with choices")
        labels = crossed(*(parts[name].choices for name in question.cross))
        if question.choices or question.categories or question.several or question.low is not None:
            raise ValueError(
                "cross is given beside choices, categories, several or low; its answers are those of two questions"
            )
        return question.model_copy(update={"choices": labels})

    def asked(self) -> tuple[Question, ...]:
        """Returns the questions that have a round, with their wordings."""
        questions = []
        for each in self.sent:
            try:
                question = self._crossed(each)
                others = [self._translated(question, tag) for tag in self.translations]
                is_put = question.question or question.title or question.help_text or question.unit or self.wordings()
                here = [question.wording(self.language)] if is_put else []
                questions.append(Question(question.name, question.mechanism(), (*here, *others)))
            except ValueError as error:
                raise ValueError(f"question {each.name!r}: {error}") from error
        return tuple(questions)

    def _translated(self, question: SurveyQuestion, language: str) -> Wording:
        texts = self.translations[language].questions
        own = texts[question.name]
        if question.cross is not None and all(texts[name].choices for name in question.cross):
            own = own.model_copy(update={"choices": crossed(*(texts[name].choices for name in question.cross))})
        return own.wording(language)

    def grids(self) -> tuple[tuple[float, ...], ...]:
        """Returns the local budgets of each question; those of the same position add up to one of `budgets`."""
        for budgets in (self.budgets, *(question.budgets for question in self.sent)):
            if any(a >= b for a, b in itertools.pairwise(budgets)):
                raise ValueError(f"budgets is {list(budgets)}; it must be ascending, each once")
        if not self.budgets:
            return tuple(question.budgets for question in self.sent)
        shares = [Decimal(str(question.share)) for question in self.sent]
        return tuple(zip(*(_split(Decimal(str(total)), shares) for total in self.budgets), strict=True))

    def whole_budget(self, name: str, part: float) -> float | None:
        """Returns the budget of the survey whose part is this; None for a question with budgets of its own."""
        shares = {question.name: question.share for question in self.sent}
        return part * sum(shares.values()) / shares[name] if self.budgets else None

    @property
    def deadline(self) -> int:
        """When the rounds close, Unix seconds; 0: by command."""
        return 0 if self.closes is None else int(datetime.timestamp(self.closes))


def survey_of_values(values: Mapping[str, Any]) -> SurveyFile:
    """Returns the contents of a file with these lines; raises ValueError as `read_survey_file`."""
    try:
        return SurveyFile.model_validate(values)
    except ValidationError as error:
        raise ValueError(in_words(error, [*SurveyFile.model_fields])) from None


def _split(total: Decimal, shares: Sequence[Decimal]) -> list[float]:
    """Returns parts of a budget that add up to it as decimals; the last one takes the rounding remainder."""
    parts = [_DIGITS.divide(total * share, sum(shares)) for share in shares[:-1]]
    return [*map(float, parts), float(total - sum(parts))]


def read_survey_file(file: Path) -> SurveyFile:
    """Returns the contents of a survey's file.

    Raises:
        ValueError: there is no such file, or it has a line that is missing, unknown or out of range.
    """
    try:
        return read_toml(file, SurveyFile, "file of a survey")
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; 'croupier survey new {file}' asks what to put there") from error


Value: TypeAlias = str | float | datetime | Sequence[str] | Sequence[float] | Mapping[float, float]
Lines: TypeAlias = Mapping[str, Value]
"""The lines of a table of a survey's file, by name."""


def _text(value: Value) -> str:
    """Returns a value in TOML, which equals JSON for texts, numbers and lists."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{key}" = {number}' for key, number in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def written(values: Lines, questions: Sequence[Lines], calendar: Lines | None = None) -> str:
    """Returns the file of a survey with these values and questions, and a calendar where it is asked again."""
    lines = _lines(values)
    if calendar is not None:
        lines += ["", "[calendar]", *_lines(calendar)]
    for question in questions:
        lines += ["", "[[questions]]", *_lines(question)]
    return "\n".join([*lines, ""])


def _lines(values: Lines) -> list[str]:
    return [f"{name} = {_text(value)}" for name, value in values.items()]


def written_file(file: SurveyFile) -> str:
    """Returns the text of the file of a survey that is asked once, in one language."""
    lines = file.model_dump(exclude_defaults=True)
    return written({name: lines[name] for name in lines if name != "questions"}, lines["questions"])
