"""The studies that a person has joined, in a file for each, until the person leaves it.

A file holds the person's consents (every version of the study, with its hash), the record of every wave, and the inputs
of answers: the invitation, and answers that were drawn for questions left out. Only its owner can read it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.studies import Study, StudyPromises, StudyWave, check_continues
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb

_FOLDER = "studies"
AnswerState = Literal["answered", "left out", "abstained"]
WaveState = Literal["answered", "abstained", "missed", "new version", "new survey"]


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
        study_id: of the study.
        wave: its number, from 1.
        version: of the study.
        state: "answered" (at least one question), "abstained" (none), "missed" (closed before the device came), or "new
            version": the person has not consented to the wave's version of the study; it is answered after the consent
            if it is still open. "new survey": the same for a wave with another survey than the one that the person has
            consented to.
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
    """A version of a study that the person has consented to: its hash, hexadecimal, and when, in UTC."""

    version: int
    hash: str
    at: str


class JoinedStudy(_Document):
    """A study that a person has joined.

    Attributes:
        study: the newest version that the person has consented to, hexadecimal; see `version`.
        collector: the key that its results are sealed to, hexadecimal; empty for public results.
        consents: to all versions, oldest first.
        person: a name if a program answers for several people; else empty.
        wave_epsilon: the most that the answers to one wave may spend together.
        invitation: the link of an invitation, a secret; empty if another key admits.
        first_wave: the first wave after the person joined.
        waves: the record of each wave that is over for this device, by number.
        surveys: the hash of the survey of a wave that the person has consented to, hexadecimal, by the wave's number.
        drawn: in a permanent study, the answers that were drawn for questions left out.
    """

    study: str
    collector: str = ""
    consents: list[Consent]
    person: str = ""
    wave_epsilon: float
    invitation: str = Field(default="", repr=False)
    first_wave: int = 1
    waves: dict[int, WaveRecord] = {}
    surveys: dict[int, str] = {}
    drawn: dict[str, float] = Field(default={}, repr=False)

    @property
    def version(self) -> Study:
        """The newest version that the person has consented to."""
        return Study.read(pb.Study.FromString(bytes.fromhex(self.study)))

    def covers(self, survey: Survey, wave: StudyWave) -> bool:
        """Returns whether the person's consent covers a survey as this wave; a wave that was not shown may be any."""
        survey_hash = survey.hash.hex()
        return self.version.hash == wave.study.hash and self.surveys.get(wave.number, survey_hash) == survey_hash

    def check_continues(self, study: Study, collector_public_key: bytes, between: Iterable[Study] = ()) -> None:
        """Checks that a version continues the newest one that the person has consented to.

        between: versions between the two, and any others.

        Raises:
            Refusal: BAD_MANIFEST; it does not follow that version, or changes what its first wave has promised.
        """
        try:
            check_continues(self.version, study, between)
            StudyPromises.of(self.version, bytes.fromhex(self.collector)).check_kept(study, collector_public_key)
        except ValueError as error:
            raise Refusal(Code.BAD_MANIFEST, str(error)) from error

    def consent(self, survey: Survey, wave: StudyWave, collector_public_key: bytes, now: float) -> None:
        """Records that the person consents to a survey as a wave, and to the wave's version of the study."""
        study = wave.study
        self.surveys[wave.number] = survey.hash.hex()
        if self.consents and self.consents[-1].hash == study.hash.hex():
            return
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        self.study = study.message().SerializeToString(deterministic=True).hex()
        self.collector = collector_public_key.hex()
        self.consents.append(Consent(version=study.version, hash=study.hash.hex(), at=at))

    @property
    def next_wave(self) -> int:
        """The number of the first wave that is not over for this device."""
        number = self.first_wave
        while number in self.waves:
            number += 1
        return number

    def write(self, directory: Path) -> None:
        """Writes the file in place of an older one, in a single step; it is durable then."""
        file = _file(directory, self.version.study_id, self.person)
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
        _file(directory, self.version.study_id, self.person).unlink(missing_ok=True)


def _file(directory: Path, study_id: str, person: str) -> Path:
    whose = f".{hashlib.sha256(person.encode()).hexdigest()[:16]}" if person else ""
    return directory / _FOLDER / f"{study_id}{whose}.json"


def read_joined(directory: Path, study_id: str, person: str = "") -> JoinedStudy | None:
    """Returns a study that was joined from here; None for another one.

    Raises:
        ValueError: the file is damaged, or a newer croupier has written it.
    """
    file = _file(directory, study_id, person)
    try:
        return JoinedStudy.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ValueError(f"{file} cannot be read; it must be what 'croupier join' wrote") from error


def joined_studies(directory: Path) -> Iterator[JoinedStudy]:
    """Yields all studies that were joined from here, by name; raises as `read_joined`."""
    for file in sorted((directory / _FOLDER).glob("*.json")):
        try:
            yield JoinedStudy.model_validate_json(file.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise ValueError(f"{file} cannot be read; it must be what 'croupier join' wrote") from error
