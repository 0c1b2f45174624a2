"""Training through a deployment in memory, on the digits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from croupier.operator.round_settings import RoundSettings
from croupier.protocol.questions import Question
from croupier.training.datasets import Dataset, load_dataset, with_features
from croupier.training.deployed import DeployedRun, Progress, Silos, StepReport
from croupier.training.models import load_model
from tests.support import InProcess, Threads, in_memory


@cache
def digits() -> Dataset:
    return with_features(load_dataset("digits"), "dct")


@asynccontextmanager
async def training(
    directory: Path,
    users: int,
    settings: Callable[[Question], RoundSettings],
    *,
    kind: type[DeployedRun] = DeployedRun,
    silos: Silos | None = None,
    more: str = "",
    **fields: Any,
) -> AsyncIterator[tuple[DeployedRun, InProcess]]:
    """Yields a run of clients with local ε 2 and 4 in turn, and its deployment, to which `more` is added as TOML."""
    pool = Threads()
    async with in_memory(directory / "deployment", 2, more) as inside:
        run = kind(
            directory=inside.directory,
            out=directory / "out",
            model=load_model("softmax", 63, 10),
            name="softmax",
            examples=digits().train.part(slice(0, users)) if silos is None else digits().train,
            silos=silos,
            watched=digits().validation,
            max_local_epsilons=torch.tensor([2.0, 4.0] * (users // 2), dtype=torch.float64),
            clipping_norm=1.0,
            settings=settings,
            pool=pool,
            transport=inside.transport,
            **fields,
        )
        yield run, inside
    pool.close()


async def take(run: DeployedRun, count: int) -> tuple[Progress, list[StepReport]]:
    """Takes steps as a restarted command does."""
    progress = run.resume()
    return progress, [report async for report in run.steps(progress, count)]
