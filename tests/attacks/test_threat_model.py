"""Every attack of the catalogue has tests, and every test an attack; the documentation is made from the catalogue."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from research.reference import attacks, with_generated

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs"
CATALOGUE, WITHOUT = attacks()
CONSOLE = HERE.parent / "console"
"""Attacks on the web page are among its other tests."""


def names_in(room: Path) -> Counter[str]:
    """Returns the tests of a folder; those of this file perform no attack."""
    return Counter(
        node.name
        for file in room.glob("test_*.py")
        if file.name != Path(__file__).name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_attacks_and_their_tests_name_each_other() -> None:
    named = Counter(test for entry in CATALOGUE.values() for test in entry.tests)
    assert named == names_in(HERE) + Counter(name for name in names_in(CONSOLE) if name in named)
    assert set(named.values()) == {1}
    assert all(entry.tests and entry.by and entry.attack and entry.defence for entry in CATALOGUE.values())
    assert WITHOUT.keys() <= named.keys()
    assert all(WITHOUT.values())


def test_both_pages_are_made_from_the_catalogue() -> None:
    page = with_generated((PAGES / "attacks.md").read_text(encoding="utf-8"))
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(CATALOGUE)
    assert page.count("*What remains:*") == sum(1 for entry in CATALOGUE.values() if entry.remains)
    tests = with_generated((PAGES / "attack-tests.md").read_text(encoding="utf-8"))
    assert re.findall(r"^\| ([A-Z][^|]*) \| `", tests, re.MULTILINE) == list(CATALOGUE)
