"""A rate limit for log lines that callers can trigger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable

_LINES_PER_SECOND = 20


class LogRateLimiter:
    """Rate-limits the log lines that callers can trigger, per reason.

    A stranger can make a call at the price of a few bytes; it must not be able to write the disk full.
    """

    def __init__(self) -> None:
        self._second = 0
        self._lines: Counter[Hashable] = Counter()

    def allow(self, reason: Hashable) -> tuple[int, str] | None:
        """Returns which line of this second it is, from 1, and how it has to end; None if it must not be written."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        self._lines[reason] += 1
        number = self._lines[reason]
        if number > _LINES_PER_SECOND:
            return None
        return number, "; further ones of this second are not logged" if number == _LINES_PER_SECOND else ""
