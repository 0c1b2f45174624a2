"""The description of a study: when its waves open, what a version may say, and which rounds are of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import canonical, parse_terms
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.studies import (
    Study,
    StudyCalendar,
    StudyWave,
    study_question_hash,
    study_texts_hash,
    wave_survey_id,
)
from croupier.protocol.surveys import Survey, SurveyRound, SurveyWording, stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.messages import naming

WEEKLY = StudyCalendar(datetime(2026, 3, 23, 8), "week", "Europe/Berlin", 5 * 86_400)
BLANK = Digest(bytes(32))
STUDY = Study("wellbeing", 1, None, "", WEEKLY, 1, 3, 4.0, 1e-5, False, "public", BLANK, (BLANK,))
WORDING = SurveyWording("en", "How we are", "I agree.")


def utc(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()


def test_waves_open_at_the_same_local_time_after_clocks_change() -> None:
    waves = list(STUDY.waves())
    assert [utc(wave.opens_unix_s) for wave in waves] == [
        "2026-03-23T07:00:00+00:00",
        "2026-03-30T06:00:00+00:00",  # summer time began on the 29th
        "2026-04-06T06:00:00+00:00",
    ]
    assert utc(waves[0].closes_unix_s) == "2026-03-28T07:00:00+00:00"
    assert waves[2].survey_id == "wellbeing-w3" == wave_survey_id("wellbeing", 3)


def test_a_local_time_that_clocks_skip_or_repeat_has_one_meaning() -> None:
    nightly = replace(WEEKLY, first=datetime(2026, 3, 28, 2, 30), every="day", open_for_s=3600)
    assert [utc(nightly.opens(day)) for day in range(3)] == [
        "2026-03-28T01:30:00+00:00",
        "2026-03-29T01:30:00+00:00",  # 02:30 does not occur: as if the clocks had not changed yet
        "2026-03-30T00:30:00+00:00",
    ]
    back = replace(nightly, first=datetime(2026, 10, 25, 2, 30))
    assert utc(back.opens(0)) == "2026-10-25T00:30:00+00:00"  # the first of the two


def test_a_description_is_read_as_it_was_written() -> None:
    second = replace(STUDY, version=2, previous_hash=STUDY.hash, change="One question less.", first_wave=2)
    for study in (STUDY, second, replace(STUDY, permanent=True, results="operator")):
        assert Study.read(study.message()) == study
        assert StudyWave.read(study.wave(3).message()) == study.wave(3)
    assert len({STUDY.hash, second.hash}) == 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"study_id": "a" * 41}, ("study_id", "1..40")),
        # Reproduction: leaving "wellbeing" destroyed the reports that are kept for these, and its limit counted them.
        ({"study_id": "wellbeing-w1"}, ("study_id", "'-w1'")),
        ({"study_id": "wellbeing-w12-more"}, ("study_id", "'-w12'")),
        ({"version": 2}, ("version 2",)),
        ({"change": "New"}, ("version 1",)),
        ({"first_wave": 2}, ("1", "version 1")),
        ({"last_wave": 5000}, ("1..5000", "1..4096")),
        ({"total_epsilon": 0.0}, ("total_epsilon", "0.0", "> 0")),
        ({"total_delta": 0.5}, ("total_delta", "0.5")),
        ({"results": "all"}, ("results", "'all'")),
        ({"question_hashes": ()}, ("32 bytes",)),
        ({"calendar": replace(WEEKLY, every="once")}, ("1..3", "once", "1")),
    ],
)
def test_a_description_that_cannot_be_is_refused(fields: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*named)):
        replace(STUDY, **fields)


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


def wave_manifest(number: int = 2) -> pb.Manifest:
    """The manifest of the only round of a wave."""
    manifest = make_kit(round_id=f"wellbeing-w{number}-1").manifest
    texts = Survey("any", (WORDING,), (SurveyRound(RoundId("any"), BLANK),)).message()
    study = replace(STUDY, texts_hash=study_texts_hash(texts), question_hashes=(study_question_hash(manifest),))
    wave = study.wave(number)
    manifest.close_deadline_unix_s = wave.closes_unix_s
    describe(manifest, wave)
    return manifest


def describe(manifest: pb.Manifest, wave: StudyWave, **fields: Any) -> None:
    rounds = (SurveyRound(RoundId(manifest.round_id), stated_terms_hash(manifest)),)
    survey = Survey(wave.survey_id, (WORDING,), rounds, wave=wave)
    manifest.survey.CopyFrom(replace(survey, **fields).message())


def test_a_wave_states_its_study() -> None:
    terms = parse_terms(canonical(wave_manifest()))
    assert terms.survey is not None
    wave = terms.survey.wave
    assert wave is not None
    assert (wave.number, wave.study.study_id, wave.study.total_epsilon) == (2, "wellbeing", 4.0)
    assert wave_manifest(3).survey.wave.study == wave_manifest(2).survey.wave.study


def another_budget(manifest: pb.Manifest, wave: StudyWave) -> None:
    manifest.budget_grid[-1].epsilon *= 2
    describe(manifest, wave)


def another_deadline(manifest: pb.Manifest, wave: StudyWave) -> None:
    manifest.close_deadline_unix_s += 60
    describe(manifest, wave)


def another_consent(manifest: pb.Manifest, wave: StudyWave) -> None:
    describe(manifest, wave, wordings=(replace(WORDING, consent="I agree to all."),))


def another_policy(manifest: pb.Manifest, wave: StudyWave) -> None:
    describe(manifest, wave, left_out="random")


def another_name(manifest: pb.Manifest, wave: StudyWave) -> None:
    describe(manifest, wave, survey_id="wellbeing-w3")


def another_round(manifest: pb.Manifest, wave: StudyWave) -> None:
    manifest.round_id = "hidden"
    for keys in (*manifest.hops, manifest.accountant, manifest.analyzer):
        keys.round_id = "hidden"
    describe(manifest, wave)


def sealed(manifest: pb.Manifest, wave: StudyWave) -> None:
    describe(manifest, replace(wave, study=replace(wave.study, results="operator")))


def longer(manifest: pb.Manifest, wave: StudyWave) -> None:
    manifest.survey.wave.opens_unix_s -= 60


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (another_budget, ("'wellbeing-w2-1'",)),
        (another_deadline, ("closes at",)),
        (another_consent, ("other texts",)),
        (another_policy, ("left_out",)),
        (another_name, ("'wellbeing-w3'", "'wellbeing-w2'")),
        (another_round, ("wellbeing-w2-",)),
        (sealed, ("wave 2", "'wellbeing'", "operator")),
        (longer, ("432000 s",)),
    ],
)
def test_a_round_that_its_study_does_not_fix_is_refused(change: Any, named: tuple[str, ...]) -> None:
    manifest = wave_manifest()
    wave = StudyWave.read(manifest.survey.wave)
    change(manifest, wave)
    with pytest.raises(Refusal, match=naming(*named)) as refused:
        parse_terms(canonical(manifest))
    assert refused.value.code is Code.BAD_MANIFEST
