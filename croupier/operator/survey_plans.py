"""Surveys before they are opened: the terms of their rounds, budgets without risk, and forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import grpc.aio

from croupier.accountant.numerics.decimals import difference, sum_as_decimals
from croupier.accountant.rounds.forecast import always_granted, could_be_granted, forecast
from croupier.client.round_checks import fetch_terms
from croupier.deploy.directory import read_deployment
from croupier.net.transport import TLS, Transport
from croupier.operator.forecasts import default_grid, forecast_now, forecast_opening, largest_budget
from croupier.operator.opened_surveys import Tell, keep_survey, kept_versions, open_rounds, round_file
from croupier.operator.operator import Operator, is_operators
from croupier.operator.round_settings import RoundSettings, check_settings, survey_of
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.protocol.envelope import generate_key_pair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc


class LimitReachedError(ValueError):
    """The ledger, or the limit of a study, does not bear all questions with the minimum of people."""


def with_budgets(file: SurveyFile, deployment: Deployment | None, collector_public_key: bytes = b"") -> SurveyFile:
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
        asked = _in_every_wave(settings_of(offering(budgets), collector_public_key))
        return all(always_granted(check_settings(each, deployment), file.min_batch_size) for each in asked)

    budgets = default_grid(is_safe)
    if budgets is None:
        raise ValueError(
            f"no budgets are without risk: with {file.min_batch_size:,} people, the minimum, a question could be "
            "refused whatever budgets they use. Choose a larger epsilon_max or a larger min_batch_size"
        )
    # Thresholds are for one budget: a question that goes on by results offers the largest.
    return offering(budgets[-1:] if file.questions[0].rule else budgets)


def settings_of(file: SurveyFile, collector_public_key: bytes = b"") -> list[RoundSettings]:
    """Returns the settings of a survey's questions, which has budgets.

    A wave of a calendar ends at its deadline, also with too few people; any other survey is held then.
    """
    alike = {field.name for field in fields(RoundSettings)}  # what a survey and a round state by the same names
    return [
        RoundSettings(
            question,
            grid,
            short_batch_policy="dispose" if file.calendar else "hold",
            close_deadline_unix_s=file.deadline,
            collector_public_key=PublicKey(collector_public_key),
            rule=asked.rule,
            **file.model_dump(include=alike),
        )
        for asked, question, grid in zip(file.sent, file.asked(), file.grids(), strict=True)
    ]


def _in_every_wave(questions: Sequence[RoundSettings]) -> Iterator[RoundSettings]:
    """Yields the settings of questions, and of one that goes on by results those with the dearest categories."""
    for settings in questions:
        sizes = settings.rule.sizes if settings.rule else ()
        if not sizes:
            yield settings
        for size in sizes:
            yield replace(settings, rule=None, question=replace(settings.question, mechanism=KaryResponse(size)))


def survey_from(
    file: SurveyFile,
    deployment: Deployment | None,
    *,
    collector_public_key: bytes = b"",
    before: Survey | None = None,
    change: str = "",
    first_wave: int = 1,
) -> Survey:
    """Returns the survey that a file with budgets describes.

    Args:
        file: the questions, budgets and times.
        deployment: of the survey; without one, the terms that depend on the deployment are not checked.
        collector_public_key: to which the results are sealed; empty for public results. Without one, sealed results
            are planned with a key that nobody has.
        before: the version before this one; None for the first one.
        change: a description of the change, for people.
        first_wave: the first wave of this version.

    Raises:
        ValueError: the terms are invalid, or the version breaks the promises of the one before it.
    """
    if file.results != "public" and not collector_public_key:
        collector_public_key = generate_key_pair(file.hpke_suite).public
    number, previous = 1, None
    if before is not None:
        number, previous = scheduled(before).version + 1, before.hash
    survey = survey_of(
        settings_of(file, collector_public_key),
        file.name,
        deployment,
        file.wordings(),
        file.left_out,
        file.schedule(number, previous, change, first_wave),
    )
    if before is not None:
        before.check_continued_by(survey)
    return survey


def plan_survey(
    file: SurveyFile,
    deployment: Deployment | None,
    collector_public_key: bytes = b"",
    *,
    at_risk: bool = False,
    expected: int = 0,
) -> Survey:
    """Returns the survey of a file, with budgets of which no choice puts a question at risk.

    Args:
        file: with budgets.
        deployment: of the survey, or None.
        collector_public_key: to which the results are sealed, or empty.
        at_risk: offer budgets of which some choice puts a question at risk, as long as another one can be granted.
        expected: the expected number of people; a question at risk may be granted with more than the minimum.

    Raises:
        ValueError: the terms cannot be, with the question's name.
    """
    for settings in _in_every_wave(settings_of(file, collector_public_key)):
        try:
            terms = check_settings(settings, deployment)
        except ValueError as error:
            raise ValueError(f"question {settings.question.name!r}: {error}") from error
        people = max(file.min_batch_size, expected) if at_risk else file.min_batch_size
        if not (could_be_granted(terms, people) if at_risk else always_granted(terms, people)):
            raise ValueError(_too_large(file, settings, deployment, people))
    return survey_from(file, deployment, collector_public_key=collector_public_key)


def _too_large(file: SurveyFile, settings: RoundSettings, deployment: Deployment | None, people: int) -> str:
    """Returns the message for budgets of which some choice, or every one, would have the accountant refuse a round."""
    name, largest = settings.question.name, largest_budget(settings, deployment)
    most = "no budget is"
    if largest is not None:
        whole = file.whole_budget(name, largest)
        in_all = f" ({round_down(whole)} of the survey's)" if whole and len(file.sent) > 1 else ""
        most = f"a local ε of at most {largest:g}{in_all} is"
    best = forecast(check_settings(settings, deployment), people).best
    if best.refusals:
        said = f"cannot be granted: with {people:,} people, whatever budgets they use, the accountant would refuse it "
        said += f"({joined(best.refusals)})"
    else:
        risky = [budget for budget in settings.budget_grid if largest is None or budget > largest]
        said = f"has the local budgets {' and '.join(f'{budget:g}' for budget in risky)}: with {people:,} people, the "
        said += "minimum, some choice of budgets would have it refused and every answer destroyed"
    exact, uncounted = "", settings.counted_by.most_uncounted
    if uncounted:
        exact = (
            f", or budget privacy 0: counts that hide people's budgets leave out up to {uncounted:,} of every budget"
        )
    return (
        f"question {name!r} {said}; {most} without that risk. Choose smaller budgets, a larger epsilon_max or a larger "
        f"min_batch_size{exact}; where no budgets are given, fitting ones are chosen"
    )


@dataclass(frozen=True)
class SurveyForecast:
    """The forecast of a survey with a number of people, for any choice of budgets.

    Attributes:
        people: who answer every question.
        questions: the forecast of each, by its name; each counts all others as granted before it.
        delta: of all certificates together.
        exact_counts: whether the certificate of some question counts exactly how many people used each budget.
    """

    people: int
    questions: Mapping[str, rpc.ForecastResponse]
    delta: float
    exact_counts: bool = False

    @property
    def epsilon(self) -> float | None:
        """At most this is certified at `delta` for all questions together; None where one of them has no bound."""
        most = [max(outcome.epsilon for outcome in response.outcomes) for response in self.questions.values()]
        return sum_as_decimals(most) if all(map(math.isfinite, most)) else None

    @property
    def hopeless(self) -> str:
        """Why some question would be refused, whatever budgets people choose; empty if each could be granted."""
        outcomes = [response.outcomes for response in self.questions.values()]
        return self.refusal if any(all(outcome.refusals for outcome in each) for each in outcomes) else ""

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
                "smaller budgets, fewer questions or a larger min_batch_size; 'croupier ledger --forecast' shows the "
                "remaining budget"
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
    directory: Path | None,
    file: SurveyFile,
    expected: int = 0,
    transport: Transport = TLS,
    *,
    at_risk: bool = False,
) -> list[SurveyForecast]:
    """Returns the forecasts of a survey with its minimum of people, and with the expected number.

    They are the accountant's, who knows the ledger. Without a deployment, or without the operator's keys, the ledger is
    ignored.

    Args:
        directory: of the deployment, or None.
        file: of a survey that is not open yet.
        expected: the expected number of people; 0: the minimum only.
        transport: to the accountant.
        at_risk: see `plan_survey`.

    Raises:
        ValueError: the terms are invalid, or some choice of budgets would have a question refused for its ε.
        Refusal, grpc.aio.AioRpcError: the accountant refuses, or is out of reach.
    """
    deployment = None
    if directory is not None and (directory / DEPLOYMENT_FILE).exists():
        deployment = read_deployment(directory)
    survey = plan_survey(with_budgets(file, deployment), deployment, at_risk=at_risk, expected=expected)
    if directory is None or deployment is None or deployment.privacy_limit is None or not is_operators(directory):
        return await _forecasts(None, survey, expected)
    async with Operator(directory, transport) as operator:
        return await _forecasts(operator, survey, expected)


async def _forecasts(operator: Operator | None, survey: Survey, expected: int) -> list[SurveyForecast]:
    if not 0 <= expected < 2**31:
        raise ValueError(f"expected is {expected}; it must be in 0..{2**31 - 1}")
    sizes = sorted({survey.message.min_batch_size, max(survey.message.min_batch_size, expected)})
    return [await _forecast(operator, survey, people) for people in sizes]


async def _forecast(operator: Operator | None, survey: Survey, people: int, wave: int = 0) -> SurveyForecast:
    questions = {
        terms.question.name: await forecast_opening(operator, terms, people, wave) for terms in survey.questions
    }
    exact = any(len(terms.budget_grid) > 1 and not terms.counted_by.most_uncounted for terms in survey.questions)
    return SurveyForecast(people, questions, sum_as_decimals(terms.shared.delta for terms in survey.questions), exact)


async def open_survey(
    directory: Path,
    file: SurveyFile,
    transport: Transport = TLS,
    tell: Tell = lambda _: None,
    *,
    expected: int | None = None,
    told: Callable[[list[SurveyForecast]], None] = lambda _: None,
    at_risk: bool = False,
    collector_public_key: bytes = b"",
    goes_on: bool = True,
) -> Survey:
    """Opens all rounds of a survey that is asked once, or those that an earlier call has not reached.

    Args:
        directory: of the deployment.
        file: with the questions.
        transport: to the services.
        tell: called before an error is raised, with a sentence on the open rounds and the next step.
        expected: the expected number of people, to forecast a survey that is opened for the first time; None: no
            forecast but that of the limits.
        told: called with the forecasts before anything is open.
        at_risk: see `plan_survey`.
        collector_public_key: to which the results are sealed; empty for public results.
        goes_on: whether a later call continues a failed opening; else its rounds are withdrawn everywhere.

    Raises:
        LimitReachedError: the ledger cannot bear all questions with the minimum of people.
        ValueError: the terms are invalid, or this directory has opened another survey of the same name.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    if file.calendar is not None:
        raise ValueError(f"survey {file.name!r} has a [calendar]; 'croupier survey run' opens its waves")
    async with Operator(directory, transport) as operator:
        deployment, key = operator.deployment, collector_public_key
        file = with_budgets(file, deployment, key)
        survey = plan_survey(file, deployment, key, at_risk=at_risk, expected=expected or 0)
        if expected is None or kept_versions(directory, survey.survey_id):
            await check_affordable(operator, directory, survey)
        else:
            forecasts = await _forecasts(operator, survey, expected)
            if refusal := forecasts[-1].hopeless if at_risk else forecasts[0].refusal:
                raise LimitReachedError(refusal)
            told(forecasts)
        keep_survey(directory, survey)
        try:
            await open_rounds(operator, directory, survey, tell=tell)
        except (Refusal, grpc.aio.AioRpcError) as error:
            if not goes_on and not (isinstance(error, Refusal) and error.code is Code.NOT_APPROVED):
                for round_id in survey.round_ids():
                    await operator.withdraw(round_id)
            raise
        return survey


async def check_affordable(operator: Operator, directory: Path, survey: Survey, wave: int = 0) -> None:
    """Checks that the limits bear all questions of a wave with the minimum of people, unless it was begun already.

    Raises:
        LimitReachedError: they do not.
        Refusal, grpc.aio.AioRpcError: the accountant refuses, or is out of reach.
    """
    if operator.deployment.privacy_limit is None and survey.schedule is None:
        return
    if any(round_file(directory, survey, place, wave).exists() for place in range(len(survey.questions))):
        return
    if refusal := (await _forecast(operator, survey, survey.message.min_batch_size, wave)).refusal:
        raise LimitReachedError(refusal)


async def forecast_closing(
    directory: Path, rounds: Sequence[RoundId], transport: Transport = TLS
) -> dict[RoundId, rpc.ForecastResponse]:
    """Returns the forecast of closing now, for every round that takes answers and has one.

    Each round counts those before it as closed, because `close_rounds` closes them in this order.

    Raises:
        Refusal, grpc.aio.AioRpcError: a round is unknown, or a service is out of reach.
    """
    forecasts: dict[RoundId, rpc.ForecastResponse] = {}
    before: dict[str, int] = {}
    async with Operator(directory, transport) as operator, operator.client_channel() as channel:
        for round_id in rounds:
            status = (await operator.status(round_id))[0]
            if not isinstance(status, rpc.StatusResponse):
                raise status
            if status.rounds[0].state != pb.ROUND_STATE_OPEN or not status.rounds[0].num_items:
                continue
            said = forecasts[round_id] = await forecast_now(operator, round_id, before)
            terms = await fetch_terms(channel, operator.deployment, round_id)
            if said.num_reports >= terms.shared.min_batch_size:  # one with too few people stays open
                before[round_id] = said.num_reports
    return forecasts
