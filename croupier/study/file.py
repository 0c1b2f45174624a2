"""study.toml: a survey as an operator writes it (`survey_file`), with a calendar and a privacy limit over all waves."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from croupier.operator.survey_file import SurveyFile
from croupier.protocol.studies import MOST_WAVES, Period, Results, StudyCalendar, StudyWave, wave_survey_id
from croupier.protocol.toml_file import read_toml

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


class CalendarFile(BaseModel):
    """The opening times of the waves.

    Attributes:
        first: the earliest opening of the first wave, a local time of `timezone`.
        every: "once", "day" or "week".
        on: the weekday of a weekly study: waves open on the first such day at or after `first`; None: that of `first`.
        waves: the number of waves.
        timezone: a name of the IANA time zone database.
        open_for: the time for which a wave takes answers, in seconds; in the file a text such as "5 days".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
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
        if self.every == "once" and self.waves != 1:
            raise ValueError(f"waves is {self.waves} with every once; it must be 1")
        self.calendar().opens(0)
        return self

    def calendar(self) -> StudyCalendar:
        """Returns the calendar that the lines state."""
        first = self.first
        if self.on is not None:
            first += timedelta(days=(_WEEKDAYS.index(self.on) - first.weekday()) % 7)
        return StudyCalendar(first, self.every, self.timezone, self.open_for)


class StudyFile(SurveyFile):
    """The contents of study.toml: the lines of a survey, and those below; docs/studies.md describes them.

    Attributes:
        calendar: when waves open.
        epsilon_total, delta_total: the largest total cost of all waves for one person.
        permanent: whether a client sends the same report again while its answer is the same.
        results: who reads the results.
    """

    calendar: CalendarFile
    epsilon_total: float = Field(gt=0, allow_inf_nan=False)
    delta_total: float = Field(DEFAULT_TOTAL_DELTA, gt=0, le=0.1)
    permanent: bool = False
    results: Results = "public"

    @model_validator(mode="after")
    def _check_study(self) -> Self:
        if self.closes is not None:
            raise ValueError("closes is for one survey; the waves of a study close after calendar.open_for")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", self.name):
            raise ValueError(f"name is {self.name!r}; it must be 1..40 of A-Z, a-z, 0-9, '-' and '_'")
        return self

    def survey(self, wave: StudyWave | None = None) -> SurveyFile:
        """Returns the survey of a wave; without one, of the first wave with any deadline, to plan with."""
        lines = {name: getattr(self, name) for name in SurveyFile.model_fields}
        name = wave_survey_id(self.name, 1) if wave is None else wave.survey_id
        closes = datetime(2100, 1, 1, tzinfo=UTC) if wave is None else wave.closes
        return SurveyFile.model_construct(**(lines | {"name": name, "closes": closes}))


def read_study_file(file: Path) -> StudyFile:
    """Returns the contents of a study's file.

    Raises:
        ValueError: there is no such file, or it has a line that is missing, unknown or out of range.
    """
    try:
        return read_toml(file, StudyFile, "file of a study")
    except FileNotFoundError as error:
        raise ValueError(f"{file} does not exist; 'croupier study new {file}' asks what to put there") from error
