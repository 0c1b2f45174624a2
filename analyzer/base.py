"""The common part of all estimators: the number of reports of each budget, and the interface of an estimator.

The budget of a single report is unknown, so every estimator uses sums over the budgets only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from croupier.analyzer.estimates import Fakes, Noised
from croupier.protocol.codes import Note
from croupier.protocol.statements import Statement

M = TypeVar("M")
Floats = npt.NDArray[np.float64]
Tiers = Sequence[tuple[float, int]]


def tiers_of_reports(
    tiers: Tiers, num_reports: int, noised: Noised | None = None
) -> tuple[list[tuple[float, float]], tuple[Statement[Note], ...]]:
    """Returns (local epsilon, number of reports), whose numbers add up to that of the reports, and notes.

    Reports and budgets travel in separate lanes, so after a drop in one of them their numbers may differ a little. The
    counts are then scaled, because the owner of a missing report is unknown; estimates of noised counts always are.
    Raises ValueError for no reports or budgets.
    """
    users = [(epsilon, float(count)) for epsilon, count in tiers] if noised is None else noised.users(tiers)
    total = sum(count for _, count in users)
    budgets = int(total) if noised is None else noised.num_users
    if not num_reports or not budgets:
        raise ValueError(f"{num_reports} reports and {budgets} budgets; at least one of each is needed")
    notes = () if num_reports == budgets else (Statement.of(Note.TIERS_SCALED, reports=num_reports, budgets=budgets),)
    if num_reports == total:
        return users, notes
    return [(epsilon, count * (num_reports / total)) for epsilon, count in users], notes


class Estimator(ABC, Generic[M]):
    """How the analyzer reads and counts the reports of one kind of mechanism."""

    @abstractmethod
    def decoder(self, mechanism: M, least_epsilon: float) -> Callable[[bytes], Any]:
        """Returns a function from opened bytes to a report; it raises ValueError for bytes that no honest client sends.

        least_epsilon: the smallest budget of the round, with which any report may have been made.
        """

    @abstractmethod
    def estimate(
        self,
        mechanism: M,
        reports: Sequence[Any],
        tiers: Tiers,
        confidence: float,
        least_epsilon: float,
        fakes: Fakes | None = None,
        noised: Noised | None = None,
    ) -> Any:
        """See `estimate`."""
