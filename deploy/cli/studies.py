"""Commands about studies: write one down, show it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.deploy.cli.console import (
    ASK,
    HERE,
    Directory,
    Json,
    plain_errors,
    show,
)

if TYPE_CHECKING:
    from croupier.deploy.operator.studies import StudyVersion
    from croupier.show.studies import StudyView

__all__ = ["add_commands"]

File = Annotated[Path, typer.Argument(help="The study's file: 'croupier study new' writes one.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the group `study` to the command line."""
    group = typer.Typer(
        no_args_is_help=True, help="Ask the same people again and again: one consent, a calendar, one privacy limit."
    )
    for name, command in (("new", study_new), ("show", study_show)):
        group.command(name)(command)
    app.add_typer(group, name="study", rich_help_panel=ASK)


def study_new(
    file: Annotated[Path, typer.Argument(help="The new file; you can change it before the study begins.")] = Path(
        "study.toml"
    ),
) -> None:
    """Ask what to ask, and when, and write it into a new file."""
    with plain_errors():
        from croupier.deploy.cli.surveys import ask_survey
        from croupier.deploy.operator.study_file import read_study_file
        from croupier.deploy.operator.survey_file import written

        values, questions = ask_survey(file)
        every = typer.prompt("How often (once, day or week)", "week")
        tomorrow = datetime.now().replace(hour=8, minute=0, second=0, microsecond=0) + timedelta(days=1)
        first = typer.prompt("When the first wave opens", f"{tomorrow:%Y-%m-%dT%H:%M}")
        calendar: dict[str, Any] = {"first": datetime.fromisoformat(first), "every": every}
        calendar["timezone"] = typer.prompt("The time zone", "Europe/Berlin")
        calendar["waves"] = 1 if every == "once" else typer.prompt("How many waves", 52 if every == "week" else 30)
        calendar["open_for"] = typer.prompt("How long a wave is open", "5 days" if every != "day" else "12 hours")
        values["epsilon_total"] = typer.prompt("The most that all waves together may cost a person (ε)", 4.0)
        file.write_text(written(values, questions, calendar), encoding="utf-8")
        try:
            read_study_file(file)
        except ValueError as error:
            raise ValueError(f"{error}. Correct {file}") from error
    show(False, {}, f"{file} is written; 'croupier study show {file}' says what it promises")


def study_show(
    study: Annotated[str, typer.Argument(help="The study's file, or the name of a study that was begun.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show what a study promises, and when its waves open; of a study that was begun, its newest version."""
    with plain_errors():
        from croupier.show.studies import study_text

        document = _view(_version(study, directory))
    show(as_json, document, study_text(document))


def _version(study: str, directory: Path) -> StudyVersion:
    """Returns the newest version of a study that was begun, or what a file would begin."""
    from croupier.deploy.directory import read_deployment
    from croupier.deploy.operator.studies import describe_study, kept_versions
    from croupier.deploy.operator.study_file import read_study_file
    from croupier.protocol.deployment import DEPLOYMENT_FILE

    if not study.endswith(".toml"):
        return kept_versions(directory, study)[-1]
    file = read_study_file(Path(study))
    deployment = read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None
    return describe_study(file, deployment)


def _view(version: StudyVersion) -> StudyView:
    from croupier.show.studies import study_json

    file = version.file
    questions = [one.wordings[0].question for one in file.asked()]
    return study_json(version.study, file.title, file.consent, questions)
