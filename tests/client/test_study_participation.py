"""Following a study: every wave once, also after having been off; limits; new versions; leaving; a crash in between."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from croupier import AsyncClient, Limits
from croupier.client.async_client import Answers
from croupier.client.joined import JoinedSurvey, WaveRecord
from croupier.client.submission import Participant, prepare_one
from croupier.operator.opened_surveys import close_rounds
from croupier.operator.survey_plans import survey_from
from croupier.protocol.errors import Code, Refusal, UnreachableError
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.surveys import Survey, scheduled
from croupier.show.promises import study_lines
from tests.support.messages import naming, refuses
from tests.support.rounds import Table, table
from tests.support.studies import open_wave, study_file

pytestmark = pytest.mark.virtual_time
ANSWERS: dict[str, float | str] = {"mood": "good", "ill": 1}
CALENDAR = {"first": "2030-01-01T08:00:00"}


@dataclass
class Scene:
    """A study whose waves a test opens, a person, and a clock that the test moves."""

    at: Table
    version: Survey
    client: AsyncClient
    now: float = 0.0
    asked: list[tuple[Survey, Survey]] = field(default_factory=list)
    answers: Answers = field(default_factory=lambda: ANSWERS)

    async def open(self, number: int) -> None:
        await open_wave(self.at, self.version, number)
        self.now = scheduled(self.version).wave(number).opens_unix_s + 60.0

    async def close(self, number: int) -> None:
        await close_rounds(self.at.inside.directory, self.version.round_ids(number), self.at.inside.transport)

    def with_clock(self, client: AsyncClient) -> None:
        async def sleep(seconds: float) -> None:
            assert 0 < seconds <= 900
            self.now += seconds

        self.client, client.now, client.sleep = client, lambda: self.now, sleep

    def follow(self, *, until_end: bool = True, accept: bool | None = None) -> AsyncIterator[WaveRecord]:
        def consents(before: Survey, after: Survey) -> bool:
            self.asked.append((before, after))
            return bool(accept)

        name, accepts = self.version.survey_id, None if accept is None else consents
        return self.client.follow(name, self.answers, until_end=until_end, accept=accepts)

    async def answer(self, **how: Any) -> list[WaveRecord]:
        return [record async for record in self.follow(until_end=False, **how)]

    async def join(self, epsilon: float = 2.0) -> None:
        self.client.join(await self.client.survey(self.version.survey_id), epsilon)
        await self.at.operator.enrol([PublicKey(bytes.fromhex(self.client.public_key))])

    async def begin(self, **changes: Any) -> None:
        """The first wave is open, perhaps with other terms, and the person has joined."""
        if changes:
            self.version = first_version(self.at, **changes)
        await self.open(1)
        await self.join()

    async def change(self, number: int, change: str = "x", before: Survey | None = None, **changes: Any) -> None:
        """A wave is open that belongs to a new version."""
        file = study_file(calendar=CALENDAR, min_batch_size=2, **changes)
        self.version = survey_from(
            file, self.at.deployment, before=before or self.version, change=change, first_wave=number
        )
        await self.open(number)


def first_version(at: Table, **changes: Any) -> Survey:
    return survey_from(study_file(calendar=CALENDAR, min_batch_size=2, **changes), at.deployment)


def kept_series(client: AsyncClient) -> dict[str, int]:
    """Returns how many different answers a client keeps a report of, by series."""
    with closing(sqlite3.connect(client.directory / "outbox.db")) as outbox:
        return dict(outbox.execute("SELECT series, count(*) FROM kept_reports WHERE report != x'' GROUP BY series"))


def briefly(records: Sequence[WaveRecord]) -> list[tuple[int, str, list[tuple[str, float]]]]:
    return [(record.wave, record.state, [(a.state, a.local_epsilon) for a in record.answers]) for record in records]


BOTH = [("answered", 1.0), ("answered", 1.0)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with table(tmp_path, 1) as at, at.operator.client(tmp_path / "client") as client:
        scene = Scene(at, first_version(at), client)
        scene.with_clock(client)
        yield scene


@pytest.mark.slow
async def test_every_wave_is_answered_once_also_after_having_been_off(scene: Scene) -> None:
    await scene.open(1)
    with pytest.raises(ValueError, match="was not joined"):
        await scene.answer()
    await scene.join()
    assert briefly(await scene.answer()) == [(1, "answered", BOTH)]
    assert await scene.answer() == []
    await scene.open(2)
    scene.now += 6 * 86_400  # it closes without this device
    await scene.open(3)
    assert briefly(await scene.answer()) == [(2, "missed", []), (3, "answered", BOTH)]
    assert scene.client.spent.local_epsilon == 4.0
    (joined,) = scene.client.joined_surveys()
    assert [consent.version for consent in joined.consents] == [1]
    assert joined.consents[0].hash == scene.version.hash.hex()


@pytest.mark.slow
async def test_it_waits_for_waves_by_the_calendar_and_ends_with_the_study(scene: Scene) -> None:
    await scene.begin()
    records = []
    async for record in scene.follow():
        records.append(record)
        if record.wave == 1:
            await scene.open(2)
            scene.now -= 3600.0  # it opens early
        elif record.wave == 2:
            scene.now += 14 * 86_400  # nobody opens the third
    assert briefly(records) == [(1, "answered", BOTH), (2, "answered", BOTH), (3, "missed", [])]


@pytest.mark.slow
async def test_limits_hold_over_the_study_and_say_what_they_cost(scene: Scene) -> None:
    scene.client.change_limits(lifetime_epsilon=3.75)
    for number, expected in (
        (1, [("answered", 1.0), ("answered", 1.0)]),
        (2, [("answered", 1.0), ("answered", 0.5)]),
        (3, [("abstained", 0.0), ("abstained", 0.0)]),
    ):
        await scene.open(number)
        if number == 1:
            await scene.join()
        (record,) = await scene.answer()
        assert [(answer.state, answer.local_epsilon) for answer in record.answers] == expected
    assert record.state == "abstained"
    assert "3.75" in record.answers[0].why
    assert scene.client.spent.local_epsilon == 3.5


async def test_a_new_version_is_answered_after_consent_alone(scene: Scene) -> None:
    await scene.begin()
    await scene.answer()
    first = scene.version
    await scene.change(2, "A smaller budget.", budgets=[0.5, 1, 2])
    (record,) = await scene.answer()
    assert (record.state, record.change, record.version) == ("new version", "A smaller budget.", 2)
    assert scene.client.spent.local_epsilon == 2.0
    assert [record.state for record in await scene.answer(accept=False)] == ["new version"]
    assert briefly(await scene.answer(accept=True)) == [(2, "answered", BOTH)]
    assert [(before.hash, after.hash) for before, after in scene.asked] == [(first.hash, scene.version.hash)] * 2
    (joined,) = scene.client.joined_surveys()
    assert [consent.hash for consent in joined.consents] == [first.hash.hex(), scene.version.hash.hex()]


@pytest.mark.parametrize("joins", [True, False])
async def test_a_version_that_does_not_follow_is_refused(scene: Scene, joins: bool) -> None:
    """Whether the client follows the study or joins it again."""
    await scene.begin()
    await scene.answer()
    await scene.change(2, before=first_version(scene.at, title="Other"))
    with pytest.raises(Refusal, match="not follow version 1"):
        await (scene.join() if joins else scene.answer(accept=True))
    assert scene.asked == []


CHANGED: list[tuple[dict[str, Any], str]] = [
    ({"total_epsilon": 60.0}, "total_epsilon"),
    ({"total_delta": 2e-3}, "total_delta"),
    ({"permanent": True}, "permanent"),
    ({"results": "operator"}, "results"),
    ({}, "collector_public_key"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "field"), CHANGED)
@pytest.mark.parametrize("joins", [True, False])
async def test_no_version_changes_what_people_were_promised(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], field: str, joins: bool
) -> None:
    """By itself: all services sign what the client must refuse, whether it follows the study or joins it again."""
    file, key = study_file(calendar=CALENDAR, min_batch_size=2), b""
    if not changes:
        file, key = file.model_copy(update={"results": "operator"}), bytes(range(32))
        scene.version = survey_from(file, scene.at.deployment, collector_public_key=key)
    await scene.begin()
    await scene.answer()
    first = scene.version
    monkeypatch.setattr(Survey, "check_promises_of", lambda *_: None)
    update = {
        "epsilon_total": changes.get("total_epsilon", file.epsilon_total),
        "delta_total": changes.get("total_delta", file.delta_total),
        "permanent": changes.get("permanent", file.permanent),
        "results": changes.get("results", file.results),
    }
    other_key = bytes(range(1, 33)) if update["results"] == "operator" else b""
    scene.version = survey_from(
        file.model_copy(update=update),
        scene.at.deployment,
        collector_public_key=other_key,
        before=first,
        change="x",
        first_wave=2,
    )
    await scene.open(2)
    monkeypatch.undo()
    with refuses(Code.BAD_MANIFEST, naming(field)):
        await (scene.join() if joins else scene.answer(accept=True))
    assert scene.asked == []
    (joined,) = scene.client.joined_surveys()
    assert [consent.version for consent in joined.consents] == [1]


@pytest.mark.slow
async def test_versions_that_a_device_has_missed_lead_to_the_one_that_it_knows(scene: Scene) -> None:
    await scene.begin()
    for number, budgets in ((2, [0.5, 1, 2]), (3, [1])):
        await scene.change(number, budgets=budgets)
    await scene.join()
    (joined,) = scene.client.joined_surveys()
    assert [consent.version for consent in joined.consents] == [1, 3]


async def test_leaving_ends_it_and_destroys_what_was_kept(scene: Scene, tmp_path: Path) -> None:
    await scene.begin(permanent=True)
    waves = []
    async for record in scene.follow():
        waves.append(record.wave)
        scene.client.leave("wellbeing")
        assert kept_series(scene.client) == {}
    assert waves == [1]
    assert scene.client.joined_surveys() == []
    assert JoinedSurvey.read(scene.client.directory, "wellbeing") is None
    assert scene.client.spent.local_epsilon == 2.0
    with pytest.raises(ValueError, match="was not joined"):
        scene.client.leave("wellbeing")
    scene.client.outbox.overwrite_log()
    assert scene.version.hash.hex().encode() not in b"".join(
        file.read_bytes() for file in scene.client.directory.rglob("*") if file.is_file()
    )


async def test_leaving_destroys_a_permanent_report_sent_without_following(scene: Scene) -> None:
    await scene.begin(permanent=True)
    asked = await scene.client.round("wellbeing-w1-1")
    await asked.submit("good", 1.0)
    assert len(kept_series(scene.client)) == 1
    scene.client.leave("wellbeing")
    assert kept_series(scene.client) == {}
    assert scene.client.spent.local_epsilon == 1.0


async def test_leaving_discards_no_report_of_another_person(scene: Scene) -> None:
    await scene.begin()
    terms = (await scene.client.survey()).rounds[0]
    others = {
        name: prepare_one(terms, onion_of(terms), Participant(value, 1.0))
        for name, value in (("person ann", 0), ("person bob", 1), ("ab", 1))
    }
    scene.client.outbox.prepare(terms.round_id, others)
    of_another_study = RoundId("wellbeing-work-w1-1")
    scene.client.outbox.prepare(of_another_study, {"ab": others["ab"]})
    scene.client.leave("wellbeing")
    assert set(scene.client.outbox.prepared(of_another_study)) == {"ab"}
    assert set(scene.client.outbox.prepared(terms.round_id)) == {"person ann", "person bob"}


async def test_a_permanent_study_spends_once_and_sends_the_same_report(scene: Scene) -> None:
    scene.version = first_version(scene.at, permanent=True)
    scene.client.change_limits(lifetime_epsilon=3.0)
    scene.answers = lambda wave: ANSWERS if wave != 2 else {"mood": "bad", "ill": 1}
    for number in (1, 2, 3):
        await scene.open(number)
        if number == 1:
            await scene.join()
        (record,) = await scene.answer()
        assert briefly([record]) == [(number, "answered", BOTH)]
        assert scene.client.spent.local_epsilon == (2.0 if number == 1 else 3.0)
    assert sorted(kept_series(scene.client).values()) == [1, 2]


async def test_a_process_that_dies_in_a_wave_goes_on_with_the_same_answers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.begin(permanent=True)

    class DiesError(Exception):
        pass

    sent = []

    async def dies(*_: Any, **__: Any) -> Any:
        sent.append(1)
        raise DiesError

    with monkeypatch.context() as patch:
        patch.setattr("croupier.client.round_client.send", dies)
        with pytest.raises(DiesError):
            await scene.answer()
    assert sent == [1]
    kept = kept_series(scene.client)
    first = scene.client.outbox.pending(RoundId("wellbeing-w1-1"))
    async with AsyncClient(
        scene.at.deployment, directory=scene.client.directory, transport=scene.at.inside.transport
    ) as again:
        scene.with_clock(again)
        assert briefly(await scene.answer()) == [(1, "answered", BOTH)]
        assert kept_series(again).items() >= kept.items()
        acknowledged = again.outbox.acknowledged(RoundId("wellbeing-w1-1"))
        assert acknowledged == first
        assert again.spent.local_epsilon == 2.0


@pytest.mark.slow
async def test_services_out_of_reach_are_tried_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.begin()
    honest = AsyncClient.round
    failed: list[int] = []

    async def fails_twice(self: AsyncClient, *args: Any) -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise UnreachableError("away")
        return await honest(self, *args)

    monkeypatch.setattr(AsyncClient, "round", fails_twice)
    async for record in scene.follow():
        assert record.state == "answered"
        break
    assert len(failed) == 2


async def test_what_all_waves_reveal_is_told_before_consent(scene: Scene) -> None:
    scene.version = first_version(scene.at, permanent=True)
    await scene.open(1)
    shown = await scene.client.survey()
    assert shown.survey.hash == scene.version.hash
    line, _ = study_lines(shown.rounds, 1.0)
    assert "all 3 waves of this version" in line
    await scene.change(2, budgets=[0.5, 1, 2], permanent=True)
    # What was answered in wave 1, with another report, is no part of this number: the line says so.
    line, earlier, _ = study_lines((await scene.client.survey()).rounds, 1.0)
    assert "all 3 waves of this version" in line
    assert earlier == "What you have answered in earlier versions comes on top."
    with pytest.raises(ValueError, match=r"ε = 0\.5; .* at least 1"):
        scene.client.join(shown, 0.5)
    with refuses(Code.UNKNOWN_ROUND):
        await scene.client.survey("other")
    assert Limits().lifetime_epsilon is None
