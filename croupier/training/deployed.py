"""Training through a deployment: a survey whose question is the gradient, and whose waves are the steps.

The survey's rule decides at which parameters a wave asks (`protocol.rules.Descent`). All clients of the fleet answer
every round, with the same keys; the analyzer publishes the mean vector, after the certificate. Or the rounds are
sequential (`SequentialRun`): then a round is an epoch, in which the analyzer takes a step after every client, and
publishes where that has led. What has been reached is written down before every round, together with its wave, so that
a run that was killed goes on: a client with a report for that round never makes a second one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from croupier.analyzer.descent import led_to
from croupier.client.gradients import FlatModel
from croupier.client.outbox import Outbox
from croupier.client.round_checks import fetch_signed_result, fetch_terms
from croupier.client.sequential import Attendee, answer_sequentially
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.users import FleetReport, run_fleet
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import replace_secret
from croupier.operator.opened_surveys import keep_survey, kept_versions, latest_result, open_rounds, result_file
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, survey_of
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import Note
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import NO_ROUND, PrivateKey, PublicKey, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.rules import Descent as DescentRule
from croupier.protocol.schedules import MOST_WAVES, Calendar, Schedule
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.surveys import WAVE_NAME, Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool
from croupier.training.checkpoint import Checkpoint, Progress
from croupier.training.config import StepRule
from croupier.training.datasets import Examples
from croupier.training.descent import Descent, TorchDescent, evaluate
from croupier.training.outcome import EpochRecord
from croupier.training.privacy import Batch

_WAIT_S = 300.0
_OPEN_FOR_S = 30 * 86_400
"""Seconds for which a round takes answers unless the run closes it, which it does once its clients have answered."""
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
        keys: list[bytes] = [new_client_key() for _ in range(self.num_clients)]
        fresh = Progress(self.begin(self.model, self.rule), keys)
        return self._checkpoint().load(fresh)

    def _checkpoint(self) -> Checkpoint:
        # What the file's tensors have to fit belongs to the setting, whatever else the caller has put there.
        setting = dict(self.setting) | {"dimension": self.model.dimension, "users": self.num_clients}
        return Checkpoint(self.out / "checkpoint.pt", setting, read_deployment(self.directory))

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
        self.out.mkdir(parents=True, exist_ok=True)
        checkpoint, descent, enrolled = self._checkpoint(), progress.descent, set[bytes]()
        outbox = Outbox(self.out / "outbox.db")
        try:
            async with Operator(self.directory, self.transport) as operator:

                async def enrol(client_keys: Sequence[PublicKey]) -> None:
                    # Once in every run: the deployment may not know them any more, and to register again is harmless.
                    unknown = set(client_keys) - enrolled
                    if unknown:
                        await operator.enrol(sorted(unknown))
                        enrolled.update(unknown)

                while (taken := self.rounds_taken(progress)) < count:
                    terms = await self._open(operator, progress, checkpoint)
                    fleet = await self._submit(operator, terms, progress, outbox, enrol)
                    await self._close(operator, terms, progress, checkpoint, fleet)
                    await self._attend(operator, terms, progress, outbox)
                    publication, certificate = await self._result(operator, terms)
                    if certificate.granted or certificate.num_answers:
                        # Released, so paid for, whatever comes of it.
                        progress.answered[terms.round_id] = Batch.of(certificate)
                        checkpoint.save(progress)
                    if not certificate.granted:
                        raise NotGrantedError(joined(refusals_of(certificate)))
                    if not publication.vector:
                        raise Refusal(Code.BAD_BATCH, joined(read_messages(Note, publication.notes)))
                    self._learn(descent, publication)
                    progress.round_id = NO_ROUND
                    if (taken + 1) % self.steps_per_epoch == 0:
                        progress.history.append(self.record(progress))
                    checkpoint.save(progress)
                    yield StepReport(taken + 1, terms.round_id, certificate, progress)
        finally:
            outbox.close()

    def record(self, progress: Progress) -> EpochRecord:
        """Returns how good the model is after the newest round, which may be in the middle of an epoch."""
        quality = evaluate(self.model, progress.descent.average, self.watched)
        epoch = -(-len(progress.answered) // self.steps_per_epoch)
        return EpochRecord(epoch, progress.descent.steps, *quality)

    def _survey(self, operator: Operator, progress: Progress) -> Survey:
        """Returns the survey that the training is, which is kept from its first round on.

        Its limit is the most that all its waves can cost. `epsilon_limit` is kept by `runner`: the ledger adds up the
        waves of a survey as if results had decided on their sizes, too, and would refuse most of the planned epochs.
        """
        versions = kept_versions(self.directory, progress.survey_id)
        if versions:
            return next(iter(versions.values()))
        asked, by_operator = self.settings(self._question(b"")), isinstance(progress.descent, TorchDescent)
        initial, steps = hashlib.sha256(_bytes_of(self.model.initial)).digest(), self.rule
        rule = (
            DescentRule(initial, by_operator=True)
            if by_operator
            else DescentRule(initial, steps.learning_rate, steps.momentum, steps.decaying)
        )
        most = max(asked.epsilon_max, asked.budget_grid[-1], *asked.epsilon_max_of.values())
        deltas = asked.delta + asked.question.mechanism.budget_delta
        begins = datetime.fromtimestamp(time.time(), UTC).replace(second=0, microsecond=0, tzinfo=None)
        schedule = Schedule(
            version=1,
            previous_hash=None,
            change="",
            calendar=Calendar(begins, "result", "UTC", _OPEN_FOR_S),
            first_wave=1,
            last_wave=MOST_WAVES,
            total_epsilon=MOST_WAVES * most,
            total_delta=min(_MOST_DELTA, MOST_WAVES * deltas),
            permanent=False,
            results="public",
        )
        survey = survey_of([replace(asked, rule=rule)], progress.survey_id, operator.deployment, schedule=schedule)
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

    async def _attend(self, operator: Operator, terms: RoundTerms, progress: Progress, outbox: Outbox) -> None:
        """Plays what clients do between the end of admission and the result: nothing, here."""

    def _learn(self, descent: Descent, publication: pb.Publication) -> None:
        descent.step(_vector(publication), publication.vector_standard_error)

    async def _open(self, operator: Operator, progress: Progress, checkpoint: Checkpoint) -> RoundTerms:
        """Returns the next round: a new one, or the one that a killed run has begun before.

        Raises:
            ValueError: the survey has no further wave, or its last round asks for something else than the checkpoint.
        """
        if not progress.survey_id:
            name = re.sub(r"[^A-Za-z0-9_-]", "", self.name)[:24]
            progress.survey_id = re.sub(WAVE_NAME, "-", f"train-{name}-{secrets.token_hex(4)}")
            checkpoint.save(progress)
        survey = self._survey(operator, progress)
        if not progress.round_id:
            if progress.wave == MOST_WAVES:
                raise ValueError(
                    f"training {survey.survey_id!r} has had {MOST_WAVES:,} rounds, the most of a survey; choose "
                    "another --out, and begin with the model that was reached"
                )
            progress.wave, progress.opens_unix_s = progress.wave + 1, int(time.time())
            progress.round_id = survey.round_id(0, progress.wave)
            checkpoint.save(progress)
        try:
            async with operator.client_channel() as channel:
                terms = await fetch_terms(channel, operator.deployment, progress.round_id)
        except Refusal as refusal:
            if refusal.code not in (Code.UNKNOWN_ROUND, Code.NOT_READY):
                raise
            (terms,) = await self._open_wave(operator, survey, progress)
        if terms.question != self._question(_bytes_of(progress.descent.parameters)):
            raise ValueError(
                f"round {terms.round_id!r} does not ask for what the checkpoint says; choose another --out"
            )
        return terms

    async def _open_wave(self, operator: Operator, survey: Survey, progress: Progress) -> list[RoundTerms]:
        """Opens a wave at the parameters to which the latest result has led."""
        before = latest_result(self.directory, survey, 0, progress.wave)
        state, latest = pb.RuleState(parameters=_bytes_of(progress.descent.parameters)), 0
        if before is not None:
            publication = pb.Publication.FromString(before.payload)
            earlier = parse_terms(publication.round)
            latest = 0 if earlier.wave is None else earlier.wave.number
            if publication.rule_state.next_sha256:
                state = led_to(earlier, publication.vector)
            state.steps = publication.rule_state.steps
        for skipped in range(latest + 1, progress.wave):
            # Services sign the next wave once each of them has disposed of those without a result.
            await operator.withdraw(survey.round_id(0, skipped))
        wave = scheduled(survey).wave(progress.wave, progress.opens_unix_s)
        return await open_rounds(operator, self.directory, survey, wave, state=state)

    async def _result(self, operator: Operator, terms: RoundTerms) -> tuple[pb.Publication, pb.Certificate]:
        """Returns the result of a round, which is kept: the next wave follows from it."""
        async with operator.client_channel(operator.deployment.analyzer.name) as channel:
            document = await fetch_signed_result(channel, terms.round_id, _WAIT_S)
        result = read_publication(document, operator.deployment, terms.round_id)
        if terms.wave is not None:
            file = result_file(self.directory, terms.survey, terms.place, terms.wave.number)
            replace_secret(file, document.SerializeToString().hex())
        return result

    async def _submit(
        self,
        operator: Operator,
        terms: RoundTerms,
        progress: Progress,
        outbox: Outbox,
        enrol: Callable[[Sequence[PublicKey]], Any],
    ) -> FleetReport:
        chosen = self.batch(self.rounds_taken(progress))
        values = self._values(progress.descent, chosen)
        users = {
            str(index): Participant(value, float(self.max_local_epsilons[index]), progress.keys[index])
            for index, value in zip(chosen.tolist(), values, strict=True)
        }
        async with (
            operator.client_channel() as channel,
            operator.client_channel(operator.deployment.accountant.name) as accountant,
        ):
            return await run_fleet(
                channel,
                accountant,
                terms,
                users,
                outbox=outbox,
                pool=self.pool,
                enrol=enrol,
                progress=self._submitted,
            )

    def _submitted(self, more: int) -> None:
        self.answered(more)

    async def _close(
        self, operator: Operator, terms: RoundTerms, progress: Progress, checkpoint: Checkpoint, fleet: FleetReport
    ) -> None:
        """Ends admission, and refuses to wait for the result of a round that too few clients have answered."""
        closed = await operator.close_round(terms.round_id)
        if closed.state not in (pb.ROUND_STATE_OPEN, pb.ROUND_STATE_DISPOSED):
            return
        held = closed.state == pb.ROUND_STATE_OPEN
        if not held:  # the step starts again, in another round
            progress.round_id, progress.disposed = NO_ROUND, progress.disposed + 1
            checkpoint.save(progress)
        answers = ", ".join(f"{count} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in fleet.codes.items())
        raise Refusal(
            Code.SHORT_BATCH,
            f"round {terms.round_id!r} is {'held' if held else 'disposed of'}: {closed.num_clients} users have "
            f"answered, and at least {terms.shared.min_batch_size} must; hop 1 said {answers or 'nothing new'}",
        )


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

    async def _attend(self, operator: Operator, terms: RoundTerms, progress: Progress, outbox: Outbox) -> None:
        attendees = {
            str(index): Attendee(PrivateKey(progress.keys[index]), partial(self._gradient, index))
            for index in range(self.num_clients)
        }
        self._value(0, progress.descent.parameters)  # the first gradient takes longer: not within a client's period
        async with operator.client_channel() as channel:
            await answer_sequentially(
                channel, terms, operator.deployment, attendees, outbox=outbox, progress=self.answered
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
