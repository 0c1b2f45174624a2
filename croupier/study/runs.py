"""The process that runs a study: it opens, closes and publishes every wave in time, and can be restarted.

The next action follows from the calendar, the clock and the journal alone, so a process that starts again continues
where the last one was killed. Opening a wave is idempotent (`opened_surveys.open_rounds`): the manifests that services
have signed are stored before the first round opens, and a round id is never used twice. A wave whose time has passed is
recorded as missed, with the reason; it is neither made up for nor omitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from croupier.client.round_checks import fetch_signed_result
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import alone, replace_secret
from croupier.operator.opened_surveys import (
    kept_rounds,
    open_rounds,
    result_file,
    rule_goes_on,
    survey_folder,
    version_of_wave,
)
from croupier.operator.operator import Operator
from croupier.operator.survey_plans import LimitReachedError, check_affordable
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, CroupierError, Refusal, refusal_of
from croupier.protocol.manifest import RoundTerms, state_name
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.schedules import Wave
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.clock import Clock, SystemClock
from croupier.study.journal import StudyJournal, WaveRecord
from croupier.study.versions import begun_versions

PATIENCE_S = 3600.0
"""Seconds after the close of a wave during which the process waits for a round's outcome: half of the time between two
waves. Then the round is recorded as held, for its operator to decide, and the study continues."""
_LOOK_AGAIN_S = 1.0
"""Seconds between two questions for a result that is not there yet."""
_LONGEST_SLEEP_S = 5.0
"""Seconds after which the clock is read again: it is injected, and a machine may have slept."""
_LONGEST_PAUSE_S = 60.0
"""Seconds between two tries at most while a service is out of reach."""
_OVER = ("DISPOSED",)
_SHORT = {pb.ROUND_STATE_OPEN: "held", pb.ROUND_STATE_DISPOSED: "disposed of"}
"""The states after a close that too few people have answered, in words."""
State = Callable[[Operator, Survey, Wave], Awaitable[pb.RuleState]]
Answer = Callable[[Sequence[RoundTerms]], Awaitable[None]]


class StudyStoppedError(RuntimeError):
    """A limit does not bear the next wave; the text has the numbers."""


@dataclass(frozen=True)
class _Due:
    wave: Wave
    survey: Survey
    record: WaveRecord | None


class StudyRun:
    """Runs one study.

    Args:
        directory: of the deployment, with the operator's keys.
        study_id: of a study that was begun (`versions.start_study`).
        journal: of the study, which this process alone writes.
        transport: to the services.
        clock: wall-clock time.
        tell: called with a sentence for every event.
        operator: whose connections are used; None: new ones for every action, in a process that lives for weeks, and
            needs the keys that services have by then.
        state: of a training, returns where a wave asks for the gradient. A training keeps its own limit: a wave is
            opened also where the smallest number of answers would exceed one.
    """

    def __init__(
        self,
        directory: Path,
        study_id: str,
        journal: StudyJournal,
        transport: Transport = TLS,
        clock: Clock | None = None,
        tell: Callable[[str], None] = lambda _: None,
        operator: Operator | None = None,
        state: State | None = None,
    ) -> None:
        self._directory = directory
        self._study_id = study_id
        self._journal = journal
        self._transport = transport
        self._clock = clock or SystemClock()
        self._tell = tell
        self._connected = operator
        self._state = state

    async def run(self, on_step: Callable[[], None] = lambda: None) -> None:
        """Runs the study to the end of its last wave.

        on_step: called after every step that has not failed.

        Raises:
            StudyStoppedError: a limit does not bear the next wave.
            ValueError: the study's files cannot be read, or a wave's terms are invalid.
        """
        pause = 1.0
        while True:
            try:
                due = await self.step()
            except (CroupierError, grpc.aio.AioRpcError) as error:
                self._tell(f"{_why(error)}; trying again in {pause:g} s")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            pause = 1.0
            on_step()
            if due is None:
                return
            await asyncio.sleep(min(max(due - self._clock.now(), 0.01), _LONGEST_SLEEP_S))

    async def step(self) -> float | None:
        """Takes all actions that are due; returns when the next one is due (Unix seconds), None after the end.

        Raises:
            Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach; the same call again continues.
            StudyStoppedError, ValueError: see `run`.
        """
        next_due: list[float] = []
        records = self._journal.records()
        for number in range(1, scheduled(self._versions[-1]).last_wave + 1):
            record = records.get(number)
            if record is not None and record.has_ended:
                continue
            schedule = scheduled(version := version_of_wave(self._versions, number))
            if schedule.follows_results and number > 1 and not rule_goes_on(self._directory, version, number - 1):
                return None
            due = await self._advance(self._due(number))
            if due is not None:
                next_due.append(due)
            if due is not None and (schedule.follows_results or (record is None and due > self._clock.now())):
                break  # later waves open later
        return min(next_due, default=None)

    async def play(self, number: int, answer: Answer, attend: Answer | None = None, patience_s: float = 300.0) -> None:
        """Takes a wave to its end at once: opens it, has people answer, closes it, and waits for its results.

        The same call again, in a process that was killed in between too, continues.

        Args:
            number: of the wave.
            answer: has people answer the rounds; called again where a process was killed before the close.
            attend: has people answer rounds that ask one after the other, between the close and the results.
            patience_s: the time to wait for results.

        Raises:
            Refusal: SHORT_BATCH, too few people have answered; the round is held, or disposed of.
            Refusal, grpc.aio.AioRpcError: there is no result in time, or see `step`.
            StudyStoppedError, ValueError: see `run`.
        """
        if await self._advance(self._due(number)) is None:
            return
        due = self._due(number)
        rounds = kept_rounds(self._directory, due.survey, number)
        short = ""
        if due.record is None or due.record.step != "closed":
            await answer(rounds)
            short = await self._close_before_deadline(due, rounds)
        if attend and not short:
            await attend(rounds)
        await self._publish(due, patience_s)
        if short:
            raise Refusal(Code.SHORT_BATCH, short)

    @asynccontextmanager
    async def _operator(self) -> AsyncIterator[Operator]:
        if self._connected is not None:
            yield self._connected
            return
        async with Operator(self._directory, self._transport) as operator:
            yield operator

    def _due(self, number: int) -> _Due:
        record, survey = self._journal.records().get(number), version_of_wave(self._versions, number)
        schedule, opens = scheduled(survey), None
        if schedule.follows_results and number > 1:
            opens = None if record is None or record.step == "stopped" else record.opens_unix_s
            opens = int(self._clock.now()) if opens is None else opens
        return _Due(schedule.wave(number, opens), survey, record)

    @property
    def _versions(self) -> list[Survey]:
        """The versions as they are now: another process may make one."""
        return begun_versions(self._directory, self._study_id)

    async def _advance(self, due: _Due) -> float | None:
        """Takes a wave as far as possible now; returns when it continues, None once it has ended."""
        if due.record is not None and due.record.has_ended:
            return None
        step = None if due.record is None else due.record.step
        now = self._clock.now()
        if step in (None, "stopped", "open"):
            if now < due.wave.opens_unix_s:
                return float(due.wave.opens_unix_s)
            if now < due.wave.closes_unix_s:
                await self._open(due)
            elif not (step == "open" and await self._is_open_everywhere(due)):
                await self._miss(due)
                return None
            else:
                self._write("opened", due, late_s=None)
            step = "opened"
        if step in ("opened", "close") and self._clock.now() < due.wave.closes_unix_s:
            return float(due.wave.closes_unix_s)
        if step in ("opened", "close"):
            await self._close(due)
        return await self._publish(due)

    def _write(self, step: str, due: _Due, **about: object) -> None:
        self._journal.write(self._clock.now(), step, due.wave.number, **about)  # type: ignore[arg-type]

    async def _open(self, due: _Due) -> None:
        """Opens the rounds of a wave, and records it before and after."""
        with alone(survey_folder(self._directory, self._study_id)):  # no version is made meanwhile
            survey = version_of_wave(self._versions, due.wave.number)
            if survey.hash != due.survey.hash:
                return  # the next step sees the version that was made
            if due.record is None or due.record.step != "open":
                self._write(
                    "open",
                    due,
                    version=scheduled(survey).version,
                    survey_id=survey.wave_name(due.wave.number),
                    opens_unix_s=due.wave.opens_unix_s,
                )
        try:
            async with self._operator() as operator:
                _check_place(survey, operator.deployment)
                state = await self._state(operator, survey, due.wave) if self._state else None
                if state is None:
                    await check_affordable(operator, self._directory, survey, due.wave.number)
                await open_rounds(operator, self._directory, survey, due.wave, self._tell, state)
        except LimitReachedError as error:
            self._write("stopped", due, why=str(error))
            raise StudyStoppedError(
                f"study {self._study_id!r} has stopped before wave {due.wave.number}: {error}"
            ) from error
        late_s = max(0.0, self._clock.now() - due.wave.opens_unix_s)
        self._write("opened", due, late_s=round(late_s, 1))
        self._tell(f"wave {due.wave.number} is open until {due.wave.closes:%Y-%m-%d %H:%M} UTC")

    async def _is_open_everywhere(self, due: _Due) -> bool:
        """Whether the opening of a wave had been completed, although the journal does not say so."""
        async with self._operator() as operator:
            states = [await _state(operator, round_id) for round_id in due.survey.round_ids(due.wave.number)]
        return "UNKNOWN" not in states and "PREPARED" not in states

    async def _miss(self, due: _Due) -> None:
        """Records that a wave was not open in its time, and withdraws its rounds that are open nevertheless."""
        record, why = due.record, "the study's process did not run while the wave should have been open"
        if record is not None and record.was_begun:
            async with self._operator() as operator:
                for round_id in due.survey.round_ids(due.wave.number):
                    await operator.withdraw(round_id)
            why = "its opening was not completed before its close; no answer is read"
        if record is not None and (stopped := record.last("stopped")) is not None:
            why = f"a limit did not bear it: {stopped.about['why']}"
        self._write("missed", due, why=why)
        self._tell(f"wave {due.wave.number} is missed: {why}")

    async def _close(self, due: _Due) -> None:
        """Ends admission to the rounds of a wave, which hop 1 does at the deadline by itself, too."""
        if due.record is None or due.record.step != "close":
            self._write("close", due)
        async with self._operator() as operator:
            with suppress(Refusal):  # a round that has ended already cannot be closed
                for round_id in due.survey.round_ids(due.wave.number):
                    await operator.close_round(round_id, hold_at_risk=True)
        self._write("closed", due)

    async def _close_before_deadline(self, due: _Due, rounds: Sequence[RoundTerms]) -> str:
        """Ends admission to the rounds of a wave; returns which of them too few people have answered.

        Raises:
            Refusal: SHORT_BATCH if hop 1 keeps one of these open.
        """
        if due.record is None or due.record.step != "close":
            self._write("close", due)
        async with self._operator() as operator:
            replies = [await operator.close_round(terms.round_id) for terms in rounds]
        short = "; ".join(
            f"round {terms.round_id!r} is {_SHORT[reply.state]}: {reply.num_clients} users have answered, and at least "
            f"{terms.shared.min_batch_size} must"
            for terms, reply in zip(rounds, replies, strict=True)
            if reply.state in _SHORT
        )
        if any(reply.state == pb.ROUND_STATE_OPEN for reply in replies):
            raise Refusal(Code.SHORT_BATCH, short)
        self._write("closed", due)
        return short

    async def _publish(self, due: _Due, patience_s: float = 0.0) -> float | None:
        """Stores the results of a wave, and records them all at once; returns when to look again."""
        async with self._operator() as operator:
            places = range(len(due.survey.questions))
            outcomes = [await self._outcome(operator, due, place, patience_s) for place in places]
        waiting = [outcome for outcome in outcomes if outcome["outcome"] == "waiting"]
        if waiting and self._clock.now() < due.wave.closes_unix_s + PATIENCE_S:
            return self._clock.now() + _LOOK_AGAIN_S
        for outcome in waiting:
            outcome["outcome"] = "held"
        self._write("published", due, outcomes=outcomes)
        granted = sum(outcome["outcome"] == "granted" for outcome in outcomes)
        self._tell(f"wave {due.wave.number} is over: {granted} of {len(outcomes)} questions have a result")
        return None

    async def _outcome(self, operator: Operator, due: _Due, place: int, patience_s: float) -> JsonObject:
        """Returns the outcome of a round, and stores its result: granted, refused, too few people, or waiting."""
        round_id = due.survey.round_id(place, due.wave.number)
        kept = result_file(self._directory, due.survey, place, due.wave.number)
        if not kept.exists():
            async with operator.client_channel(operator.deployment.analyzer.name) as channel:
                try:
                    document = await fetch_signed_result(channel, round_id, 0.0)
                except Refusal as refusal:
                    if refusal.code not in (Code.NOT_READY, Code.WRONG_STATE, Code.UNKNOWN_ROUND):
                        raise
                    over = await _state(operator, round_id) in _OVER
                    if over or not patience_s:
                        return {"round_id": round_id, "outcome": "too few" if over else "waiting"}
                    document = await fetch_signed_result(channel, round_id, patience_s)
            read_publication(document, operator.deployment, round_id)
            replace_secret(kept, document.SerializeToString().hex())
        signed = pb.Signed.FromString(bytes.fromhex(kept.read_text()))
        publication, certificate = read_publication(signed, operator.deployment, round_id)
        outcome: JsonObject = {"round_id": round_id, "outcome": "granted" if certificate.granted else "refused"}
        outcome |= {"num_reports": publication.num_reports, "delta": certificate.delta, "grade": certificate.grade}
        if certificate.granted:
            return outcome | {"epsilon": certificate.epsilon}
        return outcome | {"why": joined(read_messages(RefusalReason, certificate.refusals))}


def _check_place(survey: Survey, deployment: Deployment) -> None:
    try:
        survey.check_place(deployment)
    except Refusal as refusal:
        raise ValueError(f"{survey.version_name} is of another deployment file: {refusal.hint}; change it") from refusal


async def _state(operator: Operator, round_id: RoundId) -> str:
    """Returns the state of a round at hop 1; UNKNOWN if hop 1 does not have it."""
    first, *_ = await operator.status(round_id)
    if isinstance(first, rpc.StatusResponse):
        return state_name(first.rounds[0].state)
    refusal = refusal_of(first)
    if refusal is not None and refusal.code is Code.UNKNOWN_ROUND:
        return "UNKNOWN"
    raise first


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, CroupierError) else "a service is out of reach"
