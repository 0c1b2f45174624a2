"""A study whose process is killed with SIGKILL at drawn moments: every wave is opened once, or said to be missed.

The services run in this process, over TLS; the study runs in processes of its own, one after the other, by a clock that
this test moves.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from croupier.client.submission import Participant
from croupier.operator.opened_surveys import kept_rounds
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.surveys import scheduled
from croupier.study.journal import WaveRecord, read_journal, wave_records
from croupier.study.versions import journal_file, start_study
from croupier.study.wave_results import study_state
from tests.support.rounds import Table, table
from tests.support.studies import study_file
from tests.support.study_process import FileClock

WAVES, PEOPLE, KILLS = 12, 4, 50
LONGEST_LIFE_S = 2.5
"""A process needs about a second to begin; the kills fall into all that it does."""


@pytest.mark.slow
async def test_a_study_that_is_killed_fifty_times_opens_every_wave_once(tmp_path: Path) -> None:
    source = random.SystemRandom()
    clock = FileClock(tmp_path / "clock")
    clock.set(1_700_000_000.0)
    async with table(tmp_path, 1, over_tls=True, clock=clock) as at:
        survey = start_study(at.inside.directory, file_of_study())
        study = scheduled(survey)
        killed, away = 0, source.randrange(3, WAVES)  # nobody runs the study while this wave is open
        for wave in study.waves():
            if wave.number == away:
                clock.set(wave.closes_unix_s + 1)
                continue
            clock.set(wave.opens_unix_s + 1)
            per_wave = KILLS // (WAVES - 1) + 1
            killed += await lives(at, clock, [source.uniform(0.0, LONGEST_LIFE_S) for _ in range(per_wave // 2)])
            await live(at, clock, until=partial(has, at, wave.number, "opened"))
            for terms in kept_rounds(at.inside.directory, survey, wave.number):
                await at.submit(terms, [Participant(0, 1.0)] * PEOPLE)
            clock.set(wave.closes_unix_s + 1)
            killed += await lives(at, clock, [source.uniform(0.0, LONGEST_LIFE_S) for _ in range(-(-per_wave // 2))])
            await live(at, clock, until=partial(has, at, wave.number, "published"))
        assert killed >= KILLS
        check(at, away)


def file_of_study() -> SurveyFile:
    calendar = {"first": "2023-11-15T08:00:00", "every": "day", "on": None, "timezone": "UTC", "open_for": "10 hours"}
    questions = [{"name": "ill", "question": "Were you ill?"}]
    return study_file(calendar=calendar | {"waves": WAVES}, questions=questions, budgets=[1], epsilon_total=50)


def records(at: Table) -> dict[int, WaveRecord]:
    return wave_records(read_journal(journal_file(at.inside.directory, "wellbeing")))


def has(at: Table, wave: int, step: str) -> bool:
    record = records(at).get(wave)
    return record is not None and any(entry.step == step for entry in record.entries)


async def started(at: Table, clock: FileClock) -> asyncio.subprocess.Process:
    program = [sys.executable, "-m", "tests.support.study_process", str(at.inside.directory), str(clock.file)]
    return await asyncio.create_subprocess_exec(*program, cwd=Path(__file__).parents[2])


async def lives(at: Table, clock: FileClock, seconds: list[float]) -> int:
    """Lets processes live for these times and kills each; returns how many were killed before their end."""
    killed = 0
    for life in seconds:
        process = await started(at, clock)
        try:
            await asyncio.wait_for(process.wait(), life)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            killed += 1
    return killed


async def live(at: Table, clock: FileClock, until: Callable[[], bool]) -> None:
    """Lets one process live until something is in the journal, and kills it then."""
    process = await started(at, clock)
    async with asyncio.timeout(120):
        while not until():
            assert process.returncode is None, "the process has ended"
            await asyncio.sleep(0.05)
    process.kill()
    await process.wait()


def check(at: Table, away: int) -> None:
    kept = records(at)
    assert [*kept] == [*range(1, WAVES + 1)]
    for number, record in kept.items():
        steps = [entry.step for entry in record.entries]
        if number == away:
            assert steps == ["missed"]
            continue
        assert steps.count("published") == 1
        assert steps[-1] == "published"
        assert "missed" not in steps
        (outcome,) = record.entries[-1].about["outcomes"]
        assert (outcome["outcome"], outcome["num_reports"]) == ("granted", PEOPLE)
    state = study_state(at.inside.directory, "wellbeing")
    assert len(state.costs) == WAVES - 1
    rounds = list((at.inside.directory / "operator" / "surveys" / "wellbeing").glob("*.signed"))
    assert len(rounds) == WAVES - 1
