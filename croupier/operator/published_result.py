"""The published result of a round: fetched from the analyzer or read from a file, verified, and opened if it is sealed.

Everybody who has the public deployment file can do this; only a sealed result needs the collector's key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import grpc.aio
from google.protobuf.message import DecodeError

from croupier.client.round_checks import fetch_round, fetch_signed_result
from croupier.deploy.directory import read_deployment
from croupier.net.transport import TLS, Transport
from croupier.protocol.collector import open_result, read_collector_key
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, EnvelopeError, Refusal, refusal_of
from croupier.protocol.manifest import RoundTerms, one_survey, parse_terms
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.published import publication_json

_CLOSES_WITHIN_S = 5.0
"""Hop 1 checks its clock several times a second, and closes a round that is due; clocks differ by seconds."""


def open_published(publication: pb.Publication, key_file: Path) -> pb.Publication:
    """Returns a publication with a sealed result, opened with the collector's key.

    Raises:
        ValueError: the result is not sealed, the file is not a collector's key, or it is another collector's.
    """
    if not publication.sealed_result:
        raise ValueError(f"the result of round {publication.round_id!r} is not sealed; it needs no collector's key")
    suite, key = read_collector_key(key_file.read_text(encoding="utf-8"))
    if not key.private:
        raise ValueError(f"{key_file} is the public half of a collector's key; the other half opens results")
    try:
        return open_result(publication, suite, key)
    except EnvelopeError as error:
        raise ValueError(f"the result of round {publication.round_id!r} is not sealed to {key_file}") from error


class PublishedResult(NamedTuple):
    """The verified result of a round.

    Attributes:
        publication, certificate: its contents.
        signed: the document as the analyzer has signed it.
    """

    publication: pb.Publication
    certificate: pb.Certificate
    signed: bytes

    @property
    def terms(self) -> RoundTerms:
        """The terms of the round, verified with the publication."""
        return parse_terms(self.publication.round)

    @property
    def document(self) -> JsonObject:
        """The result as a JSON document; see `publication_json`."""
        return publication_json(self.publication, self.certificate)


def verified_result(document: pb.Signed, deployment: Deployment, round_id: RoundId) -> PublishedResult:
    """Returns the result in a document; raises Refusal and SignatureError as `published_result`."""
    return PublishedResult(*read_publication(document, deployment, round_id), document.SerializeToString())


def kept_result(directory: Path, round_id: RoundId, file: Path) -> PublishedResult:
    """Returns the result in a signed document that was kept, verified as if it had come just now.

    Raises:
        ValueError: the file is no such document.
        Refusal: it is of another round.
        SignatureError: publication or certificate are not signed as they must be.
    """
    deployment = read_deployment(directory)
    try:
        document = pb.Signed.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(
            f"{file} is not a signed document; download one from the round's page in the console"
        ) from error
    return verified_result(document, deployment, round_id)


async def published_results(
    directory: Path,
    name: str,
    patience_s: float,
    transport: Transport = TLS,
    tell: Callable[[str], None] = lambda _: None,
) -> list[PublishedResult]:
    """Returns the result of the round of this name; if there is none, those of all rounds of the survey of this name.

    Arguments and errors are those of `published_result`.

    Raises:
        ValueError: the rounds are not all rounds of one survey, whose terms were fixed before the first result.
    """

    async def result(round_id: str) -> PublishedResult:
        return await published_result(directory, RoundId(round_id), patience_s, transport, tell)

    try:
        return [await result(name)]
    except Refusal as refusal:
        if refusal.code is not Code.UNKNOWN_ROUND:
            raise
        unknown = refusal
    try:
        first = await result(f"{name}-1")
    except Refusal as refusal:
        raise unknown if refusal.code is Code.UNKNOWN_ROUND else refusal from refusal
    survey = first.terms.survey
    if survey.survey_id != name:
        raise unknown
    results = [first, *[await result(round_id) for round_id in survey.round_ids()[1:]]]
    one_survey([each.terms for each in results])
    return results


async def published_result(
    directory: Path,
    round_id: RoundId,
    patience_s: float,
    transport: Transport = TLS,
    tell: Callable[[str], None] = lambda _: None,
) -> PublishedResult:
    """Returns the verified result of a round; it needs the public deployment file only.

    Args:
        directory: of the deployment.
        round_id: of the round.
        patience_s: the time to wait for the result.
        transport: to the analyzer.
        tell: called once, with a sentence, before a wait for the result.

    Raises:
        Refusal: the round has no result after `patience_s`, or will have none by then: it still takes answers, is held,
            or was withdrawn.
        SignatureError: publication or certificate are not signed as they must be.
    """
    deployment = read_deployment(directory)
    told = False

    def wait(error: grpc.aio.AioRpcError) -> None:
        nonlocal told
        refusal = refusal_of(error)  # of calls that do not arrive `retrying` warns itself
        if refusal is not None and not told:
            tell(f"{refusal.hint or refusal}; waiting for up to {patience_s:g} s")
            told = True

    async with transport.public_channel(deployment.analyzer) as channel:
        try:
            return verified_result(await fetch_signed_result(channel, round_id, 0.0), deployment, round_id)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_READY:
                raise
        except grpc.aio.AioRpcError:
            pass  # it is tried again for as long as the caller waits
        async with transport.public_channel(deployment.shufflers[0]) as first:
            await _check_closed(first, deployment, round_id, patience_s)
        return verified_result(await fetch_signed_result(channel, round_id, patience_s, wait), deployment, round_id)


async def _check_closed(first: grpc.aio.Channel, deployment: Deployment, round_id: RoundId, patience_s: float) -> None:
    """Raises Refusal if no result will come while the caller waits: hop 1 still takes answers, or has none."""
    try:
        terms, state = await fetch_round(first, deployment, round_id, 0.0)
    except Refusal as refusal:
        if refusal.code is Code.WRONG_STATE:
            raise
        return
    except grpc.aio.AioRpcError:
        return
    deadline, least = terms.close_deadline_unix_s, terms.shared.min_batch_size
    left_s = deadline - time.time()
    if state != pb.ROUND_STATE_OPEN or (deadline and -_CLOSES_WITHIN_S < left_s <= patience_s):
        return
    held = f"the round is held: fewer than {least:,} have answered, or some mixture of budgets would have it refused"
    operator = (
        f"its operator sees which in 'croupier status'; 'croupier survey close {round_id} --withdraw' ends the round"
    )
    if not deadline:
        why = f"it takes answers until its operator closes it ('croupier survey close {round_id}'). "
        why += f"If that was done, {held}; {operator}"
    elif left_s > 0:
        why = f"it takes answers until {datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
    else:
        why = f"its deadline has passed, but {held}. Clients that have tickets can still answer; {operator}"
    raise Refusal(Code.NOT_READY, f"round {round_id!r} is not published yet; {why}")
