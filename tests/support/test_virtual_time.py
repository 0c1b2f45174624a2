"""The clock of `virtual_time`: it jumps over waiting, stands still while threads work, tells when nothing will come."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.virtual_time import NothingHappensError, VirtualClock, VirtualTimeLoop, virtual_loop

pytestmark = pytest.mark.virtual_time


async def test_waiting_takes_no_time_and_keeps_its_order() -> None:
    started, order = time.monotonic(), list[int]()

    async def after(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    clock = VirtualClock()
    before = clock.now()
    await asyncio.gather(*(after(seconds) for seconds in (3000, 1000, 2000)))
    assert order == [1000, 2000, 3000]
    assert clock.now() - before == pytest.approx(3000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 1000)
    assert time.monotonic() - started < 1000


async def test_the_clock_stands_still_while_a_thread_works() -> None:
    loop, released = virtual_loop(), False

    def work() -> float:
        nonlocal released
        while not released:  # no timer may let the main thread go on without this one
            loop.call_soon_threadsafe(release)
            time.sleep(0)
        return loop.time()

    def release() -> None:
        nonlocal released
        released = True

    with ThreadPoolExecutor(1) as pool:
        before = loop.time()
        assert await asyncio.wait_for(loop.run_in_executor(pool, work), 1e-6) == before
        assert await asyncio.wait_for(asyncio.to_thread(work), 1e-6) == before
        await loop.run_in_executor(pool, loop.sleep_in_thread, 50.0)
        assert loop.time() - before >= 50


def test_a_test_that_waits_for_nothing_is_told_what_it_waits_for() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def waits_again_and_again() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(3600)

    for hopeless in (waits_for_ever, waits_again_and_again):
        loop = VirtualTimeLoop()
        task = loop.create_task(hopeless())
        with pytest.raises(NothingHappensError, match=hopeless.__name__):
            loop.run_until_complete(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
