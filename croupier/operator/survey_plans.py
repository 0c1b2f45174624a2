"""Surveys before they are opened: the terms of their rounds, budgets without risk, and forecasts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from croupier.accountant.numerics.decimals import difference, sum_as_decimals
from croupier.accountant.rounds.forecast import always_granted
from croupier.deploy.directory import read_deployment
from croupier.net.transport import TLS, Transport
from croupier.operator.forecasts import GridFit, default_grid, fit, forecast_now, forecast_opening
from croupier.operator.opened_surveys import Tell, kept_rounds, open_rounds, round_of, survey_folder
from croupier.operator.operator import Operator, is_operators
from croupier.operator.round_settings import RoundSettings, check_settings, terms_of
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.studies import StudyWave
from croupier.protocol.surveys import Survey, SurveyRound, rounds_together, stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc


class LimitReachedError(ValueError):
    """The ledger, or the limit of a study, does not bear all questions with the minimum of people."""


@dataclass(frozen=True)
class OfStudy:
    """The further data of a survey that is a wave of a study.

    Attributes:
        wave: the wave; its study is in the description of the survey.
        collector_public_key: to which the results are sealed; empty for public results.
    """

    wave: StudyWave
    collector_public_key: bytes = b""


def with_budgets(file: SurveyFile, deployment: Deployment | None) -> SurveyFile:
    """Returns a survey's file with budgets: its own, or else those that put no question at risk at the minimum.

    These are four budgets for all answers together, the largest at most 4, as for a round without a grid.

    Raises:
        ValueError: the terms are invalid, or no budgets are without risk.
    """
    if not file.needs_budgets:
        return file

    def offering(budgets: Sequence[float]) -> SurveyFile:
        return file.model_copy(update={"budgets": tuple(budgets)})

    def is_safe(budgets: Sequence[float]) -> bool:
        terms = [terms for _, terms in survey_terms(offering(budgets), deployment).values()]
        return all(always_granted(round_terms, file.min_batch_size) for round_terms in terms)

    budgets = default_grid(is_safe)
    if budgets is None:
        raise ValueError(
            f"no budgets are without risk: with {file.min_batch_size:,} people, the minimum, a question could be "
            "refused whatever budgets they use. Choose a larger epsilon_max or a larger min_batch_size"
        )
    return offering(budgets)


def survey_terms(
    file: SurveyFile, deployment: Deployment | None, of_study: OfStudy | None = None
) -> dict[RoundId, tuple[RoundSettings, RoundTerms]]:
    """Returns the settings of a survey's rounds and their terms, without the survey's description.

    A wave of a study ends at its deadline, also with too few people; any other survey is held then.
    """
    alike = {field.name for field in fields(RoundSettings)}  # what a survey and a round state by the same names
    rounds = {}
    for number, (question, grid) in enumerate(zip(file.asked(), file.grids(), strict=True), start=1):
        settings = RoundSettings(
            question,
            grid,
            short_batch_policy="dispose" if of_study else "hold",
            close_deadline_unix_s=file.deadline,
            collector_public_key=PublicKey(b"" if of_study is None else of_study.collector_public_key),
            **file.model_dump(include=alike),
        )
        round_id = round_of(file.name, number)
        try:
            rounds[round_id] = settings, check_settings(settings, deployment, round_id)
        except ValueError as error:
            raise ValueError(f"question {question.name!r}: {error}") from error
    return rounds


def plan_survey(
    file: SurveyFile, deployment: Deployment | None, of_study: OfStudy | None = None
) -> tuple[Survey, dict[RoundId, RoundSettings]]:
    """Returns the description of a survey, and the settings of its rounds by id.

    Raises:
        ValueError: the terms of a round cannot be, with the question's name.
    """
    file = with_budgets(file, deployment)
    planned = survey_terms(file, deployment, of_study)
    for settings, _ in planned.values():
        name = settings.question.name
        try:
            fitted = fit(settings, deployment)
        except ValueError as error:
            raise ValueError(f"question {name!r}: {error}") from error
        if fitted.left_out:
            raise ValueError(_too_large(file, name, fitted))
    rounds = tuple(SurveyRound(name, stated_terms_hash(terms.manifest)) for name, (_, terms) in planned.items())
    wave = None if of_study is None else of_study.wave
    survey = Survey(file.name, file.wordings(), rounds, file.left_out, wave)
    return survey, {name: replace(settings, survey=survey) for name, (settings, _) in planned.items()}


def _too_large(file: SurveyFile, name: str, fitted: GridFit) -> str:
    """Returns the message for budgets of which some choice would have the accountant refuse a round."""
    budgets, most = " and ".join(f"{budget:g}" for budget in fitted.left_out), "no budget"
    if fitted.largest is not None:
        whole = file.whole_budget(name, fitted.largest)
        most = f"a local ε of at most {fitted.largest:g}" + (f" ({round_down(whole)} of the survey's)" if whole else "")
    return (
        f"question {name!r} has the local budgets {budgets}: with {file.min_batch_size:,} people, the minimum, some "
        f"choice of budgets would have it refused and every answer destroyed; {most} is without that risk. Choose "
        "smaller budgets, a larger epsilon_max or a larger min_batch_size; without the line budgets, fitting ones are "
        "chosen"
    )


@dataclass(frozen=True)
class SurveyForecast:
    """The forecast of a survey with a number of people, for any choice of budgets.

    Attributes:
        people: who answer every question.
        questions: the forecast of each, by its name; each counts all others as granted before it.
        delta: of all certificates together.
    """

    people: int
    questions: Mapping[str, rpc.ForecastResponse]
    delta: float

    @property
    def epsilon(self) -> float | None:
        """At most this is certified at `delta` for all questions together; None where one of them has no bound."""
        most = [max(outcome.epsilon for outcome in response.outcomes) for response in self.questions.values()]
        return sum_as_decimals(most) if all(map(math.isfinite, most)) else None

    @property
    def refusal(self) -> str:
        """Why some question would be refused; empty if none would, whatever budgets people choose."""
        refusals = [
            (name, statement)
            for name, response in self.questions.items()
            for outcome in response.outcomes
            for statement in read_messages(RefusalReason, outcome.refusals)
        ]
        if not refusals:
            return ""
        ledger = next(iter(self.questions.values())).ledger
        exceeded = [statement for _, statement in refusals if statement.code is RefusalReason.LEDGER_EXCEEDED]
        under_way = f" beside {ledger.num_pending:,} rounds that are under way" if ledger.num_pending else ""
        whole = f"the {len(self.questions)} questions of this survey with {self.people:,} people{under_way}"
        if exceeded:
            reached = max(float(statement["reached"]) for statement in exceeded)
            most, before = ledger.limit.total_epsilon, ledger.committed_epsilon
            return (
                f"the ledger cannot bear {whole}: requested ε = {round_up(difference(reached, before), 6)}, remaining "
                f"{round_down(max(0.0, difference(most, before)), 6)}, difference "
                f"{round_up(difference(reached, most), 6)}, at δ = {round_up(ledger.limit.total_delta)}. Choose "
                "smaller budgets, fewer questions or a larger min_batch_size"
            )
        if any(statement.code is RefusalReason.ROUNDS_SHOWN for _, statement in refusals):
            left = max(0, ledger.limit.max_rounds - ledger.num_shown - ledger.num_pending)
            return (
                f"the ledger cannot bear {whole}: requested {len(self.questions):,} certificates, remaining {left:,}, "
                f"difference {len(self.questions) - left:,} (max_rounds of the deployment's privacy limit)"
            )
        name, statement = refusals[0]
        if statement.code in (RefusalReason.STUDY_EXCEEDED, RefusalReason.STUDY_UNBOUNDED):
            return (
                f"the study's limit cannot bear one more wave with {self.people:,} people: question {name!r}: "
                f"{joined([statement])}"
            )
        return (
            f"question {name!r} could be refused by the choice of budgets: {joined([statement])}. Choose smaller "
            "budgets, or a larger min_batch_size"
        )


async def forecast_survey(
    directory: Path | None, file: SurveyFile, expected: int = 0, transport: Transport = TLS
) -> list[SurveyForecast]:
    """Returns the forecasts of a survey with its minimum of people, and with the expected number.

    They are the accountant's, who knows the ledger. Without a deployment, or without the operator's keys, the ledger is
    ignored.

    Args:
        directory: of the deployment, or None.
        file: of a survey that is not open yet.
        expected: the expected number of people; 0: the minimum only.
        transport: to the accountant.

    Raises:
        ValueError: the terms are invalid, or some choice of budgets would have a question refused for its ε.
        Refusal, grpc.aio.AioRpcError: the accountant refuses, or is out of reach.
    """
    if not 0 <= expected < 2**31:
        raise ValueError(f"expected is {expected}; it must be in 0..{2**31 - 1}")
    sizes = sorted({file.min_batch_size, max(file.min_batch_size, expected)})
    deployment = None
    if directory is not None and (directory / DEPLOYMENT_FILE).exists():
        deployment = read_deployment(directory)
    if directory is None or deployment is None or deployment.privacy_limit is None or not is_operators(directory):
        settings = plan_survey(file, deployment)[1]
        return [await _forecast(None, settings, people, deployment) for people in sizes]
    async with Operator(directory, transport) as operator:
        settings = plan_survey(file, operator.deployment)[1]
        return [await _forecast(operator, settings, people) for people in sizes]


async def _forecast(
    operator: Operator | None,
    settings: Mapping[RoundId, RoundSettings],
    people: int,
    deployment: Deployment | None = None,
) -> SurveyForecast:
    # The description of a survey by itself changes nothing, and is not sent; that of a wave has the study's limit.
    alone = {
        round_id: round_settings
        if round_settings.survey is not None and round_settings.survey.wave is not None
        else replace(round_settings, survey=None)
        for round_id, round_settings in settings.items()
    }
    questions = {}
    for round_id, round_settings in alone.items():
        others = {name: other for name, other in alone.items() if name != round_id}
        questions[round_settings.question.name] = await forecast_opening(
            operator, round_settings, people, deployment, round_id=round_id, together_with=others
        )
    return SurveyForecast(people, questions, sum_as_decimals(round_settings.delta for round_settings in alone.values()))


async def open_survey(
    directory: Path,
    file: SurveyFile,
    transport: Transport = TLS,
    tell: Tell = lambda _: None,
    of_study: OfStudy | None = None,
) -> Survey:
    """Opens all rounds of a survey, or those that an earlier call has not reached; returns its description.

    Args:
        directory: of the deployment.
        file: with the questions.
        transport: to the services.
        tell: called before an error is raised, with a sentence on the open rounds and the next step.
        of_study: the survey's wave of a study; None for a survey by itself.

    Raises:
        LimitReachedError: the ledger, or the limit of a study, cannot bear all questions with the minimum of people.
        ValueError: the terms are invalid, or this directory has opened another survey of the same name.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    async with Operator(directory, transport) as operator:
        survey, settings = plan_survey(file, operator.deployment, of_study)
        is_new = not survey_folder(directory, survey.survey_id).exists()
        if (operator.deployment.privacy_limit is not None or of_study) and is_new:
            refusal = (await _forecast(operator, settings, file.min_batch_size)).refusal
            if refusal:
                raise LimitReachedError(refusal)
        rounds = {
            round_id: terms_of(round_settings, round_id, operator.deployment)
            for round_id, round_settings in settings.items()
        }
        return rounds_together(await open_rounds(operator, directory, survey, rounds, tell))


async def forecast_closing(
    directory: Path, survey: Survey, transport: Transport = TLS
) -> dict[str, rpc.ForecastResponse]:
    """Returns the forecast of closing now, for every round that takes answers and has one.

    Each round counts those before it as closed, because `close_survey` closes them in this order.

    Raises:
        Refusal, grpc.aio.AioRpcError: a round is unknown, or a service is out of reach.
    """
    forecasts: dict[str, rpc.ForecastResponse] = {}
    least = kept_rounds(directory, survey.survey_id)[0].min_batch_size
    async with Operator(directory, transport) as operator:
        for survey_round in survey.rounds:
            status = (await operator.status(survey_round.round_id))[0]
            if not isinstance(status, rpc.StatusResponse):
                raise status
            if status.rounds[0].state == pb.ROUND_STATE_OPEN and status.rounds[0].num_items:
                # A round with too few people stays open.
                before = {name: said.num_reports for name, said in forecasts.items() if said.num_reports >= least}
                forecasts[survey_round.round_id] = await forecast_now(operator, survey_round.round_id, before)
    return forecasts
