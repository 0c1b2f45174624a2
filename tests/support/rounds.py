"""Whole rounds: a deployment, an operator, a channel as clients have it, and people who answer."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.client.outbox import Outbox
from croupier.client.submission import Participant
from croupier.deploy.local.users import Fleet, FleetReport
from croupier.operator.opened_surveys import survey_folder
from croupier.operator.operator import Operator
from croupier.protocol.deployment import Deployment
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.interval import IntervalMechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.names import Digest, PublicKey
from croupier.protocol.questions import Question
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.service_directory import load_secrets
from croupier.runtime.workers import WorkerPool
from tests.support import BIT, InProcess, Threads, in_memory, in_process

WAIT_S = 60.0
QUESTIONS = [
    BIT,
    Question("letter", KaryResponse(k=4)),
    Question("mean", OneBit(low=-5.0, high=5.0)),
    Question("lattice", Laplace(low=0.0, high=10.0, lattice=1000)),
    Question("word", ProjectiveResponse(k=40, q=3)),
    Question("symptoms", MultipleChoice(k=3, labels=("fever", "cough", "rash"))),
    Question("normal", Gaussian(low=0.0, high=10.0, lattice=100, local_delta=1e-6)),
]


def people(question: Question, count: int, seed: int) -> list[Participant]:
    source = random.Random(seed)
    mechanism = question.mechanism
    if isinstance(mechanism, IntervalMechanism):
        values = [source.uniform(mechanism.low, mechanism.high) for _ in range(count)]
    else:
        values = [source.choice((0, 0, 1)) for _ in range(count)]
    return [Participant(value, source.choice((0.7, 1.0, 2.5))) for value in values]


@dataclass
class Table:
    """Everything that a test needs in order to play rounds."""

    inside: InProcess
    operator: Operator
    channel: grpc.aio.Channel
    accountant: grpc.aio.Channel
    pool: WorkerPool
    outbox: Outbox
    listed: set[Digest] = field(default_factory=set)

    @property
    def deployment(self) -> Deployment:
        return self.operator.deployment

    def peer_channel(self, to: str, caller: str) -> grpc.aio.Channel:
        """Returns a channel to a service as another one, or the operator, has it."""
        secrets = load_secrets(self.inside.directory / caller)
        return self.inside.transport.peer_channel(self.deployment.service(to), secrets)

    async def submit(self, terms: RoundTerms, users: Sequence[Participant] | Mapping[str, Participant]) -> FleetReport:
        named = users if isinstance(users, Mapping) else {str(index): user for index, user in enumerate(users)}

        async def enrol(keys: Sequence[PublicKey]) -> None:
            if self.has_list(terms.survey):
                await self.operator.invite(keys, terms.survey.invitation_hash, 0)
            else:
                await self.operator.enrol(keys)

        return await Fleet(self.channel, self.accountant, self.outbox, self.pool, enrol).answer(terms, named)

    def has_list(self, survey: Survey) -> bool:
        """Returns whether people were invited to a survey."""
        file = survey_folder(self.inside.directory, survey.survey_id) / "invitations.csv"
        return survey.invitation_hash in self.listed or file.exists()

    async def finish(self, terms: RoundTerms) -> tuple[pb.Publication, pb.Certificate]:
        await self.operator.close_round(terms.round_id)
        return await self.operator.result(terms.round_id, WAIT_S)


class _Shared(WorkerPool):
    """A pool of processes that several services share; the owner of the executor closes it."""

    async def warm(self) -> None:
        """The owner's processes start with their first work."""

    def close(self) -> None:
        """Leaves the processes to the owner."""


@asynccontextmanager
async def table(
    directory: Path,
    hops: int,
    more: str = "",
    settings_of: Callable[[str], str] = lambda _: "",
    *,
    over_tls: bool = False,
    clock: Clock | None = None,
    processes: int = 0,
    approvals: int = 0,
) -> AsyncIterator[Table]:
    """Lays it for a deployment in memory, or for one with real gRPC over TLS and worker processes.

    clock: of the services over TLS; the machine's if not given.
    processes: how many worker processes clients and services share in memory; 0: threads.
    approvals: how many organisations have to approve of what the operator does; in memory, and by the machine's clock,
        which proposals have.
    """
    place = directory / "deployment"
    make_pool: Callable[[], WorkerPool] = Threads
    pool = WorkerPool(1) if over_tls else Threads()
    if processes:
        executor = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
        pool, make_pool = WorkerPool(processes, executor), partial(_Shared, processes, executor)
    asked: dict[str, Any] = {"approvals": approvals, "clock": SystemClock()} if approvals else {}
    around = (
        in_process(place, hops, more, settings_of, make_pool=lambda: WorkerPool(1), clock=clock)
        if over_tls
        else in_memory(place, hops, more, settings_of=settings_of, make_pool=make_pool, **asked)
    )
    async with (
        around as inside,
        inside.operator() as operator,
        operator.client_channel() as channel,
        operator.client_channel("accountant") as accountant,
    ):
        outbox = Outbox(directory / "outbox.db")
        yield Table(inside, operator, channel, accountant, pool, outbox)
        outbox.close()
    pool.close()
