"""The multiset of local budgets, which is all that the accountant learns about people."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_LOCAL_EPSILON", "Budgets", "Tier", "read_budgets_csv"]

MAX_LOCAL_EPSILON = 20.0


@dataclass(frozen=True, order=True)
class Tier:
    """Users who share one local budget. 0 < local_epsilon ≤ 20, local_delta = 0, count ≥ 1."""

    local_epsilon: float
    count: int
    local_delta: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.local_epsilon) and 0 < self.local_epsilon <= MAX_LOCAL_EPSILON):
            raise ValueError(f"local epsilon is {self.local_epsilon}; allowed is 0 < epsilon ≤ {MAX_LOCAL_EPSILON:g}")
        if self.local_delta != 0:
            raise ValueError(f"local delta is {self.local_delta}; these randomizers are pure, so it must be 0")
        if self.count < 1:
            raise ValueError(f"count is {self.count}; allowed are whole numbers ≥ 1")


@dataclass(frozen=True)
class Budgets:
    """A multiset of local budgets as tiers in ascending order, each local epsilon once."""

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("there are no budgets; at least one user is needed")

    @classmethod
    def from_tiers(cls, tiers: Iterable[tuple[float, int]]) -> Budgets:
        """Returns the multiset of (local_epsilon, count) pairs; equal epsilons are added up."""
        counts: Counter[float] = Counter()
        for epsilon, count in tiers:
            counts[Tier(float(epsilon), count).local_epsilon] += count
        return cls(tuple(Tier(epsilon, count) for epsilon, count in sorted(counts.items())))

    @classmethod
    def from_epsilons(cls, epsilons: Iterable[float]) -> Budgets:
        """Returns the multiset of one local epsilon per user."""
        return cls.from_tiers(Counter(float(epsilon) for epsilon in epsilons).items())

    @property
    def num_users(self) -> int:
        return sum(tier.count for tier in self.tiers)

    @property
    def largest(self) -> float:
        return self.tiers[-1].local_epsilon


def read_budgets_csv(path: Path) -> Budgets:
    """Reads a CSV with a column `epsilon` and optionally `delta` and `count`.

    Raises:
        ValueError: naming the file, the line, the value and what is allowed.
    """
    counts: Counter[float] = Counter()
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if "epsilon" not in (rows.fieldnames or ()):
            found = ", ".join(rows.fieldnames or ()) or "nothing"
            raise ValueError(f"{path} has no column 'epsilon'; its columns are {found}")
        for row in rows:
            try:
                tier = Tier(float(row["epsilon"]), int(row.get("count") or 1), float(row.get("delta") or 0))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {rows.line_num}: {error}") from error
            counts[tier.local_epsilon] += tier.count
    if not counts:
        raise ValueError(f"{path} has no rows; at least one user is needed")
    return Budgets.from_tiers(counts.items())
