"""A wheel says where it comes from, if its publisher has named the address; whatever it is built from."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VARIABLES = ("CROUPIER_PROJECT_URL", "CROUPIER_DOCUMENTATION_URL")
SOURCE = "https://git.example/people/croupier"
URLS = [
    f"Source, {SOURCE}",
    f"Documentation, {SOURCE}/tree/HEAD/docs",
    f"Changelog, {SOURCE}/blob/HEAD/CHANGELOG.md",
    f"Issues, {SOURCE}/issues",
]


def build(target: str, root: Path, out: Path, **addresses: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    return subprocess.run(
        command, env=environment | addresses, cwd=root, capture_output=True, text=True, check=False, timeout=120
    )


def urls_of_wheel(root: Path, out: Path, **addresses: str) -> list[str]:
    done = build("wheel", root, out, **addresses)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (described,) = {name.partition("/")[0] for name in file.namelist() if ".dist-info/" in name}
        found = importlib.metadata.PathDistribution(zipfile.Path(file, f"{described}/"))
        return found.metadata.get_all("Project-URL", [])


def test_the_urls_of_a_wheel_follow_from_the_address_of_its_repository(tmp_path: Path) -> None:
    assert urls_of_wheel(ROOT, tmp_path / "none") == []
    assert urls_of_wheel(ROOT, tmp_path / "empty", CROUPIER_PROJECT_URL="") == []
    assert urls_of_wheel(ROOT, tmp_path / "all", CROUPIER_PROJECT_URL=SOURCE + "/") == URLS
    site = "https://croupier.example:8443"
    both = urls_of_wheel(ROOT, tmp_path / "site", CROUPIER_PROJECT_URL=SOURCE, CROUPIER_DOCUMENTATION_URL=site)
    assert both == [URLS[0], f"Documentation, {site}", *URLS[2:]]


@pytest.mark.parametrize(
    "address",
    [
        "http://git.example/croupier",
        "git@git.example:people/croupier.git",
        f"{SOURCE}.git",
        f"{SOURCE}?tab=readme",
        "https://me:secret@git.example/croupier",
        f"{SOURCE}\nHome-page: https://elsewhere.example",
        "https://",
    ],
)
@pytest.mark.parametrize("variable", VARIABLES)
def test_what_is_no_address_of_a_page_is_refused(variable: str, address: str, tmp_path: Path) -> None:
    done = build("wheel", ROOT, tmp_path, **{variable: address})
    assert done.returncode != 0
    assert f"{variable} is {address.rstrip('/')!r}: it must be an https address" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_source_distribution_makes_a_wheel_with_the_address_of_either(tmp_path: Path) -> None:
    for name, own in (("with", {"CROUPIER_PROJECT_URL": SOURCE}), ("without", {})):
        assert build("sdist", ROOT, tmp_path / name, **own).returncode == 0
        (packed,) = (tmp_path / name).iterdir()
        with tarfile.open(packed) as file:
            file.extractall(tmp_path / name, filter="data")
    (has,) = (tmp_path / "with").glob("*/")
    (has_not,) = (tmp_path / "without").glob("*/")
    assert urls_of_wheel(has, tmp_path / "1") == URLS
    assert urls_of_wheel(has_not, tmp_path / "2") == []
    assert urls_of_wheel(has_not, tmp_path / "3", CROUPIER_PROJECT_URL=SOURCE) == URLS
