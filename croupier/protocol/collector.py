"""The collector: where a manifest names a collector's key, the result can be read with that key alone.

The analyzer seals what it has estimated, and the collector opens it. Round and manifest are bound into the envelope,
and its size follows from the manifest, so that it tells nothing. A key file has one line: the HPKE suite, the public
half, and in the collector's own file the private half.
"""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.message import DecodeError

from croupier.protocol.envelope import (
    HOP_COLLECTOR,
    SUITES,
    KeyPair,
    Label,
    check_public_key,
    generate_key_pair,
    key_id,
    open_sealed,
    seal,
)
from croupier.protocol.errors import EnvelopeError
from croupier.protocol.histograms import MOST_SINGLE
from croupier.protocol.identity import canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest, PrivateKey, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb

_LENGTH = struct.Struct(">I")
_BESIDE_VALUES, _BYTES_PER_VALUE, _BYTES_IN_COLUMNS = 4096, 100, 36


def collector_key_lines(suite: str) -> tuple[str, str]:
    """Returns the contents of the two files of a fresh key: the secret one, and the one for operators of rounds.

    Raises:
        ValueError: there is no such suite.
    """
    pair = generate_key_pair(suite)
    public = f"{suite} {pair.public.hex()}"
    return f"{public} {pair.private.hex()}\n", f"{public}\n"


def read_collector_key(text: str) -> tuple[str, KeyPair]:
    """Returns the suite and the key that stand in a file; the private half is empty in the public file.

    Raises:
        ValueError: it is no such file; its text is not shown.
    """
    suite, *halves = text.split()[:4] or [""]
    try:
        public, private, *more = (*(bytes.fromhex(half) for half in halves), b"", b"")
        if suite not in SUITES or any(more):
            raise ValueError(suite)
        check_public_key(suite, public)
    except ValueError as error:
        raise ValueError("this is not a collector's key; 'croupier keygen --collector' makes one") from error
    return suite, KeyPair(PublicKey(public), PrivateKey(private))


def _label(publication: pb.Publication, public_key: PublicKey) -> Label:
    round_id, manifest_hash = RoundId(publication.round_id), Digest(publication.manifest_hash)
    return Label(round_id, manifest_hash, pb.LANE_REPORT, HOP_COLLECTOR, key_id(public_key))


def _room(terms: RoundTerms) -> int:
    """Returns more bytes than a result of this round has: its labels, or its vector, are as large as the survey's.

    A histogram in columns has no labels, and with room for them it would be larger than a message.
    """
    mechanism = terms.question.mechanism
    if (categories := len(mechanism.categories)) > MOST_SINGLE:
        return _BESIDE_VALUES + _BYTES_IN_COLUMNS * categories
    return _BESIDE_VALUES + len(terms.survey.payload) + _BYTES_PER_VALUE * (max(1, categories) + mechanism.num_beside)


def seal_result(publication: pb.Publication, terms: RoundTerms) -> pb.Publication:
    """Returns the publication with all that was estimated from reports sealed to the collector of the round.

    The certificate and the counts stay public. Where the manifest names no collector, all stays as it is.
    """
    collector = PublicKey(terms.shared.collector_public_key)
    if not collector:
        return publication
    public = pb.Publication(
        round_id=publication.round_id,
        manifest_hash=publication.manifest_hash,
        certificate=publication.certificate,
        num_reports=publication.num_reports,
        drops=publication.drops,
        round=publication.round if publication.HasField("round") else None,
    )
    secret: Any = pb.Publication()
    secret.CopyFrom(publication)
    for field, _ in public.ListFields():
        secret.ClearField(field.name)
    plaintext = canonical(secret)
    padded = _LENGTH.pack(len(plaintext)) + plaintext.ljust(_room(terms), b"\0")
    public.sealed_result = seal(terms.shared.hpke_suite, collector, _label(publication, collector), padded)
    return public


def open_result(publication: pb.Publication, suite: str, key: KeyPair) -> pb.Publication:
    """Returns the publication as it would stand there without a collector.

    Args:
        publication: verified: `client.round_checks.read_publication`.
        suite: of the collector's key.
        key: the collector's; see `read_collector_key`.

    Raises:
        EnvelopeError: it is sealed to another key, for another round or manifest, or not sealed at all; or what is
            inside is not a result.
    """
    padded = open_sealed(suite, key.private, _label(publication, key.public), publication.sealed_result)
    opened = pb.Publication()
    opened.CopyFrom(publication)
    opened.ClearField("sealed_result")
    try:
        (length,) = _LENGTH.unpack_from(padded)
        opened.MergeFromString(padded[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, DecodeError) as error:
        raise EnvelopeError("what the analyzer has sealed is not a result") from error
    return opened
