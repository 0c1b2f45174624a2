"""Value objects whose fields are those of a message, by the same names.

A value of an enum is its name in small letters, without the enum's: "week" for PERIOD_WEEK. An absent message is None.
Ranges are checked by the value object. `dataclasses.asdict` has the arguments of the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

T = TypeVar("T")


@cache
def names_of(enum: EnumDescriptor) -> Mapping[int, str]:
    """Returns the names of an enum's values by their numbers: "OPEN" for ROUND_STATE_OPEN."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    return {number: value.name.removeprefix(prefix) for number, value in enum.values_by_number.items()}


def value_of(kind: type[T], message: Message, **read: Any) -> T:
    """Returns the value object that a message states.

    Args:
        kind: a dataclass.
        message: has all its fields.
        read: the fields that the caller has read from the message, because they have other types in it.

    Raises:
        ValueError: a value is missing, unknown, or out of its range.
    """
    by_name: Any = message.DESCRIPTOR.fields_by_name
    for name, form in _fields(kind).items():  # type: ignore[arg-type]
        if name not in read:
            read[name] = _read(message, by_name[name], form)
    return kind(**read)


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """Returns the types of a dataclass's fields by name."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind)}


def _read(message: Message, field: FieldDescriptor, kind: Any) -> Any:
    value = getattr(message, field.name)
    if field.default_value == []:  # a repeated field
        return tuple(value)
    if field.enum_type is not None:
        return enum_name(field, value)
    if field.message_type is None:
        return value
    if message.HasField(field.name):
        return value_of(next(part for part in (*get_args(kind), kind) if part is not type(None)), value)
    if type(None) in get_args(kind):
        return None
    raise ValueError(f"{field.name} is missing; {message.DESCRIPTOR.name} needs it")


def enum_name(field: FieldDescriptor, number: int) -> Any:
    """Returns the name of an enum's value in small letters; raises ValueError for 0, and for an unknown one."""
    known = {each: name.lower() for each, name in names_of(field.enum_type).items() if each}
    if number not in known:
        raise ValueError(f"{field.name} is missing or unknown; it must be one of {', '.join(known.values())}")
    return known[number]
