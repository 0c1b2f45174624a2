"""What this process holds: descriptors, threads, memory. Schedules that have been played leave none of it behind."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# A service that is kept alive costs more than one MB, a schedule has three to five of them.
_MB_PER_SCHEDULE = 1.0
_RELEASED_S = 10.0
# What is opened once, by gRPC or a library; what leaks does so with every schedule.
_DESCRIPTORS_OF_NOISE = 16
_MB_OF_NOISE = 30.0  # freed memory that is scattered over pages which are still in use


@dataclass(frozen=True)
class Footprint:
    """What a process held at one moment; descriptors by what they are (file, socket, pipe)."""

    descriptors: Counter[str]
    threads: frozenset[str]
    memory_mb: float


def footprint() -> Footprint:
    """Returns what this process holds now, less what is not referred to (Linux)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # the C library returns memory that it keeps for later allocations
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return Footprint(
        Counter(_descriptors()),
        frozenset(thread.name for thread in threading.enumerate()),
        int(status["RssAnon"].split()[0]) / 1024,
    )


def _descriptors() -> list[str]:
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the one of this very listing
            continue
        targets.append(target.partition(":[")[0])
    return targets


class Ceiling:
    """Counts schedules, and says what they have left behind since the first few, which fill caches."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._played = 0
        self._before: Footprint | None = None

    def one_more(self) -> None:
        """Another schedule has been played, and all is closed."""
        self._played += 1
        if self._played == self._warm_up:
            self._before = footprint()

    def check(self) -> str:
        """Returns what was found in a line; raises AssertionError if descriptors or memory are beyond the ceiling."""
        if self._before is None:
            return f"{self._played} schedules: too few to tell what they leave behind"
        schedules, deadline = self._played - self._warm_up, time.monotonic() + _RELEASED_S
        noise = min(_DESCRIPTORS_OF_NOISE, schedules // 4)
        while (more := (after := footprint()).descriptors - self._before.descriptors) and time.monotonic() < deadline:
            time.sleep(0.1)  # gRPC lets go of its own in a thread of its own
        assert more.total() <= noise, f"{schedules} schedules have left descriptors open: {dict(more)}"
        grown = after.memory_mb - self._before.memory_mb
        assert grown <= _MB_OF_NOISE + _MB_PER_SCHEDULE * schedules, (
            f"{schedules} schedules have left {grown:.0f} MB behind; it must be at most {_MB_PER_SCHEDULE} MB each "
            f"and {_MB_OF_NOISE} MB of noise"
        )
        return f"{schedules} schedules: {grown:+.1f} MB, {more.total()} descriptors more"
