"""The clients that keep what they have sealed in a deployment's directory: one person's, and the fleets'."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

from croupier.client.async_client import AsyncClient
from croupier.client.round_checks import fetch_publication
from croupier.client.round_client import AsyncClientRound
from croupier.net.transport import TLS, Transport
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.protocol.errors import Refusal
from croupier.protocol.names import JsonObject, RoundId
from croupier.show.documents import terms_json
from croupier.show.published import publication_json

FLEET = "fleet"
"""The directory of the fleets' outbox, inside the deployment's directory."""
_PATIENCE_S = 30.0
"""Seconds after which a call for a deployment is given up, unless the caller gives another time."""


def client_of(
    directory: Path, gateway: str = "", transport: Transport = TLS, patience_s: float = _PATIENCE_S
) -> AsyncClient:
    """Returns the client of the person who uses a deployment's directory; see `AsyncClient`.

    Raises:
        ValueError: the directory has no deployment, or the gateway's URL is not valid.
    """
    return AsyncClient(directory / DEPLOYMENT_FILE, patience_s=patience_s, gateway=gateway, transport=transport)


async def terms_of(asked: AsyncClientRound) -> JsonObject:
    """Returns the verified terms of a round, its state at hop 1, and what the accountant has decided.

    "granted" is None until the analyzer has published the result; "refusals" are the reasons of a refused round.
    """
    shown: JsonObject = {**terms_json(asked.terms), "state": asked.state, "granted": None, "refusals": []}
    if asked.state != "OPEN":
        try:
            published = await fetch_publication(asked.client.analyzer, asked.client.deployment, asked.id, 0.0)
        except (grpc.aio.AioRpcError, Refusal):  # there is no result yet, or the analyzer is out of reach
            return shown
        certificate = publication_json(*published)["certificate"]
        shown["granted"], shown["refusals"] = certificate["granted"], certificate["refusals"]
    return shown


async def verify_directory(
    client: AsyncClient, directory: Path, round_id: RoundId, wait_s: float = 20.0
) -> tuple[int, dict[str, list[str]]]:
    """Returns how many submissions from a directory were acknowledged, and by hop the users whose submissions it lacks.

    Args:
        client: of the directory's own person.
        directory: of the deployment; submissions of its fleets count as well.
        round_id: of the round.
        wait_s: how long to wait for the certificate.

    Raises:
        ValueError: no submission from here was acknowledged.
        Refusal: the round has no certificate yet (NOT_READY), or a hop's list is not what it committed to.
        SignatureError, UnreachableError: as for `AsyncClientRound.verify`.
    """
    of_fleets: dict[str, bytes] = {}
    if (directory / FLEET / "outbox.db").exists():
        async with AsyncClient(client.deployment, directory=directory / FLEET) as fleets:
            of_fleets = fleets.outbox.inclusion_hashes(round_id)
    hashes_of = client.outbox.inclusion_hashes(round_id) | of_fleets if of_fleets else client.acknowledged(round_id)
    return len(hashes_of), await (await client.round(round_id)).missing_by_hop(hashes_of, wait_s)
