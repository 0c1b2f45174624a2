"""Studies: surveys that are asked again and again, with one consent, under one versioned description.

Every wave is a survey whose description holds the study's, so that all services have signed it with the manifests of
the wave's rounds. A study fixes everything about its waves but their numbers and times: `check_wave_of` refuses a
round whose texts, questions, budgets or deadline are not those of the study. Whether a wave opens when the calendar
says so is the operator's to keep, and everybody's to see.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croupier.protocol.names import Digest
from croupier.protocol.shown import check_shown
from croupier.protocol.v1 import messages_pb2 as pb

Period = Literal["once", "day", "week"]
Results = Literal["public", "participants", "operator"]
MOST_WAVES = 4096
"""More than eleven years of days."""
_PERIODS: dict[Period, pb.StudyPeriod.ValueType] = {
    "once": pb.STUDY_PERIOD_ONCE,
    "day": pb.STUDY_PERIOD_DAY,
    "week": pb.STUDY_PERIOD_WEEK,
}
_RESULTS: dict[Results, pb.StudyResults.ValueType] = {
    "public": pb.STUDY_RESULTS_PUBLIC,
    "participants": pb.STUDY_RESULTS_PARTICIPANTS,
    "operator": pb.STUDY_RESULTS_OPERATOR,
}
RESULTS_TEXTS: dict[Results, str] = {
    "public": "The results are public.",
    "participants": "The results are sealed to the operator, who undertakes to give them to everybody who takes part.",
    "operator": "The results are sealed to the operator.",
}
"""Who reads the results, in a sentence; certificates are public in each case."""
_DAYS: dict[Period, int] = {"once": 0, "day": 1, "week": 7}
_BETWEEN_S = 2 * 3600
"""Seconds between the closing of a wave and the opening of the next one, at least: a day on which the clocks are set
forward has 23 hours, and the results of a wave are there before the next one opens."""
_MOST_OPEN_S = 366 * 86_400
_LOCAL_TIME = "%Y-%m-%dT%H:%M"
_ROUND_FIELDS = ("round_id", "close_deadline_unix_s", "hops", "accountant", "analyzer", "survey")
_MAX_DELTA = 0.1


def wave_survey_id(study_id: str, number: int) -> str:
    """Returns the name of the survey that is a study's wave with this number, from 1."""
    return f"{study_id}-w{number}"


def is_round_of_study(study_id: str, round_id: str) -> bool:
    """Whether a round has the name of one of a study; every round of a wave has such a name (`check_wave_of`).

    No round of another study has, because no study's name has that of a wave in it (`Study`).
    """
    return re.fullmatch(rf"{re.escape(study_id)}-w[0-9]+-.*", round_id, re.DOTALL) is not None


@dataclass(frozen=True)
class StudyCalendar:
    """When the waves of one version of a study open, and for how long.

    Attributes:
        first: when the first wave of the version opens: a local time of `timezone`, in whole minutes, without a zone.
        every: "once", "day" or "week": further waves open at the same local time. A local time that a change of the
            clocks skips is read as if the clocks had not changed yet, and one that occurs twice is the first of both.
        timezone: a name of the IANA time zone database, such as "Europe/Berlin".
        open_for_s: how long a wave takes answers, in seconds: at least 60, and 2 h less than the period at most.

    Raises:
        ValueError: at construction, with the value and what it must be.
    """

    first: datetime
    every: Period
    timezone: str
    open_for_s: int

    def __post_init__(self) -> None:
        if self.first.tzinfo is not None or self.first.second or self.first.microsecond:
            raise ValueError(f"first is {self.first}; it must be a local time in whole minutes, without a zone")
        if self.every not in _PERIODS:
            raise ValueError(f"every is {self.every!r}; it must be one of {', '.join(_PERIODS)}")
        if not re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", self.timezone):
            raise ValueError(f"timezone is {self.timezone!r}; it must be a name such as Europe/Berlin")
        most = _MOST_OPEN_S if self.every == "once" else _DAYS[self.every] * 86_400 - _BETWEEN_S
        if not 60 <= self.open_for_s <= most:
            raise ValueError(f"open_for is {self.open_for_s:,} s; it must be in 60..{most:,} s with every {self.every}")

    def opens(self, place: int) -> int:
        """Returns when the wave with this place in the version, from 0, opens: Unix seconds.

        Raises:
            ValueError: the time zone database of this machine does not have the time zone.
        """
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"timezone is {self.timezone!r}; the time zone database of this machine does not have it"
            ) from error
        local = self.first + timedelta(days=_DAYS[self.every] * place)
        return int(local.replace(tzinfo=zone).timestamp())


@dataclass(frozen=True)
class Study:
    """One version of a study.

    Attributes:
        study_id: unique within the deployment: 1 .. 40 of A-Z, a-z, 0-9, '-' and '_', without the name of a wave in it.
        version: from 1.
        previous_hash: the hash of the version before this one; empty in version 1.
        change: what this version changes, for people to read; empty in version 1.
        calendar: when waves open.
        first_wave, last_wave: the waves of this version, both included; the numbers go on from version to version.
        total_epsilon, total_delta: the most that all waves of all versions together may cost one person, composed as
            the accountant composes rounds.
        permanent: whether a client randomizes an answer once, and sends the same report while the answer is the same.
        results: who reads the results.
        texts_hash: see `study_texts_hash`.
        question_hashes: see `study_question_hash`, in the order of the questions.

    Raises:
        ValueError: at construction, with the value and what it must be.
    """

    study_id: str
    version: int
    previous_hash: Digest | None
    change: str
    calendar: StudyCalendar
    first_wave: int
    last_wave: int
    total_epsilon: float
    total_delta: float
    permanent: bool
    results: Results
    texts_hash: Digest
    question_hashes: tuple[Digest, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", self.study_id):
            raise ValueError(f"study_id is {self.study_id!r}; it must be 1..40 of A-Z, a-z, 0-9, '-' and '_'")
        if named := re.search(r"-w[0-9]+(?=-|$)", self.study_id):
            raise ValueError(
                f"study_id is {self.study_id!r}; it must not have {named[0]!r}, by which the rounds of another study's "
                "wave are named"
            )
        if not 1 <= self.version < 2**31:
            raise ValueError(f"version is {self.version}; it must be at least 1")
        if (self.version > 1) != (self.previous_hash is not None):
            raise ValueError(f"version {self.version} must name the hash of the version before it, and version 1 none")
        if len(self.change.encode()) > 1000 or bool(self.change) != (self.version > 1):
            raise ValueError("change must say in 1..1000 bytes what the version changes, and be empty in version 1")
        check_shown("change", self.change)
        if not 1 <= self.first_wave <= self.last_wave <= MOST_WAVES or (self.version == 1 and self.first_wave != 1):
            raise ValueError(
                f"the waves are {self.first_wave}..{self.last_wave}; they must be a range in 1..{MOST_WAVES}, from 1 "
                "in version 1"
            )
        if self.calendar.every == "once" and self.first_wave != self.last_wave:
            raise ValueError(f"the version has the waves {self.first_wave}..{self.last_wave}; with every once it has 1")
        if not (math.isfinite(self.total_epsilon) and self.total_epsilon > 0):
            raise ValueError(f"total_epsilon is {self.total_epsilon}; it must be a finite number > 0")
        if not 0 < self.total_delta <= _MAX_DELTA:
            raise ValueError(f"total_delta is {self.total_delta}; it must be 0 < total_delta ≤ {_MAX_DELTA:g}")
        if self.results not in _RESULTS:
            raise ValueError(f"results is {self.results!r}; it must be one of {', '.join(_RESULTS)}")
        hashes = (self.texts_hash, *self.question_hashes, *([self.previous_hash] if self.previous_hash else []))
        if not self.question_hashes or any(len(digest) != 32 for digest in hashes):
            raise ValueError("the study must have a hash of 32 bytes for its texts and for each question")

    @classmethod
    def read(cls, message: pb.Study) -> Self:
        """Returns the description that a message states; the inverse of `message`.

        Raises:
            ValueError: a field that is missing or out of range, with its value and what it must be.
        """
        every: Period | None = next((n for n, value in _PERIODS.items() if value == message.calendar.every), None)
        results: Results | None = next((n for n, value in _RESULTS.items() if value == message.results), None)
        if every is None or results is None:
            raise ValueError("calendar.every or results is missing or unknown")
        first = message.calendar.first
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", first):
            raise ValueError(f"calendar.first is {first!r}; it must be a local time such as 2026-01-05T08:00")
        return cls(
            message.study_id,
            message.version,
            Digest(message.previous_hash) if message.previous_hash else None,
            message.change,
            StudyCalendar(
                datetime.strptime(first, _LOCAL_TIME),
                every,
                message.calendar.timezone,
                message.calendar.open_for_s,
            ),
            message.first_wave,
            message.last_wave,
            message.total_epsilon,
            message.total_delta,
            message.permanent,
            results,
            Digest(message.texts_hash),
            tuple(map(Digest, message.question_hashes)),
        )

    def message(self) -> pb.Study:
        """Returns the message of a description."""
        return pb.Study(
            study_id=self.study_id,
            version=self.version,
            previous_hash=self.previous_hash or b"",
            change=self.change,
            calendar=pb.StudyCalendar(
                first=self.calendar.first.strftime(_LOCAL_TIME),
                every=_PERIODS[self.calendar.every],
                timezone=self.calendar.timezone,
                open_for_s=self.calendar.open_for_s,
            ),
            first_wave=self.first_wave,
            last_wave=self.last_wave,
            total_epsilon=self.total_epsilon,
            total_delta=self.total_delta,
            permanent=self.permanent,
            results=_RESULTS[self.results],
            texts_hash=self.texts_hash,
            question_hashes=self.question_hashes,
        )

    @cached_property
    def hash(self) -> Digest:
        """The SHA-256 that names this version, 32 bytes."""
        return _hash(b"study", self.message().SerializeToString(deterministic=True))

    @cached_property
    def invitation_hash(self) -> Digest:
        """What invitations are bound to: the study by its name, so that they are good for all waves and versions."""
        return _hash(b"study-invitation", self.study_id.encode())

    def wave(self, number: int) -> StudyWave:
        """Returns a wave of this version with its times by the calendar.

        Raises:
            ValueError: the version has no wave with this number, or this machine does not know the time zone.
        """
        opens = self.calendar.opens(number - self.first_wave)
        return StudyWave(self, number, opens, opens + self.calendar.open_for_s)

    def waves(self) -> Iterator[StudyWave]:
        """Yields all waves of this version, in order; raises as `wave`."""
        return (self.wave(number) for number in range(self.first_wave, self.last_wave + 1))


@dataclass(frozen=True)
class StudyWave:
    """One wave of a study.

    Attributes:
        study: the version that the wave belongs to.
        number: from 1, over all versions.
        opens_unix_s: when it opens by the calendar, Unix seconds; it may open later.
        closes_unix_s: the deadline of its rounds, Unix seconds.

    Raises:
        ValueError: at construction, with the value and what it must be.
    """

    study: Study
    number: int
    opens_unix_s: int
    closes_unix_s: int

    def __post_init__(self) -> None:
        first, last = self.study.first_wave, self.study.last_wave
        if not first <= self.number <= last:
            raise ValueError(
                f"study {self.study.study_id!r} has the waves {first}..{last} in version {self.study.version}, not "
                f"{self.number}"
            )
        if self.closes_unix_s - self.opens_unix_s != self.study.calendar.open_for_s or self.opens_unix_s < 0:
            raise ValueError(
                f"wave {self.number} is open from {self.opens_unix_s} to {self.closes_unix_s}; the calendar says for "
                f"{self.study.calendar.open_for_s} s"
            )

    @classmethod
    def read(cls, message: pb.StudyWave) -> Self:
        """Returns the wave that a message states; raises ValueError as `Study.read`."""
        return cls(Study.read(message.study), message.number, message.opens_unix_s, message.closes_unix_s)

    def message(self) -> pb.StudyWave:
        """Returns the message of a wave."""
        return pb.StudyWave(
            study=self.study.message(),
            number=self.number,
            opens_unix_s=self.opens_unix_s,
            closes_unix_s=self.closes_unix_s,
        )

    @property
    def survey_id(self) -> str:
        """The name of the survey that the wave is."""
        return wave_survey_id(self.study.study_id, self.number)

    @property
    def opens(self) -> datetime:
        """When it opens by the calendar, UTC."""
        return datetime.fromtimestamp(self.opens_unix_s, UTC)

    @property
    def closes(self) -> datetime:
        """When it closes, UTC."""
        return datetime.fromtimestamp(self.closes_unix_s, UTC)


@dataclass(frozen=True)
class StudyPromises:
    """What the first wave of a study fixes for all its versions: services sign, and clients answer, no other ones.

    Attributes:
        total_epsilon, total_delta, permanent, results: see `Study`.
        collector_public_key: to which the results are sealed; empty where they are public.
    """

    total_epsilon: float
    total_delta: float
    permanent: bool
    results: Results
    collector_public_key: bytes

    @classmethod
    def of(cls, study: Study, collector_public_key: bytes) -> Self:
        """Returns what a version promises, with the collector of its rounds."""
        return cls(study.total_epsilon, study.total_delta, study.permanent, study.results, collector_public_key)

    def check_kept(self, study: Study, collector_public_key: bytes) -> None:
        """Checks that another version, with the collector of its rounds, promises the same.

        Raises:
            ValueError: it does not, with the first field that differs and both values.
        """
        stated = StudyPromises.of(study, collector_public_key)
        for field in fields(self):
            promised, other = getattr(self, field.name), getattr(stated, field.name)
            if other != promised:
                raise ValueError(
                    f"{field.name} is {_shown(other)} in version {study.version} of study {study.study_id!r}; it must "
                    f"stay {_shown(promised)}, as people were promised: begin another study"
                )


def _shown(value: object) -> str:
    return (value.hex() or "empty") if isinstance(value, bytes) else str(value)


def check_continues(known: Study, newer: Study, between: Iterable[Study] = ()) -> None:
    """Checks that the hashes of previous versions lead from a version to the known one.

    between: versions between the two, and any others, in any order.

    Raises:
        ValueError: they do not.
    """
    versions = {version.hash: version for version in (newer, *between)}
    link: Digest | None = newer.hash
    while link != known.hash:
        if link is None or link not in versions:
            raise ValueError(
                f"version {newer.version} of study {newer.study_id!r} does not follow version {known.version}, which "
                "you have consented to"
            )
        link = versions[link].previous_hash


def _hash(kind: bytes, payload: bytes) -> Digest:
    return Digest(hashlib.sha256(b"croupier/v1/" + kind + b"\0" + payload).digest())


def study_texts_hash(survey: pb.Survey) -> Digest:
    """Returns the hash by which a study names the texts of its waves and what is sent for questions left out."""
    texts = pb.Survey(wordings=survey.wordings, left_out=survey.left_out)
    return _hash(b"study-texts", texts.SerializeToString(deterministic=True))


def study_question_hash(manifest: pb.Manifest) -> Digest:
    """Returns the hash by which a study names a question: its round's terms that are the same in every wave."""
    terms = pb.Manifest()
    terms.CopyFrom(manifest)
    for field in _ROUND_FIELDS:
        terms.ClearField(field)  # type: ignore[arg-type]
    return _hash(b"study-question", terms.SerializeToString(deterministic=True))


def check_wave_of(manifest: pb.Manifest, place: int) -> StudyWave | None:
    """Returns the wave of a study that a round belongs to; None for a round whose survey is not of a study.

    It is checked that the study fixes these terms.

    place: of the round among the questions of its survey, from 0.

    Raises:
        ValueError: the description is not valid, or is of other texts, questions, budgets or times.
    """
    survey = manifest.survey
    if not survey.HasField("wave"):
        return None
    wave = StudyWave.read(survey.wave)
    study, name = wave.study, f"wave {wave.number} of study {wave.study.study_id!r}"
    if survey.survey_id != wave.survey_id:
        raise ValueError(f"{name} is the survey {survey.survey_id!r}; it must be {wave.survey_id!r}")
    if not manifest.round_id.startswith(f"{wave.survey_id}-"):
        raise ValueError(f"a round of {name} is {manifest.round_id!r}; its name must begin with {wave.survey_id}-")
    if len(survey.rounds) != len(study.question_hashes):
        raise ValueError(f"{name} has {len(survey.rounds)} questions; the study has {len(study.question_hashes)}")
    if study_texts_hash(survey) != study.texts_hash:
        raise ValueError(f"{name} has other texts, or another left_out, than the study")
    if study_question_hash(manifest) != study.question_hashes[place]:
        raise ValueError(f"{name} has other terms for round {manifest.round_id!r} than the study")
    if manifest.close_deadline_unix_s != wave.closes_unix_s:
        raise ValueError(
            f"round {manifest.round_id!r} closes at {manifest.close_deadline_unix_s}; {name} closes at "
            f"{wave.closes_unix_s}"
        )
    if bool(manifest.collector_public_key) == (study.results == "public"):
        raise ValueError(f"the results of {name} are for: {study.results}; its rounds seal them for others")
    return wave
