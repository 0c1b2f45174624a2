"""The client, for programs that run an event loop; `client.sync_client` is the same for all others.

    async with croupier.AsyncClient("deployment.toml") as client:
        asked = await client.round()
        receipt = await asked.submit(1, max_local_epsilon=1.0)

The command line, the console, the demonstration and applications answer with it. `client.round_client` answers one
round; this file takes part in a survey of several waves: consent once, then answer every wave that is open, also after
having been off.

The client trusts nobody for its consent: every wave's rounds are signed by all services and hold the survey. A wave of
another survey is not answered before the person has consented to that, too: a new version, or another survey as the
same wave. The records are durable: each answer in the outbox (`client.outbox`), the rest in a file (`client.joined`),
so that a process that was killed continues where it was.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from croupier.client.joined import AnswerRecord, AnswerState, JoinedSurvey, WaveRecord, WaveState, joined_surveys
from croupier.client.one_answer import Given, is_of_person
from croupier.client.randomizers import RANDOMIZERS
from croupier.client.round_client import AsyncClientRound, RoundClient
from croupier.protocol.errors import Code, LimitError, Refusal, UnreachableError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.schedules import MOST_WAVES, Wave
from croupier.protocol.surveys import Survey, budgets_within, is_round_of, scheduled

Answers: TypeAlias = Mapping[str, Given] | Callable[[int], Mapping[str, Given]]
"""The answer to each question by its name, or a function from a wave's number to these. A question without an answer is
left out."""
Accept: TypeAlias = Callable[[Survey, Survey], bool | Awaitable[bool]]
"""Whether the person consents to the second version of a survey instead of the first."""
_NOT_THERE = (Code.UNKNOWN_ROUND, Code.NOT_READY)
_OVER = (Code.WRONG_STATE, Code.ROUND_CLOSED)
_POLL_S = 900.0
"""The longest time between two looks for the next wave: an operator may open one late, or change the calendar."""
_SOON_S = 60.0
"""The shortest wait: a wave that is due may open a little late. Within this time, a process that follows a survey
notices that the person has left it."""


@dataclass(frozen=True)
class ShownSurvey:
    """A survey of several waves as its newest known wave states it, to be shown to a person before consent.

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
class _Follower:
    """The person who follows a survey; see `AsyncClient.follow`. `told`: hashes of surveys that were announced."""

    survey_id: str
    answers: Answers
    person: str
    key: bytes
    accept: Accept | None
    told: set[str]


class AsyncClient(RoundClient):
    """One participant's device, or the program that answers for several people, in one deployment."""

    async def survey(self, survey_id: str = "") -> ShownSurvey:
        """Returns a survey of several waves in its newest wave's form, to be shown to the person before `join`.

        Args:
            survey_id: the survey; that of the newest open round if not given.

        Raises:
            Refusal: no wave of it was opened yet (UNKNOWN_ROUND), the newest open round is of a survey that is asked
                once (BAD_REQUEST), or the rounds of a wave do not belong together (BAD_MANIFEST).
            SignatureError, UnreachableError: as for `round`.
        """
        if not survey_id:
            newest_open = (await self.round()).terms
            if newest_open.wave is None:
                raise Refusal(Code.BAD_REQUEST, "the newest open round is not of a study; name the study")
            survey_id = newest_open.survey.survey_id
        newest, versions = 0, dict[Digest, Survey]()
        for number in range(1, MOST_WAVES + 1):
            try:
                survey = (await self.round(_round_of(survey_id, number))).terms.survey
                newest, versions[survey.hash] = number, survey
            except Refusal as refusal:
                if refusal.code in _NOT_THERE:
                    break
                if refusal.code not in _OVER:
                    raise
        if not newest:
            raise Refusal(Code.UNKNOWN_ROUND, f"no wave of study {survey_id!r} was opened yet, or all are deleted")
        shown, _ = await self._wave(survey_id, newest, versions.values())
        return shown

    async def _wave(
        self, survey_id: str, number: int, earlier: Iterable[Survey] = ()
    ) -> tuple[ShownSurvey, list[AsyncClientRound]]:
        """Returns an opened wave with its rounds.

        Raises:
            Refusal: it does not exist yet (UNKNOWN_ROUND, NOT_READY), it is deleted (WRONG_STATE), or its rounds are
                not those of this wave (BAD_MANIFEST).
            SignatureError, UnreachableError: as for `round`.
        """
        rounds = await self.rounds_of(_round_of(survey_id, number))
        survey, wave = rounds[0].terms.survey, rounds[0].terms.wave
        if wave is None or (survey.survey_id, wave.number) != (survey_id, number):
            raise Refusal(Code.BAD_MANIFEST, f"{rounds[0].id!r} is not of wave {number} of survey {survey_id!r}")
        return ShownSurvey(survey, wave, tuple(wave_round.terms for wave_round in rounds), tuple(earlier)), rounds

    def join(self, shown: ShownSurvey, wave_epsilon: float, *, person: str = "", invitation: str = "") -> JoinedSurvey:
        """Records durably that the person consents to a survey as it was shown. Nothing is sent; `follow` answers it.

        Also for a new version of a survey that was joined before: the records of earlier waves are kept.

        Args:
            shown: from `survey`.
            wave_epsilon: the most that the answers to one wave may spend together: the sum of their local budgets.
            person: a constant name, if a program answers for several people.
            invitation: the link of an invitation to the survey; it is kept in the directory.

        Raises:
            ValueError: wave_epsilon is below the sum of the smallest budgets.
            Refusal: BAD_MANIFEST, the version does not follow the one that was joined before, or changes what its first
                wave has promised (`JoinedSurvey.check_continues`).
        """
        budgets_within(shown.rounds, wave_epsilon)
        joined = JoinedSurvey.read(self.directory, shown.survey.survey_id, person)
        if joined is None:
            joined = JoinedSurvey(
                survey="", consents=[], person=person, wave_epsilon=wave_epsilon, first_wave=shown.wave.number
            )
        else:
            joined.check_continues(shown.survey, shown.earlier)
        joined.wave_epsilon = wave_epsilon
        joined.invitation = invitation or joined.invitation
        joined.consent(shown.survey, self.now())
        joined.write(self.directory)
        return joined

    def leave(self, survey_id: str, person: str = "") -> JoinedSurvey:
        """Leaves a survey: no more of its waves are answered, and its stored data is destroyed.

        These are consent, invitation, reports, and answers that were not sent. Answers that were sent stay where they
        are, and count towards the limits for ever.

        Raises:
            ValueError: the survey was not joined from here.
        """
        joined = self._joined(survey_id, person)
        joined.forget(self.directory)  # first: who follows the survey stops
        kept = self.outbox.series_by_round(person).items()
        for series in {series for round_id, series in kept if is_round_of(survey_id, round_id)}:
            self.outbox.forget_reports(person, series)
        for round_id in self.outbox.rounds_prepared():
            if is_round_of(survey_id, round_id):
                mine = [user for user in self.outbox.prepared(round_id) if is_of_person(user, person)]
                self.outbox.discard(round_id, mine)
        self.outbox.overwrite_log()
        return joined

    def joined_surveys(self) -> list[JoinedSurvey]:
        """Returns the surveys that were joined from here; ValueError for a file that is damaged."""
        return joined_surveys(self.directory)

    def _joined(self, survey_id: str, person: str) -> JoinedSurvey:
        joined = JoinedSurvey.read(self.directory, survey_id, person)
        if joined is None:
            raise ValueError(f"study {survey_id!r} was not joined from {self.directory}; 'croupier join' joins it")
        return joined

    def follow(
        self,
        survey_id: str,
        answers: Answers,
        *,
        until_end: bool = True,
        accept: Accept | None = None,
        person: str = "",
        key: bytes = b"",
    ) -> AsyncIterator[WaveRecord]:
        """Answers the waves of a survey that was joined, and yields the record of each.

        The device may be off in between, or the process end at any moment: the same call continues. An answer takes the
        largest budget up to the person's that the limits allow; without one the question is not answered, and the
        record says why. A wave of a new version of the survey is not answered before the person has consented to it.
        Waves are awaited by the calendar, and looked for at least every 15 minutes, also while services are out of
        reach.

        Args:
            survey_id: the survey.
            answers: to the questions, by name, or a function from a wave's number to these. Others are left out.
            until_end: wait for further waves, until the survey ends or the person has left; False: only open waves.
            accept: called with a new version of the survey and the version before it; whether the person consents.
            person: as for `join`.
            key: an enrolled Ed25519 key, 32 bytes, instead of the client's own and of the invitation.

        Raises:
            ValueError: the survey was not joined from here, or an answer cannot be used.
            Refusal: a service does not admit the person, or a new version does not follow the one before it.
            SignatureError: a service has not signed the terms of a wave.
            UnreachableError: a service does not answer, without `until_end`.
        """
        follower = _Follower(survey_id, answers, person, key, accept, set())
        return self._follow(follower) if until_end else self._answer_open_waves(follower)

    async def _follow(self, follower: _Follower) -> AsyncIterator[WaveRecord]:
        who = follower.survey_id, follower.person
        self._joined(*who)
        while JoinedSurvey.read(self.directory, *who) is not None:
            wait_s = _SOON_S
            try:
                async for record in self._answer_open_waves(follower):
                    yield record
            except UnreachableError:
                pass
            else:
                joined = JoinedSurvey.read(self.directory, *who)
                if joined is None or joined.is_over:
                    return
                schedule = scheduled(joined.version)
                if not (schedule.follows_results and joined.next_wave > 1):
                    wait_s = min(_POLL_S, max(_SOON_S, schedule.wave(joined.next_wave).opens_unix_s - self.now()))
            until = self.now() + wait_s
            while self.now() < until and JoinedSurvey.read(self.directory, *who) is not None:
                await self.sleep(min(_SOON_S, until - self.now()))

    async def _answer_open_waves(self, follower: _Follower) -> AsyncIterator[WaveRecord]:
        """Answers the open waves of a survey, and yields the record of every wave that is over or answered."""
        who = follower.survey_id, follower.person
        self._joined(*who)
        while (joined := JoinedSurvey.read(self.directory, *who)) is not None:
            number, known = joined.next_wave, scheduled(joined.version)
            try:
                shown, rounds = await self._wave(follower.survey_id, number)
            except Refusal as refusal:
                over = refusal.code in _OVER
                if refusal.code not in (*_NOT_THERE, *_OVER):
                    raise
                if not over and known.follows_results and 1 < number <= known.last_wave:
                    before = await self.round(_round_of(follower.survey_id, number - 1))
                    if not await before.goes_on():
                        joined.ended = True
                        joined.write(self.directory)
                    return
                if not over and (number > known.last_wave or self.now() < known.wave(number).closes_unix_s):
                    return  # it may still open
                if number > MOST_WAVES:
                    return
                missed = WaveRecord(study_id=follower.survey_id, wave=number, version=known.version, state="missed")
                yield self._done(joined, missed)
                continue
            wave, version = shown.wave, shown.survey.hash
            if version != joined.version.hash and not await self._is_accepted(joined, shown, follower):
                closed = self.now() >= wave.closes_unix_s or any(question.state != "OPEN" for question in rounds)
                record = _record(shown, "new version")
                if closed:
                    yield self._done(joined, record)
                    continue
                if version.hex() not in follower.told:
                    follower.told.add(version.hex())
                    yield record
                return
            if self.now() >= wave.closes_unix_s or all(question.state != "OPEN" for question in rounds):
                yield self._done(joined, _record(shown, "missed"))
                continue
            answers = await self._answer_wave(joined, rounds, number, follower)
            if answers is None:
                return  # the person has left meanwhile
            state: WaveState = "answered" if any(answer.state == "answered" for answer in answers) else "abstained"
            yield self._done(joined, _record(shown, state, answers))

    def _done(self, joined: JoinedSurvey, record: WaveRecord) -> WaveRecord:
        """Notes durably that a wave is over for this device, unless the person has left."""
        joined.waves[record.wave] = record
        if JoinedSurvey.read(self.directory, record.study_id, joined.person) is not None:
            joined.write(self.directory)
        return record

    async def _is_accepted(self, joined: JoinedSurvey, shown: ShownSurvey, follower: _Follower) -> bool:
        """Returns whether the person consents to another version of a survey.

        Raises:
            Refusal: see `JoinedSurvey.check_continues`.
        """
        before, link = joined.version, scheduled(shown.survey)
        known, between, number = scheduled(before), [], shown.wave.number
        while link.version > known.version + 1 and number > known.first_wave:
            number -= 1
            earlier, _ = await self._wave(before.survey_id, number)
            between.append(earlier.survey)
            if earlier.survey.hash == link.previous_hash:
                link = scheduled(earlier.survey)
        joined.check_continues(shown.survey, between)
        if follower.accept is None or shown.survey.hash.hex() in follower.told:
            return False
        said = follower.accept(before, shown.survey)
        if not (await said if inspect.isawaitable(said) else said):
            return False
        joined.consent(shown.survey, self.now())
        joined.write(self.directory)
        return True

    async def _answer_wave(
        self, joined: JoinedSurvey, rounds: Sequence[AsyncClientRound], number: int, follower: _Follower
    ) -> list[AnswerRecord] | None:
        answers = follower.answers(number) if callable(follower.answers) else follower.answers
        hides = rounds[0].terms.survey.left_out == "random"
        wanted = budgets_within([question.terms for question in rounds], joined.wave_epsilon)
        records = []
        for asked, most in zip(rounds, wanted, strict=True):
            name = asked.terms.question.name
            value: Given | None = answers.get(name)
            if value is None and hides:
                value = _drawn(joined, name, asked.terms.question.mechanism, kept=asked.terms.permanent is not None)
            if value is None:
                records.append(AnswerRecord(question=name, state="left out"))
                continue
            if JoinedSurvey.read(self.directory, joined.version.survey_id, joined.person) is None:
                return None
            joined.write(self.directory)  # the drawn values, before they are sent
            link = "" if follower.key else joined.invitation
            records.append(await _answer_question(asked, value, most, link, follower, left_out=name not in answers))
        return records


def _round_of(survey_id: str, wave: int) -> RoundId:
    """Returns the first round of a wave."""
    return RoundId(f"{survey_id}-w{wave}-1")


def _record(shown: ShownSurvey, state: WaveState, answers: Sequence[AnswerRecord] = ()) -> WaveRecord:
    schedule = scheduled(shown.survey)
    return WaveRecord(
        study_id=shown.survey.survey_id,
        wave=shown.wave.number,
        version=schedule.version,
        state=state,
        answers=tuple(answers),
        change=schedule.change if state == "new version" else "",
    )


async def _answer_question(
    asked: AsyncClientRound, value: Given, most: float, invitation: str, follower: _Follower, *, left_out: bool
) -> AnswerRecord:
    """Answers with the largest budget that the person and the person's limits allow, or not at all."""
    why, name = "", asked.terms.question.name
    for budget in reversed([budget for budget in asked.terms.budget_grid if budget <= most]):
        try:
            receipt = await asked.submit(value, budget, person=follower.person, key=follower.key, invitation=invitation)
        except LimitError as error:
            why = why or str(error)
            continue
        except Refusal as refusal:
            if refusal.code not in (Code.ROUND_CLOSED, Code.ROUND_FULL):
                raise
            why = why or str(refusal)
            break
        state: AnswerState = "left out" if left_out else "answered"
        return AnswerRecord(question=name, state=state, local_epsilon=receipt.local_epsilon, why=why)
    return AnswerRecord(question=name, state="abstained", why=why)


def _drawn(joined: JoinedSurvey, name: str, mechanism: Mechanism, *, kept: bool) -> float:
    """Returns an answer drawn uniformly for a question left out; in a permanent study the same in every wave."""
    if kept and name in joined.drawn:
        return joined.drawn[name]
    value = float(RANDOMIZERS[mechanism.kind].any_value(mechanism))
    if kept:
        joined.drawn[name] = value
    return value
