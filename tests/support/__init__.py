"""What several tests need: terms of a round with real keys, and a whole deployment inside this process.

`in_memory` is the deployment of most tests: all roles in one event loop, messages as bytes, no sockets and no worker
processes. `in_process` has real gRPC over TLS, for what is about that.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from croupier.deploy.node.serve import RunningService
from croupier.deploy.version_files import write_deployment
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import make_deployment, signed_here
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, read_unchecked
from croupier.protocol.envelope import PROTOCOL_VERSION, KeyPair, generate_key_pair
from croupier.protocol.identity import canonical
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Lane, StorageKey
from croupier.protocol.questions import Question
from croupier.protocol.tickets import TicketIssuer
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.health import PROBE_EVERY_S
from croupier.runtime.service_directory import SETTINGS_FILE
from croupier.runtime.store import Store
from croupier.runtime.workers import WorkerPool
from tests.support.clocks import Ahead
from tests.support.in_memory import Network
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

AnyStore = TypeVar("AnyStore", bound=Store)
SUITE = "x25519-sha256-chacha20poly1305"
BIT = Question("bit", RandomizedResponse())
encode_report = BIT.mechanism.encode_report


@dataclass
class RoundKit:
    """A round: its survey and its manifest, both of which a test may change, with the private keys behind them."""

    manifest: pb.Manifest
    survey: pb.Survey
    keys: dict[str, KeyPair] = field(default_factory=dict)
    issuers: dict[Lane, TicketIssuer] = field(default_factory=dict)

    @property
    def round(self) -> pb.SignedRound:
        """The round without signatures, with a manifest that names the survey as it is now."""
        survey = canonical(self.survey)
        self.manifest.survey_hash = hashlib.sha256(b"croupier/v1/survey\0" + survey).digest()
        return pb.SignedRound(manifest=pb.Signed(payload=canonical(self.manifest)), survey=survey)

    @property
    def terms(self) -> RoundTerms:
        return parse_terms(self.round)


def make_kit(
    hops: int = 2,
    question: Question = BIT,
    suite: str = SUITE,
    round_id: str = "round-1",
    grid: Sequence[float] = (0.5, 1.0, 2.0),
    **policy: Any,
) -> RoundKit:
    """The only round of a survey that is asked once; policy: further fields of its survey."""
    names = [*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer"]
    keys = {name: generate_key_pair(suite) for name in [*names, "release"]}
    public = {name: pb.RoundKeys(round_id=round_id, service=name, public_key=keys[name].public) for name in names}
    public["accountant"].release_public_key = keys["release"].public
    issuers = {lane: TicketIssuer(os.urandom(32), lane) for lane in (pb.LANE_REPORT, pb.LANE_PARAMETER)}
    public["accountant"].report_ticket_key = issuers[pb.LANE_REPORT].public_key
    public["accountant"].parameter_ticket_key = issuers[pb.LANE_PARAMETER].public_key
    survey = pb.Survey(
        protocol_version=PROTOCOL_VERSION,
        deployment="local",
        survey_id=round_id,
        questions=[
            pb.SurveyQuestion(
                question=question.message(),
                budget_grid=[
                    pb.LocalBudget(epsilon=epsilon, delta=question.mechanism.budget_delta) for epsilon in grid
                ],
            )
        ],
        left_out=pb.LEFT_OUT_MISSING,
        min_batch_size=2,
        short_batch_policy=pb.SHORT_BATCH_POLICY_HOLD,
        delta=1e-6,
        epsilon_max=1.0,
        hpke_suite=suite,
        num_hops=hops,
    )
    survey.MergeFrom(pb.Survey(**policy))
    manifest = pb.Manifest(
        hops=[public[name] for name in names[:hops]], accountant=public["accountant"], analyzer=public["analyzer"]
    )
    return RoundKit(manifest, survey, keys, issuers)


def altered(terms: RoundTerms, change: Callable[[RoundKit], object]) -> pb.SignedRound:
    """Returns a round like this one with a changed survey or manifest, which nobody has signed."""
    kit = RoundKit(pb.Manifest.FromString(terms.payload), pb.Survey.FromString(terms.survey.payload))
    change(kit)
    return kit.round


def settings(question: Question = BIT, *, min_batch_size: int = 20, epsilon_max: float = 4.0) -> RoundSettings:
    return RoundSettings(question, (0.5, 1.0, 2.0), min_batch_size=min_batch_size, epsilon_max=epsilon_max, delta=1e-4)


class Threads(WorkerPool):
    """A pool that works in a thread of this process: nothing has to be started, and what a test changes is changed."""

    def __init__(self) -> None:
        super().__init__(1, ThreadPoolExecutor(1, thread_name_prefix="worker"))

    async def warm(self) -> None:
        """There is nothing to wait for."""


@cache
def _empty_database() -> bytes:
    """A new store's file: made once, where making its tables again and again would take a tenth of some tests."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "rounds.db"
        Store(f"sqlite:///{file}", StorageKey(bytes(32))).close()
        return file.read_bytes()


def ephemeral_store(url: str, wrapping_key: bytes) -> Store:
    """Returns a store that does not wait for the disk: what it has committed outlives its service, not the machine."""
    return opened_fast(url, lambda: Store(url, StorageKey(wrapping_key)))


class _CompiledOnce(dict[Any, Any]):
    """Statements as the compiler has made them, for every SQLite store of this process.

    An engine has its own, and every service of every test a new engine: a tenth of some tests was compiling the same
    again. SQLAlchemy's key begins with the engine's dialect; those of SQLite here are all alike.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


_COMPILED = _CompiledOnce()


def opened_fast(url: str, make: Callable[[], AnyStore]) -> AnyStore:
    """Opens a store that is not quite the real one, faster than the real one is opened."""
    file = sa.make_url(url).database or ""
    is_sqlite = url.startswith("sqlite")
    if is_sqlite and not Path(file).exists():
        Path(file).write_bytes(_empty_database())
    store = make()
    if is_sqlite:
        store.database.engine = store.database.engine.execution_options(compiled_cache=_COMPILED)
        with store.database.engine.connect() as connection:  # the pool's only one
            connection.exec_driver_sql("PRAGMA synchronous=OFF")
    return store


def probe_every_s() -> float:
    """How often services probe their stores: where minutes pass at once, most of the work would be that."""
    return 60.0 if isinstance(asyncio.get_running_loop(), VirtualTimeLoop) else PROBE_EVERY_S


@dataclass
class InProcess:
    """All services of a deployment in this process; each can be stopped and started.

    Attributes:
        transport: how they are reached: over TLS on loopback, or in memory.
        ahead_s: how many seconds the clock of a service is ahead of `clock`.
    """

    directory: Path
    transport: Transport = TLS
    make_pool: Callable[[], WorkerPool] = Threads
    clock: Clock = field(default_factory=SystemClock)
    running: dict[str, RunningService] = field(default_factory=dict)
    ahead_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    async def start(self, *names: str) -> None:
        for name in names:
            self.running[name] = RunningService(
                name,
                self.directory,
                clock=Ahead(self.clock, self.ahead_s, name),
                pool=self.make_pool(),
                open_store=ephemeral_store,
                transport=self.transport,
                probe_every_s=probe_every_s(),
            )
        await asyncio.gather(*(self.running[name].start() for name in names))

    async def stop(self, *names: str) -> None:
        await asyncio.gather(*(self.running.pop(name).stop() for name in names))

    async def restart(self, *names: str) -> None:
        await self.stop(*names)
        await self.start(*names)

    async def have_noticed(self, deployment: Deployment) -> None:
        """Waits until every service has noticed a new deployment file."""
        async with asyncio.timeout(100):
            while any(running.service.peers.deployment != deployment for running in self.running.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def operator(self) -> Operator:
        return Operator(self.directory, self.transport)


def sign_again(directory: Path, *homes: Path) -> Deployment:
    """Has the services sign a deployment file that a test has changed, with the keys in it or in other directories."""
    signed = signed_here(read_unchecked(directory / DEPLOYMENT_FILE), homes or [directory])
    write_deployment(directory, signed)
    return signed


@asynccontextmanager
async def in_process(
    directory: Path,
    hops: int,
    more: str = "",
    settings_of: Callable[[str], str] = lambda _: "",
    make_pool: Callable[[], WorkerPool] = Threads,
    transport: Transport = TLS,
    clock: Clock | None = None,
    approvals: int = 0,
) -> AsyncIterator[InProcess]:
    """A deployment over real TLS, unless there is another transport.

    Args:
        more: lines at the end of the deployment file.
        approvals: how many organisations have to approve of what the operator does.
        settings_of: the lines of a service's settings file.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # for each key; the machine does not go down
        deployment = make_deployment(directory, "local", hops)
    for name in deployment.chain:
        (directory / name / SETTINGS_FILE).write_text(settings_of(name), encoding="utf-8")
    if approvals or more:
        file = directory / DEPLOYMENT_FILE
        text = file.read_text(encoding="utf-8").replace("approvals = 0", f"approvals = {approvals}")
        for name in deployment.chain if approvals else ():
            text = text.replace(f'name = "{name}"', f'name = "{name}"\norganisation = "Org {name}"')
        file.write_text(text + more, encoding="utf-8")
        sign_again(directory)
    inside = InProcess(directory, transport, make_pool, clock or SystemClock())
    await inside.start(*deployment.chain)
    try:
        yield inside
    finally:
        await inside.stop(*list(inside.running))


def in_memory(directory: Path, hops: int, more: str = "", **how: Any) -> AbstractAsyncContextManager[InProcess]:
    """A deployment without sockets, and in virtual time where the test's loop has it; see `in_process`."""
    virtual = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    clock = VirtualClock() if virtual else SystemClock()
    return in_process(directory, hops, more, transport=Network().transport, **{"clock": clock} | how)
