"""Training through a deployment: every step is a round, its question the gradient at the current parameters.

All users of the fleet answer every step, with the same keys; the analyzer publishes the mean vector, after the
certificate. What has been reached is written down before every step, together with the name of the step's round, so
that a run that was killed goes on: users who have sealed a submission for that round never make a second one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from client.fleet import run_fleet
from client.gradients import FlatModel
from client.outbox import Outbox
from client.rounds import fetch_terms
from client.submission import Participant, new_client_key
from deploy.operator import Operator, RoundSettings
from deploy.training.datasets import Examples
from deploy.training.descent import Descent, StepRule
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
    """One step: the round, its certificate, and where the parameters are now."""

    step: int
    round_id: str
    certificate: pb.Certificate
    descent: Descent


@dataclass
class DeployedRun:
    """A training by the users of one fleet.

    Attributes:
        directory: the deployment's. out: where the checkpoint is kept.
        users: one example each; wishes: their local epsilons, float64 (n,).
        name: of the model, for the manifest.
        batch_size: users per step; each answers once an epoch, in a public order that changes with the epoch. 0: all.
    """

    directory: Path
    out: Path
    model: FlatModel
    name: str
    users: Examples
    wishes: torch.Tensor
    clipping_norm: float
    rule: StepRule
    settings: Callable[[Question], RoundSettings]
    pool: WorkerPool
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

    async def steps(self, count: int) -> AsyncIterator[StepReport]:
        """Takes the steps that are left of `count`, yielding after each.

        Raises:
            NotGrantedError: the accountant refused a round, of which nothing was opened.
            ValueError: the checkpoint is of another model, or gradients are not finite.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        descent, keys, round_id = self._resume()
        outbox = Outbox(self.out / "outbox.db")
        try:
            async with Operator(self.directory) as operator:
                while descent.steps < count:
                    round_id = round_id or f"train-{self.name}-{descent.steps + 1}-{keys[0].hex()[:8]}"
                    self._save(descent, keys, round_id)
                    terms = await self._open(operator, round_id, descent)
                    await self._submit(operator, terms, descent, keys, outbox)
                    await operator.close_round(round_id)
                    publication, certificate = await operator.result(round_id, _WAIT_S)
                    if not certificate.granted:
                        raise NotGrantedError("; ".join(certificate.refusals))
                    if not publication.vector:
                        raise Refusal(Code.BAD_BATCH, "; ".join(publication.notes))
                    gradient = np.frombuffer(publication.vector, dtype="<f4")
                    descent.step(torch.from_numpy(gradient.astype(np.float32)))
                    self._save(descent, keys, "")
                    yield StepReport(descent.steps, round_id, certificate, descent)
                    round_id = ""
        finally:
            outbox.close()

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
        self, operator: Operator, terms: RoundTerms, descent: Descent, keys: list[bytes], outbox: Outbox
    ) -> None:
        chosen = self.batch(descent.steps)
        mine = self.users.part(chosen)
        rows = self.model.clipped(descent.parameters, mine.features, mine.targets, self.clipping_norm)
        vectors = rows.cpu().double().numpy()
        users = {
            str(index): Participant(vector, float(self.wishes[index]), keys[index])
            for index, vector in zip(chosen.tolist(), vectors, strict=True)
        }

        async def enrol(client_keys: Any) -> None:
            if descent.steps < self.steps_per_epoch:
                await operator.enrol(client_keys)

        async with public_channel(operator.deployment.shufflers[0]) as channel:
            await run_fleet(channel, terms, users, outbox=outbox, pool=self.pool, enrol=enrol)

    # ------------------------------------------------------------- checkpoint

    @property
    def _checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    def _resume(self) -> tuple[Descent, list[bytes], str]:
        if not self._checkpoint.exists():
            return Descent(self.model.initial, self.rule), [new_client_key() for _ in range(len(self.users))], ""
        state = torch.load(self._checkpoint, weights_only=True)
        if state["parameters"].shape != (self.model.dimension,) or len(state["keys"]) != len(self.users):
            raise ValueError(f"{self._checkpoint} is of another model or fleet; choose another --out")
        descent = Descent(self.model.initial, self.rule)
        descent.restore(state["descent"])
        return descent, [bytes(key.tolist()) for key in state["keys"]], state["round_id"]

    def _save(self, descent: Descent, keys: list[bytes], round_id: str) -> None:
        state = {
            "parameters": descent.parameters.detach(),
            "descent": descent.state(),
            "keys": torch.tensor([list(key) for key in keys], dtype=torch.uint8),
            "round_id": round_id,
        }
        fresh = self._checkpoint.with_suffix(".new")
        torch.save(state, fresh)
        fresh.replace(self._checkpoint)
