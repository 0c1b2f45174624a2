"""A deployment in which everything can be made to fail, inside this process; `processes` has the one of real processes.

It is there twice: with real servers over TLS and real time, and in memory, where no time is spent on waiting.

Every service has a site of its own: its directory, and its own copy of the deployment file, in which the addresses of
those that it calls are those of links (`tests.faults.links`). Operator and oracle call the services directly.

A service that is killed here stops in the middle: its store refuses everything, its code never goes on, its server and
channels are dropped, and what it left on the disk is copied before SQLite can tidy it up. That copy is what the next
one starts from.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import logging
import shutil
import traceback
from collections.abc import Iterable
from contextlib import ExitStack
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from croupier.deploy.node.serve import RunningService
from croupier.deploy.version_files import write_deployment
from croupier.net.transport import TLS, Transport
from croupier.operator import rotation
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment, ServiceEntry, load_deployment
from croupier.runtime.clock import Clock, SystemClock
from tests.faults.faulty_store import FaultyStore, Killed, Orders, ShiftedClock, bury_the_frozen
from tests.faults.links import Link
from tests.faults.listener import SERVICE, Listener, LogTail, listening
from tests.faults.schedules import CLIENTS, links
from tests.support import Threads, opened_fast, probe_every_s, sign_again
from tests.support.in_memory import MemoryLink, Network
from tests.support.virtual_time import VirtualClock

_log = logging.getLogger(__name__)
_DATABASE = ("rounds.db", "rounds.db-wal")
_START_TRIES = 50
_NOTICED_S = 2.0  # a service looks every half second, and again


class World(abc.ABC):
    """Sites, links, and what is ordered for which service; how a service lives and dies is the subclass's."""

    played_by: str
    """The function in `running` that plays a schedule in such a world."""
    bound_s = 60.0
    """Within which a healed deployment has to publish, also on a machine that does other work."""

    def __init__(self, deployed: Path, root: Path) -> None:
        """deployed: a directory as `make_deployment` leaves it; it stays as it is."""
        self.directory = deployed
        self.root = root
        self.deployment: Deployment = load_deployment(deployed / DEPLOYMENT_FILE)
        self.orders: dict[str, Orders] = {}
        self.started: set[str] = set()
        self.down: set[str] = set()
        self.links: dict[tuple[str, str], Link | MemoryLink] = {}
        self.transport: Transport = TLS
        self.clock: Clock = SystemClock()

    async def link_to(self, target: str) -> Link | MemoryLink:
        """Returns a new link to an address."""
        link = Link(target)
        await link.start(target.rpartition(":")[0])
        return link

    def site(self, name: str) -> Path:
        return self.root / name

    @property
    def desk(self) -> Path:
        """The operator's directory, with the deployment file as everybody has it."""
        return self.root / "desk"

    async def build(self) -> None:
        """Makes links and sites, and starts every service."""
        shutil.copytree(self.directory / OPERATOR, self.desk / OPERATOR)
        shutil.copy(self.directory / DEPLOYMENT_FILE, self.desk)
        entries = {entry.name: entry for entry in self.deployment.services}
        for caller, callee in links(len(self.deployment.shufflers)):
            entry = entries[callee]
            target = entry.public_address or entry.address if caller == CLIENTS else entry.address
            self.links[caller, callee] = await self.link_to(target)
        for name in entries:
            site = self.site(name)
            shutil.copytree(self.directory / name, site / name)
            text = (self.directory / DEPLOYMENT_FILE).read_text()
            for (caller, callee), link in self.links.items():
                if caller == name:
                    text = text.replace(f'"{entries[callee].address}"', f'"{link.address}"')
            (site / DEPLOYMENT_FILE).write_text(text)
            sign_again(site, self.directory)
        await asyncio.gather(*(self.start(name) for name in entries))

    def entrance(self, entry: ServiceEntry) -> ServiceEntry:
        """Returns a service as clients reach it."""
        return entry.model_copy(update={"public_address": self.links[CLIENTS, entry.name].address})

    async def rotate(self, name: str) -> None:
        """Changes the keys of a service as its operator does: pending everywhere first, and then in use."""
        for step in (rotation.rotate, rotation.activate):
            rotated = step(self.site(name), name).service(name)
            changed = {field: value for field, value in rotated if field not in ("address", "public_address")}
            sites = [self.site(other) for other in self.deployment.chain]
            for directory in (self.desk, *sites):
                deployment = load_deployment(directory / DEPLOYMENT_FILE)
                entries = (
                    service.model_copy(update=changed if service.name == name else {})
                    for service in deployment.services
                )
                write_deployment(directory, deployment.model_copy(update={"services": tuple(entries)}))
                sign_again(directory, *sites)
            self.deployment = load_deployment(self.desk / DEPLOYMENT_FILE)
            # A client that trusts the new keys alone would be told at once of the old ones.
            await asyncio.sleep(_NOTICED_S)

    def order(self, name: str, **changes: Any) -> None:
        """Changes what is ordered for a service."""
        self.orders[name] = dataclasses.replace(self.orders.get(name, Orders()), **changes)

    def files(self) -> dict[str, bytes]:
        """Returns the content of every file that the services' databases consist of."""
        paths = [path for name in self.deployment.chain for path in (self.site(name) / name).glob("rounds.db*")]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    @abc.abstractmethod
    def testimony(self) -> dict[str, Iterable[str]]:
        """Returns what the witnesses of every service have noted."""

    @abc.abstractmethod
    def complaints(self) -> list[str]:
        """Returns every error that should never happen in a service, whatever the faults."""

    @abc.abstractmethod
    def log(self) -> list[str]:
        """Returns the last lines that the services have logged."""

    @abc.abstractmethod
    async def start(self, name: str) -> None:
        """Starts a service that is down; it may die again at once."""

    @abc.abstractmethod
    async def kill(self, name: str) -> None: ...

    @abc.abstractmethod
    async def stop(self, name: str) -> None:
        """Stops a service gracefully."""

    @abc.abstractmethod
    async def settle(self) -> None:
        """Notices who has died, and waits until they are gone."""

    async def close(self) -> None:
        for name in self.started - self.down:
            await self.kill(name)
        for link in self.links.values():
            await link.close()


class _Life:
    """One service from its start to its death."""

    def __init__(self, world: InProcessWorld, name: str) -> None:
        self.name = name
        self.dead = asyncio.Event()
        self.running: RunningService | None = None
        self._world = world
        self._loop = asyncio.get_running_loop()
        self.is_dead = False  # read by the store's thread

    def die(self) -> NoReturn:
        """What the store calls instead of SIGKILL, in its thread."""
        self.is_dead = True
        self._loop.call_soon_threadsafe(self._world.mourn, self)
        raise Killed

    def orders(self) -> Orders:
        """Returns what is ordered; asked before a transaction and before its commit."""
        if self.is_dead:
            raise Killed
        return self.ordered()

    def ordered(self) -> Orders:
        return self._world.orders.get(self.name, Orders())


class InProcessWorld(World):
    """All services in this process and event loop, with their real stores, servers, channels and TLS."""

    played_by = "run_in_process"

    def __init__(self, deployed: Path, root: Path) -> None:
        super().__init__(deployed, root)
        self._lives: dict[str, _Life] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._testimony: dict[str, list[str]] = {name: [] for name in self.deployment.chain}
        self._complaints: list[str] = []
        self._log = LogTail()
        self._listening = ExitStack()

    async def build(self) -> None:
        self._listening.enter_context(listening(Listener(self._complaints.append), self._log))
        # gRPC may keep this loop for as long as the process lives. The loop must keep no service.
        asyncio.get_running_loop().set_exception_handler(partial(_note_exception, self._complaints))
        await super().build()

    def testimony(self) -> dict[str, Iterable[str]]:
        return dict(self._testimony)

    def complaints(self) -> list[str]:
        return self._complaints

    def log(self) -> list[str]:
        return list(self._log.lines)

    async def start(self, name: str) -> None:
        for _ in range(_START_TRIES):
            life = _Life(self, name)
            store = partial(_open_store, orders=life.orders, die=life.die, witness=self._testimony[name].append)
            clock = ShiftedClock(life.ordered, self.clock)
            try:
                life.running = RunningService(
                    name,
                    self.site(name),
                    clock=clock,
                    pool=Threads(),
                    open_store=store,
                    transport=self.transport,
                    probe_every_s=probe_every_s(),
                )
            except RuntimeError:  # the port is not free yet
                await asyncio.sleep(0.02)
                continue
            self._lives[name] = life
            self.started.add(name)
            self.down.discard(name)
            starting = asyncio.create_task(life.running.start(), context=_context_of(name))
            dying = asyncio.create_task(life.dead.wait())
            await asyncio.wait([starting, dying], return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if life.is_dead:
                starting.cancel()
                return
            if starting.exception() is None:
                return
            _log.warning("%s did not start", name, exc_info=starting.exception())
            await self.kill(name)  # a process would have ended with this error, and its supervisor starts another
        raise RuntimeError(f"{name} does not start")

    def mourn(self, life: _Life) -> None:
        """Called in the event loop when a service has died."""
        if not life.dead.is_set():
            life.is_dead = True
            life.dead.set()
            self.down.add(life.name)
            self.order(life.name, trap=None)
            burial = asyncio.create_task(self._bury(life))
            self._burials.add(burial)
            burial.add_done_callback(self._burials.discard)

    async def _bury(self, life: _Life) -> None:
        running = life.running
        if running is None:
            return
        store = running.store
        assert isinstance(store, FaultyStore)
        store._thread.shutdown(wait=True)
        home, image = self.site(life.name) / life.name, self.site(life.name) / "image"
        image.mkdir()
        with store.files:  # it may be stopping
            for file in _DATABASE:
                if (home / file).exists():
                    shutil.copyfile(home / file, image / file)
        await running._server.stop(None)
        await running.service.stop()
        running.pool.close()
        store.close()
        for path in home.glob("rounds.db*"):
            path.unlink()
        for path in image.iterdir():
            path.rename(home / path.name)
        image.rmdir()

    async def kill(self, name: str) -> None:
        self.mourn(self._lives[name])
        await self.settle()

    async def stop(self, name: str) -> None:
        life = self._lives[name]
        if life.running is not None and not life.is_dead:
            stopping = asyncio.create_task(life.running.stop())
            dying = asyncio.create_task(life.dead.wait())
            await asyncio.wait([stopping, dying], return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if not life.is_dead:
                stopping.result()
                self.down.add(name)
                return
            stopping.cancel()
        await self.settle()

    async def settle(self) -> None:
        await asyncio.sleep(0)
        while self._burials:
            await asyncio.gather(*self._burials)

    async def close(self) -> None:
        with self._listening:
            await super().close()
            bury_the_frozen()
            self._lives.clear()


def _open_store(url: str, wrapping_key: bytes, **how: Any) -> FaultyStore:
    """What a killed process has written is the kernel's: it is copied here, and no disk is waited for."""
    return opened_fast(url, lambda: FaultyStore(url, wrapping_key, **how))


class InMemoryWorld(InProcessWorld):
    """An `InProcessWorld` without sockets, in a `VirtualTimeLoop`."""

    played_by = "run_in_memory"
    bound_s = 10.0  # of virtual time

    async def build(self) -> None:
        self._network = Network()
        self.transport, self.clock = self._network.transport, VirtualClock()
        await super().build()

    async def link_to(self, target: str) -> MemoryLink:
        """Returns a new link to an address."""
        return self._network.link_to(target)


def _context_of(service: str) -> Context:
    context = copy_context()
    context.run(SERVICE.set, service)
    return context


def _note_exception(complaints: list[str], _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, Killed):
        return
    complaints.append(f"{context['message']} in {context.get('task') or context.get('future')}: {error!r}")
    if error is not None:
        complaints.append("".join(traceback.format_exception(error)))
