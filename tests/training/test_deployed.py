"""Training through the real services: it goes on after a crash without a second report, and stops at the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch

from deploy.operator import Operator, RoundSettings
from deploy.training.datasets import load_dataset, with_features
from deploy.training.deployed import DeployedRun, NotGrantedError
from deploy.training.descent import StepRule
from deploy.training.models import load_model
from protocol.questions import Question
from protocol.store import Transaction
from protocol.workers import WorkerPool
from tests.support import InProcess, in_process

USERS = 60


def settings(question: Question) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=20.0, min_batch_size=20)


@asynccontextmanager
async def training(directory: Path, more: str = "") -> AsyncIterator[tuple[DeployedRun, InProcess]]:
    digits = with_features(load_dataset("digits"), "dct")
    wishes = torch.tensor([2.0, 4.0] * (USERS // 2), dtype=torch.float64)
    pool = WorkerPool(1)
    async with in_process(directory / "deployment", 2, more) as inside:
        yield (
            DeployedRun(
                inside.directory,
                directory / "out",
                load_model("softmax", 63, 10),
                "softmax",
                digits.train.part(slice(0, USERS)),
                wishes,
                1.0,
                StepRule(4.0),
                settings,
                pool,
            ),
            inside,
        )
    pool.close()


@pytest.mark.asyncio
async def test_a_run_that_is_killed_between_submitting_and_closing_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with training(tmp_path) as (run, inside):
        reports = [report async for report in run.steps(1)]
        assert [report.step for report in reports] == [1]
        assert float(reports[0].descent.parameters.abs().sum()) > 0

        async def killed(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Operator, "close_round", killed)
            with pytest.raises(KeyboardInterrupt):
                [report async for report in run.steps(2)]
        first = inside.running["shuffler-1"].service

        def admitted(tx: Transaction) -> tuple[str, dict[bytes, bytes]]:
            newest = tx.rounds()[0].round_id
            return newest, tx.submission_hashes(newest)

        round_id, before = await first.store.run(admitted)
        assert len(before) == USERS
        await inside.stop("shuffler-1", "analyzer", "accountant")
        await inside.start("shuffler-1", "analyzer", "accountant")
        reports = [report async for report in run.steps(3)]
        assert [report.step for report in reports] == [2, 3]
        assert reports[0].round_id == round_id
        second = inside.running["shuffler-1"].service
        after = await second.store.run(lambda tx: tx.submission_hashes(round_id))
        assert after == before  # nobody made a second report
        assert [report.certificate.num_users for report in reports] == [USERS, USERS]
        assert [tier.count for tier in reports[0].certificate.tiers] == [30, 30]
        assert any("half sphere" in one for one in reports[0].certificate.assumptions)


@pytest.mark.asyncio
async def test_the_ledger_ends_a_training_and_what_was_reached_is_kept(tmp_path: Path) -> None:
    limit = "[privacy_limit]\ntotal_epsilon = 7.0\ntotal_delta = 1e-4\n"
    async with training(tmp_path, limit) as (run, _):
        done: list[int] = []

        async def until_refused() -> None:
            async for report in run.steps(10):
                done.append(report.step)  # noqa: PERF401 (what was reached before the refusal)

        with pytest.raises(NotGrantedError, match=r"the ledger would reach epsilon .* allowed is 7"):
            await until_refused()
        assert done
        state = torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True)
        assert state["descent"]["steps"] == done[-1]


@pytest.mark.asyncio
async def test_batches_go_through_all_users_once_an_epoch(tmp_path: Path) -> None:
    async with training(tmp_path) as (run, _):
        run.batch_size = 25
        batches = [run.batch(step).tolist() for step in range(6)]
        for epoch in (batches[:3], batches[3:]):
            assert sorted(user for batch in epoch for user in batch) == list(range(USERS))
        assert batches[:3] != batches[3:]
        counts = [report.certificate.num_users async for report in run.steps(4)]
        assert counts == [20, 20, 20, 20]


@pytest.mark.asyncio
async def test_a_checkpoint_of_another_fleet_is_refused(tmp_path: Path) -> None:
    async with training(tmp_path) as (run, _):
        assert [report.step async for report in run.steps(1)] == [1]
        run.users = run.users.part(slice(0, 10))
        with pytest.raises(ValueError, match="is of another model or fleet"):
            [report async for report in run.steps(2)]
