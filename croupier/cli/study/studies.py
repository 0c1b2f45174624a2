"""Commands about studies: write one down, plan it, run it, read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli.console import ASK, HERE, Directory, Json, note, plain_errors, show

if TYPE_CHECKING:
    from croupier.operator.survey_file import Value
    from croupier.show.study_description import StudyPlanView, StudyView
    from croupier.show.study_results import StudyResultsView
    from croupier.study.plans import StudyPlan
    from croupier.study.versions import StudyVersion

File = Annotated[Path, typer.Argument(help="The study's file: 'croupier study new' writes one.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the group `study` to the command line."""
    group = typer.Typer(
        no_args_is_help=True, help="Ask the same people again and again: one consent, a calendar, one privacy limit."
    )
    for name, command in (
        ("new", study_new),
        ("plan", study_plan),
        ("show", study_show),
        ("run", study_run),
        ("change", study_change),
        ("results", study_results),
    ):
        group.command(name)(command)
    app.add_typer(group, name="study", rich_help_panel=ASK)


def study_new(
    file: Annotated[Path, typer.Argument(help="The new file; you can change it before the study begins.")] = Path(
        "study.toml"
    ),
) -> None:
    """Ask what to ask, and when, and write it into a new file."""
    with plain_errors():
        from croupier.cli.study.surveys import ask_survey
        from croupier.operator.survey_file import written
        from croupier.study.file import read_study_file

        values, questions = ask_survey(file)
        every = typer.prompt("How often (once, day or week)", "week")
        tomorrow = datetime.now().replace(hour=8, minute=0, second=0, microsecond=0) + timedelta(days=1)
        first = typer.prompt("When the first wave opens", f"{tomorrow:%Y-%m-%dT%H:%M}")
        calendar: dict[str, Value] = {"first": datetime.fromisoformat(first), "every": every}
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
        from croupier.show.study_description import study_text

        document = _view(_version(study, directory))
    show(as_json, document, study_text(document))


def _version(study: str, directory: Path) -> StudyVersion:
    """Returns the newest version of a study that was begun, or what a file would begin."""
    from croupier.deploy.directory import read_deployment
    from croupier.operator.study_folders import kept_studies
    from croupier.protocol.deployment import DEPLOYMENT_FILE
    from croupier.study.file import read_study_file
    from croupier.study.versions import describe_study, kept_versions

    if not study.endswith(".toml"):
        return kept_versions(directory, study)[-1]
    file = read_study_file(Path(study))
    deployment = read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None
    described = describe_study(file, deployment)
    if file.name in kept_studies(directory) and kept_versions(directory, file.name)[-1].file == described.file:
        return kept_versions(directory, file.name)[-1]
    return described


def _view(version: StudyVersion) -> StudyView:
    from croupier.show.study_description import study_json

    file = version.file
    questions = [question.wordings[0].question for question in file.asked()]
    return study_json(version.study, file.title, file.consent, questions)


def study_plan(
    file: File = Path("study.toml"),
    expected: Annotated[int, typer.Option(help="How many people answer every wave.")] = 1000,
    error: Annotated[
        float | None, typer.Option(help="Half of the 95 % interval for the population, the range being 1.")
    ] = None,
    epsilon_total: Annotated[
        float | None, typer.Option(help="The most that all waves together may cost one person (ε).")
    ] = None,
    waves: Annotated[int | None, typer.Option(help="How many waves.")] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Say what a study comes to: error and ε of every question per wave, per year and over the study.

    Give an error, a total ε, or both: the budget, or the number of waves, is found.
    """
    with plain_errors():
        from croupier.deploy.directory import read_deployment
        from croupier.protocol.deployment import DEPLOYMENT_FILE
        from croupier.show.study_description import plan_lines, plan_tables
        from croupier.study.file import read_study_file
        from croupier.study.plans import plan_study

        deployment = read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None
        plan = plan_study(
            read_study_file(file), deployment, expected, error=error, epsilon_total=epsilon_total, waves=waves
        )
        document = _plan_json(plan)
    show(as_json, document, *plan_tables(document), *plan_lines(document))


def _plan_json(plan: StudyPlan) -> StudyPlanView:
    return {
        "people": plan.people,
        "waves": plan.waves,
        "epsilon_total": plan.epsilon_total,
        "delta_total": plan.delta_total,
        "solved": list(plan.solved),
        "tiers": [
            {
                "budget": tier.budget,
                "questions": [
                    {
                        "name": question.name,
                        "local_epsilon": question.local_epsilon,
                        "epsilon": question.certificate.epsilon,
                        "delta": question.certificate.delta,
                        "grade": str(question.certificate.grade),
                        "error_participants": question.margins.participants,
                        "error_population": question.margins.population,
                    }
                    for question in tier.questions
                ],
                "totals": [
                    {
                        "period": total.period,
                        "waves": total.waves,
                        "shuffle": None if total.shuffle is None else total.shuffle.to_json(),
                        "one_honest": None if total.one_honest is None else total.one_honest.to_json(),
                        "alone": None if total.alone is None else total.alone.to_json(),
                    }
                    for total in tier.totals
                ],
                "waves_borne": tier.waves_borne,
            }
            for tier in plan.tiers
        ],
    }


def study_run(
    file: File = Path("study.toml"),
    metrics: Annotated[
        str, typer.Option(help="HOST:PORT where Prometheus reads how many waves the limit bears; empty: nowhere.")
    ] = "",
    directory: Directory = HERE,
) -> None:
    """Run a study until its last wave is over: open, close and publish every wave in time.

    The first call fixes version 1 of the study. After a restart the same command goes on. It ends with 3 where a limit
    does not bear the next wave.
    """
    with plain_errors():
        import asyncio

        from croupier.study.file import read_study_file
        from croupier.study.journal import StudyJournal
        from croupier.study.metrics import StudyMetrics
        from croupier.study.runs import StudyRun
        from croupier.study.versions import journal_file, start_study

        version = start_study(directory, read_study_file(file))
        name = version.study.study_id
        note(
            f"study {name}, version {version.study.version}, hash {version.study.hash.hex()}; 'croupier invite {name}' "
            "makes links for all waves (Ctrl-C ends the process)"
        )
        with (
            StudyJournal.running(journal_file(directory, name)) as journal,
            StudyMetrics(directory, name, metrics) as told,
        ):
            asyncio.run(StudyRun(directory, name, journal, tell=note).run(told.update))
        note(f"study {name} is over; 'croupier study results {name}' shows all waves")


def study_change(
    change: Annotated[str, typer.Option("--because", help="What is changed, and why: people read it.")],
    file: File = Path("study.toml"),
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Make a new version of a study from its changed file, for the waves that are not due yet.

    People see it with the next wave, and consent again. Waves that are open keep the version that they have.
    """
    with plain_errors():
        import time

        from croupier.show.study_description import study_text
        from croupier.study.file import read_study_file
        from croupier.study.versions import change_study

        document = _view(change_study(directory, read_study_file(file), change, time.time()))
    show(as_json, document, study_text(document))


def study_results(
    study: Annotated[str, typer.Argument(help="The study's name.")],
    out: Annotated[Path | None, typer.Option(help="Write the table into this file: .csv, .json or .parquet.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the trends into this file: .png, .svg or .pdf.")] = None,
    against: Annotated[
        str, typer.Option(help="Compare each wave with the 'previous' one or the 'first'.")
    ] = "previous",
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Show the results of all waves, with intervals, and the differences between waves; all of it verified.

    It reads what the study's process has kept, and asks no service.
    """
    with plain_errors(extra="plots"):
        from croupier.show.plots import check_plot_file, plot_study
        from croupier.show.study_results import differences_table, results_lines, study_results_table
        from croupier.study.wave_results import study_state, study_view

        if against not in ("previous", "first"):
            raise ValueError(f"against is {against!r}; it must be previous or first")
        if chart is not None:
            check_plot_file(chart)
        state = study_state(directory, study)
        document = study_view(state, against)  # type: ignore[arg-type]
        if out is not None:
            _write_rows(out, document)
        if chart is not None:
            titles = {question.name: question.question for question in state.versions[-1].file.questions}
            plot_study(document["rows"], titles, chart)
    show(
        as_json,
        document,
        study_results_table(document["rows"]),
        *([differences_table(document["differences"])] if document["differences"] else []),
        *results_lines(document),
    )


def _write_rows(file: Path, document: StudyResultsView) -> None:
    """Writes the tidy table; raises ValueError for a file with another ending, ImportError without polars."""
    import json

    from croupier.show.study_results import study_csv

    ending = file.suffix.lower()
    if ending == ".csv":
        file.write_text(study_csv(document["rows"]), encoding="utf-8")
    elif ending == ".json":
        file.write_text(json.dumps(document["rows"]) + "\n", encoding="utf-8")
    elif ending == ".parquet":
        import polars

        polars.DataFrame(document["rows"], infer_schema_length=None).write_parquet(file)
    else:
        raise ValueError(f"{file} cannot be written; its name must end in .csv, .json or .parquet")
