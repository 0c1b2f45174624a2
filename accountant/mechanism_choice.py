"""Which mechanism for a mean: `laplace` or `onebit`, by privacy times error (docs/which-mechanism.md).

Both answer the same question about values in a range. What each of them is certified is left to `certification`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from croupier.accountant.budgets import Budgets
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.laplace import LaplaceMechanism
from croupier.accountant.mechanisms.onebit import OneBitMean
from croupier.protocol.codes import Step
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement, state

REMARKS = frozenset({Step.ONEBIT_IS_BETTER, Step.LAPLACE_IS_BETTER})
"""The remarks on the mechanism, among the steps of a certificate."""
MUCH = 1.2
"""By how many times epsilon times error must be smaller for a remark: a fifth is what a person notices."""
MOST_TIERS = 3
"""Laplace noise is tried in place of bits with up to this many budgets: with more its certificate takes seconds."""


@dataclass(frozen=True)
class MeanCost:
    """What a mechanism costs those who take part, and those who learn the mean."""

    randomizer: Randomizer
    epsilon: float
    """CERTIFIED."""
    standard_error: float
    """From the mechanism's noise alone, at the least favourable values; the range is 1."""

    @property
    def product(self) -> float:
        """Epsilon times error: about the same for any factor on all budgets, so that it compares mechanisms."""
        return self.epsilon * self.standard_error

    def __str__(self) -> str:
        return f"{self.randomizer.name}: ε {round_up(self.epsilon)}, standard error {self.standard_error:.3g}"


def standard_error(budgets: Budgets, randomizer: Randomizer, variance_of_fakes: float = 0.0) -> float:
    """Returns that of an estimated mean (range 1) or share, from the noise of the randomizers and of hops alone.

    Args:
        budgets: of all users.
        randomizer: what they run.
        variance_of_fakes: what hop noise adds to the variance of a count of reports.

    Raises:
        ValueError: the randomizer is a table, which does not say how it is read.
    """
    gain, variance = randomizer.signal(budgets.local_epsilon, budgets.local_delta)
    return math.sqrt(float(variance @ budgets.count) + variance_of_fakes) / float(gain @ budgets.count)


def other_for_a_mean(randomizer: Randomizer) -> Randomizer | None:
    """Returns the other one of laplace and onebit; None for any other mechanism."""
    if isinstance(randomizer, LaplaceMechanism):
        return OneBitMean()
    return LaplaceMechanism() if isinstance(randomizer, OneBitMean) else None


def worth_trying(budgets: Budgets, randomizer: Randomizer, other: Randomizer) -> bool:
    """Whether the other one may be much better: bits are certified quickly, Laplace noise needs the smaller error."""
    if isinstance(other, OneBitMean):
        return True
    return budgets.num_tiers <= MOST_TIERS and standard_error(budgets, other) < standard_error(budgets, randomizer)


def remark(own: MeanCost, other: MeanCost) -> tuple[Statement[Step], ...]:
    """Returns a step of a certificate, or none where the other mechanism is not much better."""
    if not own.product > MUCH * other.product > 0:
        return ()
    is_laplace = isinstance(other.randomizer, LaplaceMechanism)
    return (
        state(
            Step.LAPLACE_IS_BETTER if is_laplace else Step.ONEBIT_IS_BETTER,
            times=own.product / other.product,
            own_epsilon=own.epsilon,
            own_error=own.standard_error,
            other_epsilon=other.epsilon,
            other_error=other.standard_error,
        ),
    )
