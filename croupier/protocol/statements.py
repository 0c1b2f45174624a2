"""A statement of a certificate: a code with its parameters, which programs decide by, and its sentence, for people.

A statement has two forms that are read back without loss: the message of the wire, and a JSON object with "code" and
"parameters". The JSON object also has the sentence, as "text": it is written for people and never read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from croupier.protocol import texts
from croupier.protocol.codes import Assumption, Code
from croupier.protocol.names import JsonObject
from croupier.protocol.v1 import messages_pb2 as pb

C = TypeVar("C", bound=Code)
C_co = TypeVar("C_co", bound=Code, covariant=True)

SCHEMA = 1
"""The version of certificates: of their statements in both forms, and of the keys of the JSON document."""
MOST = 2**63 - 1
"""The largest whole number of a parameter, which a reader with 64-bit integers can take."""
_KINDS: dict[type, str] = {int: f"a whole number, 0 to {MOST}", float: "a finite number", str: "text"}


@dataclass(frozen=True)
class Statement(Generic[C_co]):
    """A code and its parameters, sorted by name."""

    code: C_co
    parameters: tuple[tuple[str, int | float | str], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for parameters that are not those of the code."""
        declared = self.code.parameters
        if [name for name, _ in self.parameters] != sorted(declared):
            given = [name for name, _ in self.parameters]
            raise ValueError(f"the parameters of {self.code} are {given}; they must be {sorted(declared)}")
        for name, value in self.parameters:
            fits = type(value) is declared[name]
            fits = fits and not (isinstance(value, int) and not 0 <= value <= MOST)
            if not fits or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"{name} of {self.code} is {value!r:.60}; it must be {_KINDS[declared[name]]}")

    @staticmethod
    def of(code: C, **parameters: Any) -> Statement[C]:
        """Returns a statement. Numbers may be of any numeric type, such as numpy's, that has the value exactly."""
        return _made(code, parameters)

    def __getitem__(self, name: str) -> Any:
        """The value of a parameter."""
        return dict(self.parameters)[name]

    def __str__(self) -> str:
        """The sentence, in the words of the field."""
        return texts.sentence(self.code, dict(self.parameters))


def _made(code: C, parameters: Mapping[str, Any]) -> Statement[C]:
    declared = code.parameters
    values = {name: _converted(declared.get(name), value) for name, value in parameters.items()}
    return Statement(code, tuple(sorted(values.items())))


def _converted(kind: type | None, value: Any) -> Any:
    if kind not in (int, float) or isinstance(value, bool | str):
        return value
    try:
        converted = kind(value)
    except (OverflowError, TypeError, ValueError):
        return value
    return converted if converted == value else value


def to_prose(statement: Statement[Assumption]) -> str:
    """Returns an assumption in a sentence for people who do not know the field."""
    return texts.plain_sentence(statement.code, dict(statement.parameters))


def secret(statement: Statement[Assumption]) -> str | None:
    """Returns what an observer may want to find out, if the assumption is about what people run."""
    return texts.SECRETS.get(statement.code)


def joined(statements: Iterable[Statement[Code]]) -> str:
    """Returns the sentences of several statements in one line."""
    return "; ".join(map(str, statements))


def _known(codes: type[C], code: object) -> C:
    try:
        return codes(str(code))
    except ValueError:
        raise ValueError(
            f"code is {code!r:.60}; it must be one that this croupier knows: has a newer one written it?"
        ) from None


def messages_of(statements: Iterable[Statement[Code]]) -> list[pb.Statement]:
    """Returns the messages of the wire."""
    field = {int: "whole", float: "number", str: "text"}
    return [
        pb.Statement(
            code=statement.code,
            parameters=[
                pb.Parameter(name=name, **{field[type(value)]: value})  # type: ignore[arg-type]
                for name, value in statement.parameters
            ],
        )
        for statement in statements
    ]


def read_messages(codes: type[C], messages: Iterable[pb.Statement]) -> tuple[Statement[C], ...]:
    """Returns the statements of messages.

    Raises:
        ValueError: a code is not one of these, or its parameters are not those of the code.
    """
    return tuple(
        Statement(_known(codes, message.code), tuple((part.name, _value_of(part)) for part in message.parameters))
        for message in messages
    )


def _value_of(parameter: pb.Parameter) -> Any:
    kind = parameter.WhichOneof("value")
    return None if kind is None else getattr(parameter, kind)


def written_json(statements: Iterable[Statement[Code]]) -> list[JsonObject]:
    """Returns the JSON objects: code and parameters, and the sentence for people."""
    return [
        {"code": str(statement.code), "parameters": dict(statement.parameters), "text": str(statement)}
        for statement in statements
    ]


def read_statements(codes: type[C], documents: object) -> tuple[Statement[C], ...]:
    """Returns the statements of JSON objects, by their codes and parameters alone.

    Raises:
        ValueError: they are not a list of such objects.
    """
    if not isinstance(documents, list | tuple):
        raise ValueError(f"statements are {documents!r:.60}; they must be a list of objects with code and parameters")
    return tuple(_read_statement(codes, document) for document in documents)


def _read_statement(codes: type[C], document: object) -> Statement[C]:
    if not isinstance(document, Mapping) or not isinstance(parameters := document.get("parameters"), Mapping):
        raise ValueError(f"a statement is {document!r:.60}; it must be an object with code and parameters")
    if not all(isinstance(name, str) for name in parameters):
        raise ValueError(f"parameters is {parameters!r:.60}; its names must be text")
    return _made(_known(codes, document.get("code")), parameters)
