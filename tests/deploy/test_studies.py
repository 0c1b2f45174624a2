"""Studies as an operator has them: the file, its versions, what they promise."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from croupier.operator.study_folders import kept_studies
from croupier.operator.survey_plans import plan_survey
from croupier.study.file import read_study_file
from croupier.study.versions import describe_study, kept_versions, start_study
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
    file = read_study_file(write(tmp_path))
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
        read_study_file(write(tmp_path, STUDY.replace(before, after, 1)))


def test_every_wave_is_a_survey_that_the_study_fixes() -> None:
    version = describe_study(study_file(), None)
    for number in (1, 3):
        of_study = version.of_study(number)
        survey, settings = plan_survey(version.file.survey(of_study.wave), None, of_study)
        assert survey.wave == version.study.wave(number)
        assert [*settings] == [f"wellbeing-w{number}-1", f"wellbeing-w{number}-2"]
        assert {value.close_deadline_unix_s for value in settings.values()} == {of_study.wave.closes_unix_s}


def test_a_version_keeps_the_promises() -> None:
    """A lower one, too, would be promised for waves that have already cost more than that promise was made for."""
    first = describe_study(study_file(), None).study
    same = describe_study(study_file(budgets=[1]), None, before=first, change="One budget less.", first_wave=3).study
    assert (same.version, same.previous_hash, same.first_wave, same.last_wave) == (2, first.hash, 3, 5)
    for limit in (10, 21):
        with pytest.raises(ValueError, match=naming("total_epsilon", f"{limit}.0", "version 2", "20.0")):
            describe_study(study_file(epsilon_total=limit), None, before=first, change="Another.", first_wave=3)
    with pytest.raises(ValueError, match=naming("permanent", "True", "version 2", "False")):
        describe_study(study_file(permanent=True), None, before=first, change="Another.", first_wave=3)
    with pytest.raises(ValueError, match=naming("results", "operator", "version 2", "public")):
        describe_study(study_file(results="operator"), None, before=first, change="Another.", first_wave=3)


def test_what_a_file_promises_is_shown_before_it_begins(tmp_path: Path) -> None:
    file = str(write(tmp_path))
    document = answer("study", "show", file, "--dir", str(tmp_path))
    assert (len(document["waves"]), document["waves"][1]["survey_id"]) == (52, "wellbeing-w2")
    text = croupier("study", "show", file, "--dir", str(tmp_path)).stdout
    assert "It asks every week on Monday at 08:00 (Europe/Berlin), 52 waves" in " ".join(text.split())
    assert document["hash"] in text.replace("\n", "")


def test_a_study_begins_once(tmp_path: Path) -> None:
    croupier("keygen", "--dir", str(tmp_path), "--name", "test")
    file = study_file(results="operator")
    begun = start_study(tmp_path, file)
    assert begun.collector_public_key
    assert start_study(tmp_path, file).study == begun.study == kept_versions(tmp_path, "wellbeing")[0].study
    assert kept_studies(tmp_path) == ["wellbeing"]
    with pytest.raises(ValueError, match=naming("'wellbeing'", "other terms")):
        start_study(tmp_path, study_file(results="operator", title="Other"))
    with pytest.raises(ValueError, match=naming("'other'", "wellbeing")):
        kept_versions(tmp_path, "other")
