"""Training in sequential order, through the real services: users with one example, and silos with many."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from croupier.analyzer.vectors import hemisphere_length
from croupier.client.outbox import Outbox
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.training.config import StepRule
from croupier.training.deployed import DeployedRun, SequentialRun, Silos
from croupier.training.descent import Descent
from croupier.training.models import load_model
from croupier.training.privacy import UserSpending
from croupier.training.simulation import SimulatedTraining, shares_of, user_epochs
from tests.support.messages import naming
from tests.support.statements import codes
from tests.training.deployments import digits, take, training

CLIENTS, RATE = 14, 0.02


def settings(question: Question) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=20.0, min_batch_size=9)


trained = partial(training, users=CLIENTS, settings=settings, rule=StepRule(RATE), setting={})
in_sequence = partial(trained, kind=SequentialRun)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_an_epoch_is_a_step_for_everybody(tmp_path: Path) -> None:
    answered: list[int] = []
    async with in_sequence(tmp_path, period_ms=200, answered=answered.append) as (run, _):
        progress, reports = await take(run, 2)
    assert [report.certificate.num_answers for report in reports] == [CLIENTS, CLIENTS]
    assert answered == [1] * (2 * CLIENTS)
    assert [(record.epoch, record.steps) for record in progress.history] == [(1, CLIENTS), (2, 2 * CLIENTS)]
    batches = progress.epochs(1)
    assert UserSpending(run.model.dimension, 1e-4).after(batches).epsilon < 8


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_every_step_is_as_long_as_in_the_simulation(tmp_path: Path) -> None:
    """One user, whose gradient is that of nothing learnt: the step's direction is random, its length is not."""
    dimension, tiers = 640, [2.0, 4.0] * (CLIENTS // 2)
    length = RATE * hemisphere_length(dimension) / float(np.mean(np.tanh(np.array(tiers) / 2)))
    seen: list[torch.Tensor] = []
    async with in_sequence(tmp_path, period_ms=200) as (run, _):
        model = run.model
        original = model.per_example

        def watched(parameters: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
            seen.append(parameters.clone())
            return original(parameters, *more)

        model.per_example = watched  # type: ignore[method-assign,assignment]
        progress, _ = await take(run, 1)
    path = [*seen[1:], progress.descent.parameters.detach()]  # the first was a rehearsal
    deployed = [float((after - before).norm()) for before, after in itertools.pairwise(path)]
    assert deployed == pytest.approx([length] * CLIENTS, rel=1e-4)
    small, at = digits().train.part(slice(0, CLIENTS)), SimulatedTraining(Descent(model.initial, StepRule(RATE)))
    budgets = torch.tensor(tiers, dtype=torch.float64)
    seen.clear()
    (_, descent), *_ = user_epochs(model, small, budgets, 1.0, at, 1, sequential=True)
    path = [*seen, descent.parameters.detach()]
    simulated = [float((after - before).norm()) for before, after in itertools.pairwise(path)]
    assert simulated == pytest.approx([length] * CLIENTS, rel=1e-4)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_run_killed_during_the_asking_goes_on_with_no_second_answer(tmp_path: Path) -> None:
    async with in_sequence(tmp_path, period_ms=300) as (run, _):
        taking = asyncio.create_task(take(run, 1))
        outbox, before = None, dict[str, bytes]()
        while len(before) < 4:
            await asyncio.sleep(0.1)
            if survey_id := run.resume().survey_id:
                outbox = outbox or Outbox(run.out / "outbox.db")
                before = outbox.pending(RoundId(f"answers/{survey_id}-w1-1"))
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert outbox is not None
        round_id = f"{run.resume().survey_id}-w1-1"
        _, reports = await take(run, 1)
        after = outbox.pending(RoundId(f"answers/{round_id}"))
        outbox.close()
    assert reports[0].round_id == round_id
    assert before.items() <= after.items()
    # Clients that were asked while the run was down were skipped.
    assert reports[0].certificate.num_answers >= 9
    assert reports[0].certificate.dishonest == CLIENTS - reports[0].certificate.num_answers


@pytest.mark.slow
@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", [DeployedRun, SequentialRun])
async def test_silos_are_protected_by_the_record(tmp_path: Path, kind: type[DeployedRun]) -> None:
    silos = Silos(shares_of(len(digits().train), CLIENTS), 1e-4)
    more: dict[str, Any] = {"period_ms": 300} if kind is SequentialRun else {}
    async with trained(tmp_path, kind=kind, silos=silos, **more) as (run, _):
        progress, reports = await take(run, 1)
    certificate = reports[0].certificate
    assert (certificate.epsilon, certificate.grade) == (4.0, "CERTIFIED")
    assert codes(certificate.method) == [Method.LOCAL_BUDGET, Method.ONE_RECORD]
    assert Assumption.UNIFORM_ORDER not in codes(certificate.assumptions)
    # On a machine with much else to do a client may miss its turn.
    assert progress.history[0].steps == (certificate.num_answers if kind is SequentialRun else 1) >= 1
    assert 0.001 < float(progress.descent.parameters.detach().norm()) < 10


@pytest.mark.slow
@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", [DeployedRun, SequentialRun])
@pytest.mark.parametrize("unit", ["user", "record"])
async def test_an_example_without_a_gradient_counts_as_zero(tmp_path: Path, kind: type[DeployedRun], unit: str) -> None:
    """Hemisphere and Gaussian noise: whether an example has a gradient is private, so no error or count may tell."""
    more: dict[str, Any] = {"period_ms": 300} if kind is SequentialRun else {}
    silos = None if unit == "user" else Silos(shares_of(2 * CLIENTS, CLIENTS), 1e-5)
    async with trained(tmp_path, kind=kind, silos=silos, **more) as (run, _):
        run.examples = run.examples.part(torch.arange(CLIENTS if silos is None else 2 * CLIENTS))  # a copy
        run.examples.features[3] = torch.nan
        progress, reports = await take(run, 1)
        assert reports[0].certificate.num_users == CLIENTS
        assert bool(progress.descent.parameters.isfinite().all())


def test_sequential_training_takes_plain_steps() -> None:
    arguments: dict[str, Any] = {
        "directory": Path(),
        "out": Path(),
        "model": load_model("softmax", 63, 10),
        "name": "softmax",
        "examples": digits().train,
        "watched": digits().validation,
        "max_local_epsilons": torch.ones(3),
        "clipping_norm": 1.0,
        "settings": RoundSettings,
        "pool": None,
        "setting": {},
    }
    with pytest.raises(ValueError, match=naming("0.5", 1, "0, 0 and 1")):
        SequentialRun(rule=StepRule(1.0, 0.5), **arguments)
    with pytest.raises(ValueError, match="batch_size is 5"):
        SequentialRun(rule=StepRule(1.0), batch_size=5, **arguments)
