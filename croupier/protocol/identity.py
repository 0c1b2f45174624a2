"""Signatures: services sign documents, clients sign submissions. Ed25519 throughout.

A signature covers a context (version and kind of document) and the exact bytes that travel, so that no
document can be taken for one of another kind and nothing is re-serialised before it is checked. Which keys
are believed is the caller's: they are pinned in the deployment file, with the identities that are retired.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from google.protobuf.message import DecodeError, Message
from nacl.bindings import (
    crypto_sign,
    crypto_sign_BYTES,
    crypto_sign_SECRETKEYBYTES,
    crypto_sign_seed_keypair,
    crypto_sign_SEEDBYTES,
)
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from croupier.protocol.errors import Code, Refusal, RetiredIdentityError, SignatureError
from croupier.protocol.names import Digest, PrivateKey, PublicKey
from croupier.protocol.v1.messages_pb2 import Attendance, Signature, Signed, Submission

_PRIME = 2**255 - 19
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDERS = frozenset((0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8))
M = TypeVar("M", bound=Message)
Pinned = Mapping[str, Mapping[bytes, str | None]]
"""By name the Ed25519 public keys of every signer; with each the reason why it is not believed, None where it is."""
Purpose = Literal["submit", "tickets"]
"""What a client signs a submission for: an envelope for hop 1, or blinded messages for the accountant."""


class Kind(enum.StrEnum):
    """Kinds of signed document; the value is part of what is signed."""

    ROUND_KEYS = "round-keys"
    MANIFEST = "manifest"
    COMMITMENT = "commitment"
    CERTIFICATE = "certificate"
    PUBLICATION = "publication"
    MODEL = "model"
    SEQUENTIAL = "sequential-report"
    DEPLOYMENT = "deployment"
    ORGANISATION = "organisation"
    PROPOSAL = "proposal"


def _context(kind: str) -> bytes:
    return b"croupier/v1/" + kind.encode() + b"\0"


def canonical(message: Message) -> bytes:
    """Returns the bytes of a document that is about to be signed."""
    return message.SerializeToString(deterministic=True)


def read_canonical(message_type: type[M], payload: bytes) -> M:
    """Returns the document that canonical bytes are; the inverse of `canonical`.

    Raises:
        Refusal: BAD_MANIFEST if the bytes are not such a message, are another encoding of one, or have fields that
            this software does not know.
    """
    name = message_type.DESCRIPTOR.name.lower()
    try:
        message = message_type.FromString(payload)
    except DecodeError as error:
        raise Refusal(Code.BAD_MANIFEST, f"the bytes are not a {name}") from error
    message.DiscardUnknownFields()
    if canonical(message) != payload:
        raise Refusal(Code.BAD_MANIFEST, f"the encoding of the {name} is not canonical, or has fields unknown here")
    return message


def document_hash(kind: Kind, payload: bytes) -> Digest:
    """Returns the SHA-256 by which other documents and envelopes name this one."""
    return Digest(hashlib.sha256(_context(kind) + payload).digest())


def public_key_of(private_key: PrivateKey) -> PublicKey:
    """Returns the public half of an Ed25519 private key; 32 bytes each."""
    return PublicKey(bytes(SigningKey(private_key).verify_key))


def key_pair_of(private_key: PrivateKey) -> PrivateKey:
    """Returns an Ed25519 private key and its public half, 64 bytes; to derive the latter costs as much as to sign."""
    _, pair = crypto_sign_seed_keypair(private_key)
    return PrivateKey(pair)


class Identity:
    """A service's long-lived signing key, with the name by which the deployment file pins it."""

    def __init__(self, name: str, private_key: PrivateKey) -> None:
        self.name = name
        self._key = SigningKey(private_key)

    @property
    def public_key(self) -> PublicKey:
        """The Ed25519 public key, 32 bytes."""
        return PublicKey(bytes(self._key.verify_key))

    def sign(self, kind: Kind, payload: bytes) -> Signature:
        """Returns this service's signature over the payload as a document of this kind."""
        return Signature(signer=self.name, signature=self._key.sign(_context(kind) + payload).signature)

    def signed(self, kind: Kind, payload: bytes) -> Signed:
        """Returns the payload with this service's signature as the only one."""
        return Signed(payload=payload, signatures=[self.sign(kind, payload)])


def verify_signature(kind: Kind, payload: bytes, signature: Signature, pinned: Pinned) -> None:
    """Checks one signature, which may be by any key that is pinned for its signer and believed.

    Raises:
        RetiredIdentityError: the signature is by a key of the signer that is not believed.
        SignatureError: the signer is not pinned, or the signature is not theirs over these bytes.
    """
    if signature.signer not in pinned:
        raise SignatureError(
            f"{kind} is signed by {signature.signer!r}; it must be by one of {', '.join(sorted(pinned))}"
        )
    for key, objection in pinned[signature.signer].items():
        if _is_by(key, signature.signature, _context(kind) + payload):
            if objection is not None:
                raise RetiredIdentityError(f"the signature of {signature.signer!r} on the {kind} is by {objection}")
            return
    raise SignatureError(f"the signature of {signature.signer!r} on the {kind} is wrong")


def has_small_order(public_key: PublicKey) -> bool:
    """Returns whether an Ed25519 public key is a point of order 1, 2, 4 or 8: then one signature fits many messages.

    Points of order 1 and 2 have y = 1 and -1, those of order 4 have y = 0, and those of order 8 double to y = 0. That
    is x^2 = -y^2, and with it the curve's equation -x^2 + y^2 = 1 + d x^2 y^2 says d y^4 + 2 y^2 = 1, for y = _ORDER_8
    and its negative.
    """
    y = int.from_bytes(public_key, "little") % 2**255  # the last bit is the sign of x
    return y % _PRIME in _SMALL_ORDERS


def _is_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        VerifyKey(public_key).verify(message, signature)  # refuses keys of small order, too
    except CryptoError:
        return False
    return True


def verify_signed(kind: Kind, document: Signed, pinned: Pinned, required: Iterable[str]) -> bytes:
    """Returns the payload after checking that every required signer has signed it, and no unknown one.

    Raises:
        SignatureError: a signature is missing, wrong, or by a signer that is not pinned.
    """
    for signature in document.signatures:
        verify_signature(kind, document.payload, signature, pinned)
    missing = set(required) - {signature.signer for signature in document.signatures}
    if missing:
        raise SignatureError(f"{kind} lacks the signature of {', '.join(sorted(missing))}")
    return document.payload


def read_signed(kind: Kind, message: type[M], document: Signed, pinned: Pinned, required: Iterable[str]) -> M:
    """Returns what is signed, after checking the signatures as `verify_signed` does.

    Raises:
        SignatureError: as `verify_signed`, or the payload is not a document of this kind.
    """
    payload = verify_signed(kind, document, pinned, required)
    try:
        return message.FromString(payload)
    except DecodeError as error:
        raise SignatureError(f"what is signed as {kind} cannot be read as one") from error


def _submission_bytes(purpose: Purpose, manifest_hash: Digest, envelope: bytes) -> bytes:
    return _context(purpose) + manifest_hash + hashlib.sha256(envelope).digest()


def sign_submission(
    manifest_hash: Digest, envelope: bytes, private_key: PrivateKey, purpose: Purpose = "submit"
) -> Submission:
    """Returns the submission of one client: signed over purpose and hashes of manifest and envelope.

    The manifest is of one round of one deployment. private_key: alone, or as `key_pair_of` returns it.
    """
    pair = private_key if len(private_key) == crypto_sign_SECRETKEYBYTES else key_pair_of(private_key)
    signed = crypto_sign(_submission_bytes(purpose, manifest_hash, envelope), pair)
    return Submission(client_key=pair[crypto_sign_SEEDBYTES:], envelope=envelope, signature=signed[:crypto_sign_BYTES])


def submission_is_authentic(manifest_hash: Digest, submission: Submission, purpose: Purpose = "submit") -> bool:
    """Returns whether the client named in the submission signed it for this round and purpose."""
    message = _submission_bytes(purpose, manifest_hash, submission.envelope)
    return _is_by(submission.client_key, submission.signature, message)


def sign_attendance(manifest_hash: Digest, challenge: bytes, private_key: PrivateKey) -> Attendance:
    """Returns a client's signed attendance on the stream that the challenge was made for."""
    key = SigningKey(private_key)
    signature = key.sign(_context("attend") + manifest_hash + challenge).signature
    return Attendance(client_key=bytes(key.verify_key), signature=signature)


def attendance_is_authentic(manifest_hash: Digest, challenge: bytes, attendance: Attendance) -> bool:
    """Returns whether the client named in the attendance signed it for this round and stream."""
    return _is_by(attendance.client_key, attendance.signature, _context("attend") + manifest_hash + challenge)


def sign_answer(manifest_hash: Digest, report: bytes, answer_key: PrivateKey) -> bytes:
    """Returns the answer of one client in a sequential round: its public answer key, its signature, its report."""
    key = SigningKey(answer_key)
    return bytes(key.verify_key) + key.sign(_context("answer") + manifest_hash + report).signature + report


def read_answer(manifest_hash: Digest, answer: bytes) -> tuple[PublicKey, bytes]:
    """Returns (public answer key, report) of an answer.

    Raises:
        SignatureError: the answer is not signed by the key that it names.
    """
    key, signature, report = answer[:32], answer[32:96], answer[96:]
    if not _is_by(key, signature, _context("answer") + manifest_hash + report):
        raise SignatureError("an answer is not signed by the key that it names")
    return PublicKey(key), report
