"""Groups of options: dataclasses that a command takes as one parameter each.

The fields of a group are annotated as typer's parameters are, or are groups themselves. Users see one option for each
field, where the group is among the command's parameters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from croupier.cli.console import plain_errors

Result = TypeVar("Result")


def with_option_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """Returns the command as typer has to see it: with the fields of each group instead of the group.

    A group may check its values at construction: a ValueError ends the command as one sentence, as in `plain_errors`.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {name: hint for name, hint in hints.items() if _is_group(hint)}

    @functools.wraps(command)
    def expanded(**given: Any) -> Result:
        with plain_errors():
            built = {name: _built(group, given) for name, group in groups.items()}
        return command(**given, **built)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _parameters_of(groups[name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=parameter.default, annotation=hints[name]))
    del expanded.__wrapped__  # or typer reads the annotations of the command
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _built(group: type[Any], given: dict[str, Any]) -> Any:
    """Returns a group with its values, which are taken out of what was given."""
    hints = get_type_hints(group, include_extras=True)
    return group(
        **{
            field.name: _built(hints[field.name], given) if _is_group(hints[field.name]) else given.pop(field.name)
            for field in fields(group)
        }
    )


def _parameters_of(group: type[Any]) -> list[inspect.Parameter]:
    hints, parameters = get_type_hints(group, include_extras=True), list[inspect.Parameter]()
    for field in fields(group):
        hint, kind = hints[field.name], inspect.Parameter.KEYWORD_ONLY
        if _is_group(hint):
            parameters += _parameters_of(hint)
        else:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=hint))
    return parameters
