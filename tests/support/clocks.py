"""Clocks that tests move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.runtime.clock import Clock

DAY_S = 24 * 3600


@dataclass(frozen=True)
class Ahead:
    """The clock of one service, which may be ahead of the others."""

    clock: Clock
    ahead_s: Mapping[str, float]
    name: str

    def now(self) -> float:
        return self.clock.now() + self.ahead_s[self.name]
