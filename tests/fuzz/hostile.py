"""Hostile messages for hypothesis: built field by field on the wire, altered from good ones, or plain noise.

They are built as bytes and not through the generated classes, which would refuse what an attacker would not: text that
is not UTF-8, enum values that are not defined, a field of another type, fields that are unknown or stand twice.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis
import hypothesis.strategies as st
from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["Vocabulary", "effort", "hostile", "noted", "num_messages"]

_NUMBERS = (0, 1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_DOUBLES = (0.0, -0.0, 0.5, 1.0, 2.0, -1.0, 1e-6, 5e-324, 1e308, float("nan"), float("inf"), float("-inf"))
_TEXTS = (b"", b"a\0b", b"\xff\xfe", b"\xed\xa0\x80", "ε".encode(), b"x" * 129, b"x" * 70_000, b"../../etc", b"%n%s")
_BLOBS = (b"", b"\0", bytes(32), bytes(64), b"\xff" * 32, b"\x01" + bytes(31), bytes(5000))
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DEPTH = 4
_MANY = 3000
_SHARE = float(os.environ.get("CROUPIER_FUZZ_SHARE", "0.05"))
_made = 0


def effort(messages: int, *, per_example: int = 1) -> hypothesis.settings:
    """Settings for a test that makes so many messages in `make fuzz`, and a share of them in `make test`.

    The share is always the same one, so that `make test` says the same twice; `make fuzz` looks elsewhere every time.
    """
    return hypothesis.settings(
        max_examples=max(10, round(messages * _SHARE / per_example)),
        deadline=None,
        database=None,
        derandomize=_SHARE < 1,
        suppress_health_check=list(hypothesis.HealthCheck),
        # Not shrunk: services keep what they were sent, so that a message that was refused once is not refused alike.
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )


def noted(count: int = 1) -> None:
    """Counts messages that were sent."""
    global _made
    _made += count


def num_messages() -> int:
    """How many there were in this process."""
    return _made


@dataclass(frozen=True)
class Vocabulary:
    """What an attacker may know and put anywhere: names of rounds and services, keys, documents."""

    texts: tuple[str, ...] = ()
    blobs: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"Vocabulary({self.texts[:1]})"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    head = _varint(number << 3 | wire_type)
    return head + (_varint(len(content)) if wire_type == _LENGTH else b"") + content


def _type(field: FieldDescriptor) -> Descriptor:
    if field.message_type is None:
        raise TypeError(f"{field.name} holds no message")
    return field.message_type


@st.composite
def _value(draw: st.DrawFn, field: FieldDescriptor, words: Vocabulary, depth: int) -> bytes:
    """One field with its tag."""
    if draw(st.integers(0, 19)) == 0:  # another type than the one that is expected
        wire_type = draw(st.sampled_from((_VARINT, _FIXED64, _LENGTH, _FIXED32)))
        content = {_VARINT: b"\x05", _FIXED64: bytes(8), _FIXED32: bytes(4), _LENGTH: b"abc"}[wire_type]
        return _field(field.number, wire_type, content)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = draw(_fields(_type(field), words, depth - 1)) if depth else b""
        return _field(field.number, _LENGTH, inner)
    if field.type == FieldDescriptor.TYPE_STRING:
        names = tuple(word.encode() for word in words.texts)
        return _field(field.number, _LENGTH, draw(st.sampled_from(names * 3 + _TEXTS)))
    if field.type == FieldDescriptor.TYPE_BYTES:
        known = st.sampled_from(words.blobs * 2 + _BLOBS)
        return _field(field.number, _LENGTH, draw(known | st.binary(max_size=80)))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _field(field.number, _FIXED64, struct.pack("<d", draw(st.sampled_from(_DOUBLES))))
    return _field(field.number, _VARINT, _varint(draw(st.sampled_from(_NUMBERS))))


@st.composite
def _fields(draw: st.DrawFn, message: Descriptor, words: Vocabulary, depth: int) -> bytes:
    """A message with most of its fields, in any order, some of them often, some unknown."""
    parts = []
    for field in draw(st.permutations(list(message.fields))) if depth == _DEPTH else message.fields:
        luck = draw(st.integers(0, 39))
        if luck < 8:
            continue
        part = draw(_value(field, words, depth))
        parts.append(part * (_MANY if luck == 39 and len(part) < 100 else 1 + (luck > 32)))
    if draw(st.integers(0, 9)) == 0:
        parts.append(_field(draw(st.sampled_from((99, 15, 2**29 - 1))), _LENGTH, b"unknown"))
    return b"".join(parts)


@st.composite
def _altered(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A good message after one to three changes."""
    raw = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        change = draw(st.integers(0, 5))
        if change == 0:
            raw = raw[:at]
        elif change == 1:
            raw = raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
        elif change == 2:
            raw = raw[:at] + draw(st.binary(min_size=1, max_size=8)) + raw[at:]
        elif change == 3:
            raw = raw[:at] + raw[at + draw(st.integers(1, 16)) :]
        elif change == 4:
            raw = raw + raw
        else:
            raw = raw + draw(st.sampled_from(seeds))
    return raw


def hostile(
    message: Descriptor, seeds: Sequence[bytes] = (), words: Vocabulary | None = None
) -> st.SearchStrategy[bytes]:
    """Bytes that may be sent where `message` is expected; `seeds` are good ones, which are among them."""
    built = _fields(message, words or Vocabulary(), _DEPTH)
    noise = st.binary(max_size=100)
    if not seeds:
        return st.one_of(built, built, built, noise)
    altered = _altered(tuple(seeds))
    return st.one_of(built, built, altered, altered, st.sampled_from(list(seeds)), noise)
