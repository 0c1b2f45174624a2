"""Commands about studies: write one down, plan it, run it, read it."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, Argument, Directory, Json, ask, note, show
from croupier.cli.study.surveys import ask_survey
from croupier.deploy.directory import read_deployment
from croupier.operator.study_folders import kept_studies
from croupier.operator.survey_file import Value, written
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.show.plots import check_plot_file, plot_study
from croupier.show.study_description import StudyPlanView, StudyView, plan_lines, plan_tables, study_json, study_text
from croupier.show.study_results import (
    StudyResultsView,
    differences_table,
    results_lines,
    study_csv,
    study_results_table,
)
from croupier.study.file import read_study_file
from croupier.study.journal import StudyJournal
from croupier.study.metrics import StudyMetrics
from croupier.study.plans import StudyPlan, plan_study
from croupier.study.runs import StudyRun
from croupier.study.versions import StudyVersion, change_study, describe_study, journal_file, kept_versions, start_study
from croupier.study.wave_results import study_state, study_view

File = Annotated[Path, Argument(help="The study's file: 'croupier study new' writes one.")]


def study_new(
    file: Annotated[Path, Argument(help="The new file; you can change it before the study begins.")] = Path(
        "study.toml"
    ),
    /,
) -> None:
    values, questions = ask_survey(file)
    every = ask("How often (once, day or week)", "week")
    tomorrow = datetime.now().replace(hour=8, minute=0, second=0, microsecond=0) + timedelta(days=1)
    first = ask("When the first wave opens", f"{tomorrow:%Y-%m-%dT%H:%M}")
    calendar: dict[str, Value] = {"first": datetime.fromisoformat(first), "every": every}
    calendar["timezone"] = ask("The time zone", "Europe/Berlin")
    calendar["waves"] = 1 if every == "once" else ask("How many waves", 52 if every == "week" else 30)
    calendar["open_for"] = ask("How long a wave is open", "5 days" if every != "day" else "12 hours")
    values["epsilon_total"] = ask("The most that all waves together may cost a person (ε)", 4.0)
    file.write_text(written(values, questions, calendar), encoding="utf-8")
    try:
        read_study_file(file)
    except ValueError as error:
        raise ValueError(f"{error}. Correct {file}") from error
    show(False, {}, f"{file} is written; 'croupier study show {file}' says what it promises")


def study_show(
    study: Annotated[str, Argument(help="The study's file, or the name of a study that was begun.")],
    /,
    *,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    document = _view(_version(study, directory))
    show(as_json, document, study_text(document))


def _version(study: str, directory: Path) -> StudyVersion:
    """Returns the newest version of a study that was begun, or what a file would begin."""
    if not study.endswith(".toml"):
        return kept_versions(directory, study)[-1]
    file = read_study_file(Path(study))
    deployment = read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None
    described = describe_study(file, deployment)
    if file.name in kept_studies(directory) and kept_versions(directory, file.name)[-1].file == described.file:
        return kept_versions(directory, file.name)[-1]
    return described


def _view(version: StudyVersion) -> StudyView:
    file = version.file
    questions = [question.wordings[0].question for question in file.asked()]
    return study_json(version.study, file.title, file.consent, questions)


def study_plan(
    file: File = Path("study.toml"),
    /,
    *,
    expected: Annotated[int, Parameter(help="How many people answer every wave.")] = 1000,
    error: Annotated[
        float | None, Parameter(help="Half of the 95 % interval for the population, the range being 1.")
    ] = None,
    epsilon_total: Annotated[
        float | None, Parameter(help="The most that all waves together may cost one person (ε).")
    ] = None,
    waves: Annotated[int | None, Parameter(help="How many waves.")] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
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
    /,
    *,
    metrics: Annotated[
        str, Parameter(help="HOST:PORT where Prometheus reads how many waves the limit bears; empty: nowhere.")
    ] = "",
    directory: Directory = HERE,
) -> None:
    version = start_study(directory, read_study_file(file))
    name = version.study.study_id
    note(
        f"study {name}, version {version.study.version}, hash {version.study.hash.hex()}; 'croupier invite {name}' "
        "makes links for all waves (Ctrl-C ends the process)"
    )
    with StudyJournal.running(journal_file(directory, name)) as journal, StudyMetrics(directory, name, metrics) as told:
        asyncio.run(StudyRun(directory, name, journal, tell=note).run(told.update))
    note(f"study {name} is over; 'croupier study results {name}' shows all waves")


def study_change(
    file: File = Path("study.toml"),
    /,
    *,
    change: Annotated[str, Parameter("--because", help="What is changed, and why: people read it.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    document = _view(change_study(directory, read_study_file(file), change, time.time()))
    show(as_json, document, study_text(document))


def study_results(
    study: Annotated[str, Argument(help="The study's name.")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="Write the table into this file: .csv, .json or .parquet.")] = None,
    chart: Annotated[Path | None, Parameter(help="Draw the trends into this file: .png, .svg or .pdf.")] = None,
    against: Annotated[str, Parameter(help="Compare each wave with the 'previous' one or the 'first'.")] = "previous",
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
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
