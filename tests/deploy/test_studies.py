"""Studies as an operator has them: the file, its versions, what they promise."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from croupier.operator.survey_file import read_survey_file
from croupier.operator.survey_plans import plan_survey, survey_from
from croupier.protocol.surveys import scheduled
from croupier.study.versions import begun_versions, kept_schedules, start_study
from tests.support.command_line import answer, croupier
from tests.support.messages import naming
from tests.support.studies import study_file

STUDY = """\
name = "wellbeing"
title = "How we are"
consent = "I answer for myself."
budgets = [0.5, 1, 2]
min_batch_size = 500
epsilon_total = 4

[calendar]
first = 2026-01-01T08:00:00
every = "week"
on = "Monday"
waves = 52
timezone = "Europe/Berlin"
open_for = "5 days"

[[questions]]
name = "ill"
question = "Were you ill?"
"""


def write(directory: Path, text: str = STUDY) -> Path:
    file = directory / "study.toml"
    file.write_text(text)
    return file


def test_a_file_states_a_calendar_and_a_limit(tmp_path: Path) -> None:
    file = read_survey_file(write(tmp_path))
    assert file.calendar is not None
    calendar = file.calendar.calendar()
    assert (calendar.first, calendar.open_for_s) == (datetime(2026, 1, 5, 8), 432_000)
    assert (file.epsilon_total, file.delta_total, file.results, file.permanent) == (4, 1e-5, "public", False)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('"5 days"', '"5 weeks"', ("calendar.open_for", "'5 weeks'", "'5 days'")),
        ('"5 days"', '"7 days"', ("open_for", "604,800 s", "60..597,600 s", "week")),
        ('every = "week"', 'every = "day"', ("on", "Monday", "every day")),
        ("Europe/Berlin", "Europe/Nowhere", ("timezone", "'Europe/Nowhere'")),
        ("waves = 52", "waves = 0", ("calendar.waves", "0")),
        ("epsilon_total = 4\n", "", ("epsilon_total", "missing")),
        ("epsilon_total = 4", "epsilon_total = 0", ("epsilon_total", "0")),
        ("min_batch_size = 500", "closes = 2030-01-01T00:00:00Z", ("closes",)),
        ('name = "wellbeing"', f'name = "{"w" * 41}"', ("1..40",)),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, before: str, after: str, named: tuple[str, ...]) -> None:
    assert before in STUDY
    with pytest.raises(ValueError, match=naming(*named)):
        read_survey_file(write(tmp_path, STUDY.replace(before, after, 1)))


def test_every_wave_asks_what_the_survey_fixes() -> None:
    survey = plan_survey(study_file(), None)
    for number in (1, 3):
        assert [*survey.round_ids(number)] == [f"wellbeing-w{number}-1", f"wellbeing-w{number}-2"]
    assert survey.message.close_deadline_unix_s == 0  # each wave has its own
    assert survey.disposes_if_short


def test_a_version_keeps_the_promises() -> None:
    """A lower one, too, would be promised for waves that have already cost more than that promise was made for."""
    first = survey_from(study_file(), None)
    same = survey_from(study_file(budgets=[1]), None, before=first, change="One budget less.", first_wave=3)
    schedule = scheduled(same)
    assert (schedule.version, schedule.previous_hash, schedule.first_wave, schedule.last_wave) == (2, first.hash, 3, 5)
    for limit in (10, 21):
        with pytest.raises(ValueError, match=naming("total_epsilon", f"{limit}.0", "version 2", "20.0")):
            survey_from(study_file(epsilon_total=limit), None, before=first, change="Another.", first_wave=3)
    with pytest.raises(ValueError, match=naming("permanent", "True", "version 2", "False")):
        survey_from(study_file(permanent=True), None, before=first, change="Another.", first_wave=3)
    with pytest.raises(ValueError, match=naming("results", "operator", "version 2", "public")):
        survey_from(study_file(results="operator"), None, before=first, change="Another.", first_wave=3)


def test_what_a_file_promises_is_shown_before_it_begins(tmp_path: Path) -> None:
    file = str(write(tmp_path))
    document = answer("survey", "show", file, "--dir", str(tmp_path))
    waves = document["schedule"]["waves"]
    assert (len(waves), waves[1]["survey_id"]) == (52, "wellbeing-w2")
    text = croupier("survey", "show", file, "--dir", str(tmp_path)).stdout
    assert "It asks every week on Monday at 08:00 (Europe/Berlin), 52 waves" in " ".join(text.split())
    assert document["hash"] in text.replace("\n", "")


def test_a_study_begins_once(tmp_path: Path) -> None:
    croupier("keygen", "--dir", str(tmp_path), "--name", "test")
    file = study_file(results="operator")
    begun = start_study(tmp_path, file)
    assert begun.message.collector_public_key
    assert start_study(tmp_path, file).hash == begun.hash == begun_versions(tmp_path, "wellbeing")[0].hash
    assert kept_schedules(tmp_path) == ["wellbeing"]
    with pytest.raises(ValueError, match=naming("'wellbeing'", "other terms")):
        start_study(tmp_path, study_file(results="operator", title="Other"))
    with pytest.raises(ValueError, match=naming("'other'", "wellbeing")):
        begun_versions(tmp_path, "other")
