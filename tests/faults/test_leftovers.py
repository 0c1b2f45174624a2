"""What schedules and services leave behind: nothing. And what a schedule that fails leaves for its reader."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc.aio
import pytest

from croupier.deploy.node.serve import RunningService
from croupier.operator.keys import make_deployment
from croupier.runtime import round_engine
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction
from croupier.runtime.workers import WorkerPool
from tests.faults.faulty_store import Trap
from tests.faults.footprint import Ceiling, footprint
from tests.faults.oracle import Violation
from tests.faults.running import SEED_VARIABLE, deployed, own_hosts, play_in, run_in_process
from tests.faults.schedules import Close, Fault, Kill, LinkFault, Restart, Schedule, Submit
from tests.faults.worlds import InProcessWorld
from tests.support.messages import naming

# Everything that starts and ends: services killed, stopped and dead at a commit; links cut; callers who hang up.
EVENTFUL = Schedule(
    hops=2,
    opening=(Fault("accountant", StoreStep.FIND_ROUND_TO_OPEN, "kill before"),),
    steps=(
        Submit(3, 5),
        Kill("shuffler-1", 1),
        Submit(2),
        Restart("shuffler-2"),
        LinkFault(("shuffler-1", "shuffler-2"), "cut"),
        Close(),
        LinkFault(("shuffler-1", "shuffler-2"), "open"),
        Restart("analyzer"),
    ),
)
QUIET = Schedule(hops=2, steps=(Submit(2),))


def _running() -> list[object]:
    """Every service, store, pool, server and channel that this process still holds."""
    kinds = (RunningService, Store, WorkerPool, InProcessWorld, grpc.aio.Server, grpc.aio.Channel)
    # Not isinstance: some modules' objects answer for their class with a warning.
    return [held for held in gc.get_objects() if issubclass(type(held), kinds)]


@pytest.mark.slow
def test_schedules_leave_no_descriptor_thread_service_or_memory_behind() -> None:
    """Each left 7 MB behind: the loop kept the world, and gRPC keeps every loop while a server is alive."""
    earlier = _running()  # objects of tests that ran before in this process
    ceiling = Ceiling(warm_up=2)
    for number in range(8):
        run_in_process(EVENTFUL if number % 2 else QUIET)
        if number == 1:
            before = footprint()
        ceiling.one_more()
    ceiling.check()
    assert footprint().threads <= before.threads
    assert [type(kept).__name__ for kept in _running() if not any(kept is known for known in earlier)] == []


class _Telling(WorkerPool):
    """Tells when it is closed, which is when the store is closed next."""

    def __init__(self, closed: threading.Event) -> None:
        super().__init__(1, ThreadPoolExecutor(1))
        self._closed = closed

    def close(self) -> None:
        super().close()
        self._closed.set()


# A connection that a dying service was closing ends with its process, which here goes on.
@pytest.mark.filterwarnings("ignore:unclosed (transport|<socket):ResourceWarning")
def test_a_service_that_dies_while_it_stops_closes_its_files_once(tmp_path: Path) -> None:
    """It closed its lock twice, and by then the number could be that of another open file."""
    begun, closing_now = threading.Event(), threading.Event()

    def last_words(_: Transaction) -> None:
        begun.set()
        closing_now.wait()

    async def main(world: InProcessWorld) -> None:
        await world.build()
        life = world._lives["analyzer"]
        assert life.running is not None
        store, life.running.pool = life.running.store, _Telling(closing_now)
        world.order("analyzer", trap=Trap(1, "look", "kill before", 1))
        unfinished = asyncio.create_task(store.run("look", last_words))
        await asyncio.to_thread(begun.wait)  # what has not begun when the store closes never does
        await world.stop("analyzer")
        assert world.down == {"analyzer"}
        assert not unfinished.done()
        await world.start("analyzer")
        await world.close()

    world = InProcessWorld(deployed(own_hosts(1)), tmp_path)
    asyncio.run(main(world))
    gc.collect()
    assert world.complaints() == []


async def test_a_service_whose_port_is_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    deployment = make_deployment(tmp_path, "local", 1)
    host, _, port = deployment.analyzer.address.rpartition(":")
    ceiling = Ceiling(warm_up=1)
    with closing(socket.create_server((host, int(port)))):
        for _ in range(3):  # the second would meet the lock of the first
            with pytest.raises(ValueError, match=naming("port")):
                RunningService("analyzer", tmp_path, workers=1)
            ceiling.one_more()
    ceiling.check()
    running = RunningService("analyzer", tmp_path, workers=1)
    await running.start()
    await running.stop()


async def _fails() -> None:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _lose_a_task() -> None:
    asyncio.get_running_loop().create_task(_fails())


def _log_an_error() -> None:
    logging.getLogger(round_engine.__name__).error("this should never happen")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        (_lose_a_task, ["Task exception was never retrieved", "coro=<_fails()", "Bad file descriptor", "in _fails"]),
        (_log_an_error, [f"{round_engine.__name__}: this should never happen"]),
    ],
)
def test_a_schedule_that_fails_says_what_a_person_needs(
    what: Callable[[], None], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless(InProcessWorld):
        """Its last act, after the oracle has found nothing wrong, is something that no service may do."""

        async def close(self) -> None:
            what()
            await asyncio.sleep(0)
            await super().close()

    monkeypatch.setenv(SEED_VARIABLE, "976489200")
    with pytest.raises(Violation) as failed:
        play_in(Careless(deployed(own_hosts(2)), tmp_path), QUIET)
    (note,) = failed.value.__notes__
    for part in (*words, SEED_VARIABLE + "=976489200", f"run_in_process({QUIET!r})"):
        assert part in note
    for name in ("shuffler-1", "shuffler-2", "accountant", "analyzer"):
        assert f"{name} INFO {round_engine.__name__}: the round is OPEN" in note
