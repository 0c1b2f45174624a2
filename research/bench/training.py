"""How long an epoch of a training takes through a deployment and in the simulation, with the same numbers.

Starting up is left out: the first epoch, in which clients enrol and libraries are loaded, is not measured. What an
epoch costs in cryptography is `deploy.local.throughput`'s.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from croupier.deploy.local.processes import temporary_deployment
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.names import JsonObject
from croupier.runtime.workers import WorkerPool
from croupier.training.config import StepRule
from croupier.training.datasets import load_dataset, with_features
from croupier.training.deployed import DeployedRun
from croupier.training.descent import Descent, evaluate
from croupier.training.models import load_model
from croupier.training.simulation import SimulatedTraining, user_epochs

_LOCAL_EPSILON, _CLIPPING_NORM, _RULE = 2.0, 1.0, StepRule(8.0, averaging=0.3)


def measure_training(
    epochs: int, hops: int, users: int = 1297, say: Callable[[str], None] = lambda line: None
) -> JsonObject:
    """Trains on the digits in both modes, and returns the median wall seconds of an epoch in each, and their ratio.

    Args:
        epochs: measured ones, at least 1; ten times as many are simulated.
        hops: the number of shufflers of a deployment of its own.
        users: how many of the digits' 1,297 users to take, each with one image; at least 100.
        say: called with a line after each epoch through the deployment.

    Raises:
        ValueError: a number is out of range.
        RuntimeError: a client did not answer.
    """
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; it must be at least 1")
    if not 100 <= users <= 1297:
        raise ValueError(f"users is {users}; it must be in 100..1297")
    with temporary_deployment(hops) as local:
        return asyncio.run(_measure(local.directory, epochs, users, say))


async def _measure(directory: Path, epochs: int, users: int, say: Callable[[str], None]) -> JsonObject:
    digits = with_features(load_dataset("digits"), "dct")
    digits = replace(digits, train=digits.train.part(slice(users)))
    model = load_model("softmax", digits.train.features.shape[1], digits.classes)
    budgets = torch.full((users,), _LOCAL_EPSILON, dtype=torch.float64)
    pool = WorkerPool()
    await pool.warm()
    run = DeployedRun(
        directory=directory,
        out=directory / "training",
        model=model,
        name="softmax",
        examples=digits.train,
        watched=digits.validation,
        max_local_epsilons=budgets,
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
            if report.certificate.num_users != users:
                raise RuntimeError(f"{report.certificate.num_users} users answered: this measures something else")
            deployed.append(time.perf_counter() - started)
            say(f"deployed: epoch {report.step} in {deployed[-1]:.2f} s")
            started = time.perf_counter()
    finally:
        pool.close()
    simulated, at = [], SimulatedTraining(Descent(model.initial, _RULE))
    started = time.perf_counter()
    for _, descent in user_epochs(model, digits.train, budgets, _CLIPPING_NORM, at, 10 * epochs + 1):
        evaluate(model, descent.average, digits.validation)
        simulated.append(time.perf_counter() - started)
        started = time.perf_counter()
    deployed_s, simulated_s = statistics.median(deployed[1:]), statistics.median(simulated[1:])
    return {
        "users": users,
        "dimension": model.dimension,
        "epochs": epochs,
        "deployed_s_per_epoch": deployed_s,
        "simulated_s_per_epoch": simulated_s,
        "ratio": deployed_s / simulated_s,
    }
