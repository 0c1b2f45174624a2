"""docs/add-a-mechanism.md is followed in a copy of the sources; the contract over mechanisms passes there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "add-a-mechanism.md"
BLOCK = re.compile(r'^```(diff|python) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def changed(text: str, diff: str) -> str:
    """Returns the text after a diff without line numbers."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, f"{text.count(before)} places fit\n{before}"
    return text.replace(before, after)


@pytest.mark.slow
def test_the_page_adds_a_mechanism(tmp_path: Path) -> None:
    copy = tmp_path / "croupier"
    left_out = shutil.ignore_patterns(".*", "build", "__pycache__", "node_modules")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```") // 2  # nothing on the page is left out
    assert len({name for _, name, _ in blocks}) == 6
    for language, name, code in blocks:
        file = copy / name
        assert file.exists() == (language == "diff"), name
        file.write_text(changed(file.read_text(), code) if language == "diff" else code)
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHON": sys.executable}
    environment.pop("SLIPCOVER_ENABLED", None)
    made = subprocess.run(
        ["sh", "proto/generate.sh"], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    pages = [sys.executable, "-c", "from research.pages import write_pages; write_pages()"]
    written = subprocess.run(pages, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert written.returncode == 0, written.stderr
    (row,) = [line for line in (copy / "docs" / "mechanisms.md").read_text().splitlines() if line.startswith("| `shy`")]
    assert "| `silence` | A bit, or no answer (2) with a public probability. |" in row
    rooms = ("accountant", "analyzer", "client", "croupier", "deploy", "tests")
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", *rooms]
    tidy = subprocess.run(ruff, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert tidy.returncode == 0, tidy.stdout
    named = (
        "from croupier import certify; from croupier.operator.survey_file import SurveyQuestion; "
        "SurveyQuestion(name='q', question='?', randomizer='shy(silence=0.25)').mechanism(); "
        "print(certify({1.0: 400}, 'shy(silence=0.25)', delta=1e-6).randomizer)"
    )
    certified = subprocess.run(
        [sys.executable, "-c", named], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert certified.stdout == "shy(silence=0.25)\n", certified.stderr
    contract = ["-m", "pytest", "-n0", "-v", "-p", "no:cacheprovider", "tests/test_mechanisms_contract.py"]
    done = subprocess.run(
        [sys.executable, *contract], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "test_what_clients_report_is_estimated_and_certified[shy] PASSED" in done.stdout
