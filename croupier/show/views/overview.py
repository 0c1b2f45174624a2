"""The services of a deployment and their rounds, as the operator sees them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from croupier.protocol.names import RoundId
from croupier.show.views.ledger import LedgerView
from croupier.show.views.questions import TermsView


class CostView(TypedDict):
    """The time that a stage has taken."""

    wall_s: float
    cpu_s: float


class ServiceRoundView(TypedDict):
    """A round as one service has it."""

    round_id: RoundId
    state: str
    num_items: int
    bytes_sent: int
    problem: str
    kept_until_unix_s: int | None
    stages: dict[str, CostView]


class KeysView(TypedDict):
    """The age of a service's keys, and the changes under way."""

    age_days: int
    expires_in_days: int
    pending: bool
    retired: int


class NoiseSpentView(TypedDict):
    """The total of a hop's own ledger, and its limit."""

    epsilon: float
    delta: float
    rounds: int
    most_epsilon: float | None
    most_delta: float | None


class ServiceView(TypedDict):
    """A service; one that is out of reach has a problem, no rounds, and nothing else."""

    service: str
    rounds: list[ServiceRoundView]
    health: NotRequired[str]
    problem: NotRequired[str]
    version: NotRequired[str]
    pid: NotRequired[int]
    peak_memory_bytes: NotRequired[int]
    keep_days: NotRequired[int]
    revoked: NotRequired[int]
    noise_spent: NotRequired[NoiseSpentView]
    keys: NotRequired[KeysView]


class StepView(TypedDict):
    """The work of one service on a round, in words."""

    service: str
    state: str
    says: str
    costs: list[str]


class RoundView(TypedDict):
    """A round as the operator sees it; "steps" and "left" are the console's."""

    round_id: RoundId
    stage: str
    num_reports: int | None
    terms: TermsView | None
    states: dict[str, str]
    problems: dict[str, str]
    kept_until_unix_s: int | None
    steps: NotRequired[list[StepView]]
    left: NotRequired[list[str]]


class OverviewView(TypedDict):
    """The services of a deployment, its newest rounds, newest first, and the rest of its ledger's limit."""

    services: list[ServiceView]
    rounds: list[RoundView]
    ledger: NotRequired[LedgerView | None]
