"""A training whose process is killed wherever it is, and started again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from croupier.net.retrying import retrying
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.questions import Question
from croupier.training.config import StepRule
from tests.support.studies import KilledError
from tests.training.deployments import take, training

pytestmark = [pytest.mark.slow, pytest.mark.virtual_time]

USERS, KILLS = 20, 25


def settings(question: Question) -> RoundSettings:
    return RoundSettings(question, (2.0, 4.0), delta=1e-4, epsilon_max=20.0, min_batch_size=20)


async def test_a_training_goes_on_wherever_its_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At drawn calls to services: every wave is asked once, by its rule, and no client answers twice.

    Reproduction: a process that was killed while services signed a round asked them for one with another time.
    """
    source, left = random.Random(7), [0]

    async def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        answer = await retrying(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        return answer

    monkeypatch.setattr("croupier.operator.operator.retrying", call)
    async with training(tmp_path, USERS, settings, rule=StepRule(4.0, 0.5), setting={}) as (run, _):
        for _ in range(KILLS):
            left[0] = source.randint(1, 40)
            try:
                await take(run, len(run.resume().answered) + 40)
            except KilledError:
                continue
            except BaseExceptionGroup as group:
                assert group.split(KilledError)[1] is None  # noqa: PT017 (nothing else may have gone wrong)
            else:
                pytest.fail("the process was not killed")
        left[0] = 0  # from now on it lives
        progress, _ = await take(run, len(run.resume().answered) + 1)
        assert [*progress.answered] == [f"{progress.survey_id}-w{n}-1" for n in range(1, progress.wave + 1)]
        assert all(batch.tiers == ((2.0, 10), (4.0, 10)) for batch in progress.answered.values())
        assert len(progress.answered) > KILLS // 4
        assert progress.unreleased(1) == 0
