"""Taking part in a study: consent once, then answer every wave that is open, also after having been off.

The client trusts nobody for its consent: every wave's rounds are signed by all services and hold the study's
description (`protocol.studies`). A wave with another description is not answered before the person has consented to
that, too: a new version of the study, or another survey as the same wave. The records are durable: each answer in the
outbox (`client.outbox`), the rest in a file (`client.joined`), so that a process that was killed continues where it
was.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from croupier.client.joined import AnswerRecord, AnswerState, JoinedStudy, WaveRecord, WaveState, read_joined
from croupier.client.one_answer import is_of_person
from croupier.client.outbox import Outbox
from croupier.client.randomizers import RANDOMIZERS
from croupier.client.round_result import Receipt
from croupier.client.survey_rounds import fetch_survey
from croupier.protocol.errors import Code, LimitError, Refusal, UnreachableError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.names import NO_ROUND, Digest, RoundId
from croupier.protocol.schedules import MOST_WAVES, Wave
from croupier.protocol.surveys import Survey, budgets_within, is_round_of, scheduled

Value: TypeAlias = float | str | Collection[str]
Answers: TypeAlias = Mapping[str, Value] | Callable[[int], Mapping[str, Value]]
"""The answer to each question by its name, or a function from a wave's number to these. A question without an answer is
left out."""
Accept: TypeAlias = Callable[[Survey, Survey], bool | Awaitable[bool]]
"""Whether the person consents to the second version of a survey instead of the first."""
_NOT_THERE = (Code.UNKNOWN_ROUND, Code.NOT_READY)
_OVER = (Code.WRONG_STATE, Code.ROUND_CLOSED)
_POLL_S = 900.0
"""The longest time between two looks for the next wave: an operator may open one late, or change the calendar."""
_SOON_S = 60.0
"""The shortest wait: a wave that is due may open a little late. Within this time, a process that follows a study
notices that the person has left it."""


class _StudyRound(Protocol):
    """A round of a wave; see `AsyncClientRound`."""

    @property
    def id(self) -> RoundId: ...
    @property
    def terms(self) -> RoundTerms: ...
    @property
    def state(self) -> str: ...
    async def goes_on(self) -> bool: ...
    async def submit(
        self, value: Value, max_local_epsilon: float, *, person: str, key: bytes, invitation: str
    ) -> Receipt: ...


class _StudyClient(Protocol):
    """The part of a client that follows a study; see `AsyncClient`."""

    @property
    def directory(self) -> Path: ...
    @property
    def outbox(self) -> Outbox: ...
    async def round(self, round_id: RoundId | str = NO_ROUND) -> _StudyRound: ...


@dataclass(frozen=True)
class ShownStudy:
    """A study as its newest known wave states it, to be shown to a person before consent.

    Attributes:
        survey: the version that the wave is of.
        wave: the wave.
        rounds: the terms of the wave's rounds, in the order of the questions.
        earlier: the versions of the waves before it that are kept.
    """

    survey: Survey
    wave: Wave
    rounds: tuple[RoundTerms, ...]
    earlier: tuple[Survey, ...] = ()


@dataclass(frozen=True)
class Follower:
    """The person who follows a study, with the settings.

    Attributes:
        answers: to the questions.
        person: a name if a program answers for several people.
        key: an enrolled Ed25519 key, 32 bytes, instead of the client's own and of the invitation.
        accept: called once for every new version; without it no new version is answered before `join`.
        now: the time, Unix seconds.
        sleep: waits for a number of seconds.
    """

    answers: Answers
    person: str = ""
    key: bytes = b""
    accept: Accept | None = None
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def _round_of(study_id: str, wave: int) -> RoundId:
    """Returns the first round of a wave."""
    return RoundId(f"{study_id}-w{wave}-1")


async def _wave(
    client: _StudyClient, study_id: str, number: int, earlier: Iterable[Survey] = ()
) -> tuple[ShownStudy, list[_StudyRound]]:
    """Returns an opened wave with its rounds.

    Raises:
        Refusal: it does not exist yet (UNKNOWN_ROUND, NOT_READY), it is deleted (WRONG_STATE), or its rounds are not
            those of this wave (BAD_MANIFEST).
        SignatureError, UnreachableError: as for `AsyncClient.round`.
    """
    rounds = await fetch_survey(client, _round_of(study_id, number))
    survey, wave = rounds[0].terms.survey, rounds[0].terms.wave
    if wave is None or (survey.survey_id, wave.number) != (study_id, number):
        raise Refusal(Code.BAD_MANIFEST, f"{rounds[0].id!r} is not of wave {number} of survey {study_id!r}")
    return ShownStudy(survey, wave, tuple(study_round.terms for study_round in rounds), tuple(earlier)), rounds


async def find_study(client: _StudyClient, study_id: str = "") -> ShownStudy:
    """Returns a study in the form of its newest opened wave.

    Args:
        client: of the deployment.
        study_id: the study; that of the newest open round if not given.

    Raises:
        Refusal: no wave of it was opened yet (UNKNOWN_ROUND), the newest open round is of no study (BAD_REQUEST), or
            the rounds of a wave do not belong together (BAD_MANIFEST).
        SignatureError, UnreachableError: as for `AsyncClient.round`.
    """
    if not study_id:
        newest_open = (await client.round()).terms
        if newest_open.wave is None:
            raise Refusal(Code.BAD_REQUEST, "the newest open round is not of a study; name the study")
        study_id = newest_open.survey.survey_id
    newest, versions = 0, dict[Digest, Survey]()
    for number in range(1, MOST_WAVES + 1):
        try:
            survey = (await client.round(_round_of(study_id, number))).terms.survey
            newest, versions[survey.hash] = number, survey
        except Refusal as refusal:
            if refusal.code in _NOT_THERE:
                break
            if refusal.code not in _OVER:
                raise
    if not newest:
        raise Refusal(Code.UNKNOWN_ROUND, f"no wave of study {study_id!r} was opened yet, or all are deleted")
    shown, _ = await _wave(client, study_id, newest, versions.values())
    return shown


def join(
    client: _StudyClient,
    shown: ShownStudy,
    wave_epsilon: float,
    *,
    person: str = "",
    invitation: str = "",
    now: Callable[[], float] = time.time,
) -> JoinedStudy:
    """Records that the person consents to a study as it was shown, durably; nothing is sent.

    Also for a new version of a study that was joined before: the records of earlier waves are kept.

    Args:
        client: of the deployment.
        shown: from `find_study`.
        wave_epsilon: the most that the answers to one wave may spend together: the sum of their local budgets.
        person: a name if a program answers for several people.
        invitation: the link of an invitation to the study.
        now: the time, Unix seconds.

    Raises:
        ValueError: wave_epsilon is below the sum of the smallest budgets.
        Refusal: BAD_MANIFEST, the version does not follow the one that was joined before, or changes what its first
            wave has promised (`JoinedStudy.check_continues`).
    """
    budgets_within(shown.rounds, wave_epsilon)
    joined = read_joined(client.directory, shown.survey.survey_id, person)
    if joined is None:
        joined = JoinedStudy(
            survey="", consents=[], person=person, wave_epsilon=wave_epsilon, first_wave=shown.wave.number
        )
    else:
        joined.check_continues(shown.survey, shown.earlier)
    joined.wave_epsilon = wave_epsilon
    joined.invitation = invitation or joined.invitation
    joined.consent(shown.survey, now())
    joined.write(client.directory)
    return joined


def leave(client: _StudyClient, study_id: str, person: str = "") -> JoinedStudy:
    """Destroys the stored data of a study: consent, invitation, reports, and answers that were not sent.

    Answers that were sent stay where they are, and count towards the person's limits for ever.

    Raises:
        ValueError: the study was not joined from here.
    """
    joined = _joined(client, study_id, person)
    joined.forget(client.directory)  # first: who follows the study stops
    kept = client.outbox.series_by_round(person).items()
    for series in {series for round_id, series in kept if is_round_of(study_id, round_id)}:
        client.outbox.forget_reports(person, series)
    for round_id in client.outbox.rounds_prepared():
        if is_round_of(study_id, round_id):
            mine = [user for user in client.outbox.prepared(round_id) if is_of_person(user, person)]
            client.outbox.discard(round_id, mine)
    client.outbox.overwrite_log()
    return joined


def _joined(client: _StudyClient, study_id: str, person: str) -> JoinedStudy:
    joined = read_joined(client.directory, study_id, person)
    if joined is None:
        raise ValueError(f"study {study_id!r} was not joined from {client.directory}; 'croupier join' joins it")
    return joined


async def follow(client: _StudyClient, study_id: str, follower: Follower) -> AsyncIterator[WaveRecord]:
    """Answers every wave of a study while it is open, and yields the record of each; returns after the last one.

    It waits for the waves by the calendar, and looks for the next one at least every 15 minutes. While a service is out
    of reach it tries again. It ends when the person has left the study.

    Raises:
        ValueError: the study was not joined from here, or an answer cannot be used.
        Refusal, SignatureError: as for `answer_open_waves`.
    """
    told: set[str] = set()
    _joined(client, study_id, follower.person)
    while read_joined(client.directory, study_id, follower.person) is not None:
        wait_s = _SOON_S
        try:
            async for record in answer_open_waves(client, study_id, follower, told):
                yield record
        except UnreachableError:
            pass
        else:
            joined = read_joined(client.directory, study_id, follower.person)
            if joined is None or joined.is_over:
                return
            wait_s = _until_next(joined, follower.now())
        until = follower.now() + wait_s
        while follower.now() < until and read_joined(client.directory, study_id, follower.person) is not None:
            await follower.sleep(min(_SOON_S, until - follower.now()))


def _until_next(joined: JoinedStudy, now: float) -> float:
    schedule = scheduled(joined.version)
    if schedule.follows_results and joined.next_wave > 1:
        return _SOON_S
    return min(_POLL_S, max(_SOON_S, schedule.wave(joined.next_wave).opens_unix_s - now))


async def answer_open_waves(
    client: _StudyClient, study_id: str, follower: Follower, told: set[str] | None = None
) -> AsyncIterator[WaveRecord]:
    """Answers the open waves of a study, and yields the record of every wave that is over or answered.

    told: hashes of new versions and surveys that were announced before; new announcements are added.

    Raises:
        ValueError: the study was not joined from here, or an answer cannot be used.
        Refusal: a service does not admit the person, or a wave is of a version that does not follow the one that the
            person has consented to (BAD_MANIFEST).
        SignatureError: a service has not signed the terms.
        UnreachableError: a service does not answer; the same call again continues.
    """
    told = set() if told is None else told
    _joined(client, study_id, follower.person)
    while (joined := read_joined(client.directory, study_id, follower.person)) is not None:
        number, known = joined.next_wave, scheduled(joined.version)
        try:
            shown, rounds = await _wave(client, study_id, number)
        except Refusal as refusal:
            over = refusal.code in _OVER
            if refusal.code not in (*_NOT_THERE, *_OVER):
                raise
            if not over and known.follows_results and 1 < number <= known.last_wave:
                before = await client.round(_round_of(study_id, number - 1))
                if not await before.goes_on():
                    joined.ended = True
                    joined.write(client.directory)
                return
            if not over and (number > known.last_wave or follower.now() < known.wave(number).closes_unix_s):
                return  # it may still open
            if number > MOST_WAVES:
                return
            yield _done(
                client, joined, WaveRecord(study_id=study_id, wave=number, version=known.version, state="missed")
            )
            continue
        wave, version = shown.wave, shown.survey.hash
        if version != joined.version.hash and not await _is_accepted(client, joined, shown, follower, told):
            closed = follower.now() >= wave.closes_unix_s or any(question.state != "OPEN" for question in rounds)
            record = _record(shown, "new version")
            if closed:
                yield _done(client, joined, record)
                continue
            if version.hex() not in told:
                told.add(version.hex())
                yield record
            return
        if follower.now() >= wave.closes_unix_s or all(question.state != "OPEN" for question in rounds):
            yield _done(client, joined, _record(shown, "missed"))
            continue
        answers = await _answer_wave(client, joined, rounds, number, follower)
        if answers is None:
            return  # the person has left meanwhile
        state: WaveState = "answered" if any(answer.state == "answered" for answer in answers) else "abstained"
        yield _done(client, joined, _record(shown, state, answers))


def _record(shown: ShownStudy, state: WaveState, answers: Sequence[AnswerRecord] = ()) -> WaveRecord:
    schedule = scheduled(shown.survey)
    change = schedule.change if state == "new version" else ""
    return WaveRecord(
        study_id=shown.survey.survey_id,
        wave=shown.wave.number,
        version=schedule.version,
        state=state,
        answers=tuple(answers),
        change=change,
    )


def _done(client: _StudyClient, joined: JoinedStudy, record: WaveRecord) -> WaveRecord:
    """Notes durably that a wave is over for this device, unless the person has left."""
    joined.waves[record.wave] = record
    if read_joined(client.directory, record.study_id, joined.person) is not None:
        joined.write(client.directory)
    return record


async def _is_accepted(
    client: _StudyClient, joined: JoinedStudy, shown: ShownStudy, follower: Follower, told: set[str]
) -> bool:
    """Returns whether the person consents to another version of a study.

    Raises:
        Refusal: see `JoinedStudy.check_continues`.
    """
    before, link = joined.version, scheduled(shown.survey)
    known, between, number = scheduled(before), [], shown.wave.number
    while link.version > known.version + 1 and number > known.first_wave:
        number -= 1
        earlier, _ = await _wave(client, before.survey_id, number)
        between.append(earlier.survey)
        if earlier.survey.hash == link.previous_hash:
            link = scheduled(earlier.survey)
    joined.check_continues(shown.survey, between)
    if follower.accept is None or shown.survey.hash.hex() in told:
        return False
    said = follower.accept(before, shown.survey)
    if not (await said if inspect.isawaitable(said) else said):
        return False
    joined.consent(shown.survey, follower.now())
    joined.write(client.directory)
    return True


async def _answer_wave(
    client: _StudyClient, joined: JoinedStudy, rounds: Sequence[_StudyRound], number: int, follower: Follower
) -> list[AnswerRecord] | None:
    answers = follower.answers(number) if callable(follower.answers) else follower.answers
    hides = rounds[0].terms.survey.left_out == "random"
    wanted = budgets_within([question.terms for question in rounds], joined.wave_epsilon)
    records = []
    for asked, most in zip(rounds, wanted, strict=True):
        name = asked.terms.question.name
        value: Value | None = answers.get(name)
        if value is None and hides:
            value = _drawn(joined, name, asked.terms.question.mechanism, kept=asked.terms.permanent is not None)
        if value is None:
            records.append(AnswerRecord(question=name, state="left out"))
            continue
        if read_joined(client.directory, joined.version.survey_id, joined.person) is None:
            return None
        joined.write(client.directory)  # the drawn values, before they are sent
        records.append(
            await _answer_question(asked, value, most, joined.invitation, follower, left_out=name not in answers)
        )
    return records


async def _answer_question(
    asked: _StudyRound, value: Value, most: float, invitation: str, follower: Follower, *, left_out: bool
) -> AnswerRecord:
    """Answers with the largest budget that the person and the person's limits allow, or not at all."""
    why = ""
    for budget in reversed([budget for budget in asked.terms.budget_grid if budget <= most]):
        try:
            receipt = await asked.submit(
                value,
                budget,
                person=follower.person,
                key=follower.key,
                invitation="" if follower.key else invitation,
            )
        except LimitError as error:
            why = why or str(error)
            continue
        except Refusal as refusal:
            if refusal.code not in (Code.ROUND_CLOSED, Code.ROUND_FULL):
                raise
            why = why or str(refusal)
            break
        state: AnswerState = "left out" if left_out else "answered"
        name = asked.terms.question.name
        return AnswerRecord(question=name, state=state, local_epsilon=receipt.local_epsilon, why=why)
    return AnswerRecord(question=asked.terms.question.name, state="abstained", why=why)


def _drawn(joined: JoinedStudy, name: str, mechanism: Mechanism, *, kept: bool) -> float:
    """Returns an answer drawn uniformly for a question left out; in a permanent study the same in every wave."""
    if kept and name in joined.drawn:
        return joined.drawn[name]
    value = float(RANDOMIZERS[mechanism.kind].any_value(mechanism))
    if kept:
        joined.drawn[name] = value
    return value
