"""Trainings as `croupier train` runs them, simulated."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from research.experiments.figure import Point, Row
from research.experiments.measures.amplification import DISTRIBUTIONS


def measure_training(point: Point) -> Row:
    """Returns the test "accuracy" after each of "epochs", under the name of the distribution of the local budgets.

    "reached" has the last one. "spent" is the epsilon of one record as the outcome has it, with its "grade", and
    "asymptotic" what GSPA's Theorem 5 gives; without noise there is none of them. The distribution "no noise" clips
    gradients and adds nothing.
    """
    import torch

    from croupier.training.config import DEFAULT_BUDGETS, TrainingConfig
    from croupier.training.runner import run_training

    name, clients = point["distribution"], point["clients"]
    private = name != "no noise"
    budgets = DEFAULT_BUDGETS
    if private:
        source = np.random.default_rng(point["seed"])
        drawn = source.choice(DISTRIBUTIONS[name](source), clients, replace=False)
        values, counts = np.unique(drawn, return_counts=True)
        budgets = ",".join(f"{value}:{count}" for value, count in zip(values, counts, strict=True))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # points are what runs at once
    try:
        with TemporaryDirectory(prefix="croupier-") as scratch:
            outcome = run_training(
                TrainingConfig(
                    dataset="digits" if point["files"] is None else "mnist",
                    data=None if point["files"] is None else Path(point["files"]),
                    features="pca",
                    model="relu",
                    unit="record",
                    clients=clients,
                    budgets=budgets,
                    private=private,
                    epochs=point["trained_epochs"],
                    order="sequential",
                    clipping_norm=2.0,
                    learning_rate=0.05,
                    delta=1e-5,
                    simulate=True,
                    out=Path(scratch),
                    watch="test",
                    seed=point["seed"],
                    device="cpu",
                )
            )
    finally:
        torch.set_num_threads(threads)
    accuracy, spent = [record.figure for record in outcome.records], outcome.spending[-1]
    return {
        "epochs": [record.epoch for record in outcome.records],
        "accuracy": {name: accuracy},
        "reached": accuracy[-1],
        "spent": None if spent is None else spent.epsilon,
        "grade": None if spent is None else str(spent.grade),
        "asymptotic": None if spent is None else spent.asymptotic,
    }
