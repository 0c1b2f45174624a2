"""The mechanisms: one module for each kind of local randomizer, with its parameters, its values and its words.

Every class mirrors the message of its field in `Question.mechanism` (proto/croupier/protocol/v1/messages.proto), field
by field, and checks itself at construction. What a role does with a kind is in the role's own module for the kind
(`protocol.kinds`). docs/add-a-mechanism.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from croupier.protocol.kinds import MESSAGES, check_new, of_every_kind, read_value, split_name
from croupier.protocol.mechanisms.base import Form, Mechanism

_TYPES: dict[int, type] = {FieldDescriptor.TYPE_DOUBLE: float, FieldDescriptor.TYPE_STRING: str}
MECHANISMS: dict[str, type[Mechanism]] = of_every_kind(__name__, "MECHANISM")
"""Every kind, by its name."""
KINDS_WITH_FAKES = tuple(kind for kind, mechanism in MECHANISMS.items() if mechanism.takes_fakes)
"""The kinds whose reports have one of finitely many values, so that a fake looks like any other report."""


def form_of(kind: str) -> Form | None:
    """Returns what a question of this kind asks for; None for an unknown kind."""
    return MECHANISMS[kind].form if kind in MECHANISMS else None


def parameter_types(kind: str) -> dict[str, type]:
    """Returns the types of a kind's parameters that are single numbers or texts, from its message."""
    return {
        field.name: _TYPES.get(field.type, int)
        for field in MESSAGES[kind].fields
        if field.message_type is None and not isinstance(field.default_value, list)  # of a repeated field it is a list
    }


def parameters_in(name: str) -> tuple[str, dict[str, Any]]:
    """Returns the kind and the parameters of a mechanism's name, such as "krr(k=5)".

    Raises:
        ValueError: an unknown kind, or a parameter that is given twice or of another type.
    """
    kind, parts = split_name(name)
    if kind not in MECHANISMS:
        raise ValueError(f"mechanism is {kind!r}; it must be one of {', '.join(MECHANISMS)}")
    types, values = parameter_types(kind), dict[str, Any]()
    for parameter, text in parts:
        check_new(parameter, kind, values.get(parameter))
        values[parameter] = read_value(parameter, text, types.get(parameter, str))
    return kind, values


def mechanism_from(kind: str, parameters: Mapping[str, Any]) -> Mechanism:
    """Returns the mechanism of a kind with these parameters; a parameter that is None counts as not given.

    Raises:
        ValueError: an unknown kind, a parameter that is missing, unknown or out of range.
    """
    if kind not in MECHANISMS:
        raise ValueError(f"mechanism is {kind!r}; it must be one of {', '.join(MECHANISMS)}")
    known = {parameter.name: parameter for parameter in fields(MECHANISMS[kind])}
    given = {name: value for name, value in parameters.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{name} is {value}, but {kind} has no {name}")
    for name, parameter in known.items():
        if name not in given and parameter.default is MISSING:
            raise ValueError(f"{name} is missing; {kind} needs it")
    return MECHANISMS[kind](**given)
