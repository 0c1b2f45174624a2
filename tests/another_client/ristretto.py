"""The group ristretto255 (RFC 9496) and the client's half of a verifiable oblivious PRF on it (RFC 9497).

Plain integers, slow, and not in constant time: for tests only. The issuer's half is here, too, because the vectors need
an accountant whose proofs do not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)
_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"


def _negative(x: int) -> bool:
    return bool(x % P & 1)


def _abs(x: int) -> int:
    return -x % P if _negative(x) else x % P


def _sqrt_ratio(u: int, v: int) -> tuple[bool, int]:
    """Returns (whether u/v is a square, the non-negative root of u/v or of sqrt(-1)*u/v)."""
    r = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    check = v * r * r % P
    correct, flipped = check == u % P, check == -u % P
    if flipped or check == -u * SQRT_M1 % P:
        r = r * SQRT_M1 % P
    return correct or flipped, _abs(r)


_INVSQRT_A_MINUS_D = _sqrt_ratio(1, -1 - D)[1]
_SQRT_AD_MINUS_ONE = 25063068953384623474111414158702152701244531502492656460079210482610430750235
assert _SQRT_AD_MINUS_ONE**2 % P == (-D - 1) % P


class Point(NamedTuple):
    """An element, in extended Edwards coordinates."""

    x: int
    y: int
    z: int
    t: int

    def plus(self, other: Point) -> Point:
        a = (self.y - self.x) * (other.y - other.x)
        b = (self.y + self.x) * (other.y + other.x)
        c = 2 * D * self.t * other.t
        d = 2 * self.z * other.z
        e, f, g, h = b - a, d - c, d + c, b + a
        return Point(e * f % P, g * h % P, f * g % P, e * h % P)

    def times(self, scalar: int) -> Point:
        result, power = IDENTITY, self
        for bit in bin(scalar % ORDER)[:1:-1]:
            if bit == "1":
                result = result.plus(power)
            power = power.plus(power)
        return result

    def encode(self) -> bytes:
        u1 = (self.z + self.y) * (self.z - self.y)
        u2 = self.x * self.y
        _, root = _sqrt_ratio(1, u1 * u2 * u2)
        den1, den2 = root * u1, root * u2
        z_inverse = den1 * den2 * self.t
        if _negative(self.t * z_inverse):
            x, y, den = self.y * SQRT_M1, self.x * SQRT_M1, den1 * _INVSQRT_A_MINUS_D
        else:
            x, y, den = self.x, self.y, den2
        if _negative(x * z_inverse):
            y = -y
        return _abs(den * (self.z - y)).to_bytes(32, "little")


IDENTITY = Point(0, 1, 1, 0)


def decode(raw: bytes) -> Point:
    s = int.from_bytes(raw, "little")
    if len(raw) != 32 or s >= P or s & 1:
        raise ValueError("not an element of the group")
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-D * u1 * u1 - u2 * u2) % P
    square, root = _sqrt_ratio(1, v * u2 * u2)
    x = _abs(2 * s * root * u2)
    y = u1 * root * root * u2 * v % P
    if not square or _negative(x * y) or y == 0:
        raise ValueError("not an element of the group")
    return Point(x, y, 1, x * y % P)


def _elligator(raw: bytes) -> Point:
    t = int.from_bytes(raw, "little") % 2**255
    r = SQRT_M1 * t * t % P
    u, v = (r + 1) * (1 - D * D), (-1 - r * D) * (r + D)
    square, s = _sqrt_ratio(u, v)
    c = -1
    if not square:
        s, c = -_abs(s * t), r
    n = c * (r - 1) * (D - 1) ** 2 - v
    w0, w1, w2, w3 = 2 * s * v, n * _SQRT_AD_MINUS_ONE, 1 - s * s, 1 + s * s
    return Point(w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P)


def _expand(message: bytes, dst: bytes) -> bytes:
    """expand_message_xmd of RFC 9380 with SHA-512, 64 bytes."""
    suffix = dst + bytes([len(dst)])
    first = hashlib.sha512(bytes(128) + message + (64).to_bytes(2, "big") + b"\0" + suffix).digest()
    return hashlib.sha512(first + b"\1" + suffix).digest()


def _to_group(message: bytes) -> Point:
    uniform = _expand(message, b"HashToGroup-" + _CONTEXT)
    return _elligator(uniform[:32]).plus(_elligator(uniform[32:]))


def _to_scalar(message: bytes, dst: bytes = b"HashToScalar-") -> int:
    return int.from_bytes(_expand(message, dst + _CONTEXT), "little") % ORDER


def _with_length(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(2, "big") + field for field in fields)


BASE = decode(bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"))


def blind(message: bytes, scalar: int) -> bytes:
    """Returns the blinded message; the scalar, 1 .. ORDER - 1, is drawn for every message."""
    return _to_group(message).times(scalar).encode()


def finalize(message: bytes, scalar: int, evaluated: bytes) -> bytes:
    """Returns the ticket, after the proof has been checked."""
    unblinded = decode(evaluated).times(pow(scalar, -1, ORDER)).encode()
    return hashlib.sha512(_with_length(message, unblinded) + b"Finalize").digest()


def _composites(key: bytes, blinded: Sequence[bytes], evaluated: Sequence[bytes]) -> tuple[Point, Point]:
    seed = hashlib.sha512(_with_length(key, b"Seed-" + _CONTEXT)).digest()
    m = z = IDENTITY
    for index, (c, d) in enumerate(zip(blinded, evaluated, strict=True)):
        transcript = _with_length(seed) + index.to_bytes(2, "big") + _with_length(c, d) + b"Composite"
        weight = _to_scalar(transcript)
        m, z = m.plus(decode(c).times(weight)), z.plus(decode(d).times(weight))
    return m, z


def _challenge(key: bytes, *points: Point) -> int:
    return _to_scalar(_with_length(key, *(point.encode() for point in points)) + b"Challenge")


def proof_holds(key: bytes, blinded: Sequence[bytes], answer: bytes) -> bool:
    """Returns whether an answer (64 bytes of proof, 32 bytes for each blinded message) was made with the key."""
    evaluated = split_evaluations(answer)
    if len(evaluated) != len(blinded):
        return False
    c, s = int.from_bytes(answer[:32], "little"), int.from_bytes(answer[32:64], "little")
    m, z = _composites(key, blinded, evaluated)
    t2 = BASE.times(s).plus(decode(key).times(c))
    t3 = m.times(s).plus(z.times(c))
    return c == _challenge(key, m, z, t2, t3)


def split_evaluations(answer: bytes) -> list[bytes]:
    return [answer[start : start + 32] for start in range(64, len(answer), 32)]


def issuer_key(seed: bytes, info: bytes) -> tuple[int, bytes]:
    """Returns the issuer's (private, public) key: DeriveKeyPair."""
    secret = _to_scalar(seed + _with_length(info) + b"\0", b"DeriveKeyPair")
    return secret, BASE.times(secret).encode()


def evaluate(secret: int, blinded: Sequence[bytes], nonce: int) -> bytes:
    """Returns the issuer's answer; a real issuer draws a new nonce."""
    key = BASE.times(secret).encode()
    evaluated = [decode(element).times(secret).encode() for element in blinded]
    m, z = _composites(key, blinded, evaluated)
    c = _challenge(key, m, z, BASE.times(nonce), m.times(nonce))
    s = (nonce - c * secret) % ORDER
    return c.to_bytes(32, "little") + s.to_bytes(32, "little") + b"".join(evaluated)
