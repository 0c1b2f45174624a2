"""Tickets: one per admitted client, lane and round, so that nothing but admitted clients' messages is certified.

A ticket is the output of a verifiable oblivious pseudorandom function (RFC 9497, ristretto255-SHA512, mode VOPRF) under
the accountant's key for one round and lane. What is blinded is the content that the ticket is for: the accountant sees
which client asks, never for what, and a ticket cannot be moved to another content. The proof shows that
the key of the signed manifest was used, so that no client can be marked by a key of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence

from croupier.protocol import voprf
from croupier.protocol.errors import TicketError
from croupier.protocol.names import Digest, Lane, PublicKey
from croupier.protocol.v1 import messages_pb2 as pb

BLIND_BYTES = voprf.SCALAR_BYTES
BLINDED_BYTES = voprf.ELEMENT_BYTES
TICKET_BYTES = voprf.OUTPUT_BYTES
TICKET_KEY_BYTES = voprf.ELEMENT_BYTES
MAX_PER_BATCH = 1 << 12


def ticket_message(manifest_hash: Digest, lane: Lane, content: bytes) -> bytes:
    """Returns what a ticket is for: the hash of the round's manifest, the lane and the content.

    Args:
        manifest_hash: `RoundTerms.hash`, 32 bytes; it names round and deployment.
        lane: LANE_REPORT, LANE_PARAMETER or LANE_ANSWER.
        content: the SHA-256 of the report's ciphertext under the release key, or the budget with its random bytes, or
            the key that signs an answer.
    """
    return hashlib.sha256(b"croupier/v1/ticket\0" + manifest_hash + struct.pack(">B", lane) + content).digest()


def are_blinded(messages: bytes) -> bool:
    """Returns whether these bytes are blinded messages, in a row: elements of the group other than the identity."""
    elements = (messages[start : start + BLINDED_BYTES] for start in range(0, len(messages), BLINDED_BYTES))
    return all(map(voprf.is_element, elements))


class TicketIssuer:
    """The accountant's side: evaluates blinded messages for those who are admitted, and checks tickets.

    Args:
        seed: 32 random bytes, secret; the key pair is derived from it (RFC 9497, DeriveKeyPair).
        lane: part of the derivation, so that the lanes of a round have different keys.
    """

    def __init__(self, seed: bytes, lane: Lane) -> None:
        info = b"croupier/v1/ticket-key/" + pb.Lane.Name(lane).encode()
        self._secret, self._public = voprf.derive_key_pair(seed, info)

    @property
    def public_key(self) -> PublicKey:
        """The key that the manifest names, 32 bytes."""
        return PublicKey(self._public)

    def evaluate(self, blinded: Sequence[bytes]) -> bytes:
        """Returns one proof for all blinded messages, 64 bytes, and behind it their evaluations, 32 bytes each.

        Raises:
            TicketError: a blinded message is not an element of the group, or there are not 1..MAX_PER_BATCH of them.
        """
        if not 1 <= len(blinded) <= MAX_PER_BATCH:
            raise TicketError(f"{len(blinded)} blinded messages in one batch; there must be 1..{MAX_PER_BATCH}")
        try:
            evaluated, proof = voprf.blind_evaluate(self._secret, self._public, blinded)
        except ValueError as error:
            raise TicketError("a blinded message is not an element of the group") from error
        return proof + b"".join(evaluated)

    def is_valid(self, message: bytes, ticket: bytes) -> bool:
        """Returns whether a ticket is the one for this message, in constant time."""
        return hmac.compare_digest(voprf.evaluate(self._secret, message), ticket)


class TicketRequest:
    """A client's side: one message, blinded.

    Args:
        message: what the ticket is for.
        blind: that of an earlier request for the message, which gives the same blinded message; else a fresh one.

    Attributes:
        blind: BLIND_BYTES, secret. A client that stores it with the message can ask again and gets the same ticket.
        blinded: what the accountant gets, BLINDED_BYTES.
    """

    def __init__(self, message: bytes, blind: bytes = b"") -> None:
        self.message = message
        self.blind = blind or voprf.random_scalar()
        self.blinded = voprf.blind(message, self.blind)


def collect_tickets(requests: Sequence[TicketRequest], evaluated: bytes, public_key: PublicKey) -> list[bytes]:
    """Returns the tickets of requests that were evaluated in one batch, in their order, 64 bytes each.

    Args:
        requests: those that the accountant granted, in the order in which it evaluated them.
        evaluated: what `TicketIssuer.evaluate` returned.
        public_key: the lane's key in the signed manifest.

    Raises:
        TicketError: the proof does not hold for this key, or the number of evaluations is another.
    """
    proof, rest = evaluated[: voprf.PROOF_BYTES], evaluated[voprf.PROOF_BYTES :]
    elements = [rest[start : start + BLINDED_BYTES] for start in range(0, len(rest), BLINDED_BYTES)]
    try:
        voprf.verify(public_key, [request.blinded for request in requests], elements, proof)
    except ValueError as error:
        raise TicketError("the accountant's tickets do not verify under the manifest's key") from error
    messages, blinds = [request.message for request in requests], [request.blind for request in requests]
    return voprf.finalize(messages, blinds, elements)
