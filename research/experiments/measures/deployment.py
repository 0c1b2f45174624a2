"""Rounds through a real deployment: every service a process of its own, every user a client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.client.submission import Participant
from croupier.deploy.local.fleet import fleet_of
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.local.whole_round import play_round
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.questions import Question
from croupier.runtime.workers import WorkerPool

Floats = npt.NDArray[np.float64]


def deployed_errors(question: Question, rounds: Sequence[Floats], budgets: Floats) -> list[float]:
    """Returns the absolute errors of the published estimates, one of each round; noise is the clients' own.

    Args:
        question: rr or laplace.
        rounds: the users' values in each, float64 (n,).
        budgets: their local epsilons, float64 (n,).
    """
    with temporary_deployment(2) as local:
        return asyncio.run(_play(local.directory, question, rounds, budgets))


async def _play(directory: Path, question: Question, rounds: Sequence[Floats], budgets: Floats) -> list[float]:
    grid = tuple(np.unique(budgets).tolist())
    settings = RoundSettings(question, grid, epsilon_max=max(grid), min_batch_size=len(budgets))
    errors, pool = [], WorkerPool()
    try:
        async with Operator(directory) as operator, fleet_of(operator, directory, pool) as fleet:
            for values in rounds:
                typed: list[Any] = [question.mechanism.parse_value(str(value)) for value in values.tolist()]
                everyone = zip(typed, budgets.tolist(), strict=True)
                users = {str(user): Participant(value, own) for user, (value, own) in enumerate(everyone)}
                outcome = await play_round(operator, directory, fleet, settings, users)
                errors.append(abs(outcome.publication.values[0].estimate - float(values.mean())))
    finally:
        pool.close()
    return errors
