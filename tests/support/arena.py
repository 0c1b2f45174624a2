"""Where attacks are performed: a whole deployment in memory, some services replaced by cheaters, and the victims.

Everybody seals and opens in this process, so that a defence that a test takes away is away for all of them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
import pytest

import croupier.deploy.node.serve
from croupier.client.submission import Participant, send
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import refusal_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import NO_ROUND, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.service import RoundService
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.transaction import Transaction
from tests.support import InProcess, in_memory, in_process
from tests.support.clients import crafted, seal_all_of, seal_prepared, submissions_of

WAIT_S = 120.0
_LONGEST_PAUSE_S = 10.0
Role = TypeVar("Role", bound=RoundService)
Result = TypeVar("Result")
Cast = Mapping[str, Callable[[ServiceSetup], RoundService]]


@dataclass
class Arena:
    """A running deployment and everybody's way in."""

    inside: InProcess
    operator: Operator
    channel: grpc.aio.Channel

    @property
    def deployment(self) -> Deployment:
        return self.operator.deployment

    def service(self, name: str) -> RoundService:
        return self.inside.running[name].service

    def service_as(self, name: str, kind: type[Role]) -> Role:
        """Returns a service that is played by this class."""
        service = self.service(name)
        assert isinstance(service, kind)
        return service

    async def seal(
        self, terms: RoundTerms, count: int, *, value: float = 1, max_local_epsilon: float = 1.0
    ) -> list[pb.Submission]:
        """Returns submissions of honest clients, which are enrolled."""
        users = [Participant(value, max_local_epsilon)] * count
        return submissions_of(await seal_all_of(self.operator, terms, users))

    async def craft(
        self, terms: RoundTerms, report: int, epsilon: float, delta: float = 0.0, *, count: int = 1
    ) -> list[pb.Submission]:
        """Returns what dishonest clients may send, that are enrolled: any report beside any budget, with tickets."""
        dishonest = [crafted(terms, report, epsilon, delta) for _ in range(count)]
        return submissions_of(await seal_prepared(self.operator, terms, dishonest))

    async def submit(
        self, terms: RoundTerms, submissions: Sequence[pb.Submission], *, enrol: bool = True
    ) -> list[pb.SubmissionCode.ValueType]:
        """Sends submissions and returns hop 1's codes, in order."""
        if enrol:
            await self.operator.enrol([PublicKey(submission.client_key) for submission in submissions])
        named = {str(index): submission.SerializeToString() for index, submission in enumerate(submissions)}
        return list((await send(self.channel, terms.round_id, named)).values())

    async def admit(self, terms: RoundTerms, submissions: Sequence[pb.Submission]) -> None:
        """Sends submissions that hop 1 has to accept."""
        assert set(await self.submit(terms, submissions)) == {pb.SUBMISSION_CODE_ACCEPTED}

    async def filled(
        self, settings: RoundSettings, count: int, *, round_id: RoundId = NO_ROUND, **how: float
    ) -> RoundTerms:
        """Opens a round, and has as many honest clients answer it; see `seal`."""
        terms = await self.operator.open_round(settings, round_id)
        await self.admit(terms, await self.seal(terms, count, **how))
        return terms

    async def finish(self, terms: RoundTerms) -> tuple[pb.Publication, pb.Certificate]:
        """Closes the round and returns its verified publication and certificate."""
        await self.operator.close_round(terms.round_id)
        return await self.operator.result(terms.round_id, WAIT_S)

    async def problem(self, name: str, terms: RoundTerms) -> str:
        """Returns what stopped a round at a service; waits until something has."""
        return (await self._row(name, terms, lambda row: bool(row.problem))).problem

    async def stops(self, name: str, terms: RoundTerms) -> str:
        """Closes a round, which stops at a service; returns the reason, and nothing is published."""
        await self.operator.close_round(terms.round_id)
        problem = await self.problem(name, terms)
        assert await self.nothing_is_published(terms)
        return problem

    async def look(self, name: str, work: Callable[[Transaction], Result]) -> Result:
        """Returns what is in a service's store."""
        return await self.service(name).store.run("look", work)

    async def reached(self, name: str, terms: RoundTerms, *states: pb.RoundState.ValueType) -> None:
        """Waits until a round has one of the states at a service."""
        await self._row(name, terms, lambda row: row.state in states)

    async def _row(self, name: str, terms: RoundTerms, holds: Callable[[RoundRow], bool]) -> RoundRow:
        async with asyncio.timeout(WAIT_S):
            while True:
                row = await self.service(name).store.run("look", lambda tx: tx.round(terms.round_id))
                if holds(row):
                    return row
                await asyncio.sleep(0.02)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds in this process; looks less and less often, because a look may cost much."""
        async with asyncio.timeout(WAIT_S):
            for look in itertools.count():
                if holds():
                    return
                await asyncio.sleep(min(0.02 * 2**look, _LONGEST_PAUSE_S))

    async def nothing_is_published(self, terms: RoundTerms) -> bool:
        """Whether the analyzer has no answer of any kind for the round."""
        async with self.operator.client_channel(self.deployment.analyzer.name) as channel:
            try:
                await stubs.AnalyzerStub(channel).GetResult(rpc.GetResultRequest(round_id=terms.round_id))
            except grpc.aio.AioRpcError as error:
                refusal = refusal_of(error)
                return refusal is not None and refusal.code.name == "NOT_READY"
        return False


@asynccontextmanager
async def arena(
    directory: Path, hops: int, cast: Cast | None = None, more: str = "", *, over_tls: bool = False
) -> AsyncIterator[Arena]:
    """A deployment for an attack.

    Args:
        cast: who plays a service instead of the honest one, by name.
        more: lines at the end of the deployment file.
        over_tls: where the attack is one on what gRPC does.
    """
    around = in_process if over_tls else in_memory
    honest = croupier.deploy.node.serve.role_of

    def role(setup: ServiceSetup) -> RoundService:
        return (cast or {}).get(setup.entry.name, honest)(setup)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(croupier.deploy.node.serve, "role_of", role)
        async with (
            around(directory / "deployment", hops, more) as inside,
            inside.operator() as operator,
            operator.client_channel() as channel,
        ):
            yield Arena(inside, operator, channel)
