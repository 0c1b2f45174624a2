"""The worker pool: results in order, errors that travel, and workers that do not outlive their service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.workers import WorkerPool

_SERVICE = """
import asyncio, os, signal
from protocol.workers import WorkerPool
async def main():
    pool = WorkerPool(2)
    await pool.warm()
    print(*{(await pool.run(os.getpid))[0] for _ in range(50)}, flush=True)
    signal.pause()
if __name__ == "__main__":
    asyncio.run(main())
"""


def reverse(part: list[int]) -> list[int]:
    return [-item for item in part]


@pytest.mark.asyncio
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


def alive(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_workers_end_with_a_service_that_is_killed(tmp_path: Path) -> None:
    """Once they stayed for ever, with the private key of a round in their memory."""
    program = tmp_path / "service.py"  # workers import it, so it must be a file
    program.write_text(_SERVICE)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        workers = [int(pid) for pid in service.stdout.readline().split()]
        assert workers
        assert all(alive(pid) for pid in workers)
        os.kill(service.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker has outlived its service"
        time.sleep(0.05)
