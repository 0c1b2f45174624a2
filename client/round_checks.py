"""A client's checks before it takes part, and the search for its round.

A manifest is accepted only with the signature of every service that the deployment file pins: a manifest made for one
client would need all of them to lie together.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio
from google.protobuf.message import DecodeError

from croupier.net.retrying import retrying
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Kind, document_hash, read_signed
from croupier.protocol.manifest import RoundTerms, parse_terms, verify_manifest
from croupier.protocol.names import NO_ROUND, RoundId
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


def read_publication(
    document: pb.Signed, deployment: Deployment, round_id: RoundId = NO_ROUND
) -> tuple[pb.Publication, pb.Certificate]:
    """Returns a published result and its certificate after checking both signatures and that they belong together.

    Retired identities are accepted in a round of their time, according to the manifest in the document.

    Args:
        document: signed by the analyzer.
        deployment: which pins the keys.
        round_id: the round of the result; "" for any.

    Raises:
        SignatureError: a signature of the analyzer, of the accountant or on the manifest is missing or wrong, or the
            manifest is another one.
        Refusal: BAD_BATCH if result or certificate is of another round.
    """
    analyzer, accountant = deployment.analyzer.name, deployment.accountant.name
    pinned = deployment.pinned(_time_of(document, deployment))
    publication = read_signed(Kind.PUBLICATION, pb.Publication, document, pinned, [analyzer])
    certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, publication.certificate, pinned, [accountant])
    if (certificate.round_id, certificate.manifest_hash) != (publication.round_id, publication.manifest_hash):
        raise Refusal(Code.BAD_BATCH, "result and certificate are about different rounds")
    if round_id and publication.round_id != round_id:
        raise Refusal(Code.BAD_BATCH, f"asked for the result of {round_id!r}, got that of {publication.round_id!r}")
    return publication, certificate


def _time_of(document: pb.Signed, deployment: Deployment) -> int | None:
    """Returns the time of a result's round, by the manifest in it; None where a service does not state one.

    The terms themselves are not checked: they may be of an earlier privacy limit.
    """
    try:
        claimed = pb.Publication.FromString(document.payload)
    except DecodeError as error:
        raise SignatureError("what is signed as publication cannot be read as one") from error
    if claimed.manifest_hash != document_hash(Kind.MANIFEST, claimed.round.manifest.payload):
        raise SignatureError("the result is about another manifest than the one that is in it")
    return verify_manifest(claimed.round, deployment)


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
    on_wait: Callable[[grpc.aio.AioRpcError], None] = lambda _: None,
) -> tuple[pb.Publication, pb.Certificate]:
    """Returns the verified result of a round, waiting up to `patience_s` for it; see `fetch_signed_result`.

    Raises:
        SignatureError: a signature is missing or wrong.
        Refusal: BAD_BATCH if the analyzer answers for another round.
    """
    return read_publication(await fetch_signed_result(channel, round_id, patience_s, on_wait), deployment, round_id)
