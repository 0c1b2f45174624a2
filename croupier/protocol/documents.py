"""The JSON document of a message, by its descriptor: one writer and one reader for all of them.

A document has a key for every field of the message. Numbers are JSON numbers, bytes are hexadecimal digits, values of
enums are their names without the enum's, and a statement is its code with its parameters and its sentence
(`protocol.statements`). null means that an optional field is absent, and of any other number that it is infinite.
`research.json_schema` makes the JSON Schema of a message.

protobuf's own JSON (`google.protobuf.json_format`) writes 64-bit numbers as text, which no comparison of a script takes
for numbers, digests in another form than everywhere else, and parameters as a list; its reader takes a missing field
for zero.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from croupier.protocol.codes import Assumption, Code, Method, Note, ProofStep, RefusalReason
from croupier.protocol.names import JsonObject
from croupier.protocol.statements import Statement, messages_of, read_messages, read_statements, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import names_of

M = TypeVar("M", bound=Message)

_CODES: Mapping[str, type[Code]] = {
    "method": Method,
    "assumptions": Assumption,
    "notes": Note,
    "refusals": RefusalReason,
    "steps": ProofStep,
}
"""The codes of a field of statements, by the last word of the field's name."""
HEX = "^([0-9a-f]{2})*$"
"""The pattern of bytes."""
WHOLE = {
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
}
"""The smallest and the largest number of a field of this type."""
NUMBERS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
LARGEST = sys.float_info.max


def codes_of(field: FieldDescriptor) -> type[Code] | None:
    """Returns the codes of a field of statements; None for any other field."""
    return _CODES[field.name.rpartition("_")[2]] if field.message_type is pb.Statement.DESCRIPTOR else None


def is_list(field: FieldDescriptor) -> bool:
    """Returns whether a field may have several values."""
    return bool(field.default_value == [])


def is_map(field: FieldDescriptor) -> bool:
    """Returns whether the values of a field have keys of their own."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# ---------------------------------------------------------------- writing


def fields_of(value: Any) -> JsonObject:
    """Returns the JSON object of a dataclass: its fields by their names."""
    return {field.name: document_of(getattr(value, field.name)) for field in fields(value)}


def document_of(value: Any) -> Any:
    """Returns the JSON value of a message, of a value object (its `to_json`, or its fields), or of what these hold.

    Raises:
        ValueError: a statement has a code that is not known here.
    """
    if value is None or isinstance(value, str | int):
        return str(value) if isinstance(value, Enum) else value
    if isinstance(value, float):
        return None if value == math.inf else value
    if isinstance(value, Message):
        return {
            name: None if optional and not value.HasField(name) else write(getattr(value, name))
            for name, optional, write in _writers(value.DESCRIPTOR)
        }
    if isinstance(value, Statement):
        return written_json([value])[0]
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Mapping):
        return {str(key): document_of(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [document_of(entry) for entry in value]
    return value.hex() if isinstance(value, bytes) else value


@cache
def _writers(message: Descriptor) -> tuple[tuple[str, bool, Callable[[Any], Any]], ...]:
    """Returns the name of every field, whether it may be absent, and the function that writes its value."""
    return tuple((field.name, field.has_presence, _writer(field)) for field in message.fields)


def _writer(field: FieldDescriptor) -> Callable[[Any], Any]:
    if (codes := codes_of(field)) is not None:
        return lambda value: written_json(read_messages(codes, value))
    one: Callable[[Any], Any] = document_of if field.enum_type is None else names_of(field.enum_type).__getitem__
    return (lambda value: [one(each) for each in value]) if is_list(field) and not is_map(field) else one


# ---------------------------------------------------------------- reading


def read_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError for a key that is there twice, and for NaN and Infinity."""

    def once(pairs: list[tuple[str, Any]]) -> JsonObject:
        if len(value := dict(pairs)) < len(pairs):
            raise ValueError(f"a key is there twice among {[key for key, _ in pairs]!s:.60}")
        return value

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number of JSON")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_document(kind: type[M], document: object, place: str = "") -> M:
    """Returns the message of a document, which must be exactly as `document_of` writes it.

    Raises:
        ValueError: a field is missing, unknown, or not of its type or range; or a code is not known here.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"{place or 'the document'} is {document!r:.60}; it must be a JSON object")
    by_name: Mapping[str, FieldDescriptor] = dict(kind.DESCRIPTOR.fields_by_name)  # type: ignore[arg-type]
    for name in sorted(document.keys() ^ by_name.keys(), key=str):
        wrong = "missing" if name in by_name else "not known here"
        raise ValueError(f"{place}{'.' * bool(place)}{name!s:.60} is {wrong}; it must be as croupier writes it")
    read: dict[str, Any] = {}
    for name, field in by_name.items():
        value, at = document[name], f"{place}.{name}" if place else name
        if value is None and field.has_presence:
            continue
        if (codes := codes_of(field)) is not None:
            read[name] = messages_of(read_statements(codes, value))
        elif not is_list(field):
            read[name] = _read_value(field, value, at)
        elif isinstance(value, list):
            read[name] = [_read_value(field, each, f"{at}.{number}") for number, each in enumerate(value)]
        else:
            raise ValueError(f"{at} is {value!r:.60}; it must be a list")
    return kind(**read)


def _read_value(field: FieldDescriptor, value: Any, place: str) -> Any:
    kind, form = field.cpp_type, type(value)
    if field.message_type is not None:
        return read_document(GetMessageClass(field.message_type), value, place)
    if kind in WHOLE:
        least, most = WHOLE[kind]
        expected, fits = f"a whole number, {least} to {most}", form is int and least <= value <= most
    elif kind in NUMBERS:
        if value is None:
            return math.inf
        expected, fits = "a finite number, or null for infinity", form in (int, float) and abs(value) <= LARGEST
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        expected, fits = "true or false", form is bool
    elif field.enum_type is not None:
        numbers = {name: number for number, name in names_of(field.enum_type).items()}
        expected, fits = f"one of {', '.join(numbers)}", form is str and value in numbers
        value = numbers[value] if fits else value
    elif field.type == FieldDescriptor.TYPE_BYTES:
        expected, fits = "pairs of hexadecimal digits", form is str and re.fullmatch(HEX, value) is not None
        value = bytes.fromhex(value) if fits else value
    else:
        expected, fits = "text", form is str
    if not fits:
        raise ValueError(f"{place} is {value!r:.60}; it must be {expected}")
    return value
