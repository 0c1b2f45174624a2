"""RFC 9497's verifiable oblivious PRF, mode VOPRF with ristretto255-SHA512, on libsodium's group.

`rbcl` bundles libsodium, whose multiplications take the same time for every scalar and element. What is written here is
the RFC's hashing, transcripts and proof. Numbers in parentheses are the RFC's sections. Elements and
scalars are their encodings, 32 bytes each. A client's state is a message and its blind: bytes, which can be stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from pathlib import Path

import rbcl

with contextlib.suppress(OSError):  # rbcl leaves a copy of libsodium among the temporary files; Windows has it locked
    Path(rbcl._sodium._name).unlink()

ELEMENT_BYTES = SCALAR_BYTES = 32
PROOF_BYTES = 2 * SCALAR_BYTES
OUTPUT_BYTES = 64
_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"
_IDENTITY = bytes(ELEMENT_BYTES)
_ZERO = bytes(SCALAR_BYTES)
_ORDER = 2**252 + 27742317777372353535851937790883648493
_WIDE_BYTES = 64
_BLOCK_BYTES = 128


def is_element(encoding: bytes) -> bool:
    """Returns whether these are the canonical bytes of an element other than the identity (2.1, 4.1)."""
    return (
        len(encoding) == ELEMENT_BYTES
        and encoding != _IDENTITY
        and bool(rbcl.crypto_core_ristretto255_is_valid_point(encoding))
    )


def random_scalar() -> bytes:
    """Returns a uniform scalar other than zero, from the operating system's generator."""
    scalar = _ZERO
    while scalar == _ZERO:
        scalar = _reduce(secrets.token_bytes(_WIDE_BYTES))
    return scalar


def derive_key_pair(seed: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Returns (secret scalar, public element) for 32 secret random bytes and a public text (DeriveKeyPair, 3.2.1).

    Raises:
        ValueError: no key can be derived; the chance is 2^-64,512.
    """
    for counter in range(256):
        secret = _hash_to_scalar(seed + _framed(info) + bytes([counter]), b"DeriveKeyPair")
        if secret != _ZERO:
            return secret, _times_base(secret)
    raise ValueError("no key can be derived from this seed")


def blind(message: bytes, scalar: bytes) -> bytes:
    """Returns the blinded element of a message, for a scalar from `random_scalar` (Blind, 3.3.1)."""
    return _times(scalar, _hash_to_group(message))


def blind_evaluate(secret: bytes, public: bytes, blinded: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    """Returns the evaluations of blinded elements, at least one, and a proof for all of them (BlindEvaluate, 3.3.2).

    Raises:
        ValueError: a blinded element is not canonical, or is the identity.
    """
    evaluated = [_times(secret, element) for element in blinded]
    return evaluated, prove(secret, public, blinded, evaluated, random_scalar())


def finalize(messages: Sequence[bytes], scalars: Sequence[bytes], evaluated: Sequence[bytes]) -> list[bytes]:
    """Returns the outputs for messages and the scalars that blinded them, after `verify` (Finalize, 3.3.2)."""
    elements = map(_times, inverses(scalars), evaluated)
    return [_output(message, element) for message, element in zip(messages, elements, strict=True)]


def evaluate(secret: bytes, message: bytes) -> bytes:
    """Returns the output for a message in clear (Evaluate, 3.3.2)."""
    return _output(message, _times(secret, _hash_to_group(message)))


def prove(secret: bytes, public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes], scalar: bytes) -> bytes:
    """Returns the proof that all evaluations were made with the secret of `public` (GenerateProof, 2.2.1).

    `scalar` is from `random_scalar`, used for this proof alone and forgotten: it gives the secret away.
    """
    composite = _combine(_weights(public, blinded, evaluated), blinded)
    challenge = _challenge(public, composite, _times(secret, composite), _times_base(scalar), _times(scalar, composite))
    return challenge + _subtract(scalar, _multiply(challenge, secret))


def verify(public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes], proof: bytes) -> None:
    """Checks that all evaluations were made with the secret of `public` (VerifyProof, 2.2.2).

    Raises:
        ValueError: an element is not canonical or is the identity, a scalar is not canonical, the numbers of elements
            differ or are 0, or the proof does not hold.
    """
    challenge, response = proof[:SCALAR_BYTES], proof[SCALAR_BYTES:]
    if len(proof) != PROOF_BYTES or not (_is_canonical(challenge) and _is_canonical(response)):
        raise ValueError(f"the proof does not consist of two canonical scalars: {len(proof)} bytes")
    if not is_element(public):
        raise ValueError("the public key is not an element of the group, or is the identity")
    if not blinded or len(blinded) != len(evaluated):
        raise ValueError(f"{len(evaluated)} evaluations of {len(blinded)} blinded elements")
    weights = _weights(public, blinded, evaluated)
    composite, product = _combine(weights, blinded), _combine(weights, evaluated)
    base_part = add(_times_base_or_identity(response), _times_or_identity(challenge, public))
    composite_part = add(_times_or_identity(response, composite), _times_or_identity(challenge, product))
    if not hmac.compare_digest(_challenge(public, composite, product, base_part, composite_part), challenge):
        raise ValueError("the proof does not hold for this public key")


def _weights(public: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes]) -> list[bytes]:
    """Returns the scalar d_i of every pair (ComputeComposites, 2.2.1)."""
    seed = _framed(hashlib.sha512(_framed(public) + _framed(b"Seed-" + _CONTEXT)).digest())
    return [
        _hash_to_scalar(seed + index.to_bytes(2) + _framed(before) + _framed(after) + b"Composite", b"HashToScalar-")
        for index, (before, after) in enumerate(zip(blinded, evaluated, strict=True))
    ]


def _challenge(*elements: bytes) -> bytes:
    return _hash_to_scalar(b"".join(map(_framed, elements)) + b"Challenge", b"HashToScalar-")


def _output(message: bytes, element: bytes) -> bytes:
    return hashlib.sha512(_framed(message) + _framed(element) + b"Finalize").digest()


def _hash_to_group(message: bytes) -> bytes:
    element: bytes = rbcl.crypto_core_ristretto255_from_hash(_expand(message, b"HashToGroup-" + _CONTEXT))
    return element


def _hash_to_scalar(message: bytes, tag: bytes) -> bytes:
    return _reduce(_expand(message, tag + _CONTEXT))


def _expand(message: bytes, tag: bytes) -> bytes:
    """Returns 64 uniform bytes: expand_message_xmd of RFC 9380, 5.3.1, with SHA-512, of which one block is enough."""
    suffix = tag + bytes([len(tag)])
    first = hashlib.sha512(bytes(_BLOCK_BYTES) + message + _WIDE_BYTES.to_bytes(2) + b"\0" + suffix).digest()
    return hashlib.sha512(first + b"\1" + suffix).digest()


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(2) + content


def _is_canonical(scalar: bytes) -> bool:
    return int.from_bytes(scalar, "little") < _ORDER


def _combine(weights: Sequence[bytes], elements: Sequence[bytes]) -> bytes:
    return reduce(add, map(_times, weights, elements))


def _times(scalar: bytes, element: bytes) -> bytes:
    """Returns a multiple of an element; raises ValueError if the element is not canonical, or the product identity."""
    try:
        product: bytes = rbcl.crypto_scalarmult_ristretto255(scalar, element)
    except RuntimeError as error:
        raise ValueError("not an element of the group, or the identity") from error
    return product


def _times_or_identity(scalar: bytes, element: bytes) -> bytes:
    return _IDENTITY if scalar == _ZERO else _times(scalar, element)


def _times_base_or_identity(scalar: bytes) -> bytes:
    return _IDENTITY if scalar == _ZERO else _times_base(scalar)


def _times_base(scalar: bytes) -> bytes:
    product: bytes = rbcl.crypto_scalarmult_ristretto255_base(scalar)
    return product


def add(first: bytes, second: bytes) -> bytes:
    """Returns the sum of two elements; both are results of this file's, so that they are canonical."""
    total: bytes = rbcl.crypto_core_ristretto255_add(first, second)
    return total


def _reduce(wide: bytes) -> bytes:
    scalar: bytes = rbcl.crypto_core_ristretto255_scalar_reduce(wide)
    return scalar


def inverses(scalars: Sequence[bytes]) -> list[bytes]:
    """Returns the inverses of scalars other than zero; one inversion costs as much as forty multiplications."""
    products = list(accumulate(scalars, _multiply))
    left: bytes = rbcl.crypto_core_ristretto255_scalar_invert(products[-1])
    inverses = []
    for scalar, before in zip(scalars[:0:-1], products[-2::-1], strict=True):
        inverses.append(_multiply(left, before))
        left = _multiply(left, scalar)
    return [left, *reversed(inverses)]


def _multiply(first: bytes, second: bytes) -> bytes:
    product: bytes = rbcl.crypto_core_ristretto255_scalar_mul(first, second)
    return product


def _subtract(first: bytes, second: bytes) -> bytes:
    difference: bytes = rbcl.crypto_core_ristretto255_scalar_sub(first, second)
    return difference
