"""Commands about surveys: write one down, check it, open it, run its waves, show, close and change it.

A survey is named by its file, or by its name once it is open; a single question needs no file: its options describe it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from croupier.cli.console import (
    HERE,
    REFUSED,
    Argument,
    Directory,
    Gateway,
    Json,
    agrees,
    ask,
    fail,
    note,
    show,
)
from croupier.cli.question_options import QuestionOptions
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.clients import client_of, terms_of
from croupier.operator.opened_surveys import close_rounds, kept_versions, was_opened, withdraw_rounds
from croupier.operator.operator import Operator, sees_rounds
from croupier.operator.overview import approvals_of, ledger_left
from croupier.operator.round_settings import fresh_name
from croupier.operator.survey_file import Lines, SurveyFile, Value, read_survey_file, written, written_file
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.protocol.documents import fields_of
from croupier.protocol.errors import Refusal
from croupier.protocol.manifest import state_name
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.surveys import Survey, scheduled
from croupier.show.forecasts import (
    closing_lines,
    forecast_json,
    forecast_table,
    survey_forecast_json,
    survey_forecast_lines,
    survey_forecast_table,
)
from croupier.show.plan_tables import plan_lines, plan_tables
from croupier.show.round_text import answering_sections
from croupier.show.survey_description import survey_json, survey_sections, survey_texts
from croupier.show.text import counted

if TYPE_CHECKING:
    from croupier.operator.survey_plans import SurveyForecast

FILE = ".toml"
"""What the name of a survey's file ends in; anything else names an open survey, or a question that options describe."""
Asked = Annotated[str, Argument(help="The survey's file, which ends in .toml; or a short name for a single question.")]
Name = Annotated[str, Argument(help="The survey, or one of its rounds, as printed by 'survey open'.")]


@Parameter(name="*", group="People and time")
@dataclass(frozen=True)
class ForecastOptions:
    """The people that a survey is forecast for, and what the operator risks."""

    expected: Annotated[int, Parameter(help="Forecast for this many people, too; 0: for --min-batch-size only.")] = 0
    at_risk: Annotated[
        bool,
        Parameter(
            help="Offer every given budget, although the accountant may refuse a question for some choice of them, "
            "which destroys its answers."
        ),
    ] = False


def _is_file(asked: str) -> bool:
    return asked.endswith(FILE)


def _file_of(asked: str, options: QuestionOptions, name: str) -> SurveyFile:
    """Returns the contents of a survey's file, or those that options describe under this name.

    Raises:
        ValueError: options are given beside a file, the ending of a file's name is forgotten, or the terms cannot be.
    """
    if _is_file(asked):
        if options != QuestionOptions():
            raise ValueError(
                f"{asked} states all terms; options such as --grid describe a single question without a file"
            )
        return read_survey_file(Path(asked))
    if Path(f"{asked}{FILE}").exists():
        raise ValueError(f"{asked}{FILE} is a file here; name it whole, or give another name to a single question")
    return options.file(asked, name)


def survey_new(
    file: Annotated[Path, Argument(help="The new file; you can change it before you open the survey.")] = Path(
        "survey.toml"
    ),
    /,
    *,
    options: QuestionOptions = QuestionOptions(),
) -> None:
    from croupier.operator.survey_plans import with_budgets

    if file.exists():
        raise ValueError(f"{file} exists; choose another file, or change it")
    if options != QuestionOptions():
        file.write_text(written_file(options.file(file.stem, file.stem)), encoding="utf-8")
        show(False, {}, f"{file} is written; 'croupier survey open {file}' opens it")
        return
    values, questions = _ask_survey()
    calendar = _ask_calendar(values) if agrees("Ask the same people again and again?") else None
    file.write_text(written(values, questions, calendar), encoding="utf-8")
    try:
        fitting = with_budgets(read_survey_file(file), None).budgets
        note(
            f"{', '.join(f'{budget:g}' for budget in fitting)} are budgets with which no question can be refused "
            f"with {values['min_batch_size']:,} people or more. Larger budgets make results more exact, and "
            "protect people less."
        )
        numbers = ask(
            "Budgets that people choose from (ε of all answers together)", ",".join(f"{budget:g}" for budget in fitting)
        )
        values["budgets"] = [float(number) for number in numbers.split(",")]
        file.write_text(written(values, questions, calendar), encoding="utf-8")
        forecasts = _forecasts(None, read_survey_file(file))
    except ValueError as error:
        raise ValueError(f"{error}. Correct {file}, and open the survey with it") from error
    show(
        False,
        {},
        survey_forecast_table(forecasts),
        *survey_forecast_lines(forecasts),
        f"{file} is written; 'croupier survey open {file}' opens it",
    )


def _ask_survey() -> tuple[dict[str, Value], list[Lines]]:
    """Returns the lines of a survey and of its questions that a person at the terminal gives for a new file."""
    title = ask("Title")
    name = ask("A short name, unique in this deployment", re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"))
    values: dict[str, Value] = {"name": name, "language": ask("Language of your texts", "en"), "title": title}
    values["introduction"] = ask("Who asks, and what for", "")
    values["consent"] = ask("What people agree to who answer")
    values["min_batch_size"] = ask("How many people must answer at least", 100)
    values["left_out"] = "random" if agrees("Hide who leaves a question out?") else "missing"
    questions: list[Lines] = []
    while not questions or agrees("Another question?"):
        questions.append(_ask_question(len(questions) + 1))
    return values, questions


def _ask_calendar(values: dict[str, Value]) -> dict[str, Value]:
    """Returns the lines of a calendar that a person at the terminal gives; adds the limit to those of the survey."""
    every = ask("How often (once, day or week)", "week")
    tomorrow = datetime.now().replace(hour=8, minute=0, second=0, microsecond=0) + timedelta(days=1)
    first = ask("When the first wave opens", f"{tomorrow:%Y-%m-%dT%H:%M}")
    calendar: dict[str, Value] = {"first": datetime.fromisoformat(first), "every": every}
    calendar["timezone"] = ask("The time zone", "Europe/Berlin")
    calendar["waves"] = 1 if every == "once" else ask("How many waves", 52 if every == "week" else 30)
    calendar["open_for"] = ask("How long a wave is open", "5 days" if every != "day" else "12 hours")
    values["epsilon_total"] = ask("The most that all waves together may cost a person (ε)", 4.0)
    return calendar


def _ask_question(number: int) -> Lines:
    question: dict[str, Value] = {"name": ask("A short name for the question", f"question-{number}")}
    question["question"] = ask("The question")
    choices = ask("Its answers, separated by semicolons (empty: yes or no, or a number)", "")
    if choices:
        question["choices"] = [choice.strip() for choice in choices.split(";")]
    elif agrees("Is the answer a number?"):
        question |= {"low": ask("The smallest", kind=float), "high": ask("The largest", kind=float)}
        question["unit"] = ask("Its unit", "")
    return question


@Parameter(name="*", group="Plan the waves of a calendar")
@dataclass(frozen=True)
class PlanOptions:
    """What is given of the waves of a calendar; the budget, or the number of waves, is then found."""

    error: Annotated[
        float | None, Parameter(help="Half of the 95 % interval for the population, the range being 1.")
    ] = None
    epsilon_total: Annotated[
        float | None, Parameter(help="The most that all waves together may cost one person (ε).")
    ] = None
    waves: Annotated[int | None, Parameter(help="How many waves.")] = None


def survey_check(
    asked: Asked = "survey.toml",
    /,
    *,
    directory: Directory = HERE,
    options: QuestionOptions = QuestionOptions(),
    forecasting: ForecastOptions = ForecastOptions(),
    planning: PlanOptions = PlanOptions(),
    as_json: Json = False,
) -> None:
    file = _file_of(asked, options, asked)
    if file.calendar is not None:
        _check_waves(file, directory, forecasting.expected, planning, as_json)
        return
    forecasts = _forecasts(directory, file, forecasting)
    show(as_json, {"forecasts": forecasts}, survey_forecast_table(forecasts), *survey_forecast_lines(forecasts))
    if (refusal := forecasts[0]["refusal"]) and not forecasting.at_risk:
        raise fail(REFUSED, refusal)


def _check_waves(file: SurveyFile, directory: Path, expected: int, asked: PlanOptions, as_json: bool) -> None:
    from croupier.study.plans import plan_study

    people = expected or max(1000, file.min_batch_size)
    given = {"error": asked.error, "epsilon_total": asked.epsilon_total, "waves": asked.waves}
    document = fields_of(plan_study(file, _deployment_in(directory), people, **given))  # type: ignore[arg-type]
    show(as_json, document, *plan_tables(document), *plan_lines(document))


def _forecasts(directory: Path | None, file: SurveyFile, how: ForecastOptions = ForecastOptions()) -> list[JsonObject]:
    from croupier.operator.survey_plans import forecast_survey

    return _forecasts_json(file, asyncio.run(forecast_survey(directory, file, how.expected, at_risk=how.at_risk)))


def _forecasts_json(file: SurveyFile, forecasts: Sequence[SurveyForecast]) -> list[JsonObject]:
    scales = {
        question.name: (question.high - question.low, question.unit)
        for question in file.questions
        if question.low is not None and question.high is not None
    }
    return [
        survey_forecast_json(
            forecast.people,
            forecast.questions,
            (forecast.epsilon, forecast.delta),
            forecast.refusal,
            scales,
            forecast.exact_counts,
        )
        for forecast in forecasts
    ]


def survey_open(
    asked: Asked = "survey.toml",
    /,
    *,
    directory: Directory = HERE,
    options: QuestionOptions = QuestionOptions(),
    forecasting: ForecastOptions = ForecastOptions(),
    as_json: Json = False,
) -> None:
    file = _file_of(asked, options, fresh_name(asked))
    if file.calendar is not None:
        _begin(file, directory, as_json)
        return
    from croupier.operator.survey_plans import open_survey

    forecasts: list[JsonObject] = []
    survey = asyncio.run(
        open_survey(
            directory,
            file,
            tell=note if _is_file(asked) else lambda _: None,
            expected=forecasting.expected,
            told=lambda made: forecasts.extend(_forecasts_json(file, made)),
            at_risk=forecasting.at_risk,
            collector_public_key=options.sealed_to(),
            goes_on=_is_file(asked),
        )
    )
    name, ids = survey.survey_id, list(survey.round_ids())
    budgets = {terms.question.name: list(terms.budget_grid) for terms in survey.questions}
    show(
        as_json,
        {
            "survey_id": name,
            "hash": survey.hash.hex(),
            "round_ids": ids,
            "budgets": budgets,
            "forecasts": forecasts,
        },
        *([survey_forecast_table(forecasts)] if forecasts else []),
        *(survey_forecast_lines(forecasts) if forecasts else []),
        f"survey {name} is open, with {counted(len(ids), 'question')}; 'croupier invite {name}' makes links",
    )


def _begin(file: SurveyFile, directory: Path, as_json: bool) -> None:
    from croupier.study.versions import start_study

    survey = start_study(directory, file)
    name, deployment = survey.survey_id, read_deployment(directory)
    if deployment.approvals and not was_opened(directory, survey):
        Operator(directory).require_approval(survey)
    show(
        as_json,
        survey_json(survey.questions, deployment.chain),
        f"survey {name}, version {scheduled(survey).version}, hash {survey.hash.hex()}; 'croupier survey run {name}' "
        f"opens its waves, and 'croupier invite {name}' makes links for all of them",
    )


def survey_run(
    asked: Annotated[str, Argument(help="The survey's file, or the name of one that was begun.")] = "survey.toml",
    /,
    *,
    metrics: Annotated[
        str, Parameter(help="HOST:PORT where Prometheus reads how many waves the limit bears; empty: nowhere.")
    ] = "",
    directory: Directory = HERE,
) -> None:
    from croupier.study.journal import StudyJournal
    from croupier.study.metrics import study_metrics
    from croupier.study.runs import StudyRun
    from croupier.study.versions import begun_versions, journal_file, start_study

    survey = (
        start_study(directory, read_survey_file(Path(asked)))
        if _is_file(asked)
        else begun_versions(directory, asked)[-1]
    )
    name = survey.survey_id
    note(
        f"survey {name}, version {scheduled(survey).version}, hash {survey.hash.hex()}; 'croupier invite {name}' makes "
        "links for all waves (Ctrl-C ends the process)"
    )
    with (
        StudyJournal.running(journal_file(directory, name)) as journal,
        study_metrics(directory, name, metrics) as told,
    ):
        asyncio.run(StudyRun(directory, name, journal, tell=note).run(told))
    note(f"survey {name} is over; 'croupier survey results {name}' shows all waves")


def survey_change(
    file: Annotated[Path, Argument(help="The survey's file, changed.")] = Path("survey.toml"),
    /,
    *,
    change: Annotated[str, Parameter("--because", help="What is changed, and why: people read it.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    from croupier.study.versions import change_study

    survey = change_study(directory, read_survey_file(file), change, time.time())
    document = survey_json(survey.questions, read_deployment(directory).chain)
    show(as_json, document, *survey_sections(document, time.time()))


def survey_show(
    asked: Annotated[
        str, Argument(help="A survey, one of its rounds, or a survey's file; the newest open one if not given.")
    ] = "",
    /,
    *,
    directory: Directory = HERE,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    deployment = _deployment_in(directory)
    if _is_file(asked):
        survey = _described(read_survey_file(Path(asked)), directory, deployment)
    else:
        versions = list(kept_versions(directory, asked).values())
        if not versions or versions[-1].schedule is None:
            _show_open(asked, directory, gateway, as_json)
            return
        survey = versions[-1]
    chain = deployment.chain if deployment else ()
    show(as_json, survey_json(survey.questions, chain), *survey_texts(survey, chain))


def _deployment_in(directory: Path) -> Deployment | None:
    """Returns the deployment of a directory; None if it has none."""
    return read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None


def _described(file: SurveyFile, directory: Path, deployment: Deployment | None) -> Survey:
    """Returns the survey that a file describes; the newest version of one with a calendar if the file says the same."""
    from croupier.operator.survey_plans import survey_from, with_budgets
    from croupier.study.versions import states

    file = with_budgets(file, deployment)
    versions = list(kept_versions(directory, file.name).values())
    if deployment and versions and versions[-1].schedule and states(file, deployment, versions, len(versions) - 1):
        return versions[-1]
    return survey_from(file, deployment)


def _show_open(name: str, directory: Path, gateway: str, as_json: bool) -> None:
    async def look() -> JsonObject:
        async with client_of(directory, gateway) as client:
            rounds = await client.rounds_of(name)
            only = rounds[0] if len(rounds) == 1 else next((each for each in rounds if each.id == name), None)
            if only is None:
                return survey_json([each.terms for each in rounds], states=[each.state for each in rounds])
            terms = await terms_of(only)
        if sees_rounds(directory):
            async with Operator(directory, only_reads=True) as operator:
                if terms["privacy_limit"] is not None:
                    terms["ledger"] = await ledger_left(operator)
                terms["approved_by"] = await approvals_of(operator, RoundId(terms["round_id"]))
        return terms

    try:
        document = asyncio.run(look())
    except Refusal as refusal:
        if as_json:
            show(as_json, {"survey_id": name, "refusal": {"code": refusal.code.name, "said": str(refusal)}})
        raise
    now, where = time.time(), "" if directory == HERE else str(directory)
    is_round = "round_id" in document
    sections = answering_sections(document, now, where, gateway) if is_round else survey_sections(document, now)
    show(as_json, document, *sections)


def survey_close(
    name: Name,
    /,
    *,
    at_risk: Annotated[
        bool, Parameter(help="Also close a question that some choice of budgets would have refused.")
    ] = False,
    end_sequential: Annotated[bool, Parameter(help="Sequential rounds: ask no further client.")] = False,
    withdraw: Annotated[bool, Parameter(help="Delete it at every service: nothing is read.")] = False,
    forecast: Annotated[bool, Parameter(help="Only say what closing would come to now; close nothing.")] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    if forecast and (at_risk or withdraw):
        raise ValueError("--forecast closes nothing: give it without --at-risk and --withdraw")
    rounds = _rounds_of(directory, name)
    if withdraw:
        held = _withdraw(directory, rounds, as_json)
    elif forecast:
        held = _forecast_close(directory, rounds, as_json)
    else:
        held = _close(
            directory,
            rounds,
            hold_at_risk=not (at_risk or end_sequential),
            as_json=as_json,
            end_sequential=end_sequential,
        )
    if held:
        raise SystemExit(REFUSED)


def _rounds_of(directory: Path, name: str) -> list[RoundId]:
    """Returns the rounds of a survey that was opened from this directory; of another name the round of this name.

    Raises:
        ValueError: the survey has waves, which are closed by its process, or one by one.
    """
    versions = list(kept_versions(directory, name).values())
    if not versions:
        return [RoundId(name)]
    if versions[-1].schedule is not None:
        raise ValueError(f"survey {name!r} has waves; name a round, such as {versions[-1].round_id(0, 1)}")
    return list(versions[-1].round_ids())


def _withdraw(directory: Path, rounds: Sequence[RoundId], as_json: bool) -> bool:
    """Withdraws rounds; returns whether one of them is not deleted everywhere."""
    said = asyncio.run(withdraw_rounds(directory, rounds))
    lines = [f"{round_id}: {', '.join(sorted(set(states.values())))}" for round_id, states in said.items()]
    show(as_json, {"rounds": said}, *lines)
    return any(set(states.values()) != {"DISPOSED"} for states in said.values())


def _forecast_close(directory: Path, rounds: Sequence[RoundId], as_json: bool) -> bool:
    """Says what closing would come to; returns whether a question would be held."""
    from croupier.operator.survey_plans import forecast_closing

    said = asyncio.run(forecast_closing(directory, rounds))
    views = {round_id: forecast_json(response) for round_id, response in said.items()}
    tables: list[Any] = []
    for round_id in rounds:
        if round_id in views:
            view = views[round_id]
            tables += [f"{round_id}:", forecast_table([view]), *closing_lines(view, round_id)]
        else:
            tables.append(f"{round_id}: nobody has answered, or it takes no answers any more")
    show(as_json, {"rounds": views}, *tables)
    return not all(view["always_granted"] for view in views.values())


def _close(
    directory: Path, rounds: Sequence[RoundId], *, hold_at_risk: bool, end_sequential: bool, as_json: bool
) -> bool:
    """Closes rounds; returns whether one of them is held because it is at risk."""
    closed = close_rounds(directory, rounds, hold_at_risk=hold_at_risk, end_sequential=end_sequential)
    why = {"OPEN": " (too few people: held)", "DISPOSED": " (too few people: deleted)"}
    lines, document, any_held = [], {}, False
    for name, answer in asyncio.run(closed).items():
        state, forecast = state_name(answer.state), None
        if answer.HasField("forecast"):
            forecast = forecast_json(answer.forecast)
        held = state == "OPEN" and forecast is not None
        any_held = any_held or held
        document[name] = {"state": state, "num_clients": answer.num_clients, "forecast": forecast}
        because = " (at risk: held)" if held else why.get(state, "")
        lines.append(f"{name}: {state}{because}, {counted(answer.num_clients, 'answer')}")
        if held and forecast is not None:
            lines += closing_lines(forecast, RoundId(name))
    show(as_json, {"rounds": document}, *lines)
    return any_held
