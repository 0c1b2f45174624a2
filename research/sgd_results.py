"""The results of docs/sgd-results.md: the paper's setting with and without noise, and users with hemisphere reports.

Every row is a simulation with the estimators and certificates of a deployed run. What the user-level rows are trained
with was chosen on the validation split, whose examples are also users in the rows with dct features, but not in those
with scattering (docs/sgd-results.md says how); the test examples are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from croupier.protocol.rounding import round_up
from croupier.show.documents import write_json
from croupier.show.plots import plot_training
from croupier.training.config import DEFAULT_BUDGETS, StepRule, TrainingSettings, check_choice
from croupier.training.datasets import Dataset, Examples, with_features
from croupier.training.models import new_module
from croupier.training.outcome import TrainingOutcome
from croupier.training.runner import Reports, train
from research.page_parts import part_of_page, write_part

_CLIENTS, _SILO_CLIP, _SILO_DELTA = 100, 2.0, 1e-5
_USER_DELTA = 1e-6
_BUDGET_SEED = 2024


@dataclass(frozen=True)
class Setting:
    """One row of the tables.

    Attributes:
        name: the clients' local budgets, in words.
        unit: what is protected: one record of a client with many, or a user with one example.
        model: see `load_model`.
        features: see `with_features`.
        epochs: how many.
        rule: how a step is taken.
        local: returns the clients' local epsilons for their number, float64 (n,); None for no noise.
        claimed: the accuracy that the paper claims.
        clipping_norm: longer gradients of a user are scaled down to this length.
        held_out: whether the examples that the settings were chosen on are no users; else they are, and the
            certificate says that it does not cover the choice.
    """

    name: str
    unit: Literal["record", "user"]
    model: str
    features: str
    epochs: int
    rule: StepRule
    local: Callable[[int], np.ndarray[Any, np.dtype[np.float64]]] | None
    claimed: str = ""
    clipping_norm: float = 1.0
    held_out: bool = False


def _uniform(low: float, high: float) -> Callable[[int], np.ndarray[Any, np.dtype[np.float64]]]:
    return lambda count: np.random.default_rng(_BUDGET_SEED).uniform(low, high, count)


def _constant(value: float) -> Callable[[int], np.ndarray[Any, np.dtype[np.float64]]]:
    return lambda count: np.full(count, value)


def _thirds(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([1.0, 2.0, 4.0])[np.random.default_rng(_BUDGET_SEED).permutation(count) % 3]


def _scattering(name: str, epochs: int, learning_rate: float, local_epsilon: float | None) -> Setting:
    rule = StepRule(learning_rate, averaging=0.1)
    local = None if local_epsilon is None else _constant(local_epsilon)
    return Setting(name, "user", "softmax", "scattering", epochs, rule, local, clipping_norm=0.3, held_out=True)


_PAPER, _USER = StepRule(0.05), StepRule(10.0, 0.5, averaging=0.2)
_RESULTS = (
    Setting("no noise", "record", "relu", "pca", 50, _PAPER, None, "96.78 %"),
    Setting("constant 0.5", "record", "relu", "pca", 50, _PAPER, _constant(0.5), "94.8 %"),
    Setting("U(0.01, 2)", "record", "relu", "pca", 50, _PAPER, _uniform(0.01, 2.0), "93.5 %"),
    Setting("U(0.5, 1)", "record", "relu", "pca", 50, _PAPER, _uniform(0.5, 1.0), "the best with noise"),
    Setting("no noise", "user", "softmax", "dct", 60, _USER, None),
    Setting("all 4", "user", "softmax", "dct", 60, _USER, _constant(4.0)),
    Setting("a third each 1, 2, 4", "user", "softmax", "dct", 60, _USER, _thirds),
    Setting("all 2", "user", "softmax", "dct", 60, _USER, _constant(2.0)),
    Setting("all 1", "user", "softmax", "dct", 60, _USER, _constant(1.0)),
)
_SCATTERING = (
    _scattering("no noise", 140, 16.0, None),
    _scattering("all 4", 14, 64.0, 4.0),
    _scattering("all 3", 42, 32.0, 3.0),
    _scattering("all 2", 140, 16.0, 2.0),
    _scattering("all 1.5", 290, 8.0, 1.5),
)
PARTS = {"results": _RESULTS, "scattering": _SCATTERING}
"""The rows of the page, by the name of the comments that they stand between."""
_LIMITS = (0.1, 0.2, 0.3, 0.4, 0.5)


def _final(dataset: Dataset) -> Dataset:
    """Returns the data set with the validation examples among the training ones: the choices have been made."""
    parts = (dataset.train, dataset.validation)
    train = Examples(torch.cat([part.features for part in parts]), torch.cat([part.targets for part in parts]))
    return replace(dataset, train=train)


def run_setting(
    setting: Setting, dataset: Dataset, out: Path, say: Callable[[str], None], *, epochs: int = 0, seed: int = 0
) -> TrainingOutcome:
    """Trains with `train`, as any program does, and returns accuracy and cost after every epoch.

    Args:
        setting: what to train.
        dataset: with the setting's features.
        out: the directory for model, history and plot of this row.
        say: called with a line after every epoch.
        epochs: fewer than the setting has, for a look; 0 for all.
        seed: of the simulation.
    """
    examples = dataset if setting.held_out else _final(dataset)
    module = new_module(setting.model, examples.train.features.shape[1], examples.classes)
    record = setting.unit == "record"
    local = None if setting.local is None else setting.local(_CLIENTS if record else len(examples.train))
    settings = TrainingSettings(
        unit=setting.unit,
        clients=_CLIENTS,
        order="sequential" if record else "batch",
        budgets=DEFAULT_BUDGETS if local is None else tuple(local.tolist()),
        private=local is not None,
        baseline=False,
        epochs=epochs or setting.epochs,
        clipping_norm=_SILO_CLIP if record else setting.clipping_norm,
        learning_rate=setting.rule.learning_rate,
        momentum=setting.rule.momentum,
        averaging=setting.rule.averaging,
        delta=_SILO_DELTA if record else _USER_DELTA,
        # The paper's settings are given; those of the user-level rows were chosen on validation examples.
        chosen_on_users=not record and not setting.held_out,
        simulate=True,
        out=out,
        seed=seed,
        device="cpu",
    )

    def progress(outcome: TrainingOutcome) -> None:
        outcome.title = title
        above = f"{title}\n{outcome.heading()}\n" if len(outcome.records) == 1 else ""
        say(f"{above}{outcome.line()}")

    title = f"{setting.unit}: {setting.name}"
    return train(
        module, examples.train, examples.test, settings, features=setting.features, reports=Reports(progress=progress)
    )


def _row(setting: Setting, outcome: TrainingOutcome) -> str:
    spent, last = outcome.spending[-1], outcome.records[-1]
    reached = f"{100 * last.figure:.2f} %"
    if spent is None:
        return f"| {setting.name} | {last.epoch} | {reached} | {setting.claimed} | not private | |"
    asymptotic = "" if spent.asymptotic is None else round_up(spent.asymptotic, 3)
    cost = f"{round_up(spent.epsilon, 4)} {spent.grade}"
    return f"| {setting.name} | {last.epoch} | {reached} | {setting.claimed} | {cost} | {asymptotic} |"


def _curve_row(setting: Setting, outcome: TrainingOutcome) -> str:
    """Returns the row of a training whose accuracy is read off at several epsilons."""
    spent, last = outcome.spending[-1], outcome.records[-1]
    reached = f"{100 * last.figure:.2f} %"
    if spent is None:
        return f"| {setting.name} | {last.epoch} |{' |' * len(_LIMITS)} {reached} | not private | |"
    cells = []
    for limit in _LIMITS:
        within = [
            record.figure
            for record, cost in zip(outcome.records, outcome.spending, strict=True)
            if cost is not None and cost.epsilon <= limit
        ]
        cells.append(f"{100 * within[-1]:.2f} %" if within else "")
    cost = f"{round_up(spent.epsilon, 4)} {spent.grade}"
    alone = round_up(spent.everyone_else_colludes, 4)
    return f"| {setting.name} | {last.epoch} | {' | '.join(cells)} | {reached} | {cost} | {alone} |"


def write_page(
    page: Path,
    out: Path,
    dataset: Dataset,
    say: Callable[[str], None],
    epochs: int = 0,
    parts: Collection[str] = tuple(PARTS),
) -> list[TrainingOutcome]:
    """Runs the settings of some parts; writes tables into the page, plots beside it, and all numbers into `out`.

    Args:
        page: a Markdown page with the comments of each part.
        out: the directory for a JSON file of each part.
        dataset: before its features are taken.
        say: called with a line after every epoch.
        epochs: fewer than the settings have, for a look; 0 for all.
        parts: names of `PARTS`.

    Raises:
        ValueError: an unknown part, or one without its comments in the page.
    """
    for part in parts:
        check_choice("part", part, tuple(PARTS))
        part_of_page(page, part)
    all_outcomes: list[TrainingOutcome] = []
    for part in parts:
        changed = {
            name: with_features(dataset, name) for name in dict.fromkeys(setting.features for setting in PARTS[part])
        }
        outcomes = [
            run_setting(setting, changed[setting.features], out / f"sgd-{part}-{number}", say, epochs=epochs)
            for number, setting in enumerate(PARTS[part], 1)
        ]
        write_json(out / f"sgd-{part}.json", [outcome.document() for outcome in outcomes])
        lines = (_curves if part == "scattering" else _tables)(outcomes, dataset, page.parent)
        write_part(page, part, lines)
        all_outcomes += outcomes
    return all_outcomes


def _tables(outcomes: Sequence[TrainingOutcome], dataset: Dataset, beside: Path) -> list[str]:
    lines: list[str] = []
    count = len(_final(dataset).train)
    silos, users = f"{_CLIENTS} clients with {count // _CLIENTS} records each", f"{count:,} users with one example each"
    for unit, title in (
        ("record", f"simulated: {silos}, neighbours differ in one record, δ = {_SILO_DELTA:g}"),
        ("user", f"simulated: {users}, neighbours differ in one user, δ = {_USER_DELTA:g}"),
    ):
        chosen = [
            (setting, outcome) for setting, outcome in zip(_RESULTS, outcomes, strict=True) if setting.unit == unit
        ]
        plot_training([outcome.document() for _, outcome in chosen], beside / f"sgd-{unit}.png")
        dimension, quantity = chosen[0][1].setting["dimension"], chosen[0][1].quantity
        lines += [
            f"**{title}** ({chosen[0][0].model}, {chosen[0][0].features}, d = {dimension})",
            "",
            f"| local ε per epoch | epochs | test accuracy | claimed | {quantity} | GSPA Thm 5, ASYMPTOTIC |",
            "|---|---|---|---|---|---|",
            *(_row(setting, outcome) for setting, outcome in chosen),
            "",
            f"![accuracy](sgd-{unit}.png)",
            "",
        ]
    return lines


def _curves(outcomes: Sequence[TrainingOutcome], dataset: Dataset, beside: Path) -> list[str]:
    plot_training([outcome.document() for outcome in outcomes], beside / "sgd-scattering.png")
    dimension = outcomes[0].setting["dimension"]
    limits = " | ".join(f"ε ≤ {limit:g}" for limit in _LIMITS)
    return [
        f"**simulated: {len(dataset.train):,} users with one example each, neighbours differ in one user, "
        f"δ = {_USER_DELTA:g}** (softmax, scattering, d = {dimension}); test accuracy at the last epoch within each "
        "central ε, and at the end",
        "",
        f"| local ε per epoch | epochs | {limits} | at the end | central ε | if everyone else colludes |",
        f"|---|---|{'---|' * len(_LIMITS)}---|---|---|",
        *(_curve_row(setting, outcome) for setting, outcome in zip(_SCATTERING, outcomes, strict=True)),
        "",
        "![accuracy](sgd-scattering.png)",
        "",
    ]
