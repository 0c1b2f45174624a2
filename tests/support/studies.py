"""Studies in tests: a file of one, with a calendar."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from croupier.net.retrying import retrying
from croupier.operator.opened_surveys import keep_survey, kept_rounds, open_rounds, version_of_wave
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.questions import Question
from croupier.protocol.schedules import Calendar, Schedule
from croupier.protocol.surveys import Survey, scheduled
from croupier.study.journal import StudyJournal, WaveRecord, read_journal, wave_records
from croupier.study.runs import StudyRun
from croupier.study.versions import begun_versions, journal_file
from tests.support import BIT, RoundKit, make_kit
from tests.support.rounds import Table
from tests.support.virtual_time import VirtualClock, virtual_loop


def study_file(name: str = "wellbeing", *, calendar: dict[str, Any] | None = None, **changes: object) -> SurveyFile:
    """A study of two questions, weekly on Monday 08:00 in Berlin, three waves."""
    values = {
        "name": name,
        "title": "How we are",
        "consent": "I answer for myself, of my own free will.",
        "budgets": [1, 2],
        "min_batch_size": 3,
        "epsilon_max": 6,
        "delta": 1e-4,
        "epsilon_total": 20,
        "delta_total": 1e-3,
        "calendar": {
            "first": "2026-01-01T08:00:00",
            "every": "week",
            "on": "Monday",
            "waves": 3,
            "timezone": "Europe/Berlin",
            "open_for": "5 days",
        }
        | (calendar or {}),
        "questions": [
            {"name": "mood", "question": "How was your week?", "choices": ["good", "mixed", "bad"]},
            {"name": "ill", "question": "Were you ill?"},
        ],
    }
    return SurveyFile.model_validate(values | changes)


@dataclass
class Played:
    """A study that is run in memory, in virtual time: its clock leaps from one thing that is due to the next.

    Attributes:
        at: the deployment.
        study_id: of the study.
        answering: called with the terms of a round that is open, to have people answer it.
    """

    at: Table
    study_id: str
    answering: Callable[[RoundTerms], Awaitable[object]]
    clock: VirtualClock = field(default_factory=VirtualClock)
    said: list[str] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)

    @property
    def directory(self) -> Path:
        return self.at.inside.directory

    def records(self) -> dict[int, WaveRecord]:
        return wave_records(read_journal(journal_file(self.directory, self.study_id)))

    @contextmanager
    def process(self) -> Iterator[StudyRun]:
        """A new process of the study."""
        where, how = self.directory, self.at.inside.transport
        with StudyJournal.running(journal_file(where, self.study_id)) as journal:
            yield StudyRun(where, self.study_id, journal, how, self.clock, self.said.append)

    def leap(self, until: float) -> None:
        """Lets the wall clock leap to a time, unless that is over."""
        virtual_loop().skip(max(0.0, until - self.clock.now()))

    async def play(self, until: float = math.inf) -> None:
        """Runs the study to its end or to a time; people answer every wave that opens, in the middle of it."""
        with self.process() as run:
            while (due := await run.step()) is not None and due < until:
                await self.answer()
                self.leap(due)
                await asyncio.sleep(0.25)  # until services have looked at their clocks

    async def answer(self) -> None:
        """Has people answer what is open and not answered yet."""
        for record in self.records().values():
            if record.step == "opened" and record.number not in self.answered:
                self.answered.add(record.number)
                survey = version_of_wave(begun_versions(self.directory, self.study_id), record.number)
                for terms in kept_rounds(self.directory, survey, record.number):
                    await self.answering(terms)


async def open_wave(at: Table, survey: Survey, number: int) -> list[RoundTerms]:
    """Opens a wave now, whatever the calendar says, as the process that runs the survey does."""
    keep_survey(at.inside.directory, survey)
    return await open_rounds(at.operator, at.inside.directory, survey, scheduled(survey).wave(number))


def kit_of_wave(
    number: int = 1,
    *,
    waves: int = 3,
    permanent: bool = True,
    question: Question = BIT,
    study_id: str = "wellbeing",
    **policy: Any,
) -> RoundKit:
    """The only round of a wave of a survey, with everybody's keys; policy: fields of the survey."""
    kit = make_kit(question=question, round_id=f"{study_id}-w{number}-1", **{"epsilon_max": 2.0} | policy)
    calendar = Calendar(datetime(2026, 1, 5, 8), "week", "Europe/Berlin", 432_000)
    schedule = Schedule(1, None, "", calendar, 1, waves, 20.0, 1e-3, permanent, "public")
    kit.survey.survey_id = study_id
    kit.survey.wordings.add(language="en", title="How we are", consent="I answer for myself.")
    kit.survey.schedule.CopyFrom(schedule.message())
    wave = schedule.wave(number)
    kit.manifest.wave, kit.manifest.opens_unix_s, kit.manifest.closes_unix_s = (
        wave.number,
        wave.opens_unix_s,
        wave.closes_unix_s,
    )
    return kit


class KilledError(BaseException):
    """Ends a process where it is, as far as that can be had in memory."""


def dying(monkeypatch: pytest.MonkeyPatch, journal: Path) -> Callable[[int | None], None]:
    """Returns what has the process die at a moment from now on: before, within or after a line, or around a call."""
    left: list[int | None] = [None]
    inside: list[bool] = [False]  # the operator enrols people in this process, too

    def moment() -> bool:
        if left[0] is None or not inside[0]:
            return False
        left[0] -= 1
        return left[0] < 0

    honest_write, honest_call, honest_step = StudyJournal.write, retrying, StudyRun.step

    async def step(self: StudyRun) -> float | None:
        inside[0] = True
        try:
            return await honest_step(self)
        finally:
            inside[0] = False

    def write(self: StudyJournal, at: float, step: Any, wave: int, **about: object) -> None:
        if moment():
            raise KilledError
        if moment():
            with journal.open("ab") as file:
                file.write(b'{"at": 1.0, "st')
            raise KilledError
        honest_write(self, at, step, wave, **about)
        if moment():
            raise KilledError

    async def call(*args: Any, **kwargs: Any) -> Any:
        if moment():
            raise KilledError
        answer = await honest_call(*args, **kwargs)
        if moment():
            raise KilledError
        return answer

    monkeypatch.setattr(StudyRun, "step", step)
    monkeypatch.setattr(StudyJournal, "write", write)
    monkeypatch.setattr("croupier.operator.operator.retrying", call)

    def die_after(moments: int | None) -> None:
        left[0] = moments

    return die_after
