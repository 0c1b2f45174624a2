"""What the accountant has to know of a local randomizer; the mechanisms, one in a file, say it.

A randomizer states its blanket, everything else follows; see docs/accounting.md, section 2. The classes describe
mechanisms for accounting; sampling from them is the client's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from croupier.accountant.bounds.profile import Curve, NoAmplification, Others, Victim
from croupier.accountant.numerics.binomial import Floats
from croupier.protocol.codes import Assumption, Step
from croupier.protocol.statements import Statement, state

AlikeReports = tuple[tuple[int, float, float], ...]
"""Groups of report values: how many there are, and the probability of each at one answer and at another one."""


@dataclass(frozen=True)
class Randomizer(ABC):
    """A family of local randomizers, one member for every local budget."""

    kind: ClassVar[str]
    """As in `protocol.mechanisms`, for what a question can ask for; registries are keyed by it."""

    spends_local_delta: ClassVar[bool] = False
    """Whether a report is only (epsilon, delta)-private by itself, and not epsilon-private."""
    unit: ClassVar[str] = "user"
    """Whose data the guarantee is for: that of a user, or only a record of one."""
    smaller_budgets_mix: ClassVar[bool] = False
    """Whether a report at a smaller local epsilon is one at a larger one, mixed with the blanket."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The short name with its parameters, as printed in certificates."""

    @property
    @abstractmethod
    def statement(self) -> Statement[Assumption]:
        """What every client is assumed to run."""

    @property
    def local_assumptions(self) -> tuple[Statement[Assumption], ...]:
        """All that a certificate rests on where shuffling adds nothing by design; empty where it may add something."""
        return ()

    @property
    def clones_are_fair_bits(self) -> bool:
        """Whether the blanket is uniform on two outcomes, which are all that reports show."""
        return False

    @property
    def num_report_values(self) -> int | None:
        """How many different reports there are, if hops can add fakes of each; None for noise and vectors."""
        return None

    @property
    def fakes_weight(self) -> float:
        """The variance that fakes add to what reports are read for, per unit of variance of the fakes of one value.

        1 - 1/k for the count of one of k >= 3 values, because the total of the fakes is known; 1 for two values, of
        whose fakes the difference is drawn.
        """
        values = self.num_report_values or 2
        return 1.0 if values == 2 else 1 - 1 / values

    def total_variation(self, local_epsilon: float) -> float:
        """The largest total variation between the reports of two values, for budgets up to this one, rounded up."""
        return 1.0

    def alike_reports(self, local_epsilon: float) -> AlikeReports | None:
        """The report values in groups of equal probabilities, for two answers that are hardest to hide.

        None without finitely many report values.
        """
        return None

    def least_mass(self, local_epsilon: float) -> float | None:
        """The mass of the least density over all values, rounded down; None where it is not known or there is none."""
        return None

    def local_profile(self, local_epsilon: float, local_delta: float, points: int) -> tuple[tuple[float, float], ...]:
        """Points (epsilon, delta) of the local guarantee, rounded up, where they are the certificate; else none."""
        return ()

    @classmethod
    def of(cls, mechanism: Any) -> Self:
        """Returns the description of what the clients of a question run, from their mechanism's parameters."""
        return cls(**{field.name: getattr(mechanism, field.name) for field in fields(cls)})

    @abstractmethod
    def signal(self, local_epsilon: Floats, local_delta: Floats) -> tuple[Floats, Floats]:
        """What a report is worth to the analyzer: (gain, variance), each (T,), for each local budget.

        The mean of a report moves by `gain` when the value moves by the whole range (1), and has that variance at most.
        The estimate of a mean or a share from all reports has the standard error sqrt(sum variance) / sum gain.
        """

    def rates(self, local_epsilon: Floats, local_delta: Floats) -> Floats:
        """How much a report shows for each local budget, increasing with it. Shape (T,): the local epsilon, if pure."""
        return local_epsilon

    def effective_epsilon(self, local_epsilon: float) -> float:
        """What reports of budgets up to this one show at most: the budget itself, or less where that is known."""
        return local_epsilon

    @abstractmethod
    def profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """The blanket bound of the victim among the others, or the reason why nothing is amplified.

        delta is the target, if there is one: it only decides how finely to compute. It holds where an answer may depend
        on earlier answers.
        """

    def worst_case(self, victim: Victim, others: Others) -> Curve | None:
        """The exact divergence over all data of the others, where it is quickly computed; not in an adaptive order."""
        return None

    def exchange_profile(self, victim: Victim, others: Others, delta: float | None) -> Curve:
        """The exchange bound of the victim among the others, or the reason why there is none.

        As `profile`, and slower. It does not hold where an answer may depend on earlier answers.
        """
        return NoAmplification(state(Step.NO_EXCHANGE_BOUND, randomizer=self.name))
