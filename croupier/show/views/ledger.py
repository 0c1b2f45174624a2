"""The ledger: the cost of rounds, and the rest of a limit."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import StatementView


class BudgetsToldView(TypedDict):
    """Certificates' information on one person's budget: the sum of noised rounds, and the number of exact ones."""

    epsilon: float
    delta: float
    rounds: int
    exact_rounds: int


class LedgerView(TypedDict):
    """The rest of the largest loss of a person over all rounds; spent_epsilon is None if there is no bound.

    In a forecast, the rest is after "pending_rounds": rounds that are open or being certified.
    """

    total_epsilon: float
    total_delta: float
    spent_epsilon: float | None
    remaining_epsilon: float
    rounds: int
    pending_rounds: int
    remaining_rounds: int | None
    budgets: BudgetsToldView


class TierSpentView(TypedDict):
    """The cost of all rounds for a tier; if epsilon is None, enough_delta would give one."""

    tier: str
    rounds: int
    epsilon: float | None
    grade: str | None
    enough_delta: float | None


class SpentView(TypedDict):
    """The cost of all rounds of a deployment, by tier."""

    delta: float
    assumptions: list[StatementView]
    spent: list[TierSpentView]
    budgets: BudgetsToldView
