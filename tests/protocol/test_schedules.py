"""Schedules: when waves open, what a version may say, and which waves a round may be of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import pytest

from croupier.protocol.errors import Code
from croupier.protocol.names import Digest
from croupier.protocol.schedules import Calendar, Schedule
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.messages import naming, refuses
from tests.support.studies import kit_of_wave

WEEKLY = Calendar(datetime(2026, 3, 23, 8), "week", "Europe/Berlin", 5 * 86_400)
SCHEDULE = Schedule(1, None, "", WEEKLY, 1, 3, 4.0, 1e-5, False, "public")


def utc(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()


def test_waves_open_at_the_same_local_time_after_clocks_change() -> None:
    waves = list(SCHEDULE.waves())
    assert [utc(wave.opens_unix_s) for wave in waves] == [
        "2026-03-23T07:00:00+00:00",
        "2026-03-30T06:00:00+00:00",  # summer time began on the 29th
        "2026-04-06T06:00:00+00:00",
    ]
    assert utc(waves[0].closes_unix_s) == "2026-03-28T07:00:00+00:00"


def test_a_local_time_that_clocks_skip_or_repeat_has_one_meaning() -> None:
    nightly = replace(WEEKLY, first=datetime(2026, 3, 28, 2, 30), every="day", open_for_s=3600)
    assert [utc(nightly.opens(day)) for day in range(3)] == [
        "2026-03-28T01:30:00+00:00",
        "2026-03-29T01:30:00+00:00",  # 02:30 does not occur: as if the clocks had not changed yet
        "2026-03-30T00:30:00+00:00",
    ]
    back = replace(nightly, first=datetime(2026, 10, 25, 2, 30))
    assert utc(back.opens(0)) == "2026-10-25T00:30:00+00:00"  # the first of the two


def test_a_schedule_is_read_as_it_was_written() -> None:
    second = replace(SCHEDULE, version=2, previous_hash=Digest(bytes(32)), change="One question less.", first_wave=2)
    for schedule in (SCHEDULE, second, replace(SCHEDULE, permanent=True, results="operator")):
        assert Schedule.read(schedule.message()) == schedule


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"version": 2}, ("version 2",)),
        ({"change": "New"}, ("version 1",)),
        ({"first_wave": 2}, ("1", "version 1")),
        ({"last_wave": 5000}, ("1..5000", "1..4096")),
        ({"total_epsilon": 0.0}, ("total_epsilon", "0.0", "> 0")),
        ({"total_delta": 0.5}, ("total_delta", "0.5")),
        ({"results": "all"}, ("results", "'all'")),
        ({"version": 2, "previous_hash": Digest(b"x"), "change": "New"}, ("previous_hash", "32")),
        ({"calendar": replace(WEEKLY, every="once")}, ("1..3", "once", "1")),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(fields: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*named)):
        replace(SCHEDULE, **fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"first": datetime(2026, 1, 5, 8, 0, 1)}, ("whole minutes",)),
        ({"every": "month"}, ("every", "'month'", "once, day, week")),
        ({"timezone": "../etc"}, ("timezone", "'../etc'")),
        ({"open_for_s": 30}, ("open_for", "30 s", "60")),
        ({"open_for_s": 7 * 86_400}, ("60..597,600 s", "week")),
    ],
)
def test_a_calendar_that_cannot_be_is_refused(fields: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*named)):
        replace(WEEKLY, **fields)


def test_an_unknown_time_zone_is_named() -> None:
    with pytest.raises(ValueError, match=naming("timezone", "'Europe/Nowhere'")):
        replace(WEEKLY, timezone="Europe/Nowhere").opens(0)


def test_a_wave_states_its_schedule() -> None:
    terms = kit_of_wave(2).terms
    assert terms.wave is not None
    assert terms.survey.schedule is not None
    assert (terms.wave.number, terms.survey.survey_id, terms.survey.schedule.total_epsilon) == (2, "wellbeing", 20.0)
    assert terms.close_deadline_unix_s == terms.wave.closes_unix_s
    assert kit_of_wave(3).terms.survey.hash == terms.survey.hash


@pytest.mark.parametrize(
    ("part", "field", "value", "named"),
    [
        ("manifest", "wave", 0, ("1..3", "not 0")),
        ("manifest", "wave", 4, ("1..3", "not 4")),
        ("manifest.accountant", "round_id", "hidden", ("'hidden'", "'wellbeing-w2-1'")),
        ("manifest", "opens_unix_s", 1, ("wave 2", "432000 s")),
        ("survey.schedule", "results", pb.RESULTS_OPERATOR, ("operator",)),
        ("survey", "close_deadline_unix_s", 5, ("close_deadline_unix_s is 5",)),
        ("survey", "survey_id", "a" * 41, ("survey_id", "1..40")),
    ],
)
def test_a_round_that_its_schedule_does_not_have_is_refused(
    part: str, field: str, value: object, named: tuple[str, ...]
) -> None:
    kit = kit_of_wave(2)
    setattr(attrgetter(part)(kit), field, value)
    with refuses(Code.BAD_MANIFEST, naming(*named)):
        _ = kit.terms
