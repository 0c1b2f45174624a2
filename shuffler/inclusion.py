"""Inclusion lists: the sorted hashes of what a hop has passed on, in pages, for clients that look for their own.

A list is believed only if it is what the hop has committed to (`client.verification`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.transaction import Transaction

__all__ = ["put_inclusion_list", "read_inclusion_page"]

_HASHES_PER_PAGE = 65536
_HASH_BYTES = 32


def put_inclusion_list(tx: Transaction, round_id: str, lane: pb.Lane.ValueType, hashes: Sequence[bytes]) -> None:
    """Stores the sorted hashes of what was passed on in one lane."""
    tx.put_document(round_id, _name(lane), struct.pack(">Q", len(hashes)))
    for page, start in enumerate(range(0, len(hashes), _HASHES_PER_PAGE)):
        tx.put_document(round_id, _name(lane, page), b"".join(hashes[start : start + _HASHES_PER_PAGE]))


def read_inclusion_page(tx: Transaction, round_id: str, lane: pb.Lane.ValueType, offset: int) -> tuple[bytes, int]:
    """Returns the hashes from an offset to the end of its page, and how many the list has; 0 before it is stored."""
    page, within = divmod(offset, _HASHES_PER_PAGE)
    (total,) = struct.unpack(">Q", tx.document(round_id, _name(lane)) or bytes(8))
    hashes = tx.document(round_id, _name(lane, page)) or b""
    return hashes[_HASH_BYTES * within :], total


def _name(lane: pb.Lane.ValueType, page: int | None = None) -> str:
    return f"passed-on-{lane}" if page is None else f"passed-on-{lane}-{page}"
