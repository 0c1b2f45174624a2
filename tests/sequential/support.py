"""A round in turns with everything in this process: users who hold a point each, and a model that seeks the mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
from numpy.typing import NDArray

from client.fleet import run_fleet
from client.outbox import Outbox
from client.sequential import Attendee, TurnsTaken, take_turns
from client.submission import Participant, new_client_key
from deploy.operator.rounds import Operator, RoundSettings
from protocol.manifest import RoundTerms
from protocol.mechanisms import Hemisphere, Turns, VectorTask
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb
from runtime.transport import public_channel
from runtime.workers import WorkerPool
from tests.support import InProcess, in_process

DIMENSION = 3
WAIT_S = 60.0


@dataclass
class Person:
    """A point, and the models that the person was asked about."""

    point: NDArray[np.float64]
    wish: float
    key: bytes = field(default_factory=new_client_key)
    gradient: Callable[[bytes], NDArray[np.float64]] | None = None
    asked: list[bytes] = field(default_factory=list)

    @property
    def attendee(self) -> Attendee:
        return Attendee(self.key, self.wish, self._gradient)

    def _gradient(self, parameters: bytes) -> NDArray[np.float64]:
        self.asked.append(parameters)
        if self.gradient is not None:
            return self.gradient(parameters)
        return np.frombuffer(parameters, dtype="<f4").astype(np.float64) - self.point


def people(count: int) -> dict[str, Person]:
    return {f"user {index}": Person(np.array([1.0, 0.0, 0.0]), (2.0, 4.0)[index % 2]) for index in range(count)}


def task(period_ms: int = 300, learning_rate: float = 0.01) -> Question:
    parameters = np.zeros(DIMENSION, dtype="<f4").tobytes()
    return Question(
        "turns", Hemisphere(vector=VectorTask(DIMENSION, 1.0, "mean", parameters, Turns(period_ms, learning_rate)))
    )


def settings(question: Question, *, needed: int = 8, epsilon_max: float = 4.0) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=epsilon_max, min_batch_size=needed)


@dataclass
class Table:
    inside: InProcess
    operator: Operator
    channel: grpc.aio.Channel
    pool: WorkerPool
    outbox: Outbox

    async def gather(self, group: dict[str, Person], chosen: RoundSettings) -> RoundTerms:
        """Opens a round, has everyone submit a budget, and closes admission."""
        terms = await self.operator.open_round(chosen)
        users = {name: Participant(None, one.wish, one.key) for name, one in group.items()}
        report = await run_fleet(
            self.channel, terms, users, outbox=self.outbox, pool=self.pool, enrol=self.operator.enrol
        )
        assert report.accepted == len(group)
        await self.operator.close_round(terms.round_id)
        return terms

    async def take(self, terms: RoundTerms, group: dict[str, Person], **more: Any) -> TurnsTaken:
        attendees = {name: one.attendee for name, one in group.items()}
        return await take_turns(self.channel, terms, self.operator.deployment, attendees, outbox=self.outbox, **more)

    async def result(self, terms: RoundTerms) -> tuple[pb.Publication, pb.Certificate]:
        return await self.operator.result(terms.round_id, WAIT_S)


@asynccontextmanager
async def laid(
    directory: Path, hops: int = 2, more: str = "", settings_of: Callable[[str], str] = lambda _: ""
) -> AsyncIterator[Table]:
    pool, outbox = WorkerPool(1), Outbox(directory / "outbox.db")
    async with (
        in_process(directory / "deployment", hops, more, settings_of) as inside,
        Operator(inside.directory) as operator,
        public_channel(operator.deployment.shufflers[0]) as channel,
    ):
        yield Table(inside, operator, channel, pool, outbox)
    outbox.close()
    pool.close()
