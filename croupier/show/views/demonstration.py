"""A demonstration: its questions with the truth, and their total cost."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import BoundView
from croupier.show.views.overview import CostView
from croupier.show.views.published_results import ResultView


class DemoQuestionView(ResultView):
    """A question of a demonstration: its result, the truth in the file, and the round's use of resources.

    "clamped" counts the values outside the range that count as its nearer end, "outside" those that were left out;
    "left_out" counts all rows that were.
    """

    column: str
    name: str
    quantity: str
    group: str | None
    truth: float | list[float]
    clamped: int
    outside: int
    left_out: int
    users_per_s: float
    stages: dict[str, CostView]


class TogetherView(TypedDict):
    """The total cost of a demonstration's rounds for a person, and the ledger's cost of all rounds."""

    group_by: str | None
    rounds: int
    person: BoundView
    ledger_rounds: int
    ledger: BoundView


class DemoView(TypedDict):
    """A demonstration."""

    questions: list[DemoQuestionView]
    throughput_users_per_s: float
    together: TogetherView
