"""`croupier bench-training`: how long an epoch takes through a deployment and in the simulation, with the same numbers.

Starting up is left out: the first epoch, in which clients enrol and libraries are loaded, is not measured. What an
epoch costs in cryptography is `deploy.bench.throughput`'s.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from deploy.operator.rounds import RoundSettings
from deploy.training.datasets import load_dataset, with_features
from deploy.training.deployed import DeployedRun
from deploy.training.descent import StepRule, evaluate
from deploy.training.models import load_model
from deploy.training.simulation import user_epochs
from runtime.workers import WorkerPool

__all__ = ["bench"]

_LOCAL_EPSILON, _CLIPPING_NORM, _RULE = 2.0, 1.0, StepRule(8.0, averaging=0.3)


async def bench(directory: Path, state: Path, epochs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Trains on the digits in both modes, and returns the median wall seconds of an epoch in each, and their ratio.

    Args:
        directory: of a running deployment. state: an empty directory. epochs: measured ones, at least 1.
    """
    digits = with_features(load_dataset("digits"), "dct")
    model = load_model("softmax", digits.train.features.shape[1], digits.classes)
    wishes = torch.full((len(digits.train),), _LOCAL_EPSILON, dtype=torch.float64)
    pool = WorkerPool()
    await pool.warm()
    run = DeployedRun(
        directory=directory,
        out=state,
        model=model,
        name="softmax",
        examples=digits.train,
        watched=digits.validation,
        wishes=wishes,
        clipping_norm=_CLIPPING_NORM,
        rule=_RULE,
        settings=lambda question: RoundSettings(question, (_LOCAL_EPSILON,), delta=1e-5, epsilon_max=20.0),
        pool=pool,
        setting={},
    )
    deployed = []
    try:
        started = time.perf_counter()
        async for report in run.steps(run.resume(), epochs + 1):
            if report.certificate.num_users != len(wishes):
                raise RuntimeError(f"{report.certificate.num_users} users answered: this measures something else")
            deployed.append(time.perf_counter() - started)
            say(f"deployed: epoch {report.step} in {deployed[-1]:.2f} s")
            started = time.perf_counter()
    finally:
        pool.close()
    simulated = []
    started = time.perf_counter()
    for _, descent in user_epochs(model, digits, wishes, _CLIPPING_NORM, _RULE, 10 * epochs + 1):
        evaluate(model, descent.average, digits.validation)
        simulated.append(time.perf_counter() - started)
        started = time.perf_counter()
    deployed_s, simulated_s = statistics.median(deployed[1:]), statistics.median(simulated[1:])
    return {
        "users": len(wishes),
        "dimension": model.dimension,
        "epochs": epochs,
        "deployed_s_per_epoch": deployed_s,
        "simulated_s_per_epoch": simulated_s,
        "ratio": deployed_s / simulated_s,
    }
