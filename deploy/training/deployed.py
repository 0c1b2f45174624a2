"""Training through a deployment: every step is a round, its question the gradient at the current parameters.

All users of the fleet answer every step, with the same keys; the analyzer publishes the mean vector, after the
certificate. What has been reached is written down before every step, together with the name of the step's round, so
that a run that was killed goes on: users who have sealed a submission for that round never make a second one.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from client.fleet import FleetReport, run_fleet
from client.gradients import FlatModel
from client.outbox import Outbox
from client.rounds import fetch_terms
from client.submission import Participant, new_client_key
from deploy.keygen import DEPLOYMENT_FILE
from deploy.operator import Operator, RoundSettings
from deploy.training.checkpoint import Checkpoint, Progress
from deploy.training.datasets import Examples
from deploy.training.descent import Descent, StepRule, evaluate
from deploy.training.outcome import EpochRecord
from deploy.training.privacy import Batch
from protocol.deployment import load_deployment
from protocol.errors import Code, Refusal
from protocol.manifest import RoundTerms
from protocol.questions import Question, VectorTask
from protocol.transport import public_channel
from protocol.v1 import messages_pb2 as pb
from protocol.workers import WorkerPool

__all__ = ["DeployedRun", "NotGrantedError", "StepReport"]

_WAIT_S = 300.0


class NotGrantedError(Exception):
    """The accountant has refused a step: above the policy of the round, or of the ledger."""


@dataclass(frozen=True)
class StepReport:
    """One step: the round, its certificate, and where the training is now."""

    step: int
    round_id: str
    certificate: pb.Certificate
    progress: Progress


@dataclass
class DeployedRun:
    """A training by the users of one fleet.

    Attributes:
        directory: the deployment's. out: where checkpoint and outbox are kept.
        users: one example each; wishes: their local epsilons, float64 (n,).
        watched: the examples that loss and accuracy are measured on after every epoch.
        name: of the model, for the manifest.
        setting: what is trained, as JSON; a checkpoint with another one is refused.
        batch_size: users per step; each answers once an epoch, in a public order that changes with the epoch. 0: all.
    """

    directory: Path
    out: Path
    model: FlatModel
    name: str
    users: Examples
    watched: Examples
    wishes: torch.Tensor
    clipping_norm: float
    rule: StepRule
    settings: Callable[[Question], RoundSettings]
    pool: WorkerPool
    setting: Mapping[str, Any]
    batch_size: int = 0

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches that all users make."""
        return -(-len(self.users) // (self.batch_size or len(self.users)))

    def batch(self, step: int) -> torch.Tensor:
        """Returns the users of a step, the first being 0: int64, ascending."""
        epoch, part = divmod(step, self.steps_per_epoch)
        order = torch.randperm(len(self.users), generator=torch.Generator().manual_seed(epoch))
        return order.tensor_split(self.steps_per_epoch)[part].sort().values

    def resume(self) -> Progress:
        """Returns where the checkpoint says that the training is; the start if there is none.

        Raises:
            ValueError: the checkpoint is of another training or deployment.
        """
        fresh = Progress(Descent(self.model.initial, self.rule), [new_client_key() for _ in range(len(self.users))])
        return self._checkpoint().load(fresh)

    def _checkpoint(self) -> Checkpoint:
        # What the file's tensors have to fit belongs to the setting, whatever else the caller has put there.
        setting = dict(self.setting) | {"dimension": self.model.dimension, "users": len(self.users)}
        return Checkpoint(self.out / "checkpoint.pt", setting, load_deployment(self.directory / DEPLOYMENT_FILE))

    async def steps(self, progress: Progress, count: int) -> AsyncIterator[StepReport]:
        """Takes the steps that are left of `count`, yielding after each; `progress` goes along.

        Raises:
            NotGrantedError: the accountant refused a round, of which nothing was opened.
            Refusal: SHORT_BATCH if too few users answered a step; BAD_BATCH if a round has no gradient.
            ValueError: gradients are not finite.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        checkpoint, descent, enrolled = self._checkpoint(), progress.descent, set[bytes]()
        outbox = Outbox(self.out / "outbox.db")
        try:
            async with Operator(self.directory) as operator:

                async def enrol(client_keys: Sequence[bytes]) -> None:
                    # Once in every run: the deployment may not know them any more, and to register again is harmless.
                    unknown = set(client_keys) - enrolled
                    if unknown:
                        await operator.enrol(sorted(unknown))
                        enrolled.update(unknown)

                while descent.steps < count:
                    round_id = progress.round_id or f"train-{self.name}-{descent.steps + 1}-{secrets.token_hex(4)}"
                    progress.round_id = round_id
                    checkpoint.save(progress)
                    terms = await self._open(operator, round_id, descent)
                    fleet = await self._submit(operator, terms, progress, outbox, enrol)
                    await self._close(operator, terms, progress, checkpoint, fleet)
                    publication, certificate = await operator.result(round_id, _WAIT_S)
                    if not certificate.granted:
                        raise NotGrantedError("; ".join(certificate.refusals))
                    # Released, so paid for, whatever comes of it.
                    progress.answered[round_id] = Batch.of(certificate)
                    checkpoint.save(progress)
                    if not publication.vector:
                        raise Refusal(Code.BAD_BATCH, "; ".join(publication.notes))
                    gradient = np.frombuffer(publication.vector, dtype="<f4")
                    descent.step(torch.from_numpy(gradient.astype(np.float32)))
                    progress.round_id = ""
                    if descent.steps % self.steps_per_epoch == 0:
                        progress.history.append(self.record(descent))
                    checkpoint.save(progress)
                    yield StepReport(descent.steps, round_id, certificate, progress)
        finally:
            outbox.close()

    def record(self, descent: Descent) -> EpochRecord:
        """Returns how good the model is after the newest step, which may be in the middle of an epoch."""
        loss, accuracy = evaluate(self.model, descent.average, self.watched)
        return EpochRecord(-(-descent.steps // self.steps_per_epoch), descent.steps, loss, accuracy)

    async def _open(self, operator: Operator, round_id: str, descent: Descent) -> RoundTerms:
        """Returns the step's round: a new one, or the one that a killed run has opened before."""
        task = VectorTask(
            self.model.dimension,
            self.clipping_norm,
            self.name,
            descent.parameters.detach().numpy().astype("<f4").tobytes(),
        )
        try:
            async with public_channel(operator.deployment.shufflers[0]) as channel:
                terms = await fetch_terms(channel, operator.deployment, round_id)
        except Refusal as refusal:
            if refusal.code not in (Code.UNKNOWN_ROUND, Code.NOT_READY):
                raise
            question = Question(self.name, "hemisphere", vector=task)
            terms = await operator.open_round(self.settings(question), round_id)
        if terms.question.vector != task:
            raise ValueError(f"round {round_id!r} is about other parameters than the checkpoint")
        return terms

    async def _submit(
        self,
        operator: Operator,
        terms: RoundTerms,
        progress: Progress,
        outbox: Outbox,
        enrol: Callable[[Sequence[bytes]], Any],
    ) -> FleetReport:
        chosen = self.batch(progress.descent.steps)
        mine = self.users.part(chosen)
        rows = self.model.clipped(progress.descent.parameters, mine.features, mine.targets, self.clipping_norm)
        vectors = rows.cpu().double().numpy()
        users = {
            str(index): Participant(vector, float(self.wishes[index]), progress.keys[index])
            for index, vector in zip(chosen.tolist(), vectors, strict=True)
        }
        async with public_channel(operator.deployment.shufflers[0]) as channel:
            return await run_fleet(channel, terms, users, outbox=outbox, pool=self.pool, enrol=enrol)

    async def _close(
        self, operator: Operator, terms: RoundTerms, progress: Progress, checkpoint: Checkpoint, fleet: FleetReport
    ) -> None:
        """Ends admission; a round that too few have answered would never have a result, so this is where to say it."""
        closed = await operator.close_round(terms.round_id)
        if closed.state not in (pb.ROUND_STATE_OPEN, pb.ROUND_STATE_DISPOSED):
            return
        held = closed.state == pb.ROUND_STATE_OPEN
        if not held:  # the step starts anew, in another round
            progress.round_id, progress.disposed = "", progress.disposed + 1
            checkpoint.save(progress)
        answers = ", ".join(f"{count} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in fleet.codes.items())
        raise Refusal(
            Code.SHORT_BATCH,
            f"round {terms.round_id!r} is {'held' if held else 'disposed of'}: {closed.num_clients} users have "
            f"answered, needed are {terms.manifest.min_batch_size}; hop 1 said {answers or 'nothing new'}",
        )
