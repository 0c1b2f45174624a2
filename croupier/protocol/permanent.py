"""Permanent randomization: a client draws its report once, and sends the same report in every wave of a question.

A series is all waves of one question in which the reports stay the same. What it guarantees is proved in
docs/permanent.md: the guarantee is about all waves together, because none of them has randomness of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_WAVES = 100_000
"""The most waves of a series: one an hour for eleven years."""
PLANNED = "planned"
"""The name of a series that no round belongs to; two planned series are never the same one."""


@dataclass(frozen=True)
class PermanentSeries:
    """All waves of one question that a client answers with the same report.

    Attributes:
        waves: the most waves that there may be, fixed before the first: 1 .. 100,000.
        name: hexadecimal digits of a hash of the question's terms, the same in all waves and in no other round;
            PLANNED for a series that no round belongs to.

    Raises:
        ValueError: at construction, for a number of waves outside its range.
    """

    waves: int
    name: str = PLANNED

    def __post_init__(self) -> None:
        if isinstance(self.waves, bool) or not isinstance(self.waves, int) or not 1 <= self.waves <= MAX_WAVES:
            raise ValueError(f"waves is {self.waves!r}; it must be a whole number in [1, {MAX_WAVES:,}]")
