"""The notebooks run from top to bottom, and what their cells show is what Jupyter would show."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jupytext
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


class Balanced(HTMLParser):
    """Checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in ("path", "use", "rect", "image", "line", "circle", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def shown(cell: str, namespace: dict[str, Any]) -> Any:
    """Runs a cell and returns the value of its last line, as Jupyter does."""
    tree = ast.parse(cell)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), namespace)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a notebook runs; a deployment that it leaves behind is stopped."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for running in tmp_path.glob("*/deployment/processes.json"):
        if json.loads(running.read_text()):
            subprocess.run([sys.executable, "-m", "croupier.cli", "down", "--dir", running.parent], check=True)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_what_it_computes(file: Path, place: Path) -> None:
    cells = jupytext.read(file).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    displayed: set[str] = set()
    for cell in cells:
        if cell.cell_type != "code":
            continue
        value = shown(cell.source, namespace)
        if hasattr(value, "_repr_html_") and type(value).__module__.split(".")[0] == "croupier":
            html = Balanced()
            html.feed(value._repr_html_())
            assert not html.open
            displayed.add(type(value).__name__)
    assert "Explanation" in displayed
    assert displayed & {"Certificate", "RoundResult"}


def test_there_is_one_for_each_kind_of_reader() -> None:
    assert [file.stem for file in NOTEBOOKS] == [
        "accountant_in_ten_minutes",
        "reading_a_certificate",
        "survey_end_to_end",
        "training",
        "training_on_a_table",
    ]
