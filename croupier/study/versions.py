"""Surveys with a schedule as the operator keeps them (`operator.opened_surveys`): begun once, and changed in versions.

The key that opens results which are not public lies beside the versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from croupier.deploy.directory import read_deployment
from croupier.operator.keys import alone, make_collector_key
from croupier.operator.opened_surveys import keep_survey, kept_surveys, kept_versions, survey_folder, version_of_wave
from croupier.operator.survey_file import SurveyFile
from croupier.operator.survey_plans import plan_survey, survey_from, with_budgets
from croupier.protocol.collector import read_collector_key
from croupier.protocol.deployment import Deployment
from croupier.protocol.surveys import Survey, scheduled
from croupier.study.journal import read_journal, wave_records


def collector_key_file(directory: Path, survey_id: str) -> Path:
    """Returns the file of the key that opens the results of a survey which are not public."""
    return survey_folder(directory, survey_id) / "collector.key"


def begun_versions(directory: Path, survey_id: str) -> list[Survey]:
    """Returns all versions of a survey with a schedule that was begun from this directory, oldest first.

    Raises:
        ValueError: there is no such survey.
    """
    versions = list(kept_versions(directory, survey_id).values())
    if not versions or versions[0].schedule is None:
        begun = ", ".join(kept_schedules(directory)) or "none"
        raise ValueError(
            f"{directory} has begun no study {survey_id!r} (begun: {begun}); 'croupier survey run' begins one"
        )
    return versions


def kept_schedules(directory: Path) -> list[str]:
    """Returns the names of the surveys with a schedule that were begun from this directory, in alphabetic order."""
    names = sorted(kept_surveys(directory))
    return [name for name in names if next(iter(kept_versions(directory, name).values())).schedule is not None]


def journal_file(directory: Path, survey_id: str) -> Path:
    """Returns the journal of a survey (`study.journal`)."""
    return survey_folder(directory, survey_id) / "journal.jsonl"


def change_study(directory: Path, file: SurveyFile, change: str, now: float) -> Survey:
    """Makes a new version of a survey, from the first wave on that is not due yet, and returns it.

    Waves that are open, or should be, keep the version that they have. Waves of the new version are opened by its
    calendar.

    Args:
        directory: of the deployment.
        file: of the survey, changed.
        change: a description of the change, for people.
        now: Unix seconds.

    Raises:
        ValueError: the survey goes on by a rule, nothing is changed, the first wave of the new calendar is in the past,
            the terms are invalid, or the version breaks the promises of the first one.
    """
    deployment = read_deployment(directory)
    with alone(survey_folder(directory, file.name)):
        versions = begun_versions(directory, file.name)
        last = scheduled(versions[-1])
        if last.follows_results:
            raise ValueError(f"survey {file.name!r} goes on by the rule of its question, which no version changes")
        begun = wave_records(read_journal(journal_file(directory, file.name)))
        numbers = range(1, last.last_wave + 1)
        due = [n for n in numbers if scheduled(version_of_wave(versions, n)).wave(n).opens_unix_s <= now]
        first_wave = max([0, *begun, *due]) + 1
        key = versions[-1].message.collector_public_key
        file = with_budgets(file, deployment, key)
        if states(file, deployment, versions, len(versions) - 1):
            raise ValueError(f"the file says what version {last.version} of {file.name!r} says: nothing changes")
        made = survey_from(
            file, deployment, collector_public_key=key, before=versions[-1], change=change, first_wave=first_wave
        )
        if (opens := scheduled(made).calendar).opens(0) <= now:
            raise ValueError(
                f"calendar.first is {opens.first:%Y-%m-%d %H:%M}; the first wave of a new version, wave "
                f"{first_wave}, must be in the future"
            )
        keep_survey(directory, made)
        return made


def start_study(directory: Path, file: SurveyFile) -> Survey:
    """Fixes version 1 of a survey with a schedule, and returns it; the same call again returns the newest version.

    Raises:
        ValueError: the terms are invalid, or the survey was begun with other ones.
    """
    deployment = read_deployment(directory)
    with alone(survey_folder(directory, file.name)):
        key = b""
        if file.results != "public":
            private = collector_key_file(directory, file.name)
            if not private.exists():
                make_collector_key(private, file.hpke_suite)
            key = read_collector_key(private.read_text(encoding="utf-8"))[1].public
        versions = list(kept_versions(directory, file.name).values())
        if not versions:
            made = plan_survey(with_budgets(file, deployment, key), deployment, key)
            scheduled(made)
            keep_survey(directory, made)
            return made
        file = with_budgets(file, deployment, key)
        if any(states(file, deployment, versions, place) for place in {0, len(versions) - 1}):
            return versions[-1]
        raise ValueError(
            f"study {file.name!r} was begun with other terms; 'croupier survey change' makes a new version of it"
        )


def states(file: SurveyFile, deployment: Deployment, versions: Sequence[Survey], place: int) -> bool:
    """Returns whether a file with budgets says what a kept version states."""
    version, before = versions[place], versions[place - 1] if place else None
    change, first_wave = scheduled(version).change, scheduled(version).first_wave
    key = version.message.collector_public_key
    try:
        again = survey_from(
            file, deployment, collector_public_key=key, before=before, change=change, first_wave=first_wave
        )
    except ValueError:
        return False
    return again.hash == version.hash
