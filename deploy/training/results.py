"""The results of docs/sgd.md: the paper's setting with and without noise, and users with hemisphere reports.

Every row is a simulation with the estimators and certificates of a deployed run. Step sizes and the number of epochs of
the user-level rows were chosen on the validation split (docs/sgd.md says how); the test examples are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from accountant.results import round_up
from deploy.show.documents import write_json
from deploy.show.plots import plot_training
from deploy.training.config import StepRule
from deploy.training.datasets import Dataset, Examples, with_features
from deploy.training.descent import Descent, evaluate
from deploy.training.models import load_model
from deploy.training.outcome import EpochRecord, TrainingOutcome
from deploy.training.privacy import Batch, Conditions, SiloSpending, Spending, UserSpending
from deploy.training.simulation import silo_epochs, user_epochs

__all__ = ["SETTINGS", "Setting", "run_setting", "write_page"]

_BEGIN, _END = "<!-- results -->", "<!-- end of results -->"
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
    """

    name: str
    unit: Literal["record", "user"]
    model: str
    features: str
    epochs: int
    rule: StepRule
    local: Callable[[int], np.ndarray[Any, np.dtype[np.float64]]] | None
    claimed: str = ""


def _uniform(low: float, high: float) -> Callable[[int], np.ndarray[Any, np.dtype[np.float64]]]:
    return lambda count: np.random.default_rng(_BUDGET_SEED).uniform(low, high, count)


def _constant(value: float) -> Callable[[int], np.ndarray[Any, np.dtype[np.float64]]]:
    return lambda count: np.full(count, value)


def _thirds(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([1.0, 2.0, 4.0])[np.random.default_rng(_BUDGET_SEED).permutation(count) % 3]


_PAPER, _USER = StepRule(0.05), StepRule(10.0, 0.5, averaging=0.2)
SETTINGS = (
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


def _final(dataset: Dataset) -> Dataset:
    """Returns the data set with the validation examples among the training ones: the choices have been made."""
    parts = (dataset.train, dataset.validation)
    train = Examples(torch.cat([one.features for one in parts]), torch.cat([one.targets for one in parts]))
    return replace(dataset, train=train)


def run_setting(
    setting: Setting, dataset: Dataset, say: Callable[[str], None], *, epochs: int = 0, seed: int = 0
) -> TrainingOutcome:
    """Trains, and returns accuracy and cost after every epoch.

    Args:
        setting: what to train.
        dataset: before its features are taken.
        say: called with a line after every epoch.
        epochs: fewer than the setting has, for a look; 0 for all.
        seed: of the simulation.
    """
    examples = _final(with_features(dataset, setting.features))
    model = load_model(setting.model, examples.train.features.shape[1], examples.classes)
    count, many = len(examples.train), epochs or setting.epochs
    # The settings of the user-level rows were chosen on validation examples that are users here; the paper's are given.
    conditions = Conditions(setting.features, simulated=True, chosen_on_users=setting.unit == "user")
    outcome = TrainingOutcome(
        f"{setting.unit}: {setting.name}",
        {
            "model": setting.model,
            "dimension": model.dimension,
            "features": setting.features,
            "unit": setting.unit,
            "mode": "simulation",
        },
    )
    steps: Iterator[tuple[int, Descent]]
    cost: Callable[[int], Spending | None] = lambda _: None  # noqa: E731 (one of three)
    if setting.unit == "record":
        share, sigmas = count // _CLIENTS, [0.0] * _CLIENTS
        if setting.local is not None:
            local = [(float(epsilon), _SILO_DELTA) for epsilon in setting.local(_CLIENTS)]
            silo = SiloSpending(local, _SILO_DELTA, conditions)
            sigmas = [2 * _SILO_CLIP / share * silo.noise(*pair) for pair in local]
            cost = lambda epoch: silo.after([()] * epoch)  # noqa: E731
        steps = silo_epochs(model, examples, sigmas, _SILO_CLIP, setting.rule, many, seed=seed)
    else:
        budgets = None
        if setting.local is not None:
            values = setting.local(count)
            budgets = torch.from_numpy(values)
            found, counts = np.unique(values, return_counts=True)
            everyone = Batch(tuple(zip(found.tolist(), counts.tolist(), strict=True)))
            users = UserSpending(model.dimension, _USER_DELTA, conditions)
            cost = lambda epoch: users.after([[everyone]] * epoch)  # noqa: E731
        steps = user_epochs(model, examples, budgets, 1.0, setting.rule, many, seed=seed)
    for epoch, descent in steps:
        loss, accuracy = evaluate(model, descent.average, examples.test)
        outcome.add(EpochRecord(epoch, descent.steps, loss, accuracy), cost(epoch))
        above = f"{outcome.title}\n{outcome.heading()}\n" if len(outcome.records) == 1 else ""
        say(f"{above}{outcome.line()}")
    return outcome


def _row(setting: Setting, outcome: TrainingOutcome) -> str:
    spent, last = outcome.spending[-1], outcome.records[-1]
    reached = f"{100 * last.accuracy:.2f} %"
    if spent is None:
        return f"| {setting.name} | {last.epoch} | {reached} | {setting.claimed} | not private | |"
    asymptotic = "" if spent.asymptotic is None else round_up(spent.asymptotic, 3)
    cost = f"{round_up(spent.epsilon, 4)} {spent.grade}"
    return f"| {setting.name} | {last.epoch} | {reached} | {setting.claimed} | {cost} | {asymptotic} |"


def write_page(
    page: Path, out: Path, dataset: Dataset, say: Callable[[str], None], epochs: int = 0
) -> list[TrainingOutcome]:
    """Runs every setting, and writes the tables into the page, the plots beside it, all numbers into `out`."""
    outcomes = [run_setting(setting, dataset, say, epochs=epochs) for setting in SETTINGS]
    write_json(out / "sgd.json", [one.document() for one in outcomes])
    lines: list[str] = []
    count = len(_final(dataset).train)
    silos, users = f"{_CLIENTS} clients with {count // _CLIENTS} records each", f"{count:,} users with one example each"
    for unit, title in (
        ("record", f"simulated: {silos}, neighbours differ in one record, δ = {_SILO_DELTA:g}"),
        ("user", f"simulated: {users}, neighbours differ in one user, δ = {_USER_DELTA:g}"),
    ):
        chosen = [(one, found) for one, found in zip(SETTINGS, outcomes, strict=True) if one.unit == unit]
        plot_training([found.document() for _, found in chosen], page.parent / f"sgd-{unit}.png")
        dimension, of = chosen[0][1].setting["dimension"], chosen[0][1].quantity
        lines += [
            f"**{title}** ({chosen[0][0].model}, {chosen[0][0].features}, d = {dimension})",
            "",
            f"| local ε per epoch | epochs | test accuracy | claimed | {of} | GSPA Thm 5, ASYMPTOTIC |",
            "|---|---|---|---|---|---|",
            *(_row(setting, found) for setting, found in chosen),
            "",
            f"![accuracy](sgd-{unit}.png)",
            "",
        ]
    text = page.read_text(encoding="utf-8")
    before, after = text.split(_BEGIN)[0], text.split(_END)[1]
    page.write_text(f"{before}{_BEGIN}\n{chr(10).join(lines)}{_END}{after}", encoding="utf-8")
    return outcomes
