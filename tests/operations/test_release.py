"""What a release consists of: the same bytes wherever and whenever it is built, and a list of what is inside."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import naming

ROOT = Path(__file__).parents[2]
RELEASE: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "release"))


@pytest.mark.slow
def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path: Path) -> None:
    """At other paths, with other times and another umask."""
    trees, (first, second) = (tmp_path / "one", tmp_path / "two" / "deeper"), (tmp_path / "first", tmp_path / "second")
    for tree, out, time_s, umask in zip(trees, (first, second), (10**9, 1_700_000_000), (0o022, 0o077), strict=True):
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "out", "dist"))
        RELEASE["build"](tree, out, time_s, umask)
    assert len(list(first.iterdir())) == 2
    RELEASE["compare"](first, second)
    wheel = next(second.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(SystemExit, match=naming(wheel.name)):
        RELEASE["compare"](first, second)


def test_the_bill_of_materials_lists_every_package_with_its_hashes() -> None:
    requirements = (ROOT / "deploy" / "compose" / "requirements.txt").read_text(encoding="utf-8")
    document = json.loads(RELEASE["bill_of_materials"]("0.1.0", requirements, 10**9))
    assert document["specVersion"] == "1.6"
    assert document["metadata"]["component"]["name"] == "croupier"
    listed = {
        f"{component['name']}=={component['version']}": component["hashes"] for component in document["components"]
    }
    assert set(listed) == {line.split(" ")[0] for line in requirements.splitlines() if "==" in line}
    hashes = [file["content"] for several in listed.values() for file in several]
    assert len(hashes) == requirements.count("--hash=sha256:") > len(listed)
    assert RELEASE["bill_of_materials"]("0.1.0", requirements, 10**9) == json.dumps(document, indent=2) + "\n"
