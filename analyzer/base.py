"""The common part of all estimators: a batch of reports, the number of each budget, and an estimator's interface.

The budget of a single report is unknown, so every estimator uses sums over the budgets only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.noised_tiers import TierErrors
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


@dataclass(frozen=True, eq=False)
class Batch(Generic[M]):
    """The reports of one question, with all that is known of how they were made.

    Attributes:
        mechanism: which defines the reports.
        reports: decoded, in any order: a sequence or an array.
        tiers: (local epsilon, number of users) in the certificate.
        least_epsilon: the smallest budget of the round's grid, with which any report may have been made.
        confidence: level of the intervals, 0 < confidence < 1; vectors have none.
        fakes: the fake reports of the hops that are among `reports`; None without hop noise.
        noised: the noise of the counts of these tiers, which are then all budgets of the grid; None if they are exact.
    """

    mechanism: M
    reports: Any
    tiers: Tiers
    least_epsilon: float = 1.0
    confidence: float = 0.95
    fakes: Fakes | None = None
    noised: Noised | None = None

    @cached_property
    def num_reports(self) -> int:
        """The number of the clients' reports."""
        return len(self.reports) - (self.fakes.total if self.fakes is not None else 0)

    @cached_property
    def scaled(self) -> tuple[list[tuple[float, float]], tuple[Statement[Note], ...]]:
        """See `tiers_of_reports`."""
        return tiers_of_reports(self.tiers, self.num_reports, self.noised)

    @property
    def epsilons(self) -> Floats:
        """The local epsilon of each tier. Shape (T,)."""
        return self._columns[0]

    @property
    def counts(self) -> Floats:
        """The number of the clients' reports that count as each tier's. Shape (T,)."""
        return self._columns[1]

    @cached_property
    def _columns(self) -> tuple[Floats, Floats]:
        columns = np.array(self.scaled[0], dtype=np.float64).T
        return columns[0], columns[1]

    @cached_property
    def errors(self) -> TierErrors | None:
        """The errors of `counts`; None if they are exact."""
        return TierErrors.of(self.noised, self.tiers, self.num_reports)


class Estimator(ABC, Generic[M]):
    """How the analyzer reads and counts the reports of one kind of mechanism."""

    @abstractmethod
    def decoder(self, mechanism: M, least_epsilon: float) -> Callable[[bytes], Any]:
        """Returns a function from opened bytes to a report; it raises ValueError for bytes that no honest client sends.

        least_epsilon: the smallest budget of the round, with which any report may have been made.
        """

    @abstractmethod
    def estimate(self, batch: Batch[M]) -> Any:
        """See `analyzer.estimators.estimate`."""
