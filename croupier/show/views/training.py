"""A training: its setting, its epochs and its cost."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from croupier.protocol.certificate_views import StatementView


class EpochView(TypedDict):
    """An epoch of a training."""

    epoch: int
    steps: int
    loss: float
    accuracy: float | None
    error: float | None
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
    target_range: NotRequired[list[float]]


class TrainingSettingView(TrainingSubjectView):
    """The subject of a training; a checkpoint continues only with the same setting."""

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
    """The length of a training's gradients beside the noise of their mean, and changes that would make both equal."""

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
    noise_free_error: list[float]
    noise: TrainingNoiseView | None
    certificate: TrainingCertificateView | None
