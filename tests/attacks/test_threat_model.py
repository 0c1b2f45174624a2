"""The threat model names the test of every attack; this keeps the page and the tests together."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "threat-model.md"
ROWS = 13
"""As in the protocol's table of attacks."""


def test_every_row_names_tests_that_exist_and_every_test_stands_in_a_row() -> None:
    written = Counter(
        node.name
        for file in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )
    page = PAGE.read_text(encoding="utf-8")
    named = Counter(re.findall(r"`(test_\w+)`", page))
    assert named == written
    assert set(named.values()) == {1}
    table = page.partition("| attack | defence | tests")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == ROWS
    assert all("`test_" in row for row in table)
