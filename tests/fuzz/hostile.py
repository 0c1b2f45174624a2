"""Hostile messages from dice: built field by field on the wire, altered from good ones, or plain noise.

They are built as bytes and not through the generated classes, which would refuse what an attacker would not: text that
is not UTF-8, enum values that are not defined, a field of another type, fields that are unknown or stand twice.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import hypothesis
import hypothesis.strategies as st
from google.protobuf.descriptor import Descriptor, FieldDescriptor

_NUMBERS = (0, 1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_DOUBLES = (0.0, -0.0, 0.5, 1.0, 2.0, -1.0, 1e-6, 5e-324, 1e308, float("nan"), float("inf"), float("-inf"))
_TEXTS = (b"", b"a\0b", b"\xff\xfe", b"\xed\xa0\x80", "ε".encode(), b"x" * 129, b"x" * 70_000, b"../../etc", b"%n%s")
_BLOBS = (b"", b"\0", bytes(32), bytes(64), b"\xff" * 32, b"\x01" + bytes(31), bytes(5000))
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DEPTH = 4
_MANY = 3000
SHARE = float(os.environ.get("CROUPIER_FUZZ_SHARE", "0.05"))
_made = 0


def effort(messages: int, *, per_example: int = 1) -> hypothesis.settings:
    """Settings for a test that makes `messages` messages in `make fuzz`, and a share of them in `make test`.

    The share is always the same one, so that `make test` says the same twice; `make fuzz` looks elsewhere every time.
    """
    return hypothesis.settings(
        max_examples=max(10, round(messages * SHARE / per_example)),
        deadline=None,
        database=None,
        derandomize=SHARE < 1,
        suppress_health_check=list(hypothesis.HealthCheck),
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


NO_WORDS = Vocabulary()


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


def _value(dice: Random, field: FieldDescriptor, words: Vocabulary, depth: int) -> bytes:
    """One field with its tag."""
    if dice.random() < 0.05:  # another type than the one that is expected
        wire_type = dice.choice((_VARINT, _FIXED64, _LENGTH, _FIXED32))
        content = {_VARINT: b"\x05", _FIXED64: bytes(8), _FIXED32: bytes(4), _LENGTH: b"abc"}[wire_type]
        return _field(field.number, wire_type, content)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = _fields(dice, _type(field), words, depth - 1) if depth else b""
        return _field(field.number, _LENGTH, inner)
    if field.type == FieldDescriptor.TYPE_STRING:
        names = tuple(word.encode() for word in words.texts)
        return _field(field.number, _LENGTH, dice.choice(names * 3 + _TEXTS))
    if field.type == FieldDescriptor.TYPE_BYTES:
        noise = dice.randbytes(dice.randint(0, 80))
        return _field(field.number, _LENGTH, dice.choice((dice.choice(words.blobs * 2 + _BLOBS), noise)))
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _field(field.number, _FIXED64, struct.pack("<d", dice.choice(_DOUBLES)))
    return _field(field.number, _VARINT, _varint(dice.choice(_NUMBERS)))


def _fields(dice: Random, message: Descriptor, words: Vocabulary, depth: int) -> bytes:
    """A message with most of its fields, in any order, some of them often, some unknown."""
    parts = []
    fields = list(message.fields)
    if depth == _DEPTH:
        dice.shuffle(fields)
    for field in fields:
        luck = dice.randrange(40)
        if luck < 8:
            continue
        part = _value(dice, field, words, depth)
        parts.append(part * (_MANY if luck == 39 and len(part) < 100 else 1 + (luck > 32)))
    if dice.random() < 0.1:
        parts.append(_field(dice.choice((99, 15, 2**29 - 1)), _LENGTH, b"unknown"))
    return b"".join(parts)


def _altered(dice: Random, seeds: Sequence[bytes]) -> bytes:
    """A good message after one to three changes."""
    raw = dice.choice(seeds)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(max(1, len(raw)))
        change = dice.randrange(6)
        if change == 0:
            raw = raw[:at]
        elif change == 1:
            raw = raw[:at] + dice.randbytes(1) + raw[at + 1 :]
        elif change == 2:
            raw = raw[:at] + dice.randbytes(dice.randint(1, 8)) + raw[at:]
        elif change == 3:
            raw = raw[:at] + raw[at + dice.randint(1, 16) :]
        elif change == 4:
            raw = raw + raw
        else:
            raw = raw + dice.choice(seeds)
    return raw


def hostile(dice: Random, message: Descriptor, seeds: Sequence[bytes] = (), words: Vocabulary = NO_WORDS) -> bytes:
    """Bytes that may be sent where `message` is expected; `seeds` are good ones, which are among them."""
    kind = dice.choice(
        ("built", "built", "altered", "altered", "good", "noise") if seeds else ("built",) * 3 + ("noise",)
    )
    if kind == "built":
        return _fields(dice, message, words, _DEPTH)
    if kind == "altered":
        return _altered(dice, seeds)
    return dice.choice(seeds) if kind == "good" else dice.randbytes(dice.randint(0, 100))


def drawn(message: Descriptor, seeds: Sequence[bytes] = (), words: Vocabulary = NO_WORDS) -> st.SearchStrategy[bytes]:
    """Such messages for hypothesis, from one draw each: to draw every field took far longer than any decoder."""
    return st.binary(min_size=8, max_size=8).map(lambda seed: hostile(Random(seed), message, seeds, words))
