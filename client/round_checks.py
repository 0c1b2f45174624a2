"""A client's checks before it takes part, and the search for its round.

A manifest is accepted only with the signature of every service that the deployment file pins: a manifest made for one
client would need all of them to lie together.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from croupier.net.retrying import retrying
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.manifest import RoundTerms, parse_terms, verify_manifest
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.versions import another_with_this_number

_PATIENCE_S = 30.0
"""Seconds after which a call for rounds is given up, unless the caller gives another time."""


def accept_manifest(document: pb.SignedRound, deployment: Deployment) -> RoundTerms:
    """Returns the terms of a manifest that every pinned service has signed.

    Raises:
        SignatureError: a signature is missing or wrong.
        Refusal: BAD_MANIFEST if the terms are out of range or for another deployment, chain or lifetime policy.
    """
    verify_manifest(document, deployment)
    terms = parse_terms(document)
    terms.check_place(deployment)
    return terms


async def fetch_terms(channel: grpc.aio.Channel, deployment: Deployment, round_id: RoundId = NO_ROUND) -> RoundTerms:
    """Returns the verified terms of a round, the newest open one if no id is given."""
    return (await fetch_round(channel, deployment, round_id))[0]


async def fetch_round(
    channel: grpc.aio.Channel, deployment: Deployment, round_id: RoundId = NO_ROUND, patience_s: float = _PATIENCE_S
) -> tuple[RoundTerms, pb.RoundState.ValueType]:
    """Returns the verified terms of a round, and its state according to hop 1; see `fetch_terms`."""
    stub = stubs.ShufflerStub(channel)
    request = rpc.GetRoundRequest(round_id=round_id)
    answer = await retrying(lambda: stub.GetRound(request, timeout=20.0), give_up_after_s=patience_s)
    stated = answer.deployment
    if another_with_this_number(stated.number, stated.fingerprint, deployment):
        raise SignatureError(
            f"hop 1 goes by another version {stated.number} of the deployment file, with the fingerprint "
            f"{stated.fingerprint.hex()[:16]}…, and {deployment.fingerprint.hex()[:16]}… is here: ask several "
            "organisations for theirs"
        )
    terms = accept_manifest(answer.round, deployment)
    if round_id and terms.round_id != round_id:
        raise Refusal(Code.BAD_MANIFEST, f"asked for round {round_id!r}, got {terms.round_id!r}")
    return terms, answer.state


async def fetch_signed_result(
    channel: grpc.aio.Channel,
    round_id: RoundId,
    patience_s: float,
    on_wait: Callable[[grpc.aio.AioRpcError], None] = lambda _: None,
) -> pb.Signed:
    """Returns the analyzer's signed result of a round, not verified: see `read_publication`.

    Args:
        channel: to the analyzer.
        round_id: of the round.
        patience_s: the time to wait for the result.
        on_wait: called with the reason why there is none yet, before every further attempt.
    """
    stub = stubs.AnalyzerStub(channel)
    request = rpc.GetResultRequest(round_id=round_id)
    answer = await retrying(
        lambda: stub.GetResult(request, timeout=20.0),
        give_up_after_s=patience_s,
        longest_wait_s=0.25,
        on_failure=on_wait,
    )
    return answer.publication


async def fetch_publication(
    channel: grpc.aio.Channel,
    deployment: Deployment,
    round_id: RoundId,
    patience_s: float,
) -> tuple[pb.Publication, pb.Certificate]:
    """Returns the verified result of a round, waiting up to `patience_s` for it; see `fetch_signed_result`.

    Raises:
        SignatureError: a signature is missing or wrong.
        Refusal: BAD_BATCH if the analyzer answers for another round.
    """
    return read_publication(await fetch_signed_result(channel, round_id, patience_s), deployment, round_id)
