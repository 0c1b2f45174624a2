"""The kinds of mechanisms, and where each role has what it knows of a kind.

The kinds are the fields of `Question.mechanism`. Four packages have a module for each of them, of the kind's name:
`protocol.mechanisms`, `client.mechanisms`, `analyzer.mechanisms` and `accountant.mechanisms`. docs/add-a-mechanism.md
adds a kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from croupier.protocol.v1 import messages_pb2 as pb

FIELDS = {field.name: field for field in pb.Question.DESCRIPTOR.oneofs_by_name["mechanism"].fields}
"""The field of every kind, whose message has the kind's parameters."""


def of_every_kind(package: str, name: str) -> dict[str, Any]:
    """Returns what the modules of the kinds in a package have by this name, for every kind.

    Raises:
        ImportError: a kind has no module there, or the module has no such name.
    """
    found = {}
    for kind in FIELDS:
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
