"""Nothing acknowledged is ever lost or counted twice, whatever is killed when: drawn schedules, one oracle.

`CROUPIER_FAULT_SCHEDULES` is how many; with `CROUPIER_FAULT_SEED` they are others than last time ('make faults').
"""

from __future__ import annotations

import os
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.faults.running import run_in_process
from tests.faults.schedules import Schedule, schedules

NUMBER = int(os.environ.get("CROUPIER_FAULT_SCHEDULES", "100"))
SEED = os.environ.get("CROUPIER_FAULT_SEED", "")
DRAWN = settings(
    deadline=None,
    database=None,
    derandomize=not SEED,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.generate, Phase.shrink],
)


class Progress:
    """Prints a line now and then, where somebody waits for it."""

    def __init__(self, what: str, number: int) -> None:
        self._what, self._number, self._done, self._started = what, number, 0, time.monotonic()

    def one_more(self) -> None:
        self._done += 1
        if SEED and self._done % max(1, self._number // 50) == 0:
            passed_s = time.monotonic() - self._started
            sys.stdout.write(f"{self._done} of {self._number} schedules {self._what}, {passed_s:.0f} s\n")
            sys.stdout.flush()


IN_PROCESS = Progress("in one process", NUMBER)


@seed(int(SEED or 0))
@settings(DRAWN, max_examples=NUMBER)
@given(schedules())
def test_what_is_acknowledged_is_counted_once(schedule: Schedule) -> None:
    run_in_process(schedule)
    IN_PROCESS.one_more()
