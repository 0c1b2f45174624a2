"""An event loop in which waiting takes no time: when nothing is left to do, its clock jumps to the next timer.

Everything in this house that waits does so on its event loop: pauses between retries, the period of a sequential round,
deadlines, limits of patience. So a loop with a clock of its own is the injected clock of all of them at once. Work in
threads (stores, pools) counts as something to do, and the clock stands still until it is done: a slow machine changes
nothing. A test asks for it with `pytest.mark.virtual_time`; where real sockets or processes take part, it must not.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_EPOCH_S = 1_700_000_000.0
_LONGEST_S = 24 * 3600.0
_LONGEST_WORK_S = 120.0


class NothingHappensError(Exception):
    """A test waits for something that does not come; the text lists what all tasks wait for."""


class _JumpingSelector:
    """What a loop waits with. It tells the loop when nothing can happen before the next timer."""

    def __init__(self, loop: VirtualTimeLoop, real: selectors.BaseSelector) -> None:
        self._loop, self._real = loop, real

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return self._real.select(0)
        events = self._real.select(0)
        if events:
            return events
        if self._loop.num_jobs:  # a thread that is done wakes the loop
            events = self._real.select(_LONGEST_WORK_S)
            if not events:
                raise NothingHappensError(f"a thread has worked for {_LONGEST_WORK_S:g} s\n{self._loop.complaint()}")
            return events
        if timeout is None:
            raise NothingHappensError(f"no task can go on\n{self._loop.complaint()}")
        self._loop.jump(timeout)
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the opening."""

    def __init__(self) -> None:
        self._now = 0.0
        self.ahead_s = 0.0
        self._jobs = 0
        self._executor: ThreadPoolExecutor | None = None
        super().__init__(_JumpingSelector(self, selectors.DefaultSelector()))  # type: ignore[arg-type]

    def time(self) -> float:
        """Seconds since the loop was made, as its timers count them."""
        return self._now

    @property
    def num_jobs(self) -> int:
        """Calls that threads are at work on, or whose end the loop has not heard of yet."""
        return self._jobs

    def jump(self, seconds: float) -> None:
        """Lets this time pass at once."""
        # A timer is due when it is not later than now: without the bit more, rounding could leave it a moment away.
        self._now += seconds + 1e-9
        if self._now > _LONGEST_S:
            raise NothingHappensError(f"{_LONGEST_S:g} s have passed in this test\n{self.complaint()}")

    def skip(self, seconds: float) -> None:
        """Lets wall clocks leap, as after a time in which nothing happened; timers are as far away as before."""
        self.ahead_s += seconds

    def complaint(self) -> str:
        """Returns what every task waits for."""
        return "\n".join(f"{task.get_name()}: {task.get_stack(limit=1)} {task!r}" for task in asyncio.all_tasks(self))

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """As the loop of every day does, and counts what is under way."""
        if executor is None:
            executor = self._executor = self._executor or ThreadPoolExecutor(4, thread_name_prefix="virtual")
            self.set_default_executor(self._executor)
        self._jobs += 1
        job = executor.submit(functools.partial(func, *args))
        result = asyncio.wrap_future(job, loop=self)
        job.add_done_callback(self._tell)  # after the line above: when the loop counts it as done, its result is there
        return result

    def sleep_in_thread(self, seconds: float) -> None:
        """Has a thread's work take so long; called in that thread."""
        over = threading.Event()

        def begin() -> None:
            self._jobs -= 1
            self.call_later(seconds, end)

        def end() -> None:
            self._jobs += 1
            over.set()

        self.call_soon_threadsafe(begin)
        over.wait()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncio's name)
        """Waits for its threads; the usual way has a thread of its own for that, which nothing here counts."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)

    def _tell(self, _: Future[Any]) -> None:
        if not self.is_closed():
            self.call_soon_threadsafe(self._done)

    def _done(self) -> None:
        self._jobs -= 1


class VirtualClock:
    """The wall clock of a service in such a loop (`runtime.clock.Clock`)."""

    def now(self) -> float:
        loop = virtual_loop()
        return _EPOCH_S + loop.time() + loop.ahead_s


def virtual_loop() -> VirtualTimeLoop:
    """Returns the loop of a test that is marked with `virtual_time`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "the test is not marked with virtual_time"
    return loop
