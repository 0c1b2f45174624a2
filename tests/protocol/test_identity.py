"""Signatures: golden bytes, and everything that must not verify."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from croupier.protocol.errors import RetiredIdentityError, SignatureError
from croupier.protocol.identity import (
    Identity,
    Kind,
    Pinned,
    document_hash,
    has_small_order,
    sign_submission,
    submission_is_authentic,
    verify_signature,
    verify_signed,
)
from croupier.protocol.names import Digest, PrivateKey, PublicKey
from croupier.protocol.v1.messages_pb2 import Signature, Submission
from tests.support.messages import naming

ALICE, BOB = Identity("alice", PrivateKey(b"\x01" * 32)), Identity("bob", PrivateKey(b"\x02" * 32))
ROUND = Digest(bytes(range(32)))
"""The hash of a manifest."""
PINNED: Pinned = {"alice": {ALICE.public_key: None}, "bob": {BOB.public_key: None}}


def test_signatures_are_golden() -> None:
    """Ed25519 is deterministic; these bytes change only if the context or the encoding does."""
    assert ALICE.sign(Kind.MANIFEST, b"terms").signature.hex() == (
        "8b69e92ac651d155cbc4b3e13ec2a07ad40afee60cc58a05e3ce6aead8fb5520"
        "90204087bdd946291c5075c5d7e0c1fa5939d6d892c08338ea2f7549f778b806"
    )
    assert sign_submission(ROUND, b"envelope", PrivateKey(b"\x03" * 32)).signature.hex() == (
        "60be459a648dd187aa93085c6c2e9c63bfb7dfa86fcaabc27fad453e81fc2f08"
        "0fe512d527768030734c6d38e30ec61a0beb754cce9c6d9de61f6b8529167700"
    )


def test_a_document_needs_every_required_signature() -> None:
    document = ALICE.signed(Kind.MANIFEST, b"terms")
    assert verify_signed(Kind.MANIFEST, document, PINNED, ["alice"]) == b"terms"
    with pytest.raises(SignatureError, match=naming("manifest", "bob")):
        verify_signed(Kind.MANIFEST, document, PINNED, ["alice", "bob"])
    document.signatures.append(BOB.sign(Kind.MANIFEST, b"terms"))
    assert verify_signed(Kind.MANIFEST, document, PINNED, ["alice", "bob"]) == b"terms"


def test_another_kind_payload_or_signer_does_not_verify() -> None:
    signature = ALICE.sign(Kind.MANIFEST, b"terms")
    with pytest.raises(SignatureError, match=naming("'alice'", "certificate")):
        verify_signature(Kind.CERTIFICATE, b"terms", signature, PINNED)
    with pytest.raises(SignatureError, match="is wrong"):
        verify_signature(Kind.MANIFEST, b"other", signature, PINNED)
    with pytest.raises(SignatureError, match="is wrong"):
        verify_signature(Kind.MANIFEST, b"terms", Signature(signer="bob", signature=signature.signature), PINNED)
    with pytest.raises(SignatureError, match=naming("'mallory'", "alice, bob")):
        verify_signature(Kind.MANIFEST, b"terms", Signature(signer="mallory", signature=b""), PINNED)


def test_a_stranger_among_the_signers_spoils_the_document() -> None:
    document = ALICE.signed(Kind.MANIFEST, b"terms")
    document.signatures.append(Identity("mallory", PrivateKey(b"\x09" * 32)).sign(Kind.MANIFEST, b"terms"))
    with pytest.raises(SignatureError, match="mallory"):
        verify_signed(Kind.MANIFEST, document, PINNED, ["alice"])


def test_submissions_are_bound_to_client_round_and_envelope() -> None:
    submission = sign_submission(ROUND, b"envelope", PrivateKey(b"\x03" * 32))
    assert submission_is_authentic(ROUND, submission)
    assert not submission_is_authentic(Digest(bytes(32)), submission)
    for change in (
        {"envelope": b"envelopf"},
        {"client_key": ALICE.public_key},
        {"client_key": b"short"},
        {"signature": b"\0" * 64},
        {"signature": b""},
    ):
        altered = Submission()
        altered.CopyFrom(submission)
        altered.MergeFrom(Submission(**change))
        if not change.get("signature", b"x"):
            altered.ClearField("signature")
        assert not submission_is_authentic(ROUND, altered), change


SMALL_ORDER = [
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",  # y = -1; and with y + p instead of y:
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
]
"""Every point of order 1, 2, 4 or 8 of Ed25519, with the sign of x that has the bit 0; in any encoding."""


def test_a_key_of_small_order_signs_nothing() -> None:
    for key in SMALL_ORDER:
        other_sign = key[:-1] + bytes([key[-1] | 0x80])
        assert has_small_order(PublicKey(key))
        assert has_small_order(PublicKey(other_sign))
    assert not any(has_small_order(Identity("x", PrivateKey(bytes([seed]) * 32)).public_key) for seed in range(50))
    identity = SMALL_ORDER[1]
    for_all = identity + bytes(32)  # R = the neutral element, S = 0
    Ed25519PublicKey.from_public_bytes(identity).verify(for_all, b"any message")
    neutral = identity + bytes(32)  # a naive check takes it for every eighth message at least
    for key in SMALL_ORDER:
        for encoding in (key, key[:-1] + bytes([key[-1] | 0x80])):
            forged = Submission(client_key=encoding, signature=neutral)
            assert not any(submission_is_authentic(Digest(bytes([k]) * 32), forged) for k in range(50))


def test_hashes_tell_kinds_apart() -> None:
    assert document_hash(Kind.MANIFEST, b"x") != document_hash(Kind.CERTIFICATE, b"x")


def test_any_pinned_key_of_the_signer_will_do_and_no_other() -> None:
    successor = Identity("alice", PrivateKey(b"\x07" * 32))
    document = successor.signed(Kind.MANIFEST, b"terms")
    pinned: Pinned = {"alice": {ALICE.public_key: None, successor.public_key: None}, "bob": {BOB.public_key: None}}
    assert verify_signed(Kind.MANIFEST, document, pinned, ["alice"]) == b"terms"
    for keys in ([ALICE.public_key], [ALICE.public_key, BOB.public_key], [], [b"short"]):
        with pytest.raises(SignatureError, match="is wrong"):
            verify_signed(Kind.MANIFEST, document, {"alice": dict.fromkeys(keys)}, ["alice"])


def test_a_key_that_is_not_believed_is_told_from_a_wrong_signature() -> None:
    document = ALICE.signed(Kind.MANIFEST, b"terms")
    pinned: Pinned = {"alice": {BOB.public_key: None, ALICE.public_key: "a key that was retired"}}
    with pytest.raises(RetiredIdentityError, match=naming("'alice'", "manifest", "retired")):
        verify_signed(Kind.MANIFEST, document, pinned, ["alice"])
