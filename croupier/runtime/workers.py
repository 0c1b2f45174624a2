"""A pool of processes for the cryptography, which holds the interpreter lock.

Work is a plain function of a chunk of bytes and picklable arguments (raw keys, labels). Workers are started afresh
(never forked from a process that runs gRPC) and warmed when the pool is made. They end when the service is gone,
however it ended, and a pool that lost a worker (out of memory, killed) is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from croupier.net.shares import FairQueue, current_call
from croupier.runtime.core_files import forbid_core_files

T = TypeVar("T")
_CHUNK = 500
_NICE = 5
"""The process that hands out the work has priority on few cores, because everybody waits while it waits."""
_log = logging.getLogger(__name__)


def _start_worker(preload_module: str) -> None:
    forbid_core_files()
    # The service decides when to stop; a Ctrl-C in the terminal must not break a mix half-way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(_NICE)
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    importlib.import_module(preload_module)  # now, so that the first chunk does not pay for it
    collect_rarely()


def collect_rarely() -> None:
    """Makes the garbage collector ignore present objects, above all imported code, and run less often.

    Objects of a report are freed without it. Called once a process has started.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _end_with_the_service() -> None:
    """Ends a worker with its service, which cannot tell its workers if it is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(0)


def _timed(work: Callable[..., T], args: tuple[Any, ...]) -> tuple[T, float]:
    started = time.process_time()
    return work(*args), time.process_time() - started


class WorkerPool:
    """Runs work on chunks in parallel and adds up the CPU seconds that it cost."""

    def __init__(
        self,
        processes: int | None = None,
        executor: Executor | None = None,
        preload_module: str = "croupier.protocol.envelope",
    ) -> None:
        """Starts the workers.

        Args:
            processes: their number; by default one a core.
            executor: runs the work instead of our own processes; closed with the pool.
            preload_module: the module of their work, which workers import when they start.
        """
        self._room = preload_module
        self.processes = processes or os.cpu_count() or 1
        if self.processes < 1:
            raise ValueError(f"processes is {processes}; at least 1 is needed")
        # One job beside those under way keeps a worker from waiting for the next. Executors of others take any number.
        self._free = self.processes + 1 if executor is None else None
        self._waiting = FairQueue[asyncio.Future[None]]()
        self._executor = executor or self._make()

    def _make(self) -> Executor:
        return ProcessPoolExecutor(
            self.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self._room,),
        )

    async def warm(self) -> None:
        """Waits until every worker has started."""
        await asyncio.gather(*(self.run(time.sleep, 0.05) for _ in range(self.processes)))

    async def run(self, work: Callable[..., T], *args: Any) -> tuple[T, float]:
        """Returns the result of one job and its CPU seconds; a caller that is cancelled leaves the work to its end.

        While all workers are busy, jobs are taken up from rounds and clients in turn, and among clients from each
        network and each caller in turn. A client's call that waits can be turned away (see `Call`).
        """
        await self._turn()
        executor = self._executor
        try:
            return await self._submit(executor, work, args)
        except BrokenProcessPool:  # work is pure, so it can be done again
            if self._executor is executor:
                _log.exception("a worker process died; new ones are started")
                self._executor = self._make()
            await self._turn()
            return await self._submit(self._executor, work, args)

    async def _turn(self) -> None:
        """Waits until one of the executor's places is free, and takes it."""
        if self._free is None:
            return
        if self._free:
            self._free -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = current_call()
        try:
            if call is None or call.pinned:
                self._waiting.put(("rounds",), mine)
                await mine
            else:
                self._waiting.put(("clients", *call.caller), mine)
                await call.wait_for(mine, None, "")
        except BaseException:
            if mine.done() and not mine.cancelled():  # it had just become this job's turn
                self._give_turn()
            raise

    def _give_turn(self, _: object = None) -> None:
        """Returns a place: to the next waiting job, if there is one."""
        while self._waiting:
            waiting = self._waiting.take()
            if not waiting.done():
                waiting.set_result(None)
                return
        if self._free is not None:
            self._free += 1

    async def _submit(self, executor: Executor, work: Callable[..., T], args: tuple[Any, ...]) -> tuple[T, float]:
        """Runs a job in the place that it has taken, and gives the place back when the job ends."""
        try:
            job = asyncio.get_running_loop().run_in_executor(executor, _timed, work, args)
        except BaseException:
            self._give_turn()
            raise
        job.add_done_callback(self._give_turn)
        # Shielded: a future of a pool that is cancelled just when a worker dies ends the thread that answers for all.
        return await asyncio.shield(job)

    async def map_chunks(
        self, work: Callable[[list[Any]], Sequence[T]], items: Sequence[Any], chunk: int = _CHUNK
    ) -> tuple[list[T], float]:
        """Returns the results in the order of the items, and the CPU seconds of all workers together."""
        jobs = [self.run(work, list(items[start : start + chunk])) for start in range(0, len(items), chunk)]
        results: list[T] = []
        cpu_s = 0.0
        for part, seconds in await asyncio.gather(*jobs):
            results.extend(part)
            cpu_s += seconds
        return results, cpu_s

    def close(self) -> None:
        """Ends the workers after the chunks under way."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def peak_memory_bytes() -> int:
    """Returns the largest resident memory of this process and its workers, each at its own peak (Linux; else 0)."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid)]
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        peaks = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        total += sum(peaks) * 1024
    return total
