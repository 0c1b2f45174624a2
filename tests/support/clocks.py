"""Clocks that tests move."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.runtime.clock import Clock

DAY_S = 24 * 3600


@dataclass
class Later(Clock):
    """A clock that is ahead of another one."""

    of: Clock
    days: float = 0.0

    def now(self) -> float:
        return self.of.now() + self.days * DAY_S
