"""The accountant's count of the two lanes of a round: the budgets and reports that have a ticket."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from croupier.protocol.names import Digest


@dataclass(frozen=True)
class BudgetsFound:
    """The budgets of a round that have a ticket.

    Attributes:
        counts: the number of clients for each local epsilon of the grid: exact, or noised (`tier_counts.noised`).
        off_grid: the number of budgets with a ticket that are not on the grid.
        dropped: the number of dropped messages, by reason.
        on_grid: the exact number of budgets with a ticket on the grid, whichever they are. The total of `counts` by
            default.
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
        number: the number of reports.
        digest: names the multiset of their hashes, SHA-256 of each report's ciphertext under the release key.
        rejected: the sorted hashes from the analyzer that have no ticket.
        num_items: the number of items from the analyzer: one for each received message.
        dropped: the number of dropped items, by reason.
    """

    number: int
    digest: Digest
    rejected: list[bytes]
    num_items: int
    dropped: dict[str, int]
