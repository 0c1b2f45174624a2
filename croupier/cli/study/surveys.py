"""Commands about surveys: write one down, open its rounds together, show, close and read them together."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from croupier.cli.console import (
    HERE,
    NOT_CERTIFIED,
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
from croupier.client.survey_rounds import fetch_survey
from croupier.deploy.directory import client_transport
from croupier.deploy.local.clients import client_of
from croupier.operator.opened_surveys import close_survey, kept_survey, round_of, survey_folder, withdraw_survey
from croupier.operator.survey_file import Lines, SurveyFile, Value, read_survey_file, written
from croupier.protocol.manifest import state_name
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.rounding import round_up
from croupier.protocol.surveys import Survey
from croupier.show.certificate_tables import counted
from croupier.show.estimates import distribution_tables, estimates_table, result_remarks
from croupier.show.forecasts import (
    SurveyForecastView,
    closing_lines,
    forecast_json,
    forecast_table,
    survey_forecast_json,
    survey_forecast_lines,
    survey_forecast_table,
)
from croupier.show.published import publication_json
from croupier.show.survey_description import (
    LEFT_OUT_TEXTS,
    survey_json,
    survey_text,
    survey_wordings_json,
    wording_json,
)
from croupier.show.text import note_lines
from croupier.show.views.survey_documents import SurveyResultsView, SurveyView

if TYPE_CHECKING:
    from croupier.operator.survey_results import SurveyResults

Id = Annotated[str, Argument(help="The survey's name, as its file has it.")]


def survey_new(
    file: Annotated[Path, Argument(help="The new file; you can change it before you open the survey.")] = Path(
        "survey.toml"
    ),
    /,
) -> None:
    from croupier.operator.survey_plans import with_budgets

    values, questions = ask_survey(file)
    file.write_text(written(values, questions), encoding="utf-8")
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
        file.write_text(written(values, questions), encoding="utf-8")
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


def ask_survey(file: Path) -> tuple[dict[str, Value], list[Lines]]:
    """Returns the lines of a survey and of its questions that a person at the terminal gives for a new file."""
    if file.exists():
        raise ValueError(f"{file} exists; choose another file, or change it")
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


def survey_forecast(
    file: Annotated[Path, Argument(help="The survey, before it is opened.")] = Path("survey.toml"),
    /,
    *,
    expected: Annotated[
        int, Parameter(help="Forecast the survey for this many people, too; 0: for its minimum only.")
    ] = 0,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    forecasts = _forecasts(directory, read_survey_file(file), expected)
    show(as_json, {"forecasts": forecasts}, survey_forecast_table(forecasts), *survey_forecast_lines(forecasts))
    if forecasts[0]["refusal"]:
        raise fail(REFUSED, forecasts[0]["refusal"])


def _forecasts(directory: Path | None, file: SurveyFile, expected: int = 0) -> list[SurveyForecastView]:
    from croupier.operator.survey_plans import forecast_survey

    forecasts = asyncio.run(forecast_survey(directory, file, expected))
    scales = {
        question.name: (question.high - question.low, question.unit)
        for question in file.questions
        if question.low is not None and question.high is not None
    }
    return [
        survey_forecast_json(
            forecast.people, forecast.questions, (forecast.epsilon, forecast.delta), forecast.refusal, scales
        )
        for forecast in forecasts
    ]


def survey_open(
    file: Annotated[Path, Argument(help="The survey: 'croupier survey new' writes one.")] = Path("survey.toml"),
    /,
    *,
    expected: Annotated[
        int, Parameter(help="Forecast the survey for this many people, too; 0: for its minimum only.")
    ] = 0,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    from croupier.operator.survey_plans import open_survey

    asked = read_survey_file(file)
    forecasts: list[SurveyForecastView] = []
    if not survey_folder(directory, asked.name).exists():
        forecasts = _forecasts(directory, asked, expected)
        if forecasts[0]["refusal"]:
            raise ValueError(forecasts[0]["refusal"])
    survey = asyncio.run(open_survey(directory, asked, tell=note))
    name = survey.survey_id
    show(
        as_json,
        {
            "survey_id": name,
            "hash": survey.hash.hex(),
            "round_ids": [survey_round.round_id for survey_round in survey.rounds],
            "forecasts": forecasts,
        },
        *([survey_forecast_table(forecasts), *survey_forecast_lines(forecasts)] if forecasts else []),
        f"survey {name} is open, with {len(survey.rounds)} questions; 'croupier invite {name}' makes links",
    )


def survey_show(
    survey_id: Annotated[str, Argument(help="The survey; that of the newest open round if not given.")] = "",
    /,
    *,
    directory: Directory = HERE,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    async def look() -> SurveyView:
        async with client_of(directory, gateway) as client:
            rounds = await fetch_survey(client, round_of(survey_id, 1) if survey_id else NO_ROUND)
            return survey_json([(client_round.terms, client_round.state) for client_round in rounds])

    document = asyncio.run(look())
    show(as_json, document, survey_text(document, time.time()))


def survey_close(
    survey_id: Id,
    /,
    *,
    at_risk: Annotated[
        bool, Parameter(help="Also close a question that some choice of budgets would have refused.")
    ] = False,
    withdraw: Annotated[bool, Parameter(help="Delete all rounds at every service: nothing is read.")] = False,
    forecast: Annotated[bool, Parameter(help="Only say what closing would come to now; close nothing.")] = False,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    if forecast and (at_risk or withdraw):
        raise ValueError("--forecast closes nothing: give it without --at-risk and --withdraw")
    survey = kept_survey(directory, survey_id)
    if withdraw:
        held = _withdraw(directory, survey, as_json)
    elif forecast:
        held = _forecast_close(directory, survey, as_json)
    else:
        held = _close(directory, survey, at_risk, as_json)
    if held:
        raise SystemExit(REFUSED)


def _withdraw(directory: Path, survey: Survey, as_json: bool) -> bool:
    """Withdraws all rounds; returns whether one of them is not deleted everywhere."""
    said = asyncio.run(withdraw_survey(directory, survey))
    lines = [f"{round_id}: {', '.join(sorted(set(states.values())))}" for round_id, states in said.items()]
    show(as_json, {"survey_id": survey.survey_id, "rounds": said}, *lines)
    return any(set(states.values()) != {"DISPOSED"} for states in said.values())


def _forecast_close(directory: Path, survey: Survey, as_json: bool) -> bool:
    """Says what closing would come to; returns whether a question would be held."""
    from croupier.operator.survey_plans import forecast_closing

    said = asyncio.run(forecast_closing(directory, survey))
    views = {round_id: forecast_json(response) for round_id, response in said.items()}
    tables: list[Any] = []
    for survey_round in survey.rounds:
        if survey_round.round_id in views:
            view = views[survey_round.round_id]
            tables += [f"{survey_round.round_id}:", forecast_table([view]), *closing_lines(view, survey_round.round_id)]
        else:
            tables.append(f"{survey_round.round_id}: nobody has answered, or it takes no answers any more")
    show(as_json, {"survey_id": survey.survey_id, "rounds": views}, *tables)
    return not all(view["always_granted"] for view in views.values())


def _close(directory: Path, survey: Survey, at_risk: bool, as_json: bool) -> bool:
    """Closes all rounds; returns whether one of them is held because it is at risk."""
    closed = asyncio.run(close_survey(directory, survey, hold_at_risk=not at_risk))
    why = {"OPEN": " (too few people: held)", "DISPOSED": " (too few people: deleted)"}
    lines, document, any_held = [], {}, False
    for name, answer in closed.items():
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
    show(as_json, {"survey_id": survey.survey_id, "rounds": document}, *lines)
    return any_held


def survey_results(
    survey_id: Id,
    /,
    *,
    directory: Directory = HERE,
    wait_s: Annotated[float, Parameter(help="How many seconds to wait for each result.")] = 60.0,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    from croupier.operator.survey_results import survey_results as results_of

    results = asyncio.run(results_of(directory, survey_id, wait_s, client_transport(gateway), note))
    document = _results_json(results)
    if as_json:
        show(True, document)
    else:
        _show_results(document)
    refused = [
        question["name"] for question in document["questions"] if not question["result"]["certificate"]["granted"]
    ]
    if refused:
        raise fail(NOT_CERTIFIED, f"the accountant refused {', '.join(refused)}; 'croupier round show ROUND' says why")


def _results_json(results: SurveyResults) -> SurveyResultsView:
    together = results.together
    return {
        "survey_id": results.survey.survey_id,
        "hash": results.survey.hash.hex(),
        "left_out": results.survey.left_out,
        "wordings": survey_wordings_json(results.survey),
        "questions": [
            {
                "name": question.terms.question.name,
                "wordings": [wording_json(each) for each in question.terms.question.wordings],
                "result": publication_json(question.publication, question.certificate),
            }
            for question in results.questions
        ],
        "together": None if together is None else together.to_json(),
    }


def _show_results(document: SurveyResultsView) -> None:
    from croupier.show.statistics import halving_lines

    show(False, {}, document["wordings"][0]["title"])
    for number, question in enumerate(document["questions"], start=1):
        wording, result = question["wordings"][0], question["result"]
        show(False, {}, "", f"{number}. {wording['question']} ({counted(result['num_reports'], 'answer')})")
        if not result["certificate"]["granted"]:
            show(False, {}, "refused by the accountant: nothing was read")
        elif result["sealed"]:
            show(False, {}, "the result is sealed to its collector")
        else:
            show(
                False,
                {},
                estimates_table(result),
                *distribution_tables(result),
                *result_remarks(result),
                *halving_lines(result),
            )
    together = document["together"]
    show(False, {}, "", LEFT_OUT_TEXTS[document["left_out"]])
    if together:
        show(
            False,
            {},
            f"All questions together, for a person who answered each with the largest budget: {together['grade']} "
            f"ε = {round_up(together['epsilon'])} at δ = {round_up(together['delta'])}, under the assumptions of the "
            "certificates, and that the terms were fixed before the first result, as the signed description shows.",
            *note_lines(together["notes"]),
        )
