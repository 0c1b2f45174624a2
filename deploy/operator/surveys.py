"""Surveys: the rounds of one description, opened together, closed together, read together.

The manifests of all rounds are signed before the first round is opened, and kept in `operator/surveys/NAME/`: an
opening that was cut short goes on with the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc.aio

from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose
from croupier.accountant.numerics.decimals import sum_above
from croupier.accountant.results import Guarantee
from croupier.deploy.operator.forecasts import Fitted, fit, forecast_opening
from croupier.deploy.operator.keys import write_secret
from croupier.deploy.operator.rounds import (
    Operator,
    RoundSettings,
    check_settings,
    published_result,
)
from croupier.deploy.operator.survey_file import SurveyFile
from croupier.net.transport import TLS, Transport
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.errors import CroupierError
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.rounding import round_down
from croupier.protocol.statements import joined, read_messages
from croupier.protocol.surveys import Survey, SurveyRound, rounds_together, stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc

__all__ = [
    "AnsweredQuestion",
    "SurveyResults",
    "close_survey",
    "forecast_survey",
    "kept_rounds",
    "kept_survey",
    "open_survey",
    "plan_survey",
    "round_of",
    "survey_folder",
    "survey_results",
    "withdraw_survey",
]

Tell = Callable[[str], None]


def round_of(survey_id: str, number: int) -> RoundId:
    """Returns the id of the round that asks a survey's question with this number, from 1."""
    return RoundId(f"{survey_id}-{number}")


def plan_survey(file: SurveyFile, deployment: Deployment) -> tuple[Survey, dict[RoundId, RoundSettings]]:
    """Returns the description of a survey, and the settings of its rounds by id.

    Raises:
        ValueError: the terms of a round cannot be, with the question's name.
    """
    settings: dict[RoundId, RoundSettings] = {}
    rounds: list[SurveyRound] = []
    for number, (question, grid) in enumerate(zip(file.asked(), file.grids(), strict=True), start=1):
        one = RoundSettings(
            question,
            grid,
            delta=file.delta,
            epsilon_max=file.epsilon_max,
            dishonest=file.dishonest,
            min_batch_size=file.min_batch_size,
            max_batch_size=file.max_batch_size,
            close_deadline_unix_s=file.deadline,
            hop_noise=file.hop_noise,
            hop_noise_delta=file.hop_noise_delta,
        )
        round_id = round_of(file.name, number)
        try:
            terms = check_settings(one, deployment, round_id)
            fitted = fit(one, deployment)
        except ValueError as error:
            raise ValueError(f"question {question.name!r}: {error}") from error
        if fitted.left_out:
            raise ValueError(_too_large(file, question.name, fitted))
        settings[round_id] = one
        rounds.append(SurveyRound(round_id, stated_terms_hash(terms.manifest)))
    survey = Survey(file.name, file.wordings(), tuple(rounds), file.left_out)
    return survey, {round_id: replace(one, survey=survey) for round_id, one in settings.items()}


def _too_large(file: SurveyFile, name: str, fitted: Fitted) -> str:
    """Returns what is wrong with budgets of which some choice would have a round refused, and all answers destroyed."""
    budgets, most = " and ".join(f"{budget:g}" for budget in fitted.left_out), "no budget"
    if fitted.largest is not None:
        whole = file.whole_budget(name, fitted.largest)
        most = f"a local ε of at most {fitted.largest:g}" + (f" ({round_down(whole)} of the survey's)" if whole else "")
    return (
        f"question {name!r} has the local budgets {budgets}: with {file.min_batch_size:,} people, the minimum, some "
        f"choice of budgets would have it refused and every answer destroyed; {most} is without that risk. Choose "
        "smaller budgets, a larger epsilon_max or a larger min_batch_size"
    )


async def forecast_survey(
    directory: Path, file: SurveyFile, people: int = 0, transport: Transport = TLS
) -> dict[str, rpc.ForecastResponse]:
    """Returns what each question would come to, by its name, as the accountant says, which knows the ledger.

    Args:
        directory: of the deployment.
        file: of a survey that is not open yet.
        people: how many answer; the minimum if not given.
        transport: how the accountant is reached.

    Raises:
        ValueError: the terms cannot be, or some choice of budgets would have a question refused.
        Refusal, grpc.aio.AioRpcError: the accountant refuses, or is out of reach.
    """
    async with Operator(directory, transport) as operator:
        _, settings = plan_survey(file, operator.deployment)
        found = {}
        for one in settings.values():
            name = one.question.name
            alone = replace(one, survey=None)  # a forecast is of a round by itself
            found[name] = await forecast_opening(operator, alone, max(people, file.min_batch_size))
            why = next((outcome.refusals for outcome in found[name].outcomes if outcome.refusals), None)
            if why is not None:
                reasons = joined(read_messages(RefusalReason, why))
                raise ValueError(
                    f"question {name!r} could be refused by the choice of budgets: {reasons}. Choose smaller budgets, "
                    "or more people; 'croupier ledger --forecast' says how much of a limit remains"
                )
    return found


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
    files = [folder / f"{one.round_id}.signed" for one in survey.rounds]
    if missing := [file for file in files if not file.exists()]:
        raise ValueError(f"{missing[0].stem!r} is not open yet; 'croupier survey open' with the survey's file goes on")
    documents = [pb.Signed.FromString(bytes.fromhex(file.read_text())) for file in files]
    return [parse_terms(one.payload) for one in documents]


def _keep(file: Path, content: bytes) -> bytes:
    """Writes a file that is not there yet, and returns what it holds."""
    if not file.exists():
        write_secret(file, content.hex())
    return bytes.fromhex(file.read_text())


async def open_survey(
    directory: Path, file: SurveyFile, transport: Transport = TLS, tell: Tell = lambda _: None
) -> Survey:
    """Opens all rounds of a survey, or those that an earlier call has not reached; returns its description.

    Args:
        directory: of the deployment.
        file: what to ask.
        transport: how the services are reached.
        tell: called before an error is raised, with a sentence on which rounds are open and how to go on.

    Raises:
        ValueError: the terms cannot be, or this directory has opened another survey of the same name.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    async with Operator(directory, transport) as operator:
        survey, settings = plan_survey(file, operator.deployment)
        folder = survey_folder(directory, survey.survey_id)
        described = survey.message().SerializeToString(deterministic=True)
        if _keep(folder / "survey", described) != described:
            raise ValueError(
                f"survey {survey.survey_id!r} was opened with other terms; bring its file back to go on with it, or "
                "give the new survey another name"
            )
        opened: list[RoundTerms] = []
        operator.require_approval(
            {round_id: one for round_id, one in settings.items() if not (folder / f"{round_id}.signed").exists()}
        )
        try:
            documents = []
            for round_id, one in settings.items():
                kept = folder / f"{round_id}.signed"
                made = b"" if kept.exists() else (await operator.sign_round(one, round_id)).SerializeToString()
                documents.append(pb.Signed.FromString(_keep(kept, made)))
            for document in documents:
                opened.append(await operator.open_signed(document))  # noqa: PERF401 (what is open counts if one fails)
        except (CroupierError, grpc.aio.AioRpcError):
            names = f" ({', '.join(one.round_id for one in opened)})" if opened else ""
            tell(
                f"{len(opened)} of the {len(settings)} rounds of {survey.survey_id!r} are open{names}; the same "
                f"command again goes on, and 'croupier survey close {survey.survey_id} --withdraw' gives the survey up"
            )
            raise
    return rounds_together(opened)


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
            one.round_id: await operator.close_round(one.round_id, hold_at_risk=hold_at_risk) for one in survey.rounds
        }


async def withdraw_survey(directory: Path, survey: Survey, transport: Transport = TLS) -> dict[str, dict[str, str]]:
    """Has every service delete all rounds that have no certificate; returns what each said, by round."""
    async with Operator(directory, transport) as operator:
        return {one.round_id: await operator.withdraw(one.round_id) for one in survey.rounds}


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
    found: list[AnsweredQuestion] = []
    while survey is None or len(found) < len(survey.rounds):
        round_id = survey.rounds[len(found)].round_id if survey else round_of(survey_id, 1)
        publication, certificate = await published_result(directory, round_id, patience_s, transport, tell)
        terms = parse_terms(publication.manifest.payload)  # it is verified with the publication
        found.append(AnsweredQuestion(terms, publication, certificate))
        survey = terms.survey
        if survey is None or survey.survey_id != survey_id:
            raise ValueError(f"round {round_id!r} is not of survey {survey_id!r}; 'croupier round result' shows it")
    rounds_together([one.terms for one in found])
    return SurveyResults(survey, tuple(found), _together([one.certificate for one in found]))


def _together(certificates: Sequence[pb.Certificate]) -> Guarantee | None:
    """Returns the composition of what was certified: the description fixes all terms before the first round opens."""
    granted = [Certificate.from_message(one) for one in certificates if one.granted]
    if not granted:
        return None
    return compose(granted, delta=sum_above([one.delta for one in granted]), fixed_terms=True)
