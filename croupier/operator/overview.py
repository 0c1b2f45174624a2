"""A deployment as its operator sees it: services, and rounds with their verified terms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio

from croupier.client.round_checks import fetch_terms
from croupier.operator.operator import Operator
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.documents import round_json, services_json
from croupier.show.forecasts import ledger_json

TermsCache = dict[RoundId, RoundTerms | str]
"""The terms of rounds, or the reason why they cannot be used, from earlier requests. Terms never change."""


async def overview(operator: Operator, known: TermsCache) -> JsonObject:
    """Returns the services (`services_json`) and the newest rounds (`round_json`), newest first.

    known: the terms that need no fetching; new ones are added.
    """
    answers, health = await asyncio.gather(operator.status(), operator.readiness())
    names = operator.deployment.chain
    seen: dict[RoundId, dict[str, pb.RoundStatus]] = {}
    ledger: JsonObject | None = None
    kept_until: dict[str, int] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, rpc.StatusResponse):
            ledger = ledger_json(answer.ledger) if answer.HasField("ledger") else ledger
            for status in answer.rounds:
                seen.setdefault(RoundId(status.round_id), {})[name] = status
            for round_id, end in answer.kept_until_unix_s.items():
                kept_until[round_id] = max(end, kept_until.get(round_id, 0))
    await _learn(operator, seen, known)
    out_of_reach = {
        name for name, answer in zip(names, answers, strict=True) if isinstance(answer, grpc.aio.AioRpcError)
    }
    rounds = []
    for round_id, states in seen.items():
        terms = known.get(round_id)
        problem = terms if isinstance(terms, str) else ""
        if terms is None:
            problem = why_terms_unknown(names[0], states.get(names[0]), is_away=names[0] in out_of_reach)
        verified = terms if isinstance(terms, RoundTerms) else None
        here = {name: states.get(name) for name in names if name in states or name in out_of_reach}
        rounds.append(round_json(RoundId(round_id), here, verified, problem, kept_until.get(round_id)))
    seen_by_people: JsonObject = sanitize_for_display(
        {"services": services_json(names, answers, health), "rounds": rounds, "ledger": ledger}
    )
    return seen_by_people


async def ledger_left(operator: Operator) -> JsonObject | None:
    """Returns the rest of the deployment's limit in the ledger; None without one, or if the accountant is away."""
    answers = [answer for answer in await operator.status() if isinstance(answer, rpc.StatusResponse)]
    return next((ledger_json(answer.ledger) for answer in answers if answer.HasField("ledger")), None)


async def approvals_of(operator: Operator, round_id: RoundId) -> dict[str, list[str]]:
    """Returns the organisations that had approved of a round when a service signed its manifest, by service."""
    answers = [answer for answer in await operator.status(round_id) if isinstance(answer, rpc.StatusResponse)]
    named = {answer.service: list(status.approved_by) for answer in answers for status in answer.rounds}
    shown: dict[str, list[str]] = sanitize_for_display({service: names for service, names in named.items() if names})
    return shown


def why_terms_unknown(first: str, there: pb.RoundStatus | None, *, is_away: bool) -> str:
    """Returns the reason why the terms of a round are unknown; "" if they were deleted in time."""
    if is_away:
        return f"they are at {first}, which is out of reach"
    if there is None:
        return f"{first} does not know this round"
    return "" if there.state == pb.ROUND_STATE_PREPARED else f"{first} does not answer where clients call it"


async def _learn(operator: Operator, seen: dict[RoundId, dict[str, pb.RoundStatus]], known: TermsCache) -> None:
    """Adds the terms of rounds that hop 1 has a signed manifest of."""
    first = operator.deployment.shufflers[0].name
    new = [
        round_id
        for round_id, states in seen.items()
        if round_id not in known and first in states and states[first].state != pb.ROUND_STATE_PREPARED
    ]
    if not new:
        return
    async with operator.client_channel() as channel:

        async def learn(round_id: RoundId) -> None:
            try:
                known[round_id] = await fetch_terms(channel, operator.deployment, round_id)
            except Refusal as refusal:  # only the name of a deleted round is known
                known[round_id] = "" if refusal.code is Code.WRONG_STATE else str(refusal)
            except SignatureError as error:
                known[round_id] = str(error)
            except grpc.aio.AioRpcError:
                pass  # another time

        await asyncio.gather(*map(learn, new))


async def watch(operator: Operator, ticks: AsyncIterator[object]) -> AsyncIterator[JsonObject]:
    """Yields an overview at every tick."""
    known: TermsCache = {}
    async for _ in ticks:
        yield await overview(operator, known)
