"""The choice of a mechanism for a mean: `laplace` or `onebit`, by privacy times error (docs/which-mechanism.md).

Both answer the same question about values in a range. `certification` certifies them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.laplace import LaplaceMechanism
from croupier.accountant.mechanisms.onebit import OneBitMean
from croupier.protocol.codes import ProofStep
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement

REMARKS = frozenset({ProofStep.ONEBIT_IS_BETTER, ProofStep.LAPLACE_IS_BETTER})
"""The remarks on the mechanism, among the steps of a certificate."""
MUCH = 1.2
"""The ratio of the products of epsilon and error that makes a remark: people notice a fifth."""
MOST_TIERS = 3
"""Laplace noise is tried in place of bits with at most this many budgets; with more its certificate takes seconds."""


@dataclass(frozen=True)
class MeanCost:
    """The costs of a mechanism: privacy for the participants, and error of the mean."""

    randomizer: Randomizer
    epsilon: float
    """CERTIFIED."""
    standard_error: float
    """From the mechanism's noise alone, at the least favourable values; the range is 1."""

    @property
    def product(self) -> float:
        """Epsilon times error: about constant under a factor on all budgets, so it compares mechanisms."""
        return self.epsilon * self.standard_error

    def __str__(self) -> str:
        return f"{self.randomizer.name}: ε {round_up(self.epsilon)}, standard error {self.standard_error:.3g}"


def standard_error(budgets: Budgets, randomizer: Randomizer, variance_of_fakes: float = 0.0) -> float:
    """Returns the standard error of an estimated mean (range 1) or share, from the randomizers' and hops' noise alone.

    Args:
        budgets: of all users.
        randomizer: of all users.
        variance_of_fakes: the variance that hop noise adds to a count of reports.

    Raises:
        ValueError: the randomizer is a table, which has no estimator.
    """
    gain, variance = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
    return math.sqrt(float(variance @ budgets.count) + variance_of_fakes) / float(gain @ budgets.count)


def other_for_a_mean(randomizer: Randomizer) -> Randomizer | None:
    """Returns the other one of laplace and onebit; None for any other mechanism."""
    if isinstance(randomizer, LaplaceMechanism):
        return OneBitMean()
    return LaplaceMechanism() if isinstance(randomizer, OneBitMean) else None


def worth_trying(budgets: Budgets, randomizer: Randomizer, other: Randomizer) -> bool:
    """Says whether the other one may be much better: bits are quick to certify, Laplace noise needs a smaller error."""
    if isinstance(other, OneBitMean):
        return True
    return budgets.num_tiers <= MOST_TIERS and standard_error(budgets, other) < standard_error(budgets, randomizer)


def remark(own: MeanCost, other: MeanCost) -> tuple[Statement[ProofStep], ...]:
    """Returns a step of a certificate, or none if the other mechanism is not much better."""
    if not own.product > MUCH * other.product > 0:
        return ()
    is_laplace = isinstance(other.randomizer, LaplaceMechanism)
    return (
        Statement.of(
            ProofStep.LAPLACE_IS_BETTER if is_laplace else ProofStep.ONEBIT_IS_BETTER,
            times=own.product / other.product,
            own_epsilon=own.epsilon,
            own_error=own.standard_error,
            other_epsilon=other.epsilon,
            other_error=other.standard_error,
        ),
    )
