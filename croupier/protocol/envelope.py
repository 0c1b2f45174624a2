"""HPKE envelopes: two functions, `seal` and `open_sealed`, and the typed label that binds them to their place.

Every layer is one RFC 9180 base-mode message. Its `info` is the label: protocol version, round, manifest
hash, lane, hop and key id. A ciphertext of another round, lane, hop, manifest or key does not open. Which
layers exist, and in which order, is the business of `protocol.onion`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519

from croupier.protocol.errors import EnvelopeError
from croupier.protocol.names import Digest, Lane, PrivateKey, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb

PROTOCOL_VERSION = 1
MAX_HOPS = 32
# Places behind the last hop; `hop` in a label is 1..MAX_HOPS or one of these.
HOP_COLLECTOR = 252
HOP_ACCOUNTANT = 253
HOP_RELEASE = 254
HOP_ANALYZER = 255
_BEHIND_THE_CHAIN = (HOP_COLLECTOR, HOP_ACCOUNTANT, HOP_RELEASE, HOP_ANALYZER)

SuiteName = Literal[
    "x25519-sha256-chacha20poly1305", "x25519-sha256-aes128gcm", "mlkem768x25519-sha256-chacha20poly1305"
]
SUITES: tuple[SuiteName, ...] = get_args(SuiteName)

_TAG_BYTES = 16
_MLKEM_PUBLIC_BYTES = 1184
_MLKEM_SEED_BYTES = 64


@dataclass(frozen=True, slots=True)
class Label:
    """Where a layer belongs. Part of the key schedule, so a wrong label is the same as a wrong key."""

    round_id: RoundId
    manifest_hash: Digest
    lane: Lane
    hop: int
    key_id: bytes
    _info: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.round_id:
            raise ValueError("round_id is empty; it names the round that the envelope belongs to")
        if len(self.manifest_hash) != hashlib.sha256().digest_size:
            raise ValueError(f"manifest_hash has {len(self.manifest_hash)} bytes; a SHA-256 hash has 32")
        if self.lane not in (pb.LANE_JOINT, pb.LANE_REPORT, pb.LANE_PARAMETER, pb.LANE_ANSWER):
            raise ValueError(f"lane is {self.lane}; it must be joint, report, parameter or answer")
        if not (1 <= self.hop <= MAX_HOPS or self.hop in _BEHIND_THE_CHAIN):
            raise ValueError(f"hop is {self.hop}; it must be 1..{MAX_HOPS} or one of the four places behind the chain")

        parts = (self.round_id.encode(), self.manifest_hash, self.key_id)
        head = b"croupier" + struct.pack(">HBB", PROTOCOL_VERSION, self.lane, self.hop)
        object.__setattr__(self, "_info", head + b"".join(struct.pack(">H", len(part)) + part for part in parts))

    def info(self) -> bytes:
        """Returns the canonical encoding: version, lane and hop as bytes, then length-prefixed fields."""
        return self._info


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Raw key bytes, which travel between processes where key objects do not."""

    public: PublicKey
    private: PrivateKey

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()[:16]}…)"


@dataclass(frozen=True)
class _Kem:
    kem: hpke.KEM
    generate: Callable[[], KeyPair]
    load_public: Callable[[bytes], Any]
    load_private: Callable[[bytes], Any]


def _generate_x25519() -> KeyPair:
    key = x25519.X25519PrivateKey.generate()
    return KeyPair(PublicKey(key.public_key().public_bytes_raw()), PrivateKey(key.private_bytes_raw()))


def _generate_hybrid() -> KeyPair:
    post_quantum, classical = mlkem.MLKEM768PrivateKey.generate(), x25519.X25519PrivateKey.generate()
    return KeyPair(
        PublicKey(post_quantum.public_key().public_bytes_raw() + classical.public_key().public_bytes_raw()),
        PrivateKey(post_quantum.private_bytes_raw() + classical.private_bytes_raw()),
    )


def _load_hybrid_public(raw: bytes) -> hpke.MLKEM768X25519PublicKey:
    return hpke.MLKEM768X25519PublicKey(
        mlkem.MLKEM768PublicKey.from_public_bytes(raw[:_MLKEM_PUBLIC_BYTES]),
        x25519.X25519PublicKey.from_public_bytes(raw[_MLKEM_PUBLIC_BYTES:]),
    )


def _load_hybrid_private(raw: bytes) -> hpke.MLKEM768X25519PrivateKey:
    return hpke.MLKEM768X25519PrivateKey(
        mlkem.MLKEM768PrivateKey.from_seed_bytes(raw[:_MLKEM_SEED_BYTES]),
        x25519.X25519PrivateKey.from_private_bytes(raw[_MLKEM_SEED_BYTES:]),
    )


_X25519 = _Kem(
    hpke.KEM.X25519,
    _generate_x25519,
    x25519.X25519PublicKey.from_public_bytes,
    x25519.X25519PrivateKey.from_private_bytes,
)
_HYBRID = _Kem(hpke.KEM.MLKEM768_X25519, _generate_hybrid, _load_hybrid_public, _load_hybrid_private)


@dataclass(frozen=True)
class _Suite:
    kem: _Kem
    hpke: hpke.Suite


_SUITES: dict[str, _Suite] = {
    "x25519-sha256-chacha20poly1305": _Suite(
        _X25519, hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    ),
    "x25519-sha256-aes128gcm": _Suite(
        _X25519, hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    ),
    "mlkem768x25519-sha256-chacha20poly1305": _Suite(
        _HYBRID, hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    ),
}


def suite_of(name: str) -> _Suite:
    """Returns what a suite consists of; raises ValueError if there is no such suite."""
    if name not in _SUITES:
        raise ValueError(f"HPKE suite is {name!r}; it must be one of {', '.join(SUITES)}")
    return _SUITES[name]


@lru_cache(maxsize=256)
def _public_key(suite: str, raw: bytes) -> Any:
    try:
        return suite_of(suite).kem.load_public(raw)
    except ValueError as error:
        raise ValueError(f"not a public key of suite {suite}: {len(raw)} bytes") from error


def check_public_key(suite: str, raw: bytes) -> None:
    """Raises ValueError unless something can be sealed to these bytes; some of the right length are no key."""
    chosen, key = suite_of(suite), _public_key(suite, raw)
    try:
        chosen.hpke.encrypt(b"", key)
    except ValueError as error:
        raise ValueError(f"not a public key of suite {suite}: {len(raw)} bytes") from error


def key_id(public_key: PublicKey) -> bytes:
    """Returns the 16-byte name of a public key."""
    return hashlib.sha256(public_key).digest()[:16]


def overhead(suite: str) -> int:
    """Returns by how many bytes a ciphertext is longer than its plaintext."""
    return suite_of(suite).kem.kem.enc_length() + _TAG_BYTES


def generate_key_pair(suite: str) -> KeyPair:
    """Returns a fresh key pair of the suite, from the operating system's generator."""
    return suite_of(suite).kem.generate()


def seal(suite: str, public_key: PublicKey, label: Label, plaintext: bytes) -> bytes:
    """Returns enc ‖ ciphertext for the holder of `public_key` in the place that `label` names.

    Raises:
        ValueError: unknown suite, or bytes that are not a public key of it.
    """
    return suite_of(suite).hpke.encrypt(plaintext, _public_key(suite, public_key), info=label.info())


def open_sealed(suite: str, private_key: PrivateKey, label: Label, ciphertext: bytes) -> bytes:
    """Returns the plaintext of one envelope.

    Raises:
        EnvelopeError: wrong key, wrong place, truncated or altered ciphertext; they cannot be told apart.
    """
    (plaintext,) = open_many(suite, private_key, label, (ciphertext,))
    if plaintext is None:
        raise EnvelopeError(f"envelope of {len(ciphertext)} bytes does not open here")
    return plaintext


def open_many(suite: str, private_key: PrivateKey, label: Label, ciphertexts: Iterable[bytes]) -> list[bytes | None]:
    """Returns the plaintexts in order, None where one does not open."""
    chosen = suite_of(suite)
    key, info = chosen.kem.load_private(private_key), label.info()
    plaintexts: list[bytes | None] = []
    for ciphertext in ciphertexts:
        try:
            plaintexts.append(chosen.hpke.decrypt(ciphertext, key, info=info))
        except InvalidTag:
            plaintexts.append(None)
    return plaintexts
