"""A source of randomness that plays a list of draws."""

from __future__ import annotations

from croupier.protocol.randomness import SystemRandom


class Scripted(SystemRandom):
    """Plays a list of 64-bit draws; what asks for more has a bug."""

    def __init__(self, *draws: int) -> None:
        super().__init__()
        self.draws = list(draws)

    def bits64(self) -> int:
        """Returns the next draw of the list."""
        return self.draws.pop(0)
