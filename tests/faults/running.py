"""Runs a schedule from start to end in the world of this process, or in that of real processes."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from unittest import mock

from deploy.operator.keys import make_deployment
from runtime import delivery
from tests.faults.faulty_store import SMALL_CHUNK_BYTES
from tests.faults.play import play
from tests.faults.processes import ProcessWorld
from tests.faults.schedules import Schedule
from tests.faults.worlds import InProcessWorld, World

__all__ = ["Testimony", "run_as_processes", "run_in_process"]


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
    places = [*hosts, hosts[-1], hosts[-1], hosts[0], hosts[-1]]
    addresses = [f"{host}:{_FIRST_PORT + 50 * len(hosts) + number}" for number, host in enumerate(places)]
    make_deployment(directory, "local", len(hosts), addresses)
    return directory


def own_hosts(hops: int) -> tuple[str, ...]:
    """Returns a loopback address that no other process uses (Linux has 2^24 of them), for every hop the same.

    Services come back to the same port again and again; on 127.0.0.1 somebody's outgoing connection may sit there.
    """
    pid = os.getpid()
    return (f"127.{1 + (pid >> 16) % 127}.{(pid >> 8) % 256}.{pid % 256}",) * hops


async def _run(world: World, schedule: Schedule) -> Testimony:
    try:
        await world.build()
        await play(world, schedule)
        return world.testimony()
    except Exception as error:
        error.add_note("\n".join([*world.complaints(), f"the schedule: {schedule!r}"]))
        raise
    finally:
        await world.close()


def run_in_process(schedule: Schedule) -> Testimony:
    """Plays a schedule with all services in this process, and returns what their stores have seen.

    Raises:
        Violation: a promise was broken; a note says by which schedule.
    """

    async def main(root: Path) -> Testimony:
        return await _run(InProcessWorld(deployed(own_hosts(schedule.hops)), root), schedule)

    with (
        tempfile.TemporaryDirectory(prefix="croupier-") as root,
        mock.patch.object(delivery, "_CHUNK_BYTES", SMALL_CHUNK_BYTES),
    ):
        return asyncio.run(main(Path(root)))


def run_as_processes(schedule: Schedule, hosts: tuple[str, ...] = ()) -> Testimony:
    """The same with every service in a process of its own, on loopback addresses that may be given."""

    async def main(root: Path) -> Testimony:
        return await _run(ProcessWorld(deployed(hosts or own_hosts(schedule.hops)), root), schedule)

    with tempfile.TemporaryDirectory(prefix="croupier-") as root:
        return asyncio.run(main(Path(root)))
