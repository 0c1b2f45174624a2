"""The driver that carries a round to its end, whatever is killed when; what every role is built on.

A role says which step comes next in each state (`advance`). States only ever move forward, each step is one
transaction, and on start every unfinished round is driven on from where it stood; so a crash between two steps costs
nothing but the work of one step.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from croupier.net.retrying import retrying
from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Identity
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.metrics import Metrics
from croupier.runtime.service_directory import Secrets
from croupier.runtime.store import Store
from croupier.runtime.tls import Context, caller_name
from croupier.runtime.transaction import RoundRow, Transaction
from croupier.runtime.transport import TLS, Transport
from croupier.runtime.workers import WorkerPool

__all__ = ["ENVELOPE_KEY", "RoundDriver", "ServiceSetup", "Stopwatch"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
ENVELOPE_KEY = "envelope"
"""The purpose of the key pair that a service opens what arrives with."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 10.0
_MAX_TERMS = 32
_RETENTION_EVERY_S = 600.0
_FINAL = (
    pb.ROUND_STATE_DELIVERED,
    pb.ROUND_STATE_REFUSED,
    pb.ROUND_STATE_RELEASED,
    pb.ROUND_STATE_PUBLISHED,
    pb.ROUND_STATE_DISPOSED,
)


@dataclass(frozen=True)
class ServiceSetup:
    """Everything that a service is given from outside.

    Attributes:
        pool: does what a client waits for, and all else where there is no cluster.
        cluster: does what a batch waits for: opening layers, checking tickets, searching for bounds and attacks.
    """

    entry: ServiceEntry
    deployment: Deployment
    secrets: Secrets
    store: Store
    pool: WorkerPool
    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(default_factory=Metrics)
    transport: Transport = TLS
    keep_days: int = 30
    cluster: WorkerPool | None = None


class Stopwatch:
    """Wall seconds, and CPU seconds of this process; workers' CPU seconds are added by hand."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.workers_cpu_s = 0.0

    def read(self) -> tuple[float, float]:
        """Returns (wall seconds, CPU seconds) since the start."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu + self.workers_cpu_s


class RoundDriver(abc.ABC):
    """The part of a role that keeps rounds moving; see the module's opening."""

    passing: tuple[str, ...] = ()
    """Documents that go when the round's keys go, by what their kinds begin with."""
    lasting: tuple[str, ...] = ()
    """Kinds of documents that stay when the rest of a round is deleted."""

    def __init__(self, setup: ServiceSetup) -> None:
        self.name = setup.entry.name
        self.deployment = setup.deployment
        self.store = setup.store
        self.pool = setup.pool
        self.cluster = setup.cluster
        self.clock = setup.clock
        self.metrics = setup.metrics
        self.identity = Identity(self.name, setup.secrets.identity_key)
        self._secrets = setup.secrets
        self._transport = setup.transport
        self.keep_days = setup.keep_days
        self._retention: asyncio.Task[None] | None = None
        self._terms: OrderedDict[str, RoundTerms] = OrderedDict()  # of the rounds that were asked for last
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._old_channels: list[grpc.aio.Channel] = []
        self._waiting: dict[str, str] = {}  # why a round does not move at the moment

    # ------------------------------------------------------------- for the roles

    @abc.abstractmethod
    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Takes the next step of a round; returns False when there is nothing to do until something arrives."""

    async def terms(self, round_id: str) -> RoundTerms:
        """Returns the terms of a round that is open here, or has been."""
        terms = self._terms.get(round_id)
        if terms is None:
            row = await self.store.run("read the terms", lambda tx: tx.round(round_id))
            self.check_kept(row)
            if not row.manifest:
                raise Refusal(Code.WRONG_STATE, f"round {round_id!r} is prepared but not open")
            terms = self._terms[round_id] = parse_terms(pb.Signed.FromString(row.manifest).payload)
            while len(self._terms) > _MAX_TERMS:
                self._terms.popitem(last=False)
        self._terms.move_to_end(round_id)
        return terms

    def check_kept(self, row: RoundRow) -> None:
        """Raises Refusal WRONG_STATE for a round of which only the name is left."""
        if not row.manifest and row.state != pb.ROUND_STATE_PREPARED:
            raise Refusal(
                Code.WRONG_STATE,
                f"round {row.round_id!r} is over, and what was kept of it is deleted after {self.keep_days} days",
            )

    def channel_to(self, name: str) -> grpc.aio.Channel:
        """Returns the channel to another service of the deployment, opened when it is first needed."""
        if name not in self._channels:
            self._channels[name] = self._transport.peer_channel(self.deployment.service(name), self._secrets)
        return self._channels[name]

    def require_caller(self, context: Context, allowed: Iterable[str]) -> None:
        """Raises Refusal NOT_YOUR_CALL unless the caller's certificate is pinned for one of the names."""
        name = caller_name(context, self.deployment)
        if name not in set(allowed):
            raise Refusal(Code.NOT_YOUR_CALL, f"{name or 'a client'} called")

    def forget(self, tx: Transaction, round_id: str) -> None:
        """Destroys keys, ciphertexts and passing documents of a round that has ended here, however it has."""
        tx.forget(round_id)
        for kind in self.passing:
            tx.drop_documents(round_id, kind)

    async def erase(self, round_id: str) -> None:
        """Erases what has been forgotten; what cannot be done now is tried again, and the round's status says so."""
        try:
            await self.store.erase()
        except Refusal as refusal:
            self._wait(round_id, str(refusal), refusal)
            self.wake(round_id)

    def wake(self, round_id: str) -> None:
        """Drives a round on, unless that is under way."""
        task = self._drivers.get(round_id)
        if task is None or task.done():
            task = self._drivers[round_id] = asyncio.create_task(self._drive(round_id))
            task.add_done_callback(lambda done: self._leave(round_id, done))

    def _leave(self, round_id: str, driver: asyncio.Task[None]) -> None:
        if self._drivers.get(round_id) is driver:
            del self._drivers[round_id]

    async def halt(self, round_id: str) -> bool:
        """Stops driving a round; returns whether it was being driven."""
        driver = self._drivers.get(round_id)
        if driver is None:
            return False
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
        self._waiting.pop(round_id, None)
        return True

    def why_waiting(self, round_id: str) -> str:
        """Returns why a round does not move at the moment; empty if it does."""
        return self._waiting.get(round_id, "")

    async def persist(
        self,
        round_id: str,
        receiver: str,
        method: Callable[[grpc.aio.Channel], Callable[..., Awaitable[T]]],
        request: Message,
    ) -> T:
        """Calls a peer until it answers; meanwhile the round's status says which service it waits for.

        Args:
            round_id: the round that waits.
            receiver: the service that is called.
            method: of the receiver's stub on a channel; asked anew for every attempt, because keys change meanwhile.
            request: what is sent, the same every time.
        """

        def tell(error: grpc.aio.AioRpcError) -> None:
            self._wait(round_id, f"{receiver} does not answer: {error.code().name}")

        def call() -> Awaitable[T]:
            return method(self.channel_to(receiver))(request, timeout=60.0)

        answer = await retrying(call, give_up_after_s=float("inf"), on_failure=tell)
        self._waiting.pop(round_id, None)
        self.metrics.sent(request.ByteSize())
        return answer

    # ------------------------------------------------------------- life of the service

    async def start(self) -> None:
        """Drives on every round that an earlier run left unfinished."""
        await self.warm()
        rows, forgetting = await self.store.run("list the rounds", lambda tx: (tx.rounds(), tx.forgetting()))
        ended = {row.round_id for row in rows if row.state in _FINAL or row.problem}
        for row in rows:
            if row.round_id in ended & forgetting or (row.manifest and row.round_id not in ended):
                self.wake(row.round_id)
        if not ended & forgetting:  # else their drivers erase, after what may take long
            for row in rows[:1]:
                await self.erase(row.round_id)
        self._retention = asyncio.create_task(self._retain())

    async def _retain(self) -> None:
        while True:
            try:
                await self.delete_expired()
            except Refusal as refusal:  # the store's, which readiness tells of
                _log.warning("old rounds are not deleted now: %s", refusal)
            except Exception:  # noqa: BLE001 (whatever it was, the next try may work)
                _log.exception("old rounds are not deleted now")
            await asyncio.sleep(_RETENTION_EVERY_S)

    async def delete_expired(self) -> None:
        """Deletes what is kept of rounds that have ended long enough ago, and erases it."""
        now_s = int(self.clock.now())

        def find(tx: Transaction) -> list[str]:
            tx.note_ends(_FINAL, now_s)
            return list(tx.ends(now_s - self.keep_s))

        deleted = await self.store.run("find old rounds", find)
        for round_id in deleted:  # piece by piece: others get their turn in between
            while await self.store.run("delete a piece", lambda tx: tx.delete_admitted(round_id)):  # noqa: B023
                pass
            await self.store.run("delete an old round", lambda tx: tx.delete_round(round_id, self.lasting))  # noqa: B023
            self._terms.pop(round_id, None)
            _log.info("what was kept of the round is deleted", extra={"round_id": round_id})
        if deleted:
            self.on_deletion()
            await self.erase(deleted[0])

    @property
    def keep_s(self) -> int:
        """How many seconds after its end a round is kept."""
        return self.keep_days * 24 * 3600

    def on_deletion(self) -> None:  # noqa: B027 (a hook: most roles have nothing to do)
        """Takes out of memory what has been deleted of old rounds."""

    async def warm(self) -> None:  # noqa: B027 (a hook: most roles have nothing to do)
        """Does once, before the first round, what would make the first round slow."""

    def replace(self, deployment: Deployment, secrets: Secrets) -> None:
        """Goes on with the keys and pins of a new deployment file; calls under way end on their old channels."""
        self.deployment, self._secrets = deployment, secrets
        self.identity = Identity(self.name, secrets.identity_key)
        self._old_channels += self._channels.values()
        self._channels = {}

    def hang_up(self) -> None:  # noqa: B027 (a hook: most roles have nothing to do)
        """Ends the calls that last, before the server waits for those under way."""

    def dismiss(self, round_id: str) -> None:  # noqa: B027 (a hook: most roles have nothing to do)
        """Ends the calls that last of a round of which nothing will come."""

    async def stop(self) -> None:
        """Stops driving; everything durable stays as it is."""
        tasks = [task for task in (*self._drivers.values(), self._retention) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in (*self._channels.values(), *self._old_channels):
            await channel.close()

    async def _drive(self, round_id: str) -> None:
        """Takes step after step. What may pass (a full disk, an unreachable peer) is tried again, ever more slowly.

        Any other Refusal is an answer: it is kept as the round's problem, and the round stops here.
        """
        problem, wait_s = "", _FIRST_WAIT_S
        known = pb.ROUND_STATE_UNSPECIFIED
        while True:
            try:
                if problem:
                    await self._record_problem(round_id, problem)
                    self._waiting.pop(round_id, None)
                    self.metrics.round_stopped()
                    return
                row = await self.store.run("read where the round stands", lambda tx: tx.round(round_id))
                if row.state != known:
                    known = row.state
                    state = pb.RoundState.Name(known).removeprefix("ROUND_STATE_")
                    _log.info("the round is %s", state, extra={"round_id": round_id, "state": state})
                ended = row.state in _FINAL or bool(row.problem)
                if ended:
                    await self.store.erase()  # here, so that it is tried again until it is done
                moved = not ended and bool(row.manifest) and await self.advance(row, await self.terms(round_id))
                self._waiting.pop(round_id, None)
                if not moved:
                    return
                wait_s = _FIRST_WAIT_S
                continue
            except (Refusal, SignatureError) as error:
                if isinstance(error, SignatureError) or not error.code.may_pass:
                    _log.error("the round stops: %s", error, extra=_about(round_id, error))
                    problem = str(error)
                    continue
                self._wait(round_id, str(error), error)
            except Exception:  # noqa: BLE001 (a round that fails must not take others with it)
                _log.exception("a step failed", extra={"round_id": round_id})
                self._waiting[round_id] = "internal error; the service's log has the details"
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _wait(self, round_id: str, why: str, error: Exception | None = None) -> None:
        """Keeps why a round does not move; logged once for each reason."""
        if self._waiting.get(round_id) != why:
            _log.warning("the round waits: %s", why, extra=_about(round_id, error))
        self._waiting[round_id] = why

    @property
    def num_waiting_rounds(self) -> int:
        """How many rounds are tried again and again, because a step failed or a peer does not answer."""
        return len(self._waiting)

    @property
    def num_waiting_submissions(self) -> int:
        """How many submissions are not answered yet; only hop 1 has any."""
        return 0

    async def _record_problem(self, round_id: str, problem: str) -> None:
        """Ends the round here; nothing takes it up again, so its keys and ciphertexts are destroyed."""

        def end(tx: Transaction) -> None:
            tx.update_round(round_id, problem=problem)
            self.forget(tx, round_id)

        await self.store.run("stop the round", end)
        self.dismiss(round_id)
        await self.store.erase()


def _about(round_id: str, error: Exception | None) -> dict[str, str]:
    return {"round_id": round_id} | ({"code": error.code.name} if isinstance(error, Refusal) else {})
