"""The packages of the services' image: each of one version, which tests run with, and of known bytes."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
EXTRAS = ("accountant", "analyzer", "gateway", "postgresql")
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux", "platform_system": "Linux"}


def pins(text: str) -> dict[str, tuple[str, list[str]]]:
    """Returns version and hashes by name."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    pins = [re.fullmatch(r"([\w.\-\[\]]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})*)", line) for line in lines]
    assert all(pins), lines
    return {canonicalize_name(pin[1]): (pin[2], pin[3].split()) for pin in pins if pin}


def needed(requirements: list[str]) -> set[str]:
    """Returns the names of all packages that the image needs, as the installed ones say."""
    known, left = set[tuple[str, str]](), [Requirement(requirement) for requirement in requirements]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in known:
                continue
            known.add((name, extra))
            environments = [{**IMAGE, "platform_machine": machine, "extra": extra} for machine in ("x86_64", "aarch64")]
            more = (Requirement(line) for line in requires(name) or ())
            left += [
                each for each in more if not each.marker or any(each.marker.evaluate(where) for where in environments)
            ]
    return {name for name, _ in known} - {"croupier"}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_image_has_the_tested_versions_by_their_hashes() -> None:
    """After a change of constraints.txt: make lock."""
    locked = pins((COMPOSE / "requirements.txt").read_text(encoding="utf-8"))
    tested = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert set(locked) == needed([f"croupier[{','.join(EXTRAS)}]"])
    assert {name: version for name, (version, _) in locked.items()} == {name: tested[name][0] for name in locked}
    assert all(hashes for _, hashes in locked.values())


def test_the_build_backend_has_one_version() -> None:
    (backend,) = PROJECT["build-system"]["requires"]
    assert pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))["hatchling"][0] == backend.split("==")[1]


def test_the_image_installs_nothing_without_a_hash() -> None:
    text = (COMPOSE / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]*)", text)
    assert len(installs) == 2
    assert all("--require-hashes" in line for line in installs)
    assert [line for line in text.splitlines() if line.startswith("FROM ")] == [
        "FROM $PYTHON_IMAGE AS build",
        "FROM $PYTHON_IMAGE",
    ]
