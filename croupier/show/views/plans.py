"""Plans: people and budgets for an epsilon or a margin of error."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import CertificateView


class MarginsView(TypedDict):
    """Halves of 95 % intervals, in the unit of the question."""

    participants: float
    population: float


class HalvingView(TypedDict):
    """Two ways to halve both margins: more people, or larger budgets and their epsilon, if possible."""

    num_users: int
    budgets: list[PlannedBudgetView] | None
    epsilon: float | None
    participants: float | None


class ErrorPlanView(TypedDict):
    """People and budgets for a margin of error."""

    goal: str
    randomizer: str
    error: float
    groups: int
    num_users: int
    num_users_of_all_groups: int
    budgets: list[PlannedBudgetView]
    margins: MarginsView
    halving: HalvingView
    certificate: CertificateView


class PlannedBudgetView(TypedDict):
    """A budget of a plan, and the number of people who use it."""

    epsilon: float
    delta: float
    count: int


class MechanismCostView(TypedDict):
    """The cost of a randomizer for means with the same people."""

    randomizer: str
    epsilon: float
    standard_error: float


class PlanView(TypedDict):
    """The answer of a plan; of very many budgets, the smallest."""

    goal: str
    levels: int | None
    num_users: int
    budgets: list[PlannedBudgetView]
    standard_error: float | None
    certificate: CertificateView
    for_a_mean: list[MechanismCostView]
