"""The threat model has a heading for every attack and lists its tests; this keeps the page and the tests together."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "threat-model.md"
CONSOLE = HERE.parent / "console"
"""Attacks on the web page stand among its other tests."""
ATTACKS = 27
"""As in the protocol's table of attacks; and callers, the web page, gateways, the participants' page, invitations,
budgets in certificates, retired identities, hop noise, and test_promises.py's."""


def names_in(room: Path) -> Counter[str]:
    return Counter(
        node.name
        for file in room.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_attacks_and_their_tests_name_each_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = Counter(re.findall(r"`(test_\w+)`", page))
    assert named == names_in(HERE) + Counter(name for name in names_in(CONSOLE) if name in named)
    assert set(named.values()) == {1}
    attacks = page.partition("\n## Attacks\n")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert len(attacks) == ATTACKS
    assert all(re.search(r"^\* `test_\w+`$", attack, re.MULTILINE) for attack in attacks)
    listed = [name for attack in attacks for name in re.findall(r"^\* `(test_\w+)`$", attack, re.MULTILINE)]
    assert len(listed) == len(named) - 1, "only the name of this test stands elsewhere"
