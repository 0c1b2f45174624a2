"""A survey as a client sees it: all its rounds, verified, and checked to be of one description."""

from __future__ import annotations

from croupier.client.round_client import AsyncClientRound, RoundClient
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import one_survey
from croupier.protocol.names import NO_ROUND, RoundId


async def fetch_survey(client: RoundClient, name: RoundId | str = NO_ROUND) -> list[AsyncClientRound]:
    """Returns all rounds of a survey, or of one of its waves, in the order of its questions.

    Args:
        client: of the deployment.
        name: of the survey, of a wave, or of any round of it; the newest open round if not given.

    Raises:
        Refusal: there is no such round, or the survey's rounds do not belong together (BAD_MANIFEST).
        SignatureError, UnreachableError: as for `RoundClient.round`.
    """
    try:
        asked = await client.round(name)
    except Refusal as refusal:
        if not name or refusal.code is not Code.UNKNOWN_ROUND:
            raise
        try:
            asked = await client.round(f"{name}-1")
        except Refusal as of_first:
            raise refusal if of_first.code is Code.UNKNOWN_ROUND else of_first from of_first
    others = asked.terms.survey.round_ids(asked.terms.wave.number if asked.terms.wave else 0)
    rounds = [asked if other == asked.id else await client.round(other) for other in others]
    try:
        one_survey([client_round.terms for client_round in rounds])
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error
    return rounds
