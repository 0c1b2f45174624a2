"""The work of worker processes: checking signatures, and opening the items of a lane.

Pure functions in a room of their own, so that a worker imports the cryptography and nothing of a server. A *record* is
the outcome for one item: SHA-256 of the item, a status, and the content, of the same size for all items of a lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from croupier.protocol.batches import unpack
from croupier.protocol.envelope import Label, open_many
from croupier.protocol.identity import Purpose, submission_is_authentic
from croupier.protocol.names import Digest, PrivateKey
from croupier.protocol.tickets import are_blinded
from croupier.protocol.v1 import messages_pb2 as pb

HASH_BYTES = 32
OPENED, DOES_NOT_OPEN, NO_TICKET = 0, 1, 2


def verify_and_open(
    purpose: Purpose,
    manifest_hash: Digest,
    lane_work: LaneWork | None,
    allowed: Sequence[bool],
    submissions: Sequence[bytes],
) -> tuple[list[pb.SubmissionCode.ValueType], list[bytes]]:
    """Returns the error of each serialised submission, UNSPECIFIED for none, and records.

    Args:
        purpose: of the signatures.
        manifest_hash: of the round of the signatures.
        lane_work: opens the envelopes without an error; none are opened without it.
        allowed: whether the client may submit, so that the envelope is opened.
        submissions: serialised.
    """
    parsed = [pb.Submission.FromString(raw) for raw in submissions]
    faults = [_fault(purpose, manifest_hash, submission) for submission in parsed]
    sound = [
        submission.envelope
        for submission, fault, is_allowed in zip(parsed, faults, allowed, strict=True)
        if is_allowed and not fault
    ]
    return faults, records_of(lane_work, sound) if lane_work and sound else []


def _fault(purpose: Purpose, manifest_hash: Digest, submission: pb.Submission) -> pb.SubmissionCode.ValueType:
    if not submission_is_authentic(manifest_hash, submission, purpose):
        return pb.SUBMISSION_CODE_BAD_SIGNATURE
    if purpose == "tickets" and submission.envelope and not are_blinded(submission.envelope):
        return pb.SUBMISSION_CODE_NOT_BLINDED
    return pb.SUBMISSION_CODE_UNSPECIFIED


@dataclass(frozen=True)
class LaneWork:
    """A role's work on one incoming lane.

    Attributes:
        arriving_size: of one item.
        content_size: of the content of one record, after hash and status.
        work: returns the status and the content of every item; runs in a worker, and is pickled.
    """

    arriving_size: int
    content_size: int
    work: Callable[[list[bytes]], list[tuple[int, bytes]]]

    @property
    def record_size(self) -> int:
        """The size of one record in bytes."""
        return HASH_BYTES + 1 + self.content_size


class Record(NamedTuple):
    """The outcome for one item: its SHA-256, a status, and its content if the status is OPENED."""

    name: bytes
    status: int
    content: bytes


class Page(NamedTuple):
    """Stored records of a lane, one behind the other, of `size` bytes each."""

    size: int
    packed: bytes

    def names(self) -> list[bytes]:
        """Returns the hashes of the items."""
        return [self.packed[at : at + HASH_BYTES] for at in range(0, len(self.packed), self.size)]

    def records(self) -> list[Record]:
        """Returns them one by one."""
        return [
            Record(raw[:HASH_BYTES], raw[HASH_BYTES], raw[HASH_BYTES + 1 :]) for raw in unpack(self.packed, self.size)
        ]


def open_layer(
    suite: str, private_key: PrivateKey, label: Label, plain_size: int, items: list[bytes]
) -> list[tuple[int, bytes]]:
    """Opens one layer of every item; see `LaneWork.work`."""
    plaintexts = open_many(suite, private_key, label, items)
    return [
        (DOES_NOT_OPEN, b"") if plaintext is None or len(plaintext) != plain_size else (OPENED, plaintext)
        for plaintext in plaintexts
    ]


def records_of(lane_work: LaneWork, items: list[bytes]) -> list[bytes]:
    """Returns the record of every item in its stored form; `Page` takes it apart."""
    size = lane_work.content_size
    return [
        hashlib.sha256(item).digest() + bytes([status]) + content.ljust(size, b"\0")
        for item, (status, content) in zip(items, lane_work.work(items), strict=True)
    ]
