"""Statements in any of their forms (the accountant's, the message, the JSON object), read by code and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from croupier.protocol.codes import Code
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb


def codes(statements: Iterable[Any]) -> list[str]:
    """Returns the codes, which compare equal to the members of `protocol.codes`."""
    return [
        str(statement["code"]) if isinstance(statement, Mapping) else str(statement.code) for statement in statements
    ]


def parameters(statements: Iterable[Any], code: str) -> dict[str, Any]:
    """Returns the parameters of the only statement with this code."""
    (statement_found,) = [statement for statement in statements if codes([statement]) == [code]]
    if isinstance(statement_found, Statement):
        return dict(statement_found.parameters)
    if isinstance(statement_found, pb.Statement):
        return {
            parameter.name: getattr(parameter, str(parameter.WhichOneof("value")))
            for parameter in statement_found.parameters
        }
    return dict(statement_found["parameters"])


@st.composite
def statements(draw: st.DrawFn, possible: Iterable[Code]) -> Statement[Any]:
    """Draws a statement with one of these codes and any values."""
    code = draw(st.sampled_from(list(possible)))
    values: dict[type, st.SearchStrategy[Any]] = {
        int: st.integers(0, 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=5),
    }
    return Statement.of(code, **{name: draw(values[kind]) for name, kind in code.parameters.items()})
