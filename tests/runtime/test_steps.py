"""Every transaction of a service has a name from one enum, which fault schedules use, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from croupier.runtime.steps import StoreStep

_ROOT = Path(__file__).parents[2]
_ROOMS = ("croupier/runtime", "shuffler", "analyzer", "accountant/service")


def files() -> Iterator[tuple[Path, ast.Module]]:
    for room in _ROOMS:
        for file in (_ROOT / room).glob("*.py"):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def is_step(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "StoreStep"


def test_no_transaction_is_named_by_a_sentence() -> None:
    """Reproduction: a reworded log line took its transaction out of the fault schedules, and no test failed."""
    count = 0
    for file, tree in files():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func).endswith("store.run"):
                assert is_step(call.args[0]), f"{file.name}:{call.lineno}: {ast.unparse(call.args[0])}"
                count += 1
    assert count > 50


def test_every_step_is_taken_somewhere() -> None:
    taken = {
        node.attr for _, tree in files() for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_step(node)
    }
    assert taken == {step.name for step in StoreStep}


def test_a_step_prints_as_what_names_it() -> None:
    """A schedule that fails is printed as the expression that makes it again."""
    assert eval(repr(StoreStep.OPEN_ROUND), {"StoreStep": StoreStep}) is StoreStep.OPEN_ROUND
