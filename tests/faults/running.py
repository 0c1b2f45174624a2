"""Runs a schedule from start to end in the world of this process, or in that of real processes."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from unittest import mock

from croupier.operator.keys import make_deployment
from croupier.protocol.names import StorageKey
from croupier.runtime import lane_sender
from croupier.runtime.rows import chunks
from croupier.runtime.store import Store
from croupier.shuffler import fake_reports
from tests.faults.faulty_store import SMALL_CHUNK_BYTES, SMALL_PIECE_BYTES
from tests.faults.oracle import Violation
from tests.faults.play import Game, play
from tests.faults.processes import ProcessWorld
from tests.faults.schedules import Schedule
from tests.faults.sequential import SequentialGame
from tests.faults.worlds import InMemoryWorld, InProcessWorld, World
from tests.support.virtual_time import VirtualTimeLoop

SEED_VARIABLE = "CROUPIER_FAULT_SEED"
# Below the range from which the kernel takes ports for others, and apart from other runs on this machine.
_FIRST_PORT = 20000 + os.getpid() % 50 * 200
Testimony = Mapping[str, Iterable[str]]


@lru_cache
def deployed(hosts: tuple[str, ...]) -> Path:
    """Returns a directory with the keys of a deployment with a hop on every host; the same one in all of this process.

    The hosts are loopback addresses, the last one has accountant and analyzer as well.
    """
    root = tempfile.mkdtemp(prefix="croupier-")
    atexit.register(shutil.rmtree, root)
    directory = Path(root) / "deployment"
    places = [*hosts, hosts[-1], hosts[-1], hosts[0], hosts[-1], hosts[-1]]
    addresses = [f"{host}:{_FIRST_PORT + 50 * len(hosts) + number}" for number, host in enumerate(places)]
    chain = make_deployment(directory, "local", len(hosts), addresses).chain
    for name in chain:  # the tables, made once: half of what a service's start costs
        Store(f"sqlite:///{directory / name / 'rounds.db'}", StorageKey(bytes(32))).close()
    return directory


def own_hosts(hops: int) -> tuple[str, ...]:
    """Returns a loopback address that no other process uses (Linux has 2^24 of them), for every hop the same.

    Services come back to the same port again and again; on 127.0.0.1 an outgoing connection may hold it.
    """
    pid = os.getpid()
    return (f"127.{1 + (pid >> 16) % 127}.{(pid >> 8) % 256}.{pid % 256}",) * hops


def play_in(world: World, schedule: Schedule) -> Testimony:
    """Plays the schedule in a new event loop.

    Whatever it has left behind is collected at its end, so that a task whose exception was not retrieved is this
    schedule's failure and not the next one's.
    """

    async def main() -> Testimony:
        try:
            await world.build()
            await play(world, schedule, SequentialGame if schedule.sequential else Game)
            return world.testimony()
        finally:
            await world.close()

    virtual = isinstance(world, InMemoryWorld)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop if virtual else None) as runner:
            testimony = runner.run(main())
        gc.collect()
        if world.complaints():
            raise Violation("a service failed; see the notes")
    except Exception as error:
        error.add_note(_report(world, schedule))
        raise
    return testimony


def _report(world: World, schedule: Schedule) -> str:
    """Returns what a person needs who looks into a schedule that has failed."""
    drawn = os.environ.get(SEED_VARIABLE)
    return "\n".join(
        [
            "What the services and tasks complained about:",
            *world.complaints(),
            "The ends of the services' logs:",
            *world.log(),
            f"Drawn with {SEED_VARIABLE}={drawn}." if drawn else "One of those that are always the same.",
            "To play it again: from tests.faults.running import *; from tests.faults.schedules import *",
            f"{world.played_by}({schedule!r})",
        ]
    )


@contextmanager
def _made_small() -> Iterator[str]:
    """Small chunks and pages, and as many fakes of each letter from every hop; yields a new directory."""
    with (
        tempfile.TemporaryDirectory(prefix="croupier-") as root,
        mock.patch.object(lane_sender, "CHUNK_BYTES", SMALL_CHUNK_BYTES),
        mock.patch.object(chunks, "SHREDDED_BYTES", SMALL_PIECE_BYTES),
        mock.patch.object(fake_reports, "draw_fakes", lambda law: [law.radius] * law.num_values),
    ):
        yield root


def run_in_memory(schedule: Schedule) -> Testimony:
    """Plays a schedule with all services in this process, and returns what their stores have seen.

    There are no sockets, and no time is spent on waiting.

    Raises:
        Violation: a promise was broken; a note says by which schedule, and what the services logged.
    """
    with _made_small() as root:
        return play_in(InMemoryWorld(deployed(own_hosts(schedule.hops)), Path(root)), schedule)


def run_in_process(schedule: Schedule) -> Testimony:
    """Runs a schedule in this process, over TLS and in real time."""
    with _made_small() as root:
        return play_in(InProcessWorld(deployed(own_hosts(schedule.hops)), Path(root)), schedule)


def run_as_processes(schedule: Schedule, hosts: tuple[str, ...] = ()) -> Testimony:
    """Runs a schedule with every service in a process of its own, on loopback addresses that may be given."""
    with tempfile.TemporaryDirectory(prefix="croupier-") as root:
        return play_in(ProcessWorld(deployed(hosts or own_hosts(schedule.hops)), Path(root)), schedule)
