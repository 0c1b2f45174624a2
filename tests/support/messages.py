"""What a message names: tests assert the values and the range that an error or an output states, not its sentence."""

from __future__ import annotations

import re

import pytest

from croupier.protocol.errors import Code, Refusal


def naming(*values: object) -> str:
    """Returns a pattern of messages that name these values in this order, with any words around and between them.

    A value is not part of a longer word or number: 1 is not named by 10, 1.5, or "1e-6". It is for
    `pytest.raises(..., match=naming(...))` and `re.search(naming(...), output)`.
    """
    if not values:
        raise ValueError("values is empty; name at least one")
    return r"[\s\S]*?".join(_alone(str(value)) for value in values)


def refuses(code: Code, said: str | None = None) -> pytest.RaisesExc[Refusal]:
    """Expects a refusal with this code; said: a pattern of its text."""
    return pytest.raises(Refusal, match=said, check=lambda refusal: refusal.code is code)


def _alone(value: str) -> str:
    before = r"(?<![\w.])(?<!\d,)" if value[0].isdigit() else r"(?<!\w)" if value[0].isalpha() else ""
    after = r"(?![\w]|[.,]\d)" if value[-1].isdigit() else r"(?!\w)" if value[-1].isalpha() else ""
    return before + re.escape(value) + after
