"""The common part of published bounds: the error that names the validity range, and the inversion of a printed formula.

A bound says nothing outside its range, so the checks are in one place and their messages have one form: the offending
value, then "valid:" and the range. The formulas themselves are in the other files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from croupier.accountant.budgets import Budgets
from croupier.accountant.numerics.inversion import smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement


class OutOfRangeError(ValueError):
    """The published bound says nothing at these parameters; the message names its validity range."""


def need(holds: bool, value: str, valid: str) -> None:
    """Raises OutOfRangeError unless the condition holds."""
    if not holds:
        raise OutOfRangeError(f"{value}; valid: {valid}")


def need_delta(delta: float) -> None:
    """Raises OutOfRangeError unless 0 < delta < 1."""
    need(0 < delta < 1, f"delta is {delta!r}", "0 < delta < 1")


def need_users(budgets: Budgets) -> None:
    """Raises OutOfRangeError for a single user: it has no others to hide among."""
    need(budgets.num_users >= 2, f"{budgets.num_users} users", "at least 2 users")


def common_budget(budgets: Budgets) -> tuple[float, int]:
    """Returns (local epsilon, n) of equal budgets without a local delta; raises OutOfRangeError for any other."""
    need(budgets.num_tiers == 1, f"{budgets.num_tiers} different budgets", "equal budgets")
    return largest_budget(budgets)


def largest_budget(budgets: Budgets) -> tuple[float, int]:
    """Returns (largest local epsilon, n): personalised budgets, taken as if all had the largest, without a local delta.

    Raises:
        OutOfRangeError: a local delta is not 0.
    """
    worst = float(budgets.local_delta.max())
    need(worst == 0, f"local delta {worst:g}", "pure local budgets")
    return float(budgets.local_epsilon[-1]), budgets.num_users


@dataclass(frozen=True, eq=False)
class _Formula:
    """A published formula as a privacy profile, for `smallest_epsilon`."""

    function: Callable[[float], float]
    first: float
    method: Proof = (Statement.of(Method.PUBLISHED),)

    def delta(self, epsilon: float) -> Bounded:
        value = self.function(epsilon)
        # A formula that leaves the floats (inf - inf) says nothing, and nothing is never taken for 0.
        return Bounded(1.0 if math.isnan(value) else min(1.0, max(0.0, value)), 0.0)

    def guess(self, delta: float) -> float:
        return self.first

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        return ()


def solve(delta_at: Callable[[float], float], delta: float, ceiling: float, first: float) -> float:
    """Returns the upper end of a bracket, 1e-6 wide, around the least epsilon <= ceiling with delta_at <= delta.

    Args:
        delta_at: epsilon >= 0 -> delta, its own rounding added.
        delta: the target.
        ceiling: an epsilon known to be enough, the local budget: returned if no smaller one is found.
        first: the first epsilon to try.

    Returns:
        An epsilon that is never too small.

    Raises:
        OutOfRangeError: delta is outside (0, 1).
    """
    need_delta(delta)
    return smallest_epsilon(_Formula(delta_at, first), delta, ceiling).epsilon
