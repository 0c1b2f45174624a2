"""The accountant's description of every kind of mechanism that a question may have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from croupier.accountant.mechanisms.base import SHORT, Randomizer
from croupier.accountant.ranges import outside
from croupier.protocol.codes import RUNS, Assumption
from croupier.protocol.kinds import check_new, of_every_kind, read_value, split_name
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.statements import Statement

RANDOMIZERS: dict[str, type[Randomizer]] = of_every_kind("croupier.accountant.mechanisms", "RANDOMIZER")

_LONG = {letter: name for name, letter in SHORT.items()}


def randomizer_of(mechanism: Mechanism) -> Randomizer:
    """Returns the accountant's description of what the clients of a round run."""
    return RANDOMIZERS[mechanism.kind].of(mechanism)


def stated_randomizer(assumptions: Iterable[Statement[Assumption]]) -> Randomizer | None:
    """Returns what people run by the assumptions of a certificate; None where they do not say all of it.

    Raises:
        ValueError: a parameter is outside its range.
    """
    for assumption in assumptions:
        if (named := RUNS.get(assumption.code)) is not None:
            kind, _ = named
            return RANDOMIZERS[kind](**dict(assumption.parameters))
    return None


def as_randomizer(randomizer: Randomizer | str) -> Randomizer:
    """Returns a randomizer itself, or the one of this name.

    Raises:
        ValueError: it is neither, or as `randomizer_from_name`.
    """
    if isinstance(randomizer, str):
        return randomizer_from_name(randomizer)
    if isinstance(randomizer, type):
        name = randomizer.__name__
        raise outside("randomizer", randomizer, f"a name or an instance: {name}(…) instead of {name}")
    if not isinstance(randomizer, Randomizer):
        raise _unknown(randomizer)
    return randomizer


def _unknown(given: object) -> ValueError:
    return ValueError(f"randomizer is {given!r}; it must be one of {', '.join(map(_written, sorted(RANDOMIZERS)))}")


def _needed(kind: str) -> list[str]:
    """Returns the parameters without which there is no randomizer of a kind."""
    return [field.name for field in fields(RANDOMIZERS[kind]) if field.default is MISSING]


def _written(kind: str) -> str:
    """Returns a kind as it may be written, with an example of each parameter that it needs."""
    example = {int: "10", float: "0.5", str: "text"}
    parts = [f"{SHORT.get(name, name)}={5 if name == 'k' else example[_type(kind, name)]}" for name in _needed(kind)]
    return f"{kind}({', '.join(parts)})" if parts else kind


def _type(kind: str, parameter: str) -> type:
    """Returns the type of a parameter of a kind: int, float or str. One that may be None is written as its other type.

    Raises:
        ValueError: a parameter of another type cannot be written in a name.
    """
    declared = get_type_hints(RANDOMIZERS[kind])[parameter]
    types = [kind for kind in get_args(declared) or (declared,) if kind is not NoneType]
    for candidate in (int, float, str):
        if types == [candidate]:
            return candidate
    raise ValueError(f"{parameter} of {kind} is of type {declared}; it must be given as a value, not in a name")


def randomizer_from_name(name: str, **parameters: Any) -> Randomizer:
    """Returns the randomizer of a kind: `rr`, `onebit`, `krr` (k=...), `laplace`, `gaussian`, `hemisphere` and so on.

    Parameters may be part of the name, as certificates print it: "krr(k=5)", "hemisphere(d=3)". Each is read as the
    type that the kind declares for it: an int, a float or text.

    Raises:
        ValueError: an unknown kind or parameter, one that is missing, or one out of range.
    """
    name, parts = split_name(name)
    if name not in RANDOMIZERS:
        raise _unknown(name)
    known = {field.name for field in fields(RANDOMIZERS[name])}
    texts: dict[str, str] = {}
    for short, value in parts:
        parameter = _LONG.get(short, short)
        check_new(parameter, name, {**texts, **parameters}.get(parameter))
        texts[parameter] = value
    for parameter, value in {**texts, **parameters}.items():
        if parameter not in known:
            raise ValueError(f"{parameter} is {value!r}, but {name} has no {parameter}")
    parameters |= {parameter: read_value(parameter, text, _type(name, parameter)) for parameter, text in texts.items()}
    for parameter in _needed(name):
        if parameter not in parameters:
            raise ValueError(f"{parameter} is missing; {name} needs it, as in {_written(name)!r}")
    return RANDOMIZERS[name](**parameters)
