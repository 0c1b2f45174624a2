"""Training through the real services: it goes on after a crash without a second report, and stops at the ledger.

What it has cost is read off the certificates, so fewer users than intended make it dearer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from croupier.operator.opened_surveys import kept_versions
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.protocol.rules import Descent
from croupier.protocol.schedules import MOST_WAVES
from croupier.study.wave_results import study_state
from croupier.training.config import StepRule
from croupier.training.deployed import DeployedRun, NotGrantedError
from croupier.training.descent import TorchDescent
from croupier.training.privacy import Batch, UserSpending
from tests.support.messages import naming
from tests.training.deployments import take, training

pytestmark = [pytest.mark.slow, pytest.mark.virtual_time]

USERS = 60


def settings(question: Question) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=20.0, min_batch_size=20)


trained = partial(
    training,
    users=USERS,
    settings=settings,
    rule=StepRule(4.0),
    setting={"learning_rate": 4.0, "budgets": "2:1,4:1"},
)


@contextmanager
def only_ten_answer(run: DeployedRun) -> Iterator[None]:
    """Too few for a round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "batch", lambda _: torch.arange(10))
        yield


@contextmanager
def closing_fails() -> Iterator[None]:
    """The process is killed after all clients have answered."""

    async def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "close_round", killed)
        yield


async def test_the_ledger_ends_a_training_and_what_was_reached_is_kept(tmp_path: Path) -> None:
    limit = "[privacy_limit]\ntotal_epsilon = 7.0\ntotal_delta = 1e-4\n"
    async with trained(tmp_path, more=limit) as (run, _):
        for _ in range(2):  # the refused round stays the last one: no client is asked again
            with pytest.raises(NotGrantedError, match=naming("epsilon 7")):
                await take(run, 10)
            progress = run.resume()
            assert 0 < progress.descent.steps < 10
            assert len(progress.answered) == len(progress.history) == progress.descent.steps
            # The refused answers were never opened, and yet an observer that colludes with all others may have them.
            assert run.unreleased(progress) == 1


async def test_services_sign_every_step_that_an_optimizer_takes(tmp_path: Path) -> None:
    """The steps of an optimizer of torch are the operator's own; `test_killed` has those that the analyzer takes."""
    async with trained(tmp_path) as (run, inside):
        run.begin = lambda model, rule: TorchDescent(model, 1.0, partial(torch.optim.Adam, lr=0.01))
        await take(run, 1)
        progress, reports = await take(run, 3)
        assert [report.round_id for report in reports] == [f"{progress.survey_id}-w{n}-1" for n in (2, 3)]
        (survey,) = kept_versions(inside.directory, progress.survey_id).values()
        rule = survey.questions[0].rule
        assert isinstance(rule, Descent)
        assert (rule.by_operator, rule.momentum, rule.decaying) == (True, 0.0, False)
        # The limit of its survey is the sum of all waves, and in a training of records not even about a person.
        with pytest.raises(ValueError, match=naming("training.json")):
            study_state(inside.directory, progress.survey_id)


async def test_batches_go_through_all_users_once_an_epoch(tmp_path: Path) -> None:
    async with trained(tmp_path) as (run, _):
        run.batch_size = 25
        batches = [run.batch(step).tolist() for step in range(6)]
        for epoch in (batches[:3], batches[3:]):
            assert sorted(user for batch in epoch for user in batch) == list(range(USERS))
        assert batches[:3] != batches[3:]
        progress, reports = await take(run, 4)
        assert [report.certificate.num_users for report in reports] == [20, 20, 20, 20]
        assert [len(epoch) for epoch in progress.epochs(run.steps_per_epoch)] == [3, 1]
        assert [record.steps for record in progress.history] == [3]
        # A round that was not opened belongs to the epoch that is begun: who is asked in it has not answered before.
        with closing_fails(), pytest.raises(KeyboardInterrupt):
            await take(run, 5)
        assert run.unreleased(progress) == 0
        run.batch_size = 15
        assert run.unreleased(progress) == 1


async def test_what_fewer_users_cost_is_composed_from_who_answered(tmp_path: Path) -> None:
    """Reproduction: epsilon was that of the intended budgets, as if all users had answered."""
    async with trained(tmp_path) as (run, _):
        run.settings = lambda question: replace(settings(question), max_batch_size=40)
        progress, reports = await take(run, 2)
        assert [report.certificate.num_users for report in reports] == [40, 40]
        for report, batch in zip(reports, progress.answered.values(), strict=True):
            assert sum(count for _, count in batch.tiers) == 40
            assert batch == Batch.of(report.certificate)
        assert run.resume().answered == progress.answered
        spending = UserSpending(run.model.dimension, 1e-4)
        intended = spending.after([[Batch(((2.0, 30), (4.0, 30)))]] * 2)
        assert spending.after(progress.epochs(1)).epsilon > 1.05 * intended.epsilon


async def test_a_round_that_too_few_have_answered_ends_the_run_at_once(tmp_path: Path) -> None:
    """Reproduction: it waited five minutes for a result that could not come."""
    async with trained(tmp_path) as (run, _):
        run.settings = lambda question: replace(settings(question), min_batch_size=USERS + 1)
        with pytest.raises(Refusal, match=naming(Code.SHORT_BATCH.message, 60, 61, "60 ACCEPTED")) as caught:
            await take(run, 1)
        assert caught.value.code is Code.SHORT_BATCH
        held = run.resume()
        assert f"'{held.survey_id}-w1-1'" in str(caught.value)
        assert run.unreleased(held) == 1
        with pytest.raises(Refusal, match=naming(60, 61)):  # no second answers
            await take(run, 1)


async def test_a_step_whose_round_was_disposed_of_is_taken_in_another_round(tmp_path: Path) -> None:
    async with trained(tmp_path) as (run, _):
        run.settings = lambda question: replace(settings(question), short_batch_policy="dispose")
        before, _ = await take(run, 1)
        with only_ten_answer(run), pytest.raises(Refusal, match=naming(Code.SHORT_BATCH.message, 10, 20)):
            await take(run, 2)
        assert torch.equal(run.resume().descent.parameters, before.descent.parameters)
        progress, reports = await take(run, 2)
        assert [report.certificate.num_users for report in reports] == [USERS]
        assert [report.round_id[-5:] for report in reports] == ["-w3-1"]
        assert run.unreleased(progress) == 1


async def test_a_withdrawn_round_is_no_dead_end(tmp_path: Path) -> None:
    async with trained(tmp_path) as (run, inside):
        with only_ten_answer(run), pytest.raises(Refusal, match="is held"):
            await take(run, 1)
        async with inside.operator() as operator:
            await operator.withdraw(RoundId(f"{run.resume().survey_id}-w1-1"))
        with only_ten_answer(run), pytest.raises(Refusal, match=Code.SHORT_BATCH.message):
            await take(run, 1)
        _, reports = await take(run, 1)
        assert [report.step for report in reports] == [1]


async def test_clients_that_the_deployment_has_forgotten_enrol_again(tmp_path: Path) -> None:
    """Reproduction: only the first epoch enrolled, so that a later run met UNKNOWN_CLIENT and a held round."""
    async with trained(tmp_path) as (run, inside):
        await take(run, 1)
        await inside.stop("shuffler-1")
        for file in (inside.directory / "shuffler-1").glob("rounds.db*"):
            file.unlink()
        await inside.start("shuffler-1")
        _, reports = await take(run, 2)
        assert [report.certificate.num_users for report in reports] == [USERS]


async def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    """Reproduction: other budgets showed an epsilon that was wrong for all epochs before."""
    async with trained(tmp_path) as (run, _):
        first, _ = await take(run, 1)
        again, reports = await take(run, 1)
        assert (reports, again.history, again.keys) == ([], first.history, first.keys)
        assert (run.out / "checkpoint.pt").stat().st_mode & 0o077 == 0  # private keys are in it
        again.wave = MOST_WAVES
        with pytest.raises(ValueError, match=naming("4,096", "out")):
            [report async for report in run.steps(again, 2)]
        begun = dict(run.setting)
        for name, now, before in (
            ("learning_rate", 5.0, "4.0"),
            ("budgets", "8:1", "'2:1,4:1'"),
            ("features", 1, None),
        ):
            run.setting = begun | {name: now}
            with pytest.raises(ValueError, match=naming(name, now, f"begun with {before}")):
                run.resume()
        run.setting = begun
        run.examples = run.examples.part(slice(0, 10))
        with pytest.raises(ValueError, match=naming("users", 10, 60)):
            run.resume()
    async with trained(tmp_path / "other") as (other, _):
        other.out = run.out
        with pytest.raises(ValueError, match=naming("'local'")):
            other.resume()
        (run.out / "checkpoint.pt").write_bytes(b"an older version's")
        with pytest.raises(ValueError, match=naming("checkpoint")):
            other.resume()
