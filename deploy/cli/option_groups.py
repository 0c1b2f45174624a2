"""Options of a command that belong together, as a dataclass: `typer` knows parameters only.

@dataclass(frozen=True)
class Listening:
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Which port.")] = 8780

app.command()(with_groups(serve))   # def serve(where: Listening, as_json: Json = False) -> None
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

__all__ = ["with_groups"]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command that has each field of its dataclass parameters as an option of its own, in their order."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        options += _options_of(group) if group else [_option(parameter.name, hints, parameter.default)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_option(field.name, hints, field.default) for field in dataclasses.fields(group)]


def _option(name: str, hints: dict[str, Any], default: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
