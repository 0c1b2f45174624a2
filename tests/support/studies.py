"""Studies in tests: a file of one, with a calendar."""

from __future__ import annotations

import asyncio
import math
import random
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


async def killed_at_drawn_moments(
    monkeypatch: pytest.MonkeyPatch, play: Callable[[], Awaitable[object]], times: int, moments: int, **where: Any
) -> int:
    """Has a process die and start again as often as this, and live at last; returns how often it died.

    Args:
        monkeypatch: changes the process.
        play: the process.
        times: how often it dies at most; it is not killed again once it has come to its end.
        moments: it dies after fewer than this many moments, which are drawn.
        where: see `Dying`.
    """
    source, killed = random.SystemRandom(), 0
    with monkeypatch.context() as patch:
        dying = Dying(patch, **where)
        while killed < times:
            dying.left = source.randrange(moments)
            try:
                await play()
            except KilledError:
                killed += 1
                continue
            except BaseExceptionGroup as group:
                assert group.split(KilledError)[1] is None  # noqa: PT017 (nothing else may have gone wrong)
                killed += 1
                continue
            break
    await play()
    return killed


class Dying:
    """A process that dies at a moment: before, within or after a line of the journal, or around a call to a service.

    Attributes:
        left: the moments that it lives for.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, everywhere: bool = False, around: Any = ()) -> None:
        """Changes the process.

        Args:
            patch: ends with the process.
            everywhere: whether it may die while no step is taken, too: else people answer in the same process.
            around: further methods around which it dies, (class, name) each.
        """
        self.left, self._inside = 0, everywhere
        honest_write, honest_step = StudyJournal.write, StudyRun.step
        for owner, name in around:
            patch.setattr(owner, name, self._around(getattr(owner, name)))

        def write(journal: Any, *line: Any, **about: Any) -> None:
            self.moment()
            try:
                self.moment()
            except KilledError:
                with journal._file.open("ab") as file:
                    file.write(b'{"at": 1.0, "st')
                raise
            honest_write(journal, *line, **about)
            self.moment()

        async def step(run: StudyRun) -> float | None:
            self._inside = True
            try:
                return await honest_step(run)
            finally:
                self._inside = everywhere

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.moment()
            answer = await retrying(*args, **kwargs)
            self.moment()
            return answer

        patch.setattr(StudyRun, "step", step)
        patch.setattr(StudyJournal, "write", write)
        patch.setattr("croupier.operator.operator.retrying", call)

    def _around(self, honest: Callable[..., object]) -> Callable[..., object]:
        def method(*args: Any, **kwargs: Any) -> object:
            self.moment()
            result = honest(*args, **kwargs)
            self.moment()
            return result

        return method

    def moment(self) -> None:
        if self._inside:
            self.left -= 1
            if self.left < 0:
                raise KilledError
