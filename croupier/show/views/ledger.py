"""The ledger: what rounds have cost, and what remains of a limit."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import StatementView


class BudgetsToldView(TypedDict):
    """What certificates tell of one person's budget: the sum of noised rounds, and how many rounds count exactly."""

    epsilon: float
    delta: float
    rounds: int
    exact_rounds: int


class LedgerView(TypedDict):
    """How much of the most that a person may lose over all rounds remains; spent_epsilon is None where none is proved.

    In a forecast, what "pending_rounds" may cost is taken from what remains: rounds that are open or being certified.
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
    """The cost of all rounds for a tier; where epsilon is None, enough_delta would give one."""

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
