"""The JSON documents that commands print and pages show, by their keys.

A document is a dictionary: `json.dumps` writes it, templates read it, scripts rely on its keys. These types say which
keys there are, so that mypy finds a misspelt one. Certificates and results have their own schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, Required, TypedDict

from croupier.protocol.statements import StatementView

__all__ = [
    "BudgetView",
    "CostView",
    "EpochView",
    "FigureView",
    "FindingView",
    "FindingsView",
    "KeysView",
    "LimitView",
    "LineView",
    "OverviewView",
    "PanelView",
    "QuestionView",
    "RoundView",
    "SectionView",
    "ServiceRoundView",
    "ServiceView",
    "SpentView",
    "StepView",
    "TermsView",
    "TierSpentView",
    "TrainingBoundView",
    "TrainingCertificateView",
    "TrainingSettingView",
    "TrainingTierView",
    "TrainingView",
    "WordingView",
]


class SectionView(TypedDict):
    """A part of a text: a title, paragraphs, a list of points, and lines that are not wrapped."""

    title: str
    paragraphs: Sequence[str]
    points: Sequence[str]
    lines: NotRequired[Sequence[str]]


class BudgetView(TypedDict):
    """A budget of a round's grid, and how often someone can be right about the answer of a person that uses it."""

    epsilon: float
    delta: float
    epsilon_max: float
    released_right_at_most: float
    alone_right_at_most: float


class LimitView(TypedDict):
    """The most that one person may lose over all rounds of a deployment."""

    total_epsilon: float
    total_delta: float
    max_rounds: int
    fixed_terms: bool


class WordingView(TypedDict):
    """A question as people read it in one language: the fields of `protocol.wordings.Wording`."""

    language: str
    question: str
    title: str
    help_text: str
    choices: tuple[str, ...]
    unit: str
    low: str
    high: str


class QuestionView(TypedDict):
    """A question: its name, how it is put to people, and the randomizer with its parameters."""

    question: str
    wordings: list[WordingView]
    randomizer: str
    parameters: dict[str, Any]


class TermsView(QuestionView):
    """The terms of a round. "parameters" are the mechanism's; "state" is the round's state at hop 1."""

    round_id: str
    deployment: str
    manifest_hash: str
    budgets: list[BudgetView]
    delta: float
    dishonest: int
    min_batch_size: int
    max_batch_size: int | None
    short_batch: str
    min_tier_size: int
    small_tiers: str
    close_deadline_unix_s: int | None
    privacy_limit: LimitView | None
    sealed_to_collector: bool
    shufflers: list[str]
    accountant: str
    analyzer: str
    hpke_suite: str
    state: NotRequired[str]
    granted: NotRequired[bool | None]
    refusals: NotRequired[list[StatementView]]


class CostView(TypedDict):
    """The time that a stage has taken."""

    wall_s: float
    cpu_s: float


class ServiceRoundView(TypedDict):
    """A round as one service has it."""

    round_id: str
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
    keys: NotRequired[KeysView]


class StepView(TypedDict):
    """The work of one service on a round, in words."""

    service: str
    state: str
    says: str
    costs: list[str]


class RoundView(TypedDict):
    """A round as the operator sees it; "steps" and "left" are the console's."""

    round_id: str
    stage: str
    num_reports: int | None
    terms: TermsView | None
    states: dict[str, str]
    problems: dict[str, str]
    kept_until_unix_s: int | None
    steps: NotRequired[list[StepView]]
    left: NotRequired[list[str]]


class OverviewView(TypedDict):
    """The services of a deployment, and its newest rounds, newest first."""

    services: list[ServiceView]
    rounds: list[RoundView]


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


class EpochView(TypedDict):
    """An epoch of a training."""

    epoch: int
    steps: int
    loss: float
    accuracy: float
    epsilon: float | None
    grade: str | None


class TrainingTierView(TypedDict):
    """The cost of a training for clients with a local budget."""

    local_epsilon: float
    epsilon: float


class TrainingBoundView(TypedDict):
    """A published bound, for comparison."""

    name: str
    epsilon: float | None
    grade: str


class TrainingCertificateView(TypedDict):
    """The cost of a training."""

    epsilon: float
    delta: float
    grade: str
    method: list[StatementView]
    assumptions: list[StatementView]
    everyone_else_colludes: float
    tiers: list[TrainingTierView]
    comparison: list[TrainingBoundView]


class TrainingSettingView(TypedDict, total=False):
    """What is trained; a checkpoint goes on only with the same setting."""

    mode: Required[str]
    unit: Required[str]
    delta: Required[float]
    dimension: Required[int]
    features: Required[str]
    model: Required[str]
    dataset: str
    examples_sha256: str
    model_sha256: str | None
    users: int
    budgets: str | None
    clipping_norm: float
    learning_rate: float
    momentum: float
    averaging: float
    order: str
    period_s: float | None
    batch_size: int
    seed: int
    watched: str


class TrainingView(TypedDict):
    """The outcome of a training."""

    title: str
    setting: TrainingSettingView
    stopped: str
    history: list[EpochView]
    noise_free_accuracy: list[float]
    certificate: TrainingCertificateView | None


class FigureView(TypedDict):
    """An experiment that can be run."""

    name: str
    paper: str
    title: str


class FindingView(TypedDict):
    """A claim of an experiment, and whether it holds."""

    claim: str
    verdict: str
    found: str


class LineView(TypedDict):
    """A line of a panel: its points, the points below an attack, and the ends of its band."""

    label: str
    role: str
    points: list[list[float]]
    below: list[list[float]]
    band: list[list[float]] | None


class PanelView(TypedDict):
    """A panel of an experiment's plot."""

    title: str
    x_label: str
    y_label: str
    log: str
    lines: list[LineView]


class FindingsView(FigureView):
    """An experiment that was run: its findings, its numbers and what is plotted."""

    verdict: str
    reason: str
    findings: list[FindingView]
    size: str
    seed: int
    rows: list[dict[str, Any]]
    panels: list[PanelView]
