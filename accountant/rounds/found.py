"""What the accountant has found in the two lanes of a round: the budgets and reports that have a ticket."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from croupier.protocol.names import Digest


@dataclass(frozen=True)
class BudgetsFound:
    """The budgets of a round that have a ticket.

    Attributes:
        counts: how many clients use each local epsilon of the grid: exactly, or after noise (`tier_counts.noised`).
        off_grid: how many budgets have a ticket and are not on the grid.
        dropped: how many messages were left out, by reason.
        on_grid: how many budgets have a ticket and are on the grid, exactly: which ones they are changes nothing in it.
            As many as `counts` has if not given.
    """

    counts: Counter[float]
    off_grid: int
    dropped: dict[str, int]
    on_grid: int = -1

    def __post_init__(self) -> None:
        """Fills in `on_grid`."""
        if self.on_grid < 0:
            object.__setattr__(self, "on_grid", self.counts.total())


@dataclass(frozen=True)
class ReportsFound:
    """The reports of a round that have a ticket.

    Attributes:
        number: how many they are.
        digest: names the multiset of their hashes, SHA-256 of each report's ciphertext under the release key.
        rejected: the hashes that the analyzer handed in and that have no ticket, sorted.
        num_items: how many items the analyzer handed in: one for everything that it received.
        dropped: how many of them were left out, by reason.
    """

    number: int
    digest: Digest
    rejected: list[bytes]
    num_items: int
    dropped: dict[str, int]
