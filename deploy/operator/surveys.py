"""Surveys: the rounds of one description, opened together, closed together, read together.

The manifests of all rounds are signed before the first round is opened, and kept in `operator/surveys/NAME/`: an
opening that was cut short goes on with the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc.aio

from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose
from croupier.accountant.numerics.decimals import difference, sum_above
from croupier.accountant.results import Guarantee
from croupier.accountant.service.forecast import always_granted
from croupier.deploy.directory import read_deployment
from croupier.deploy.operator.forecasts import Fitted, default_grid, fit, forecast_now, forecast_opening
from croupier.deploy.operator.keys import replace_secret
from croupier.deploy.operator.results import published_result
from croupier.deploy.operator.round_settings import RoundSettings, check_settings, terms_of
from croupier.deploy.operator.rounds import Operator, is_operators, kept_manifest
from croupier.deploy.operator.survey_file import SurveyFile
from croupier.net.transport import TLS, Transport
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment
from croupier.protocol.errors import CroupierError
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.studies import StudyWave
from croupier.protocol.surveys import Survey, SurveyRound, rounds_together, stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc

__all__ = [
    "AnsweredQuestion",
    "LimitReachedError",
    "OfStudy",
    "SurveyForecast",
    "SurveyResults",
    "close_survey",
    "forecast_closing",
    "forecast_survey",
    "kept_rounds",
    "kept_survey",
    "open_rounds",
    "open_survey",
    "plan_survey",
    "round_of",
    "survey_folder",
    "survey_results",
    "survey_terms",
    "with_budgets",
    "withdraw_survey",
]

Tell = Callable[[str], None]


class LimitReachedError(ValueError):
    """The ledger, or the limit of a study, does not bear all questions with the minimum of people."""


@dataclass(frozen=True)
class OfStudy:
    """What a survey that is a wave of a study has beside its file.

    Attributes:
        wave: the wave; its study is in the description of the survey.
        collector_public_key: to which the results are sealed; empty where they are public.
    """

    wave: StudyWave
    collector_public_key: bytes = b""


def round_of(survey_id: str, number: int) -> RoundId:
    """Returns the id of the round that asks a survey's question with this number, from 1."""
    return RoundId(f"{survey_id}-{number}")


def with_budgets(file: SurveyFile, deployment: Deployment | None) -> SurveyFile:
    """Returns a survey's file with budgets: its own, or else those that put no question at risk at the minimum.

    These are four budgets for all answers together, the largest at most 4, as for a round without a grid.

    Raises:
        ValueError: the terms cannot be, or no budgets are without risk.
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
    rounds = {}
    for number, (question, grid) in enumerate(zip(file.asked(), file.grids(), strict=True), start=1):
        settings = RoundSettings(
            question,
            grid,
            delta=file.delta,
            epsilon_max=file.epsilon_max,
            dishonest=file.dishonest,
            min_batch_size=file.min_batch_size,
            max_batch_size=file.max_batch_size,
            short_batch_policy="dispose" if of_study else "hold",
            close_deadline_unix_s=file.deadline,
            hop_noise=file.hop_noise,
            hop_noise_delta=file.hop_noise_delta,
            budget_privacy=file.budget_privacy,
            budget_privacy_delta=file.budget_privacy_delta,
            collector_public_key=PublicKey(b"" if of_study is None else of_study.collector_public_key),
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


def _too_large(file: SurveyFile, name: str, fitted: Fitted) -> str:
    """Returns what is wrong with budgets if the accountant would refuse a round for some choice of them."""
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
    """What a survey would come to with a number of people, whatever budgets they choose.

    Attributes:
        people: who answer every question.
        questions: the forecast of each, by its name; each counts all others as granted before it.
        delta: of all certificates together.
    """

    people: int
    questions: Mapping[str, rpc.ForecastResponse]
    delta: float

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
    """Returns what a survey would come to with its minimum of people, and with as many as are expected.

    The accountant says it, which knows the ledger. Without a deployment, and without the operator's keys, the ledger
    is left out.

    Args:
        directory: of the deployment, or None.
        file: of a survey that is not open yet.
        expected: how many people are expected; 0: the minimum only.
        transport: how the accountant is reached.

    Raises:
        ValueError: the terms cannot be, or some choice of budgets would have a question refused for its ε.
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
    # Of a survey by itself the description changes nothing, and is not sent; that of a wave has the study's limit.
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
    return SurveyForecast(people, questions, sum_above(round_settings.delta for round_settings in alone.values()))


def survey_folder(directory: Path, survey_id: str) -> Path:
    """Returns where the operator keeps what belongs to a survey."""
    return directory / OPERATOR / "surveys" / survey_id


def kept_survey(directory: Path, survey_id: str = "") -> Survey:
    """Returns the description of a survey that was opened from this directory, the newest one if no id is given.

    Raises:
        ValueError: there is none.
    """
    if survey_id:
        files = [survey_folder(directory, survey_id) / "survey"]
    else:
        files = sorted((directory / OPERATOR / "surveys").glob("*/survey"), key=lambda file: file.stat().st_mtime)
    if not files or not files[-1].exists():
        what = f"survey {survey_id!r}" if survey_id else "any survey"
        raise ValueError(f"{directory} has not opened {what}; 'croupier survey open survey.toml' does")
    return Survey.read(pb.Survey.FromString(bytes.fromhex(files[-1].read_text())))


def kept_rounds(directory: Path, survey_id: str) -> list[RoundTerms]:
    """Returns the terms of all rounds of a survey that was opened from this directory, in order.

    Raises:
        ValueError: it was not, or not completely.
    """
    survey, folder = kept_survey(directory, survey_id), survey_folder(directory, survey_id)
    terms = []
    for survey_round in survey.rounds:
        document = kept_manifest(folder / f"{survey_round.round_id}.signed")
        if document is None:
            raise ValueError(
                f"{survey_round.round_id!r} is not open yet; 'croupier survey open' with the survey's file goes on"
            )
        terms.append(parse_terms(document.payload))
    return terms


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
        file: what to ask.
        transport: how the services are reached.
        tell: called before an error is raised, with a sentence on which rounds are open and how to go on.
        of_study: the wave of a study that the survey is; None for a survey by itself.

    Raises:
        LimitReachedError: the ledger, or the limit of a study, cannot bear all questions with the minimum of people.
        ValueError: the terms cannot be, or this directory has opened another survey of the same name.
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


async def open_rounds(
    operator: Operator,
    directory: Path,
    survey: Survey,
    rounds: Mapping[RoundId, pb.Manifest],
    tell: Tell = lambda _: None,
) -> list[RoundTerms]:
    """Opens rounds of a survey, given without keys, and those that an earlier call has kept; returns their terms.

    Every manifest is kept before the first round is opened.

    Raises:
        ValueError: this directory has opened another survey of the same name, or a round has not the name that the
            round of its question has.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    folder = survey_folder(directory, survey.survey_id)
    files = {}
    for number, survey_round in enumerate(survey.rounds, start=1):
        if survey_round.round_id != (name := round_of(survey.survey_id, number)):
            raise ValueError(f"round {number} of {survey.survey_id!r} is {survey_round.round_id!r}, and not {name!r}")
        files[name] = folder / f"{name}.signed"
    described = survey.message().SerializeToString(deterministic=True)
    if not (folder / "survey").exists():
        replace_secret(folder / "survey", described.hex())
    if (folder / "survey").read_text() != described.hex():
        raise ValueError(
            f"survey {survey.survey_id!r} was opened with other terms; bring its file back to go on with it, or "
            "give the new survey another name"
        )
    operator.require_approval([terms for round_id, terms in rounds.items() if not files[round_id].exists()])
    opened: list[RoundTerms] = []
    try:
        documents = [
            await operator.sign_and_keep(rounds.get(round_id, pb.Manifest()), file)
            for round_id, file in files.items()
            if round_id in rounds or file.exists()
        ]
        for document in documents:
            opened.append(await operator.open_signed(document))  # noqa: PERF401 (what is open counts if one fails)
    except (CroupierError, grpc.aio.AioRpcError):
        names = f" ({', '.join(terms.round_id for terms in opened)})" if opened else ""
        tell(
            f"{len(opened)} of the {len(files)} rounds of {survey.survey_id!r} are open{names}; the same "
            f"command again goes on, and 'croupier survey close {survey.survey_id} --withdraw' gives the survey up"
        )
        raise
    return opened


async def close_survey(
    directory: Path, survey: Survey, transport: Transport = TLS, *, hold_at_risk: bool = True
) -> dict[str, rpc.CloseResponse]:
    """Ends admission to all rounds, and returns what hop 1 said of each. The same call again is harmless.

    Args:
        directory: of the deployment.
        survey: to close.
        transport: how hop 1 is reached.
        hold_at_risk: leave a round open that some mixture of budgets would have refused.

    Raises:
        Refusal, grpc.aio.AioRpcError: hop 1 refuses, or is out of reach; further rounds are open then.
    """
    async with Operator(directory, transport) as operator:
        return {
            survey_round.round_id: await operator.close_round(survey_round.round_id, hold_at_risk=hold_at_risk)
            for survey_round in survey.rounds
        }


async def forecast_closing(
    directory: Path, survey: Survey, transport: Transport = TLS
) -> dict[str, rpc.ForecastResponse]:
    """Returns what closing now would come to, for every round that takes answers and has one.

    Each round counts those before it as closed, because `close_survey` closes them in this order.

    Raises:
        Refusal, grpc.aio.AioRpcError: a round is unknown, or a service is out of reach.
    """
    forecasts: dict[str, rpc.ForecastResponse] = {}
    least = kept_rounds(directory, survey.survey_id)[0].manifest.min_batch_size
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


async def withdraw_survey(directory: Path, survey: Survey, transport: Transport = TLS) -> dict[str, dict[str, str]]:
    """Has every service delete all rounds that have no certificate; returns what each said, by round."""
    async with Operator(directory, transport) as operator:
        return {survey_round.round_id: await operator.withdraw(survey_round.round_id) for survey_round in survey.rounds}


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question of a survey with its verified result."""

    terms: RoundTerms
    publication: pb.Publication
    certificate: pb.Certificate


@dataclass(frozen=True)
class SurveyResults:
    """The results of a survey.

    Attributes:
        survey: its description.
        questions: in order.
        together: what all results together reveal about one person who answered every question with the largest
            budget; None if no question was certified.
    """

    survey: Survey
    questions: tuple[AnsweredQuestion, ...]
    together: Guarantee | None


async def survey_results(
    directory: Path, survey_id: str, patience_s: float, transport: Transport = TLS, tell: Tell = lambda _: None
) -> SurveyResults:
    """Returns the verified results of all questions; needs the public deployment file only.

    Args:
        directory: of the deployment.
        survey_id: of the survey.
        patience_s: how long to wait for each result.
        transport: how services are reached.
        tell: see `published_result`.

    Raises:
        Refusal: a result is not there after `patience_s`, or will not come by then.
        SignatureError: something is not signed as it must be.
        ValueError: the first result is not that of a survey.
    """
    survey: Survey | None = None
    answered: list[AnsweredQuestion] = []
    while survey is None or len(answered) < len(survey.rounds):
        round_id = survey.rounds[len(answered)].round_id if survey else round_of(survey_id, 1)
        publication, certificate = await published_result(directory, round_id, patience_s, transport, tell)
        terms = parse_terms(publication.manifest.payload)  # it is verified with the publication
        answered.append(AnsweredQuestion(terms, publication, certificate))
        survey = terms.survey
        if survey is None or survey.survey_id != survey_id:
            raise ValueError(f"round {round_id!r} is not of survey {survey_id!r}; 'croupier round result' shows it")
    rounds_together([question.terms for question in answered])
    return SurveyResults(survey, tuple(answered), _together([question.certificate for question in answered]))


def _together(certificates: Sequence[pb.Certificate]) -> Guarantee | None:
    """Returns the composition of what was certified: the description fixes all terms before the first round opens."""
    granted = [Certificate.from_message(certificate) for certificate in certificates if certificate.granted]
    if not granted:
        return None
    return compose(granted, delta=sum_above([certificate.delta for certificate in granted]), fixed_terms=True)
