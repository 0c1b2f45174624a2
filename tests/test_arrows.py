"""Arrows between rooms that import-linter cannot see: a room that runs another one in a process of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BELOW_THE_COMMAND_LINE = (
    *(
        f"croupier/{room}"
        for room in ("console", "net", "operator", "protocol", "runtime", "show", "study", "training")
    ),
    *("shuffler", "accountant", "analyzer", "client"),
    *(f"deploy/{room}" for room in ("gateway", "local", "node", "render")),
)


@pytest.mark.slow
def test_no_room_below_the_command_line_starts_it() -> None:
    """Reproduction: the demonstration started `croupier submit --csv` and read what it printed."""
    upward = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for room in BELOW_THE_COMMAND_LINE
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == "croupier.cli"
    ]
    assert upward == []
