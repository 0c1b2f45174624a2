"""A survey as a client sees it: all its rounds, verified, and checked to be of one description."""

from __future__ import annotations

from croupier.client.async_client import AsyncClient, AsyncClientRound
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.surveys import rounds_together

__all__ = ["fetch_survey"]


async def fetch_survey(client: AsyncClient, round_id: RoundId = NO_ROUND) -> list[AsyncClientRound]:
    """Returns all rounds of a survey, in the order of its questions.

    Args:
        client: of the deployment.
        round_id: any round of the survey; the newest open one if not given.

    Raises:
        Refusal: there is no such round, it is not of a survey (BAD_REQUEST), or the survey's rounds do not belong
            together (BAD_MANIFEST).
        SignatureError, UnreachableError: as for `AsyncClient.round`.
    """
    asked = await client.round(round_id)
    survey = asked.terms.survey
    if survey is None:
        raise Refusal(Code.BAD_REQUEST, f"round {asked.id!r} is not of a survey; 'croupier round show' shows it")
    others = [one.round_id for one in survey.rounds]
    rounds = [asked if one == asked.id else await client.round(one) for one in others]
    try:
        rounds_together([one.terms for one in rounds])
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error
    return rounds
