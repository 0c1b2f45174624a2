"""Time, injected so that tests can move it."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Wall-clock time in Unix seconds."""

    def now(self) -> float:
        """Returns Unix seconds."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Returns Unix seconds."""
        return time.time()
