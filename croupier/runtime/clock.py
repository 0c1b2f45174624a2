"""The time, injected so that tests can move it, and a stopwatch for the cost of a stage of a round."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time in Unix seconds."""

    def now(self) -> float:
        """Returns Unix seconds."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Returns Unix seconds."""
        return time.time()


class Stopwatch:
    """Wall seconds, and CPU seconds of this process; workers' CPU seconds are added by hand."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.workers_cpu_s = 0.0

    def read(self) -> tuple[float, float]:
        """Returns (wall seconds, CPU seconds) since the start."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu + self.workers_cpu_s
