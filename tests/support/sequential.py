"""A sequential round with everything in this process: users who hold a point each, and a model that seeks the mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.rounds.ledger import Ledger
from croupier.client.sequential import Attendee, SequentialAnswers, answer_sequentially
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.local.users import FleetReport
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.identity import sign_answer
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import PrivateKey
from croupier.protocol.onion import Onion
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.shuffler.service import ShufflerService
from tests.support import rounds
from tests.support.rounds import WAIT_S

DIMENSION = 3


@dataclass
class Person:
    """A point, and the models that the person was asked about."""

    point: NDArray[np.float64]
    max_local_epsilon: float
    key: bytes = field(default_factory=new_client_key)
    gradient: Callable[[bytes], NDArray[np.float64]] | None = None
    asked: list[bytes] = field(default_factory=list)

    @property
    def attendee(self) -> Attendee:
        return Attendee(PrivateKey(self.key), self._gradient)

    def _gradient(self, parameters: bytes) -> NDArray[np.float64]:
        self.asked.append(parameters)
        if self.gradient is not None:
            return self.gradient(parameters)
        return np.frombuffer(parameters, dtype="<f4").astype(np.float64) - self.point


def num_present(shuffler: Any, round_id: str) -> int:
    """Returns how many clients of a round hop 1 can ask at the moment."""
    return sum(present_in == round_id for present_in, _ in shuffler.sequential.attendance._place)


def people(count: int) -> dict[str, Person]:
    return {f"user {index}": Person(np.array([1.0, 0.0, 0.0]), (2.0, 4.0)[index % 2]) for index in range(count)}


def task(period_ms: int = 300, learning_rate: float = 0.01) -> Question:
    parameters = np.zeros(DIMENSION, dtype="<f4").tobytes()
    return Question(
        "sequential",
        Hemisphere(vector=VectorTask(DIMENSION, 1.0, "mean", parameters, SequentialOrder(period_ms, learning_rate))),
    )


def settings(question: Question, *, needed: int = 8, epsilon_max: float = 4.0) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-3, epsilon_max=epsilon_max, min_batch_size=needed)


class Table(rounds.Table):
    """The table of sequential rounds."""

    async def gather(self, group: dict[str, Person], chosen: RoundSettings) -> RoundTerms:
        """Opens a round, has everyone submit a budget, and closes admission."""
        terms = await self.operator.open_round(chosen)
        assert (await self.submit_budgets(terms, group)).accepted == len(group)
        await self.operator.close_round(terms.round_id)
        return terms

    async def submit_budgets(self, terms: RoundTerms, group: dict[str, Person]) -> FleetReport:
        users = {
            name: Participant(None, member.max_local_epsilon, PrivateKey(member.key)) for name, member in group.items()
        }
        return await self.submit(terms, users)

    @property
    def first(self) -> ShufflerService:
        """Hop 1."""
        service = self.inside.running["shuffler-1"].service
        assert isinstance(service, ShufflerService)
        return service

    async def take(self, terms: RoundTerms, group: dict[str, Person], **more: Any) -> SequentialAnswers:
        attendees = {name: member.attendee for name, member in group.items()}
        return await answer_sequentially(
            self.channel, terms, self.operator.deployment, attendees, outbox=self.outbox, **more
        )

    async def charged(self) -> list[float]:
        """Returns the epsilon of every entry in the accountant's ledger."""
        store = self.inside.running["accountant"].service.store
        entered = await store.run("look", lambda tx: Ledger(tx.connection).entered())
        return [entry.epsilon for _, _, entries in entered for entry in entries]

    async def result(self, terms: RoundTerms) -> tuple[pb.Publication, pb.Certificate]:
        return await self.operator.result(terms.round_id, WAIT_S)


@asynccontextmanager
async def gathered(
    directory: Path, count: int = 8, chosen: RoundSettings | None = None, hops: int = 2
) -> AsyncIterator[tuple[Table, dict[str, Person], RoundTerms]]:
    """Lays a table with a round to which `count` people have submitted a budget; admission is closed."""
    async with laid(directory, hops) as table:
        group = people(count)
        yield table, group, await table.gather(group, chosen or settings(task()))


def signed_answer(table: Table, terms: RoundTerms, name: str, report: Sequence[float]) -> bytes:
    """Returns the answer that a user may give who does not follow the protocol: any report, signed."""
    content = np.array(report, dtype="<f4").tobytes()
    return Onion(terms).wrap_answer(
        sign_answer(terms.hash, content, PrivateKey(table.outbox.answer_keys(terms.round_id)[name]))
    )


@asynccontextmanager
async def laid(directory: Path, hops: int = 2, more: str = "", **how: Any) -> AsyncIterator[Table]:
    """how: see `rounds.table`."""
    async with rounds.table(directory, hops, more, **how) as table:
        yield Table(**vars(table))
