"""The surveys that a person has joined, in a file for each, until the person leaves it.

A file holds the person's consents (every version of the survey, with its hash), the record of every wave, and the
inputs of answers: the invitation, and answers that were drawn for questions left out. Only its owner can read it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.surveys import Survey, read_survey, scheduled

_FOLDER = "studies"
AnswerState = Literal["answered", "left out", "abstained"]
WaveState = Literal["answered", "abstained", "missed", "new version"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AnswerRecord(_Document):
    """The outcome of one question in one wave.

    Attributes:
        question: its name.
        state: "answered", "left out" (the person gave no answer), or "abstained" (the person's limits, or a service,
            do not allow any budget of the round).
        local_epsilon: the budget of the answer; 0 without one.
        why: the reason for a smaller budget than wanted, or for none; empty otherwise.
    """

    question: str
    state: AnswerState
    local_epsilon: float = 0.0
    why: str = ""


class WaveRecord(_Document):
    """The outcome of one wave.

    Attributes:
        study_id: of the survey.
        wave: its number, from 1.
        version: of the survey.
        state: "answered" (at least one question), "abstained" (none), "missed" (closed before the device came), or "new
            version": the person has not consented to the wave's version of the survey; it is answered after the consent
            if it is still open.
        answers: by question.
        change: the change of the new version, in the operator's words.
    """

    study_id: str
    wave: int
    version: int
    state: WaveState
    answers: tuple[AnswerRecord, ...] = ()
    change: str = ""


class Consent(_Document):
    """A version of a survey that the person has consented to: its hash, hexadecimal, and when, in UTC."""

    version: int
    hash: str
    at: str


class JoinedSurvey(_Document):
    """A survey that a person has joined.

    Attributes:
        survey: the newest version that the person has consented to, hexadecimal; see `version`.
        consents: to all versions, oldest first.
        person: a name if a program answers for several people; else empty.
        wave_epsilon: the most that the answers to one wave may spend together.
        invitation: the link of an invitation, a secret; empty if another key admits.
        first_wave: the first wave after the person joined.
        waves: the record of each wave that is over for this device, by number.
        ended: whether the rule of the question has led to no further wave.
        drawn: in a permanent study, the answers that were drawn for questions left out.
    """

    survey: str
    consents: list[Consent]
    person: str = ""
    wave_epsilon: float
    invitation: str = Field(default="", repr=False)
    first_wave: int = 1
    waves: dict[int, WaveRecord] = {}
    ended: bool = False
    drawn: dict[str, float] = Field(default={}, repr=False)

    @classmethod
    def read(cls, directory: Path, survey_id: str, person: str = "") -> Self | None:
        """Returns a survey that was joined from here; None for another one.

        Raises:
            ValueError: the file is damaged, or a newer croupier has written it.
        """
        with suppress(FileNotFoundError):
            return cls._from(_file(directory, survey_id, person))
        return None

    @classmethod
    def _from(cls, file: Path) -> Self:
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise ValueError(f"{file} cannot be read; it must be what 'croupier join' wrote") from error

    @property
    def version(self) -> Survey:
        """The newest version that the person has consented to."""
        return read_survey(bytes.fromhex(self.survey))

    def check_continues(self, survey: Survey, between: Iterable[Survey] = ()) -> None:
        """Checks that a version continues the newest one that the person has consented to.

        between: versions between the two, and any others.

        Raises:
            Refusal: BAD_MANIFEST; it does not follow that version, or changes what the first one has promised.
        """
        try:
            self.version.check_continued_by(survey, between)
        except ValueError as error:
            raise Refusal(Code.BAD_MANIFEST, str(error)) from error

    def consent(self, survey: Survey, now: float) -> None:
        """Records that the person consents to a version of a survey."""
        if self.consents and self.consents[-1].hash == survey.hash.hex():
            return
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        self.survey = survey.payload.hex()
        self.consents.append(Consent(version=scheduled(survey).version, hash=survey.hash.hex(), at=at))

    @property
    def next_wave(self) -> int:
        """The number of the first wave that is not over for this device."""
        number = self.first_wave
        while number in self.waves:
            number += 1
        return number

    @property
    def is_over(self) -> bool:
        """Whether no further wave is announced."""
        return self.ended or self.next_wave > scheduled(self.version).last_wave

    def write(self, directory: Path) -> None:
        """Writes the file in place of an older one, in a single step; it is durable then."""
        file = _file(directory, self.version.survey_id, self.person)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(self.model_dump_json())
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(file)

    def forget(self, directory: Path) -> None:
        """Deletes the file."""
        _file(directory, self.version.survey_id, self.person).unlink(missing_ok=True)


def _file(directory: Path, survey_id: str, person: str) -> Path:
    whose = f".{hashlib.sha256(person.encode()).hexdigest()[:16]}" if person else ""
    return directory / _FOLDER / f"{survey_id}{whose}.json"


def joined_surveys(directory: Path) -> list[JoinedSurvey]:
    """Returns all surveys that were joined from here, by name; raises as `JoinedSurvey.read`."""
    return [JoinedSurvey._from(file) for file in sorted((directory / _FOLDER).glob("*.json"))]
