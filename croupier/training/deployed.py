"""Training through a deployment: a survey whose question is the gradient, and whose waves are the steps.

The survey's rule decides at which parameters a wave asks (`protocol.rules.Descent`). All clients of the fleet answer
every round, with the same keys; the analyzer publishes the mean vector, after the certificate. Or the rounds are
sequential (`SequentialRun`): then a round is an epoch, in which the analyzer takes a step after every client, and
publishes where that has led. The runner of surveys (`study.runs`) opens, closes and publishes each wave, and its
journal lets a run that was killed go on; the checkpoint has the model that the results so far have led to.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from croupier.analyzer.descent import led_to
from croupier.client.gradients import FlatModel
from croupier.client.sequential import Attendee, answer_sequentially
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.users import Fleet
from croupier.net.transport import TLS, Transport
from croupier.operator.opened_surveys import keep_survey, kept_versions, latest_result, signed_result_of
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, survey_of
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import Note
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import PrivateKey, PublicKey, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.rules import Descent as DescentRule
from croupier.protocol.schedules import MOST_WAVES, Schedule, Wave
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.surveys import WAVE_NAME, Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool
from croupier.study.journal import StudyJournal, read_journal, wave_records
from croupier.study.runs import StudyRun
from croupier.study.versions import journal_file
from croupier.training.checkpoint import Checkpoint
from croupier.training.config import StepRule
from croupier.training.datasets import Examples
from croupier.training.descent import Descent, TorchDescent, evaluate
from croupier.training.outcome import EpochRecord
from croupier.training.privacy import Batch

_MOST_DELTA = 0.1
"""The largest total delta of a survey."""


Rows = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Silos:
    """Clients with many records each, one of which is protected.

    Attributes:
        shares: which examples are whose.
        local_delta: of every local budget.
    """

    shares: Sequence[torch.Tensor]
    local_delta: float

    @property
    def records(self) -> int:
        """The number of records that every client has at least."""
        return min(len(share) for share in self.shares)


@dataclass
class Progress:
    """Where a training is.

    Attributes:
        descent: the parameters, and what the next step needs.
        keys: of the clients, 32 bytes each.
        survey_id: of the survey that the training is; empty before the first round.
        wave: the newest wave of the survey whose result was learnt, or that has none; 0 before it.
        history: the epochs that are complete.
        answered: by round, in the order of the steps, the budgets that its certificate was granted for.
    """

    descent: Descent
    keys: list[bytes]
    survey_id: str = ""
    wave: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    answered: dict[RoundId, Batch] = field(default_factory=dict)

    def epochs(self, steps_per_epoch: int) -> list[tuple[Batch, ...]]:
        """Returns the batches by epoch; the last epoch may be incomplete."""
        batches = list(self.answered.values())
        return [tuple(batches[at : at + steps_per_epoch]) for at in range(0, len(batches), steps_per_epoch)]


class NotGrantedError(Exception):
    """The accountant has refused a round: above its policy, or that of the ledger."""


@dataclass(frozen=True)
class StepReport:
    """One round: its certificate, and where the training is now."""

    step: int
    round_id: RoundId
    certificate: pb.Certificate
    progress: Progress


@dataclass
class DeployedRun:
    """A training by the clients of one fleet: users with one example each, or silos with many records each.

    Attributes:
        directory: the deployment's.
        out: where checkpoint and outbox are kept.
        model: with its initial parameters.
        name: of the model, for the manifest.
        examples: of all clients.
        watched: the examples that the model is measured on after every epoch.
        max_local_epsilons: of the clients, float64 (n,).
        clipping_norm: the largest length of a gradient.
        rule: how a step is taken.
        settings: returns those of the round for a question.
        pool: for the cryptography.
        setting: what is trained, as JSON; a checkpoint with another one is refused.
        batch_size: clients per step; each answers once an epoch, in a public order that changes with the epoch. 0: all.
        silos: which examples are whose; None: every client has one.
        begin: returns the descent at its start.
        answered: called with how many more clients have answered; in a sequential round, when it was their turn.
    """

    directory: Path
    out: Path
    model: FlatModel
    name: str
    examples: Examples
    watched: Examples
    max_local_epsilons: torch.Tensor
    clipping_norm: float
    rule: StepRule
    settings: Callable[[Question], RoundSettings]
    pool: WorkerPool
    setting: Mapping[str, object]
    batch_size: int = 0
    silos: Silos | None = None
    begin: Callable[[FlatModel, StepRule], Descent] = lambda model, rule: Descent(model.initial, rule)
    transport: Transport = TLS
    answered: Callable[[int], None] = lambda _: None

    @property
    def num_clients(self) -> int:
        """How many clients the fleet has."""
        return len(self.examples) if self.silos is None else len(self.silos.shares)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches that all clients make."""
        return -(-self.num_clients // (self.batch_size or self.num_clients))

    def batch(self, step: int) -> torch.Tensor:
        """Returns the clients of a step, the first being 0: int64, ascending."""
        epoch, part = divmod(step, self.steps_per_epoch)
        order = torch.randperm(self.num_clients, generator=torch.Generator().manual_seed(epoch))
        return order.tensor_split(self.steps_per_epoch)[part].sort().values

    def resume(self) -> Progress:
        """Returns where the checkpoint says that the training is; the start if there is none.

        Raises:
            ValueError: the checkpoint is of another training or deployment.
        """
        progress = Progress(self.begin(self.model, self.rule), [new_client_key() for _ in range(self.num_clients)])
        checkpoint = self._checkpoint()
        saved = checkpoint.load(progress.descent, ("survey_id", "wave"), ("keys",))
        if saved is None:
            return progress
        progress.history = saved.history
        progress.survey_id, progress.wave = saved.about["survey_id"], saved.about["wave"]
        progress.keys = [bytes(key) for key in saved.tensors["keys"].numpy()]
        deployment, survey = read_deployment(self.directory), self._kept_survey(progress)
        if survey is None:
            raise ValueError(
                f"{checkpoint.file} belongs to another deployment that is also called {deployment.name!r}; choose "
                "another --out"
            )
        for number in range(1, progress.wave + 2):  # the newest result may not be learnt yet
            self._result(progress, survey, number, deployment)
        return progress

    def _checkpoint(self) -> Checkpoint:
        # What the file's tensors have to fit belongs to the setting, whatever else the caller has put there.
        more = {"dimension": self.model.dimension, "users": self.num_clients}
        deployment = read_deployment(self.directory).name
        return Checkpoint(self.out / "checkpoint.pt", dict(self.setting) | more | {"deployment": deployment})

    def _save(self, checkpoint: Checkpoint, progress: Progress) -> None:
        about = {"survey_id": progress.survey_id, "wave": progress.wave}
        keys = torch.frombuffer(bytearray(b"".join(progress.keys)), dtype=torch.uint8).reshape(len(progress.keys), -1)
        checkpoint.save(progress.descent, progress.history, about, {"keys": keys})

    def _kept_survey(self, progress: Progress) -> Survey | None:
        return next(iter(kept_versions(self.directory, progress.survey_id).values()), None)

    def _result(
        self, progress: Progress, survey: Survey, number: int, deployment: Deployment
    ) -> tuple[pb.Publication, pb.Certificate] | None:
        """Returns the kept result of a wave, which counts as answered if it was paid for; None if it has none."""
        document = signed_result_of(self.directory, survey, 0, number)
        if document is None:
            return None
        publication, certificate = read_publication(document, deployment, survey.round_id(0, number))
        if certificate.granted or certificate.num_answers:  # released, so paid for, whatever comes of it
            progress.answered[survey.round_id(0, number)] = Batch.of(certificate)
        return publication, certificate

    def rounds_taken(self, progress: Progress) -> int:
        """Returns how many rounds have led to where the training is."""
        return progress.descent.steps

    async def steps(self, progress: Progress, count: int) -> AsyncIterator[StepReport]:
        """Takes the remaining ones of `count` rounds, yielding after each; `progress` is kept up to date.

        Raises:
            NotGrantedError: the accountant refused a round, of which nothing is published.
            Refusal: SHORT_BATCH if too few users answered a step; BAD_BATCH if a round has no gradient.
            ValueError: the survey of the training has no further wave.
        """
        checkpoint = self._checkpoint()
        self.out.mkdir(parents=True, exist_ok=True)
        async with Operator(self.directory, self.transport) as operator, self._fleet(operator) as fleet:
            survey = self._kept_survey(progress)
            if survey is None:
                survey = self._new_survey(operator.deployment, progress)
                progress.survey_id = survey.survey_id
                self._save(checkpoint, progress)
            with StudyJournal.running(journal_file(self.directory, survey.survey_id)) as journal:
                state = partial(self._state, progress)
                run = StudyRun(self.directory, survey.survey_id, journal, operator=operator, state=state)
                while (taken := self.rounds_taken(progress)) < count:
                    number, round_id = progress.wave + 1, survey.round_id(0, progress.wave + 1)
                    if number > MOST_WAVES:
                        raise ValueError(
                            f"training {survey.survey_id!r} has had {MOST_WAVES:,} rounds, the most of a survey; "
                            "choose another --out, and begin with the model that was reached"
                        )
                    await self._play(run, number, fleet, progress)
                    result = self._result(progress, survey, number, operator.deployment)
                    if result is None:  # disposed of: the same step in another round
                        progress.wave = number
                        continue
                    publication, certificate = result
                    if not certificate.granted:
                        raise NotGrantedError(joined(refusals_of(certificate)))
                    if not publication.vector:
                        raise Refusal(Code.BAD_BATCH, joined(read_messages(Note, publication.notes)))
                    self._learn(progress.descent, publication)
                    progress.wave = number
                    if (taken + 1) % self.steps_per_epoch == 0:
                        progress.history.append(self.record(progress))
                    self._save(checkpoint, progress)
                    yield StepReport(taken + 1, round_id, certificate, progress)

    def unreleased(self, progress: Progress) -> int:
        """Returns how many answers that were never opened a client may have made, beside one in each epoch.

        They are in rounds that were disposed of, and in one that is under way.
        """
        survey = self._kept_survey(progress)
        if survey is None:
            return 0
        records = wave_records(read_journal(journal_file(self.directory, survey.survey_id)))
        asked = [number for number, record in records.items() if record.was_begun and record.step != "missed"]
        unopened = [number for number in asked if survey.round_id(0, number) not in progress.answered]
        under_way = [
            number
            for number in unopened
            if not records[number].has_ended or signed_result_of(self.directory, survey, 0, number)
        ]
        answered, size = len(progress.answered), self.steps_per_epoch
        begun = -(-(answered + len(under_way)) // size)
        return len(unopened) - len(under_way) + begun - len(progress.epochs(size))

    def record(self, progress: Progress) -> EpochRecord:
        """Returns how good the model is after the newest round, which may be in the middle of an epoch."""
        quality = evaluate(self.model, progress.descent.average, self.watched)
        epoch = -(-len(progress.answered) // self.steps_per_epoch)
        return EpochRecord(epoch, progress.descent.steps, *quality)

    def _new_survey(self, deployment: Deployment, progress: Progress) -> Survey:
        """Returns the survey that the training is, which is kept.

        Its limit is the most that all its waves can cost. `epsilon_limit` is kept by `runner`: the ledger adds up the
        waves of a survey as if results had decided on their sizes, too, and would refuse most of the planned epochs.
        """
        name = re.sub(r"[^A-Za-z0-9_-]", "", self.name)[:24]
        survey_id = re.sub(WAVE_NAME, "-", f"train-{name}-{secrets.token_hex(4)}")
        asked, by_operator = self.settings(self._question(b"")), isinstance(progress.descent, TorchDescent)
        initial, steps = hashlib.sha256(_bytes_of(self.model.initial)).digest(), self.rule
        rule = (
            DescentRule(initial, by_operator=True)
            if by_operator
            else DescentRule(initial, steps.learning_rate, steps.momentum, steps.decaying)
        )
        most = max(asked.epsilon_max, asked.budget_grid[-1], *asked.epsilon_max_of.values())
        deltas = asked.delta + asked.question.mechanism.budget_delta
        limit = MOST_WAVES * most, min(_MOST_DELTA, MOST_WAVES * deltas)
        schedule = Schedule.from_now("result", MOST_WAVES, *limit)
        survey = survey_of([replace(asked, rule=rule)], survey_id, deployment, schedule=schedule)
        keep_survey(self.directory, survey)
        return survey

    def _question(self, parameters: bytes) -> Question:
        """Returns what a round asks for at these parameters."""
        task = self._task(parameters)
        if self.silos is None:
            return Question(self.name, Hemisphere(task))
        return Question(self.name, GaussianVector(task, self.silos.records, self.silos.local_delta))

    def _task(self, parameters: bytes) -> VectorTask:
        return VectorTask(self.model.dimension, self.clipping_norm, self.name, parameters)

    def _values(self, descent: Descent, chosen: torch.Tensor) -> Sequence[Any]:
        """Returns what the clients of a round submit."""
        if self.silos is not None:
            return [self._value(client, descent.parameters) for client in chosen.tolist()]
        mine = self.examples.part(chosen)
        rows = self.model.clipped(descent.parameters, mine.features, mine.targets, self.clipping_norm)
        return list(rows.cpu().double().numpy())

    def _value(self, client: int, parameters: torch.Tensor) -> Rows:
        """Returns a client's gradient, float64 (d,), or those of its records (m, d), not yet clipped."""
        mine = self.examples.part(slice(client, client + 1) if self.silos is None else self.silos.shares[client])
        rows = self.model.per_example(parameters, mine.features, mine.targets).cpu().double().numpy()
        return rows[0] if self.silos is None else rows

    @asynccontextmanager
    async def _fleet(self, operator: Operator) -> AsyncIterator[Fleet]:
        enrolled = set[bytes]()

        async def enrol(client_keys: Sequence[PublicKey]) -> None:
            # Once in every run: the deployment may not know them any more, and to register again is harmless.
            unknown = set(client_keys) - enrolled
            if unknown:
                await operator.enrol(sorted(unknown))
                enrolled.update(unknown)

        async with operator.client(self.out) as client:
            yield Fleet(client.shuffler, client.accountant, client.outbox, self.pool, enrol)

    async def _play(self, run: StudyRun, number: int, fleet: Fleet, progress: Progress) -> None:
        """Plays a wave, or what a killed run has left of it.

        Raises:
            Refusal: SHORT_BATCH with the replies of hop 1.
            ValueError: the wave asks for something else than the checkpoint.
        """
        replies: Counter[str] = Counter()

        async def answer(rounds: Sequence[RoundTerms]) -> None:
            (terms,) = rounds
            if terms.question != self._question(_bytes_of(progress.descent.parameters)):
                raise ValueError(
                    f"round {terms.round_id!r} does not ask for what the checkpoint says; choose another --out"
                )
            chosen = self.batch(self.rounds_taken(progress))
            values = self._values(progress.descent, chosen)
            users = {
                str(index): Participant(value, float(self.max_local_epsilons[index]), progress.keys[index])
                for index, value in zip(chosen.tolist(), values, strict=True)
            }
            report = await fleet.answer(terms, users, self._submitted)
            replies.update(report.codes)

        try:
            await run.play(number, answer, partial(self._attend, fleet, progress))
        except Refusal as refusal:
            if refusal.code is not Code.SHORT_BATCH:
                raise
            said = ", ".join(f"{count} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in replies.items())
            raise Refusal(refusal.code, f"{refusal.hint}; hop 1 said {said or 'nothing new'}") from refusal

    def _submitted(self, more: int) -> None:
        self.answered(more)

    async def _attend(self, fleet: Fleet, progress: Progress, rounds: Sequence[RoundTerms]) -> None:
        """Plays what clients do between the end of admission and the result: nothing, here."""

    async def _state(self, progress: Progress, operator: Operator, survey: Survey, wave: Wave) -> pb.RuleState:
        """Returns where a wave asks for the gradient: at the parameters to which the latest result has led."""
        before = latest_result(self.directory, survey, 0, wave.number)
        state, latest = pb.RuleState(parameters=_bytes_of(progress.descent.parameters)), 0
        if before is not None:
            publication = pb.Publication.FromString(before.payload)
            earlier = parse_terms(publication.round)
            latest = 0 if earlier.wave is None else earlier.wave.number
            if publication.rule_state.next_sha256:
                state = led_to(earlier, publication.vector)
            state.steps = publication.rule_state.steps
        for skipped in range(latest + 1, wave.number):
            # Services sign the next wave once each of them has disposed of those without a result.
            await operator.withdraw(survey.round_id(0, skipped))
        return state

    def _learn(self, descent: Descent, publication: pb.Publication) -> None:
        descent.step(_vector(publication), publication.vector_standard_error)


@dataclass
class SequentialRun(DeployedRun):
    """Trains with one client a step: in every epoch all of them answer one sequential round, one after the other.

    Attributes:
        period_ms: how long each client has.
    """

    period_ms: int = 100

    def __post_init__(self) -> None:
        """Checks that the rule is one that the analyzer follows."""
        if self.batch_size or self.rule.momentum or self.rule.averaging != 1:
            raise ValueError(
                f"batch_size is {self.batch_size}, momentum {self.rule.momentum:g} and averaging "
                f"{self.rule.averaging:g}; they must be 0, 0 and 1 in a sequential run: the analyzer takes plain steps"
            )

    def rounds_taken(self, progress: Progress) -> int:
        """Returns how many rounds have brought the training on: one an epoch."""
        return len(progress.history)

    def _task(self, parameters: bytes) -> VectorTask:
        return replace(super()._task(parameters), sequential=SequentialOrder(self.period_ms, self.rule.learning_rate))

    def _values(self, descent: Descent, chosen: torch.Tensor) -> Sequence[Any]:
        return [None] * len(chosen)  # asked for one after the other

    async def _attend(self, fleet: Fleet, progress: Progress, rounds: Sequence[RoundTerms]) -> None:
        attendees = {
            str(index): Attendee(PrivateKey(progress.keys[index]), partial(self._gradient, index))
            for index in range(self.num_clients)
        }
        self._value(0, progress.descent.parameters)  # the first gradient takes longer: not within a client's period
        (terms,), deployment = rounds, read_deployment(self.directory)
        await answer_sequentially(
            fleet.shuffler, terms, deployment, attendees, outbox=fleet.outbox, progress=self.answered
        )

    def _submitted(self, more: int) -> None:
        """Nothing: they answer later."""

    def _gradient(self, client: int, parameters: bytes) -> Rows:
        return self._value(client, torch.from_numpy(np.frombuffer(parameters, dtype="<f4").astype(np.float32)))

    def _learn(self, descent: Descent, publication: pb.Publication) -> None:
        descent.go_on_from(_vector(publication), publication.num_reports)


def _bytes_of(parameters: torch.Tensor) -> bytes:
    return parameters.detach().numpy().astype("<f4").tobytes()


def _vector(publication: pb.Publication) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(publication.vector, dtype="<f4").astype(np.float32))
