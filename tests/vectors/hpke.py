"""RFC 9180 in base mode with X25519 and HKDF-SHA256, from its parts: here the ephemeral key is given."""

from __future__ import annotations

import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

AEADS: dict[str, tuple[int, int, type[ChaCha20Poly1305] | type[AESGCM]]] = {
    "x25519-sha256-chacha20poly1305": (3, 32, ChaCha20Poly1305),
    "x25519-sha256-aes128gcm": (1, 16, AESGCM),
}


def _extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    # All lengths here fit into one block of HKDF.
    return hmac.digest(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\1", "sha256")[:length]


def seal(suite: str, public_key: bytes, info: bytes, plaintext: bytes, ephemeral: bytes) -> bytes:
    """Returns enc, 32 bytes, and the ciphertext with its tag; no additional data."""
    number, key_bytes, aead = AEADS[suite]
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = own.public_key().public_bytes_raw()
    kem = b"KEM" + (0x20).to_bytes(2, "big")
    secret = _extract(kem, b"", b"eae_prk", own.exchange(X25519PublicKey.from_public_bytes(public_key)))
    shared = _expand(kem, secret, b"shared_secret", enc + public_key, 32)

    this = b"HPKE" + (0x20).to_bytes(2, "big") + (1).to_bytes(2, "big") + number.to_bytes(2, "big")
    context = b"\0" + _extract(this, b"", b"psk_id_hash", b"") + _extract(this, b"", b"info_hash", info)
    schedule = _extract(this, shared, b"secret", b"")
    key = _expand(this, schedule, b"key", context, key_bytes)
    nonce = _expand(this, schedule, b"base_nonce", context, 12)
    return enc + aead(key).encrypt(nonce, plaintext, None)
