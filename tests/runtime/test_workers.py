"""Worker processes: they end with their service, and one that dies takes nothing with it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from croupier.net.shares import Call, caller_at, serving
from croupier.protocol.errors import Code, Refusal
from croupier.runtime.workers import WorkerPool

_PROGRAM = """
import asyncio, os, time
from croupier.runtime.workers import WorkerPool

async def main():
    pool = WorkerPool(2)
    await pool.warm()
    print(*{(await pool.run(os.getpid))[0] for _ in range(50)}, flush=True)
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


def reverse(part: list[int]) -> list[int]:
    return [-item for item in part]


async def test_results_come_in_the_order_of_the_items_and_errors_travel() -> None:
    pool = WorkerPool(2)
    results, cpu_s = await pool.map_chunks(reverse, range(1000), chunk=7)
    assert results == [-item for item in range(1000)]
    assert cpu_s >= 0
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 1, 0)
    assert (await pool.run(divmod, 7, 2))[0] == (3, 1)
    pool.close()
    with pytest.raises(ValueError, match="processes is -1"):
        WorkerPool(-1)


def is_imported(module: str) -> bool:
    return module in sys.modules


async def test_workers_have_imported_their_room_before_their_first_job() -> None:
    """Reproduction: each of eight imported for .1 s in the first round of a deployment."""
    for room, imported in (("croupier.protocol.envelope", False), ("colorsys", True)):
        with closing(WorkerPool(1, preload_module=room)) as pool:
            assert (await pool.run(is_imported, "colorsys"))[0] is imported


async def test_a_service_waits_for_its_loops_and_not_for_its_workers() -> None:
    with closing(WorkerPool(1)) as pool:
        nice, _ = await pool.run(os.nice, 0)
    assert nice == min(19, os.nice(0) + 5)


def alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def test_imported_code_is_no_garbage_to_look_for() -> None:
    with closing(WorkerPool(1)) as pool:
        frozen, _ = await pool.run(gc.get_freeze_count)
        left, _ = await pool.run(gc.get_count)
    assert frozen > 10_000
    assert sum(left) < 10_000


def test_workers_end_when_their_service_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        workers = [int(pid) for pid in service.stdout.readline().split()]
        assert workers
        assert all(alive(pid) for pid in workers)
        service.kill()
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


async def test_a_pool_that_lost_a_worker_goes_on() -> None:
    with closing(WorkerPool(1)) as pool:
        victim, _ = await pool.run(os.getpid)
        os.kill(victim, signal.SIGKILL)
        results, _ = await pool.map_chunks(sorted, [3, 2, 1], chunk=1)
        assert results == [3, 2, 1]
        assert (await pool.run(os.getpid))[0] != victim


def until_there(file: Path) -> int:
    while not file.exists():
        time.sleep(0.01)
    return 7


async def test_a_caller_that_gave_up_before_a_worker_died_takes_no_others_along(tmp_path: Path) -> None:
    """The thread that hears of a dead worker fell over a cancelled call, and the others waited for ever."""
    with closing(WorkerPool(1)) as pool:
        victim, _ = await pool.run(os.getpid)
        calls = [asyncio.ensure_future(pool.run(until_there, tmp_path / "there")) for _ in range(6)]
        await asyncio.sleep(0)  # they are with the pool now, the last of them in its queue
        calls[3].cancel()
        await asyncio.gather(calls[3], return_exceptions=True)
        (tmp_path / "there").touch()
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*calls[:3], *calls[4:])
        assert [answer for answer, _ in answers] == [7] * 5


async def job_of(pool: WorkerPool, call: Call, done: list[Call]) -> None:
    with serving(call):
        await pool.run(divmod, 7, 2)
    done.append(call)


async def test_a_caller_with_much_work_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """One address with forged signatures had all others wait for 5 s: work was done in the order in which it came."""
    done = list[Call]()
    with closing(WorkerPool(1)) as pool:
        under_way = [asyncio.ensure_future(pool.run(until_there, tmp_path / "there")) for _ in range(2)]
        stranger = [Call(caller_at("192.0.2.66"), pinned=False) for _ in range(20)]
        neighbours = [Call(caller_at(f"2001:db8::{number:x}:0:0:0:1"), pinned=False) for number in range(20)]
        client, peer = Call(caller_at("198.51.100.1"), pinned=False), Call(("shuffler-2",), pinned=True)
        jobs = [
            asyncio.ensure_future(job_of(pool, client_of_job, done))
            for client_of_job in (*stranger, *neighbours, client, peer)
        ]
        await asyncio.sleep(0)  # all of them wait now
        (tmp_path / "there").touch()
        await asyncio.gather(*under_way, *jobs)
        assert done.index(peer) < 4
        assert done.index(client) < 8
        assert len(done) == 42


async def test_a_call_that_waits_for_a_worker_can_be_turned_away(tmp_path: Path) -> None:
    done = list[Call]()
    with closing(WorkerPool(1)) as pool:
        under_way = [asyncio.ensure_future(pool.run(until_there, tmp_path / "there")) for _ in range(2)]
        calls = [Call(caller_at("192.0.2.66"), pinned=False) for _ in range(3)]
        jobs = [asyncio.ensure_future(job_of(pool, call, done)) for call in calls]
        await asyncio.sleep(0)
        assert [call.can_go for call in calls] == [True] * 3
        calls[0].turn_away()
        with pytest.raises(Refusal, match=Code.OVERLOADED.message):
            await jobs[0]
        (tmp_path / "there").touch()
        await asyncio.gather(*under_way, *jobs[1:])
        assert done == calls[1:]
        assert not any(call.can_go for call in calls)
