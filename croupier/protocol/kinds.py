"""The kinds of mechanisms, and where each role has what it knows of a kind.

The kinds are the fields of `Question.mechanism`. Four packages have a module for each of them, of the kind's name:
`protocol.mechanisms`, `client.mechanisms`, `analyzer.mechanisms` and `accountant.mechanisms`. docs/add-a-mechanism.md
adds a kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from croupier.protocol.v1 import messages_pb2 as pb

MESSAGES = {
    field.name: field.message_type
    for field in pb.Question.DESCRIPTOR.oneofs_by_name["mechanism"].fields
    if field.message_type is not None
}
"""The message of every kind, whose fields are the kind's parameters."""


def of_every_kind(package: str, name: str) -> dict[str, Any]:
    """Returns what the modules of the kinds in a package have by this name, for every kind.

    Raises:
        ImportError: a kind has no module there, or the module has no such name.
    """
    found = {}
    for kind in MESSAGES:
        module = f"{package}.{kind}"
        try:
            found[kind] = getattr(import_module(module), name)
        except (ModuleNotFoundError, AttributeError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name != module:
                raise
            raise ImportError(
                f"{module} has no {name}; each role has a module for every kind of Question.mechanism "
                "(docs/add-a-mechanism.md)"
            ) from error
    return found


_NAME = re.compile(r"(?P<kind>\w+)\((?P<parameters>[^()]*)\)")
_READERS: dict[type, tuple[Callable[[str], int | float | str], str]] = {
    int: (int, "a whole number"),
    float: (float, "a number"),
    str: (str, "text"),
}


def split_name(name: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the kind and the parameters of a name such as "krr(k=5)", each with its value as it is written."""
    written = _NAME.fullmatch(name)
    if written is None:
        return name, []
    parts = [part.partition("=") for part in written["parameters"].split(",")]
    return written["kind"], [(parameter.strip(), value.strip()) for parameter, _, value in parts]


def read_value(parameter: str, text: str, needed: type) -> int | float | str:
    """Returns the value of a parameter in a name; raises ValueError where it is not of the type that is needed."""
    read, required = _READERS[needed]
    try:
        return read(text)
    except ValueError:
        raise ValueError(f"{parameter} is {text!r}; it must be {required}") from None


def check_new(parameter: str, kind: str, given: object) -> None:
    """Raises ValueError for a parameter that is given already."""
    if given is not None:
        raise ValueError(f"{parameter} is given twice, in the name {kind!r} and beside it")
