"""What is in a wheel, that it works where nothing else of the project is, and the addresses that it names."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.operations.support import bare_environment, elsewhere
from tests.support.messages import naming

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
        distribution = importlib.metadata.PathDistribution(zipfile.Path(file, f"{described}/"))
        return distribution.metadata.get_all("Project-URL", [])


@pytest.mark.slow
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
    assert re.search(naming(variable, f"{address.rstrip('/')!r}"), done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
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


FOLDERS = ("client", "deploy", "accountant", "research")
FILES = ("shuffler", "analyzer", "proto", "tests")
TRAP = "raise ImportError(f'{__name__} was imported by its bare name')\n"
USES_THE_LIBRARY = """
import importlib.metadata, sys
import croupier
assert croupier.__file__.startswith(sys.prefix)
assert croupier.certify([1.0] * 10_000, "rr", delta=1e-6).grade == "CERTIFIED"
with croupier.connect("d", directory="device") as client:
    _, row = open("links/links.csv").read().splitlines()
    receipt = client.round().submit(1, max_local_epsilon=1.0, invitation=row.split(",")[1])
    print(receipt.local_epsilon)
(command,) = importlib.metadata.entry_points(group="console_scripts", name="croupier")
assert command.load().__module__ == "croupier.cli"
"""
IMPORTS_ROOMS = """
for room in ("accountant", "client", "shuffler", "deploy", "research"):
    try:
        __import__(room)
    except ModuleNotFoundError:
        print(room)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = build("wheel", ROOT, out)
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("*.whl")
    return made


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_a_wheel_has_one_package_with_every_file_of_it(wheel: Path, tmp_path: Path) -> None:
    """The folders of the roles lie beside croupier/ in a checkout, and are reached through links in it."""
    with zipfile.ZipFile(wheel) as file:
        assert {name.split("/")[0] for name in file.namelist()} == {
            "croupier",
            f"croupier-{importlib.metadata.version('croupier')}.dist-info",
        }
    roles = [ROOT / folder.name for folder in (ROOT / "croupier").iterdir() if folder.is_symlink()]
    files = [file for folder in (ROOT / "croupier", *roles) for file in folder.rglob("*")]
    expected = {
        f"croupier/{file.relative_to(ROOT)}".replace("croupier/croupier/", "croupier/")
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }
    expected |= {f"croupier/protocol/v1/{name}.proto" for name in ("messages", "services")}
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "design").glob("*.md")]
    expected |= {f"croupier/{page.relative_to(ROOT)}" for page in pages}
    assert files_of(wheel) == expected
    assert build("sdist", ROOT, tmp_path / "sdist").returncode == 0
    (packed,) = (tmp_path / "sdist").iterdir()
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "from", filter="data")
    (source,) = (tmp_path / "from").iterdir()
    assert build("wheel", source, tmp_path / "again").returncode == 0
    (again,) = (tmp_path / "again").glob("*.whl")
    assert files_of(again) == expected


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """Python in a fresh environment with the wheel, a folder in which rooms' bare names are traps, and variables."""
    home, traps = tmp_path / "venv", tmp_path / "traps"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(bare_environment(home))
    for name in FOLDERS:
        (traps / name).mkdir(parents=True)
        (traps / name / "__init__.py").write_text(TRAP)
    for name in FILES:
        (traps / f"{name}.py").write_text(TRAP)
    return home / "bin" / "python", traps, elsewhere(PYTHONPATH=str(traps))


def run(command: list[Any], environment: dict[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.processes
def test_an_installed_wheel_works_in_a_folder_full_of_traps(
    installed: tuple[Path, Path, dict[str, str]], tmp_path: Path
) -> None:
    """Processes, because imports are tested: a folder `client` beside a user's program must not be taken for ours."""
    python, traps, environment = installed

    def command(*arguments: str, expect: int = 0) -> str:
        done = run([python, "-m", "croupier.cli", *arguments], environment, traps)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "Begin with 'croupier demo'" in command("--help")
    assert "At three in the morning" in command("docs", "runbook")
    (traps / "people.csv").write_text("epsilon,count\n1,1000\n")
    assert "CERTIFIED" in command("certify", "people.csv", "--delta", "1e-6")
    for group in ("research", "experiment"):
        said = command(group, "run", "--quick", expect=2)
        assert re.search(naming(f"'croupier {group}'"), said)
    command("up", "--dir", "d", "--hops", "1")
    try:
        options = ("--grid", "1", "--min-batch-size", "20", "--json")
        name = json.loads(command("survey", "open", "smokes", "--dir", "d", *options))["survey_id"]
        links = ("--count", "1", "--gateway", "https://gateway.example", "--no-qr", "--out", "links")
        command("invite", name, "--dir", "d", *links)
        done = run([python, "-c", USES_THE_LIBRARY], environment, traps)
        assert (done.stdout, done.returncode) == ("1.0\n", 0), done.stderr
    finally:
        command("down", "--dir", "d")
    missing = run([python, "-c", IMPORTS_ROOMS], elsewhere(), tmp_path).stdout.split()
    assert missing == ["accountant", "client", "shuffler", "deploy", "research"]
