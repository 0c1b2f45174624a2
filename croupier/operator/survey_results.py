"""The results of all questions of a survey, verified, and their guarantee together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose
from croupier.accountant.guarantees import Guarantee
from croupier.net.transport import TLS, Transport
from croupier.operator.opened_surveys import Tell
from croupier.operator.published_result import published_result
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms, one_survey, parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb


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
        together: the guarantee of all results together for one person who answered every question with the largest
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
        patience_s: the time to wait for each result.
        transport: to the services.
        tell: see `published_result`.

    Raises:
        Refusal: a result is not there after `patience_s`, or will not come by then.
        SignatureError: a message is not signed as it must be.
        ValueError: the first result is not that of a survey.
    """

    async def result(round_id: RoundId) -> AnsweredQuestion:
        publication, certificate = await published_result(directory, round_id, patience_s, transport, tell)
        return AnsweredQuestion(parse_terms(publication.round), publication, certificate)  # verified with it

    try:
        first = await result(RoundId(f"{survey_id}-1"))
    except Refusal as refusal:
        if refusal.code is not Code.UNKNOWN_ROUND:
            raise
        first = await result(RoundId(survey_id))  # the only question
    survey = first.terms.survey
    if survey.survey_id != survey_id:
        raise ValueError(f"round {first.terms.round_id!r} is not of survey {survey_id!r}")
    answered = [first, *[await result(round_id) for round_id in survey.round_ids()[1:]]]
    one_survey([question.terms for question in answered])
    return SurveyResults(survey, tuple(answered), _together([question.certificate for question in answered]))


def _together(certificates: Sequence[pb.Certificate]) -> Guarantee | None:
    """Returns the composition of the certificates: the description fixes all terms before the first round opens."""
    granted = [Certificate.from_message(certificate) for certificate in certificates if certificate.granted]
    if not granted:
        return None
    return compose(granted, fixed_terms=True)
