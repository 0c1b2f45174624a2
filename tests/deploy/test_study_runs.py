"""The process that runs a study: every wave in time, once, whatever happens to the process."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pytest

from croupier.accountant.guarantees import Grade
from croupier.client.submission import Participant
from croupier.operator.keys import free_addresses
from croupier.operator.opened_surveys import kept_rounds
from croupier.operator.survey_plans import survey_from
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import read_messages
from croupier.protocol.surveys import scheduled
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.show.language import number as in_words
from croupier.show.language import speaking
from croupier.study.journal import StudyJournal, read_journal, wave_records
from croupier.study.metrics import GAUGES, study_metrics, waves_borne
from croupier.study.runs import StudyRun, StudyStoppedError
from croupier.study.versions import begun_versions, change_study, journal_file, start_study
from croupier.study.wave_results import study_state, study_view
from tests.support.command_line import croupier
from tests.support.console import served
from tests.support.messages import naming
from tests.support.rounds import Table, table
from tests.support.studies import Played, killed_at_drawn_moments, open_wave, study_file

FIRST = {"first": "2023-11-15T08:00:00", "every": "day", "on": None, "timezone": "UTC", "open_for": "10 hours"}
"""The clock of a test begins on 14 November 2023 at 22:13:20."""


LIGHT: dict[str, Any] = {"budgets": [1], "questions": [{"name": "ill", "question": "Were you ill?"}]}
"""One question with one budget, which is quick to certify."""


async def answers(at: Table, count: int, terms: RoundTerms) -> None:
    await at.submit(terms, [Participant(0, terms.budget_grid[-1])] * count)


def begun(at: Table, count: int = 4, **changes: Any) -> Played:
    calendar = FIRST | changes.pop("calendar", {})
    file = study_file(calendar=calendar, **(LIGHT | changes))
    start_study(at.inside.directory, file)
    return Played(at, file.name, partial(answers, at, count))


def steps(played: Played) -> dict[int, list[str]]:
    return {number: [entry.step for entry in record.entries] for number, record in played.records().items()}


def read(url: str) -> str:
    return read_bytes(url).decode()


WHOLE = ["open", "opened", "close", "closed", "published"]


@pytest.mark.virtual_time
async def test_every_wave_opens_closes_and_is_published_in_time(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at)
        await played.play()
        assert steps(played) == {1: WHOLE, 2: WHOLE, 3: WHOLE}
        for number, record in played.records().items():
            wave = scheduled(begun_versions(played.directory, "wellbeing")[0]).wave(number)
            opened, closed = record.last("opened"), record.last("closed")
            assert opened is not None
            assert closed is not None
            assert 0 <= opened.at - wave.opens_unix_s < 5
            assert 0 <= closed.at - wave.closes_unix_s < 5
            (end,) = [entry for entry in record.entries if entry.step == "published"]
            assert [outcome["outcome"] for outcome in end.about["outcomes"]] == ["granted"]
            assert {outcome["num_reports"] for outcome in end.about["outcomes"]} == {4}
        assert re.search(naming("wave 3", "1 of 1 questions"), played.said[-1])
        page = tmp_path / "report.html"
        croupier("report", "wellbeing", "--language", "de", "--dir", str(played.directory), "--out", str(page))
        words = page.read_text(encoding="utf-8")
        assert all(f"Welle {number}: " in words for number in (1, 2, 3))
        assert "Unterschiede zwischen den Wellen" in words
        for name in ("wellbeing-w1-1.signed", "wellbeing-w3-1.signed"):
            assert name in words
        together = study_state(played.directory, "wellbeing").together
        assert together is not None
        with speaking("de"):
            assert in_words(round_up(together.epsilon, 4)) in words


@pytest.mark.virtual_time
async def test_a_wave_that_no_process_has_opened_is_missed_and_said(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at)
        second = scheduled(begun_versions(played.directory, "wellbeing")[0]).wave(2)
        await played.play(until=second.opens_unix_s)
        played.leap(second.closes_unix_s + 1)
        await played.play()
        assert steps(played) == {1: WHOLE, 2: ["missed"], 3: WHOLE}
        assert "process did not run" in played.records()[2].entries[0].about["why"]


@pytest.mark.virtual_time
async def test_a_wave_with_too_few_people_ends_without_a_result(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at, count=2, calendar={"waves": 1})
        await played.play()
        assert steps(played) == {1: WHOLE}
        outcomes = played.records()[1].entries[-1].about["outcomes"]
        assert [outcome["outcome"] for outcome in outcomes] == ["too few"]


@pytest.mark.virtual_time
async def test_a_study_stops_with_the_numbers_when_its_limit_is_reached(tmp_path: Path) -> None:
    """With four people a wave costs about 1 of the 1.5 that the study may cost."""
    async with table(tmp_path, 1) as at:
        played = begun(at, epsilon_total=1.5)
        with pytest.raises(StudyStoppedError) as stopped:
            await played.play()
        for named in ("before wave 2", "at most 1.5", "requested", "spent", "remaining"):
            assert named in str(stopped.value)
        assert steps(played)[2] == ["open", "stopped"]
        with pytest.raises(StudyStoppedError):  # also after a restart
            await played.play()


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_change_is_a_new_version_and_running_waves_keep_theirs(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at)
        first = begun_versions(played.directory, "wellbeing")[0]
        await played.play(until=scheduled(first).wave(1).closes_unix_s)  # wave 1 is open
        changed = study_file(
            calendar=FIRST | {"first": "2023-11-16T20:00:00", "waves": 2, "open_for": "1 hour"},
            title="How we are now",
            **LIGHT,
        )
        with pytest.raises(ValueError, match="in the future"):
            change_study(played.directory, study_file(calendar=FIRST, title="Other", **LIGHT), "x", played.clock.now())
        made = change_study(played.directory, changed, "Waves are in the evening.", played.clock.now())
        schedule = scheduled(made)
        assert (schedule.version, schedule.first_wave, schedule.last_wave) == (2, 2, 3)
        assert schedule.previous_hash == first.hash
        with pytest.raises(ValueError, match="says what version 2 of 'wellbeing' says"):
            change_study(played.directory, changed, "Again.", played.clock.now())
        await played.play()
        assert steps(played) == {1: WHOLE, 2: WHOLE, 3: WHOLE}
        for number, version in ((1, first), (2, made), (3, made)):
            assert kept_rounds(played.directory, version, number)[0].survey.hash == version.hash


@pytest.mark.virtual_time
async def test_two_processes_do_not_run_one_study(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at)
        with played.process(), pytest.raises(RuntimeError, match="another process"), played.process():
            pass


@pytest.mark.virtual_time
async def test_a_killed_process_opens_no_wave_twice_and_misses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times at drawn moments; `test_study_killed` kills real processes fifty times."""
    async with table(tmp_path, 1) as at:
        played = begun(at)
        await killed_at_drawn_moments(monkeypatch, played.play, times=4, moments=40)
        check_waves(played, 3)


def check_waves(played: Played, waves: int) -> None:
    """Checks that every wave has ended once, with the rounds that were opened for it and with every answer counted."""
    records = wave_records(read_journal(journal_file(played.directory, played.study_id)))
    assert [*records] == [*range(1, waves + 1)]
    for record in records.values():
        ends = [entry for entry in record.entries if entry.step in ("published", "missed")]
        assert [entry.step for entry in ends] == ["published"], record
        assert record.entries[-1] is ends[0]
        (opened,) = {entry.about.get("version", 1) for entry in record.entries if entry.step == "open"}
        assert opened == 1
        assert [outcome["outcome"] for outcome in ends[0].about["outcomes"]] == ["granted"]
        assert {outcome["num_reports"] for outcome in ends[0].about["outcomes"]} == {4}


@pytest.mark.virtual_time
async def test_the_accountant_refuses_a_wave_beyond_the_limit(tmp_path: Path) -> None:
    """An operator opens the waves without asking for a forecast; the second one is certified, and not granted."""
    async with table(tmp_path, 1) as at:
        survey = survey_from(study_file(calendar=FIRST, epsilon_total=1.5, **LIGHT), at.deployment)
        granted = []
        for number in (1, 2):
            (terms,) = await open_wave(at, survey, number)
            round_id = terms.round_id
            await at.submit(terms, [Participant(0, 1.0)] * 4)
            await at.operator.close_round(round_id)
            async with at.peer_channel("shuffler-1", OPERATOR) as channel:  # also where it was held
                await stubs.RoundControlStub(channel).Close(rpc.CloseRequest(round_id=round_id))
            _, certificate = await at.operator.result(round_id, 60.0)
            granted.append(certificate.granted)
        assert granted == [True, False]
        refusals = read_messages(RefusalReason, certificate.refusals)
        (limit,) = [refusal for refusal in refusals if refusal.code is RefusalReason.STUDY_LIMIT]
        assert (limit["epsilon"], limit["delta"]) == (1.5, 1e-3)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_what_a_study_came_to_is_a_table_and_metrics(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at, results="operator", calendar={"waves": 2})
        first, second = scheduled(begun_versions(played.directory, "wellbeing")[0]).waves()
        await played.play(until=first.closes_unix_s + 3600)
        state = study_state(played.directory, "wellbeing")
        assert [wave.state for wave in state.waves] == ["published", "to come"]
        borne = waves_borne(state)
        assert borne is not None
        assert borne >= 10
        played.leap(second.closes_unix_s + 1)
        await played.play()
        state = study_state(played.directory, "wellbeing")
        rows = study_view(state)["rows"]
        assert [(row["wave"], row["outcome"], row["n"]) for row in rows] == [(1, "granted", 4), (2, "missed", 0)]
        assert rows[0]["estimate"] is not None  # it was sealed, and the study's key opens it
        assert state.together is not None
        assert state.together.grade is Grade.CERTIFIED
        port = free_addresses(1)[0]
        with study_metrics(played.directory, "wellbeing", port):
            text = await asyncio.to_thread(read, f"http://{port}/metrics")
        assert 'croupier_study_waves{state="missed",study="wellbeing"} 1.0' in text
        assert 'croupier_study_waves_to_come{study="wellbeing"} 0.0' in text
        shown = {line.partition("{")[0].removeprefix("croupier_study_") for line in text.splitlines() if line[0] != "#"}
        assert shown == {name for name, _, _ in GAUGES}
        for ending in ("csv", "json", "parquet"):
            file = tmp_path / f"rows.{ending}"
            croupier("survey", "results", "wellbeing", "--dir", str(played.directory), "--out", str(file))
            assert file.stat().st_size > 0
        assert polars.read_parquet(tmp_path / "rows.parquet")["wave"].to_list() == [1, 2]
        assert (tmp_path / "rows.csv").read_text().splitlines()[2].startswith("2,")


@pytest.mark.slow
async def test_the_console_shows_a_study(tmp_path: Path) -> None:
    """A study of which a result is kept, another wave was missed, and the last one is to come."""
    async with table(tmp_path, 1) as at:
        now = datetime.now(UTC)
        played = begun(at, calendar={"first": f"{now + timedelta(days=1):%Y-%m-%dT08:00:00}"})
        clock = AheadClock()
        with StudyJournal.running(journal_file(played.directory, "wellbeing")) as journal:
            run = StudyRun(played.directory, "wellbeing", journal, at.inside.transport, clock)
            for wave in list(scheduled(begun_versions(played.directory, "wellbeing")[0]).waves())[:2]:
                clock.reach(wave.opens_unix_s + 1 if wave.number == 1 else wave.closes_unix_s + 1)
                while (due := await run.step()) is not None and due <= wave.closes_unix_s + 60:
                    await played.answer()
                    clock.reach(due)
                    await asyncio.sleep(0.05)
        async with served(played.directory, at) as url:
            pages = [await asyncio.to_thread(read, f"{url}{path}") for path in ("studies", "studies/wellbeing")]
            assert "1 of 3 waves published, 1 missed" in pages[0]
            for said in ("How we are", "did not run", "to come", "trends.png"):
                assert said in pages[1]
            lines = (await asyncio.to_thread(read, f"{url}studies/wellbeing/results.csv")).splitlines()
            assert [line.split(",")[4] for line in lines[1:]] == ["granted", "missed", "to come"]
            picture = await asyncio.to_thread(read_bytes, f"{url}studies/wellbeing/trends.png")
            assert picture.startswith(b"\x89PNG")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                await asyncio.to_thread(read, f"{url}studies/other")


class AheadClock:
    """The machine's clock, set ahead."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def reach(self, unix_s: float) -> None:
        self.ahead_s += max(0.0, unix_s - self.now())


def read_bytes(url: str) -> bytes:
    with urllib.request.urlopen(url) as page:
        content: bytes = page.read()
    return content
