"""A survey as a client sees it: all its rounds, verified, and checked to be of one description."""

from __future__ import annotations

from typing import Protocol, TypeVar

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.surveys import rounds_together


class _RoundLike(Protocol):
    @property
    def id(self) -> RoundId: ...
    @property
    def terms(self) -> RoundTerms: ...


R = TypeVar("R", bound=_RoundLike)
R_co = TypeVar("R_co", bound=_RoundLike, covariant=True)


class Asker(Protocol[R_co]):
    """Finds a round and verifies its terms; see `AsyncClient.round`."""

    async def round(self, round_id: RoundId | str = NO_ROUND) -> R_co:
        """Returns a round, the newest open one if no id is given."""
        ...


async def fetch_survey(client: Asker[R], round_id: RoundId = NO_ROUND) -> list[R]:
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
    others = [survey_round.round_id for survey_round in survey.rounds]
    rounds = [asked if other == asked.id else await client.round(other) for other in others]
    try:
        rounds_together([client_round.terms for client_round in rounds])
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error
    return rounds
