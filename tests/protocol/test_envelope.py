"""Envelopes: RFC 9180 vectors, golden label bytes, and everything that must not open."""

from __future__ import annotations

import dataclasses

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import rust_openssl  # type: ignore[attr-defined]

from croupier.protocol import envelope
from croupier.protocol.envelope import SUITES, Label, generate_key_pair, key_id, open_many, open_sealed, overhead, seal
from croupier.protocol.errors import EnvelopeError
from croupier.protocol.names import Digest, PublicKey, RoundId
from croupier.protocol.v1.messages_pb2 import Lane
from tests.support.messages import naming

# RFC 9180, appendices A.1.1 and A.2.1 (base mode), first encryption: skRm, enc, ct.
RFC_9180 = {
    "x25519-sha256-aes128gcm": (
        "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
    ),
    "x25519-sha256-chacha20poly1305": (
        "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a",
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
    ),
}


@pytest.mark.parametrize("suite", RFC_9180)
def test_suites_are_those_of_rfc_9180(suite: str) -> None:
    private, enc, ciphertext = (bytes.fromhex(part) for part in RFC_9180[suite])
    plaintext = rust_openssl.hpke._decrypt_with_aad(
        envelope.suite_of(suite).hpke,
        enc + ciphertext,
        X25519PrivateKey.from_private_bytes(private),
        b"Ode on a Grecian Urn",
        b"Count-0",
    )
    assert plaintext == b"Beauty is truth, truth beauty"


MANIFEST_HASH = Digest(b"\x11" * 32)


def label(public_key: PublicKey) -> Label:
    return Label(RoundId("round-1"), MANIFEST_HASH, Lane.LANE_REPORT, 2, key_id(public_key))


def test_label_has_golden_bytes() -> None:
    made = Label(RoundId("r"), MANIFEST_HASH, Lane.LANE_REPORT, 2, b"\x22" * 16).info()
    assert made.hex() == b"croupier".hex() + "0001" + "02" + "02" + "000172" + "0020" + "11" * 32 + "0010" + "22" * 16


@pytest.mark.parametrize("suite", SUITES)
def test_round_trip_and_exact_size(suite: str) -> None:
    keys = generate_key_pair(suite)
    sealed = seal(suite, keys.public, label(keys.public), b"report")
    assert len(sealed) == len(b"report") + overhead(suite)
    assert open_sealed(suite, keys.private, label(keys.public), sealed) == b"report"
    assert sealed != seal(suite, keys.public, label(keys.public), b"report")


@pytest.mark.parametrize(
    "change",
    [
        {"round_id": "round-2"},
        {"manifest_hash": b"\x12" * 32},
        {"lane": Lane.LANE_PARAMETER},
        {"hop": 3},
        {"key_id": b"\x00" * 16},
    ],
)
@pytest.mark.parametrize("suite", SUITES)
def test_another_place_does_not_open(suite: str, change: dict[str, object]) -> None:
    keys = generate_key_pair(suite)
    right = label(keys.public)
    sealed = seal(suite, keys.public, right, b"report")
    with pytest.raises(EnvelopeError):
        open_sealed(suite, keys.private, dataclasses.replace(right, **change), sealed)  # type: ignore[arg-type]


@pytest.mark.parametrize("suite", SUITES)
def test_another_key_truncation_extension_and_flips_do_not_open(suite: str) -> None:
    keys, other = generate_key_pair(suite), generate_key_pair(suite)
    place = label(keys.public)
    sealed = seal(suite, keys.public, place, b"report")
    with pytest.raises(EnvelopeError):
        open_sealed(suite, other.private, place, sealed)
    step = max(1, len(sealed) // 60)
    broken = [sealed[:-1], sealed + b"\0", b"", sealed[:16]]
    broken += [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(0, len(sealed), step)]
    assert open_many(suite, keys.private, place, broken) == [None] * len(broken)


def test_a_bad_one_does_not_disturb_its_neighbours() -> None:
    suite = SUITES[0]
    keys = generate_key_pair(suite)
    sealed = [seal(suite, keys.public, label(keys.public), bytes([index])) for index in range(3)]
    sealed[1] = b"x" * len(sealed[1])
    assert open_many(suite, keys.private, label(keys.public), sealed) == [b"\0", None, b"\2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round_id": ""}, "round_id is empty"),
        ({"manifest_hash": b"short"}, "manifest_hash has 5 bytes"),
        ({"lane": Lane.LANE_UNSPECIFIED}, "lane is 0"),
        ({"hop": 0}, "hop is 0"),
        ({"hop": 33}, "hop is 33"),
    ],
)
def test_labels_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(label(b"k"), **change)  # type: ignore[arg-type]


def test_unknown_suites_and_bad_keys_are_named() -> None:
    with pytest.raises(ValueError, match=naming("HPKE suite", "'rot13'")):
        generate_key_pair("rot13")
    with pytest.raises(ValueError, match=naming("public key", 3)):
        seal(SUITES[0], PublicKey(b"abc"), label(PublicKey(b"abc")), b"report")


def test_private_keys_do_not_print() -> None:
    keys = generate_key_pair(SUITES[0])
    assert keys.private.hex() not in repr(keys)
    assert repr(keys.private) not in repr(keys)
