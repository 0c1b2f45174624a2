"""Every attack has a section in the documentation and tests; this keeps the page, the list and the tests together."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "attacks.md"
TESTS_OF_ATTACKS: dict[str, list[str]] = tomllib.loads((HERE / "attacks.toml").read_text(encoding="utf-8"))
WITHOUT: dict[str, list[str]] = TESTS_OF_ATTACKS.pop("without")  # type: ignore[assignment]
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
    named = Counter(test for tests in TESTS_OF_ATTACKS.values() for test in tests)
    assert named == names_in(HERE) + Counter(name for name in names_in(CONSOLE) if name in named)
    assert set(named.values()) == {1}
    assert all(TESTS_OF_ATTACKS.values()), "an attack without a test"
    assert WITHOUT.keys() <= named.keys()
    assert all(WITHOUT.values())


def test_every_attack_with_tests_is_described_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(TESTS_OF_ATTACKS)
    assert not re.findall(r"`test_\w+`", page), "tests of attacks are named in attacks.toml alone"
