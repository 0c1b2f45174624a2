"""The JSON documents that commands print and pages show, by their keys.

A document is a dictionary: `json.dumps` writes it, templates read it, scripts rely on its keys. These types say which
keys there are, so that mypy finds a misspelt one. Certificates are in `protocol.views`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, NotRequired, TypedDict

from croupier.protocol.names import RoundId
from croupier.protocol.views import (
    BoundView,
    BudgetPrivacyView,
    CertificateView,
    JsonObject,
    RoundCertificateView,
    StatementView,
)

__all__ = [
    "BudgetView",
    "BudgetsToldView",
    "ClampingView",
    "ConditionsView",
    "CostView",
    "DemoQuestionView",
    "DemoView",
    "DistributionView",
    "EpochView",
    "ErrorPlanView",
    "ExplanationView",
    "FigureView",
    "FindingView",
    "FindingsView",
    "FleetOutcomeView",
    "FleetView",
    "HalvingView",
    "KeysView",
    "LedgerView",
    "LimitView",
    "LineView",
    "MarginsView",
    "MechanismCostView",
    "NumberView",
    "OverviewView",
    "PanelView",
    "PlanView",
    "PlannedBudgetView",
    "Precision",
    "PromiseView",
    "QuantileView",
    "QuestionView",
    "ResultView",
    "RoundView",
    "SectionView",
    "ServiceRoundView",
    "ServiceView",
    "SpentView",
    "StepView",
    "TermsView",
    "ThroughputRowView",
    "ThroughputView",
    "TierSpentView",
    "TogetherView",
    "TrainingBoundView",
    "TrainingCertificateView",
    "TrainingSettingView",
    "TrainingTierView",
    "TrainingView",
    "WordingView",
    "level_of",
    "numbers_of",
]


class SectionView(TypedDict):
    """A part of a text: a title, paragraphs, a list of points, and lines that are not wrapped."""

    title: str
    paragraphs: Sequence[str]
    points: Sequence[str]
    lines: NotRequired[Sequence[str]]


class BudgetView(TypedDict):
    """A budget of a round's grid, and how often someone can be right about the answer of a person that uses it.

    See `show.promises`; "released_right_at_most" is for a released round, under the certificate's assumptions.
    """

    epsilon: float
    delta: float
    epsilon_max: float
    released_right_at_most: float
    one_honest_right_at_most: float | None
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


class HopNoiseView(TypedDict):
    """What the fake reports of one honest hop guarantee to anyone, and how many fakes a hop adds on average."""

    epsilon: float
    delta: float
    right_at_most: float
    fakes: int


class QuestionView(TypedDict):
    """A question: its name, how it is put to people, and the randomizer with its parameters."""

    question: str
    wordings: list[WordingView]
    randomizer: str
    parameters: JsonObject


class TermsView(QuestionView):
    """The terms of a round. "parameters" are the mechanism's; "state" is that at hop 1.

    With the keys of a service or the operator's one sees "ledger", and "approved_by": organisations by the service that
    has them on record.
    """

    round_id: RoundId
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
    hop_noise: HopNoiseView | None
    budget_privacy: BudgetPrivacyView | None
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
    ledger: NotRequired[LedgerView | None]
    approved_by: NotRequired[dict[str, list[str]]]


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
    """What a hop's own ledger comes to, and its limit."""

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


class OverviewView(TypedDict):
    """The services of a deployment, its newest rounds, newest first, and what its ledger has left of a limit."""

    services: list[ServiceView]
    rounds: list[RoundView]
    ledger: NotRequired[LedgerView | None]


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
    local_delta: float
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


class TrainingSubjectView(TypedDict):
    """The model and the data of a training."""

    dataset: str
    examples_sha256: str
    features: str
    model: str
    model_sha256: str | None
    watched: str


class TrainingSettingView(TrainingSubjectView):
    """What is trained; a checkpoint goes on only with the same setting."""

    mode: str
    unit: str
    delta: float
    dimension: int
    users: int
    budgets: str | None
    clipping_norm: float
    optimizer: str | None
    learning_rate: float
    momentum: float
    averaging: float
    order: str
    period_s: float | None
    batch_size: int
    seed: int


class TrainingNoiseView(TypedDict):
    """The length of a training's gradients beside the noise of their mean, and what would make both equally long."""

    signal: float
    noise: float
    measured: bool
    epochs: int
    epsilon: float | None
    parameters: int
    clipping_norm: float
    users: int


class TrainingView(TypedDict):
    """The outcome of a training."""

    title: str
    setting: TrainingSettingView
    stopped: str
    history: list[EpochView]
    noise_free_accuracy: list[float]
    noise: TrainingNoiseView | None
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
    rows: list[JsonObject]
    panels: list[PanelView]


class ClampingView(TypedDict):
    """The interval that reports are clamped to, and what this does to an estimate."""

    low: float
    high: float
    num_clamped: int
    bias: float
    influence: float


class SharesView(TypedDict):
    """Shares of people by level, in the order of the levels; "projected" are possible and agree with each other."""

    estimate: list[float]
    projected: list[float]
    standard_error: list[float]
    confidence_interval: list[list[float]]
    population_interval: list[list[float]]


class NumberWithIntervalsView(TypedDict):
    """A standard deviation."""

    estimate: float
    standard_error: float
    confidence_interval: list[float]
    population_interval: list[float]


class QuantileView(TypedDict):
    """The number that the part q of the people do not exceed."""

    q: float
    estimate: float
    confidence_interval: list[float]
    population_interval: list[float]


class DistributionView(TypedDict):
    """How numbers on ordered levels are distributed: shares on each level, and on it or below."""

    levels: list[float]
    shares: SharesView
    cumulative: SharesView
    standard_deviation: NumberWithIntervalsView
    quantiles: NotRequired[list[QuantileView]]
    hop_influence: float | None


class QuantileStepView(TypedDict):
    """What one group of a quantile search was asked and has answered."""

    round_id: str
    threshold: float
    share: float
    standard_error: float
    interval: list[float]
    people: int


class SearchedQuantileView(TypedDict):
    """A quantile in a large range, and what all rounds of its search together guarantee each person."""

    q: float
    estimate: float
    interval: list[float]
    confidence_level: float
    steps: list[QuantileStepView]
    guarantee: BoundView


class ShareView(TypedDict):
    """A share, or a difference of two, computed from the shares of a result."""

    estimate: float
    projected: float
    standard_error: float
    confidence_interval: list[float]
    population_interval: list[float]


class SumView(TypedDict):
    """The share of the people with one of several answers."""

    categories: list[str]
    share: ShareView


class RowDifferenceView(TypedDict):
    """By how much a share within the first row is larger than within the second."""

    rows: list[str]
    column: str
    difference: ShareView


class IndependenceView(TypedDict):
    """A test of whether two questions are independent in the population."""

    statistic: float
    degrees: int
    p_value: float


class CrossTableView(TypedDict):
    """A table of two questions that were asked as one; "cells" are the nearest possible shares, and margins their sums.

    "within_rows" are the shares of the answers to the second question among people with each answer to the first;
    "differences" compare each row with the first one.
    """

    questions: list[str]
    rows: list[str]
    columns: list[str]
    cells: list[list[float]]
    row_shares: list[ShareView]
    column_shares: list[ShareView]
    within_rows: list[list[ShareView]]
    differences: list[RowDifferenceView]
    independence: IndependenceView


class MarginsView(TypedDict):
    """Halves of 95 % intervals, in the unit of the question."""

    participants: float
    population: float


class HalvingView(TypedDict):
    """What it takes to halve both margins: more people, or larger budgets and their epsilon, where there are such."""

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


class Precision(StrEnum):
    """Whether a result can be used: against its range, or against its largest share."""

    USABLE = "usable"
    COVERS_RANGE = "covers range"
    HIDES_SHARES = "hides shares"


class ResultView(TypedDict):
    """A published result: a number for a share or mean, a list for a histogram, None if sealed or refused.

    "asked" and a population interval are None in a result of an earlier version. "precision" says whether the result
    can be used. "distribution" is beside a mean of numbers on ordered levels, "table" and
    "sums" beside the shares of categories for which they were asked.
    """

    round_id: RoundId
    asked: QuestionView | None
    sealed: bool
    labels: list[str] | None
    estimate: float | list[float] | None
    projected: float | list[float] | None
    standard_error: float | list[float] | None
    confidence_interval: list[float] | list[list[float]] | None
    confidence_level: float | None
    sampling_standard_error: float | list[float] | None
    population_interval: list[float] | list[list[float] | None] | None
    precision: Precision | None
    num_reports: int
    clamping: ClampingView | None
    merging_bias: float | None
    hop_influence: float | None
    distribution: NotRequired[DistributionView | None]
    table: NotRequired[CrossTableView]
    sums: NotRequired[list[SumView]]
    drops: dict[str, int]
    notes: list[StatementView]
    certificate: RoundCertificateView


class NumberView(NamedTuple):
    """One number of a result; the label is "" for a share or mean."""

    label: str
    estimate: float
    projected: float
    standard_error: float
    interval: list[float]
    population: list[float] | None

    @property
    def is_possible(self) -> bool:
        """Whether the estimate is the nearest possible value."""
        return math.isclose(self.estimate, self.projected, rel_tol=1e-9, abs_tol=1e-9)


def numbers_of(result: ResultView) -> list[NumberView]:
    """Returns every number of a result; none if it is sealed or refused."""
    labels = result["labels"]
    columns: list[Any] = [
        result["estimate"],
        result["projected"],
        result["standard_error"],
        result["confidence_interval"],
        result["population_interval"],
    ]
    if result["estimate"] is None:
        return []
    if labels is None:
        return [NumberView("", *columns)]
    return [NumberView(*row) for row in zip(labels, *columns, strict=True)]


def level_of(result: ResultView) -> float:
    """Returns the level of a result's intervals; 0 if it is sealed or refused, and has none."""
    return result["confidence_level"] or 0.0


class DemoQuestionView(ResultView):
    """A question of a demonstration: its result, the truth, and what the round took."""

    column: str
    name: str
    quantity: str
    group: str | None
    truth: float | list[float]
    truth_as_stated: float | list[float]
    clamped: int
    left_out: int
    data_notes: list[str]
    users_per_s: float
    stages: dict[str, CostView]


class TogetherView(TypedDict):
    """What the rounds of a demonstration cost a person together, and what all rounds cost, as the ledger has it."""

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


class PlannedBudgetView(TypedDict):
    """A budget of a plan, and how many people use it."""

    epsilon: float
    delta: float
    count: int


class MechanismCostView(TypedDict):
    """What a randomizer for means would give with the same people."""

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


class FleetView(TypedDict):
    """What a fleet of simulated clients did; the fields of `deploy.local.users.FleetReport`."""

    codes: dict[str, int]
    answered_before: int
    wall_s: float
    seal_wall_s: float
    seal_cpu_s: float
    ticket_wall_s: float
    submit_wall_s: float
    bytes_sent: int
    accepted: int


class FleetOutcomeView(FleetView):
    """What a fleet did for the rows of a CSV file."""

    round_id: RoundId
    rejected: int
    clamped: int


class ThroughputRowView(TypedDict):
    """The costs of a benchmark's round. Those by name are by process, the stages by stage."""

    users: int
    wall_s: float
    close_s: float
    users_per_s: float
    floor_s: float
    ratio_to_floor: float
    floor_cpu_s_per_user: dict[str, float]
    stages: dict[str, CostView]
    cpu_s: dict[str, float]
    own_cpu_s: dict[str, float]
    disk_bytes_per_user: float
    disk_bytes: dict[str, int]
    wire_bytes_per_user: float
    sent_bytes: dict[str, int]
    peak_memory_bytes: dict[str, int]
    epsilon: float
    grade: str
    all_ratios_to_floor: NotRequired[list[float]]
    all_users_per_s: NotRequired[list[float]]


class ConditionsView(TypedDict):
    """What the rows of a benchmark must have in common."""

    hops: int
    cores: int | None
    suite: str


class ThroughputView(ConditionsView):
    """A benchmark of rounds."""

    rows: list[ThroughputRowView]


class PromiseView(TypedDict):
    """A guarantee of an explanation, and how often a guess about a person's answer can be right."""

    about: str
    epsilon: float
    delta: float
    grade: str
    right_at_most: float


class ExplanationView(TypedDict):
    """A certificate in words, and the guarantees that the words are about."""

    certified: PromiseView
    tiers: list[PromiseView]
    everyone_else_colludes: PromiseView
    improvements: list[PromiseView]
    sections: list[SectionView]
