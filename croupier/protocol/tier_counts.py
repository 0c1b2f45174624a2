"""How a round counts the people of each budget: exactly, or with noise before anything is computed from the counts.

With budget privacy the manifest states an epsilon and a delta. For every budget of the grid the accountant draws noise
once, and counts max(0, users - radius + Z) of them; Z is the noise of a count in `protocol.fake_law`, at most `radius`
in size. So a count is never above the truth, and one client's budget, which changes two counts by one, is
(epsilon, delta)-private in everything that is computed from the counts (docs/accounting.md, 7.2). Every role asks the
same questions of exact counts and of noised ones. Drawing is left to `runtime.noise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.codes import Assumption
from croupier.protocol.fake_law import FakeLaw, StatedNoise, law_of
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb

LEAST_PEOPLE = 4
"""A round has budget privacy by default if its smallest batch has this many times the people that the counts leave out:
with fewer, the certified epsilon would be larger by more than about a seventh, as it falls with the root of the people.
"""


@dataclass(frozen=True)
class BudgetPrivacy(StatedNoise):
    """How well the counts of a round's budgets hide the budget of one client."""

    name: ClassVar[str] = "budget_privacy"

    epsilon: float = 1.0
    delta: float = 1e-6

    @property
    def law(self) -> FakeLaw:
        """The law of the noise Z of each count: one person changes two of them by one, as one report of many values."""
        return law_of(self.epsilon, self.delta, 3)

    @property
    def radius(self) -> int:
        """The largest |Z|, and how many users of every budget are left out on average."""
        return self.law.radius

    def counted(self, users: int, shift: int) -> int:
        """Returns how many of a budget's users are counted where `shift` is the noise that was drawn."""
        return max(0, users - self.radius + shift)


@dataclass(frozen=True)
class TierCounts:
    """How a round counts the people of each budget.

    Attributes:
        privacy: how well that hides the budget of one client; None: the counts are exact, and do not hide it.
    """

    privacy: BudgetPrivacy | None = None

    @property
    def radius(self) -> int:
        """How many users of every budget are left out on average."""
        return 0 if self.privacy is None else self.privacy.radius

    @property
    def most_uncounted(self) -> int:
        """The most users of a budget that are not counted; 0 where counts are exact."""
        return 2 * self.radius

    @property
    def victims(self) -> int:
        """How many users are added to every budget of the grid for a certificate: a victim, who need not exist."""
        return 0 if self.privacy is None else 1

    @property
    def assumption(self) -> Statement[Assumption]:
        """What a certificate assumes about budgets."""
        if self.privacy is None:
            return Statement.of(Assumption.BUDGETS_PUBLIC)
        epsilon, delta = self.privacy.epsilon, self.privacy.delta
        return Statement.of(Assumption.BUDGETS_NOISED, epsilon=epsilon, delta=delta, most=self.most_uncounted)

    def certified(self, budgets: Sequence[tuple[float, int]], grid: Sequence[float]) -> Sequence[tuple[float, int]]:
        """Returns the budgets that are certified in place of those that were counted, (local epsilon, users)."""
        if self.privacy is None:
            return budgets
        counted = dict(budgets)
        return [(budget, counted.get(budget, 0) + self.victims) for budget in grid]

    def write_into(self, document: pb.Survey | pb.Certificate) -> None:
        """Writes what `counts_of` reads."""
        if self.privacy is not None:
            document.budget_privacy.CopyFrom(pb.BudgetPrivacy(epsilon=self.privacy.epsilon, delta=self.privacy.delta))
            if isinstance(document, pb.Certificate):
                document.most_uncounted = self.most_uncounted


EXACT = TierCounts()


def counts_of(document: pb.Survey | pb.Certificate) -> TierCounts:
    """Returns how a survey or a certificate counts the people of each budget.

    Raises:
        ValueError: it is outside its range, or a certificate states another number of users that are not counted.
    """
    if not document.HasField("budget_privacy"):
        return EXACT
    counts = TierCounts(BudgetPrivacy(document.budget_privacy.epsilon, document.budget_privacy.delta))
    if isinstance(document, pb.Certificate) and document.most_uncounted != counts.most_uncounted:
        raise ValueError(
            f"most_uncounted is {document.most_uncounted}; with this budget_privacy it must be {counts.most_uncounted}"
        )
    return counts


def chosen_counts(epsilon: float | None, delta: float | None, num_budgets: int, min_batch_size: int) -> TierCounts:
    """Returns how a round counts its people where a person chooses this epsilon and delta; an epsilon of 0: exactly.

    By default counts are noised where the people that they leave out are few among the smallest batch. In a smaller
    round nearly nobody would be counted, and the round be refused.

    Raises:
        ValueError: epsilon or delta is out of range, or a delta is given for exact counts.
    """
    if epsilon == 0:
        if delta is not None:
            raise ValueError(f"budget_privacy_delta is {delta:g} with budget_privacy 0, which has none; leave it out")
        return EXACT
    default = BudgetPrivacy()
    counts = TierCounts(
        BudgetPrivacy(default.epsilon if epsilon is None else epsilon, default.delta if delta is None else delta)
    )
    if epsilon is None and not (num_budgets > 1 and min_batch_size >= LEAST_PEOPLE * num_budgets * counts.radius):
        return EXACT
    return counts
