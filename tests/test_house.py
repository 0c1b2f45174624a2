"""The shape of the house: what a client loads, who imports whom, examples in the documentation that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import itertools
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import croupier
from croupier import accountant
from croupier.cli.commands import BY_PATH
from croupier.protocol.errors import Code
from croupier.protocol.v1 import services_pb2 as rpc

pytestmark = pytest.mark.xdist_group("house")  # every file is read once
ROOT = Path(__file__).parents[1]
IMPORTED = ("croupier", "research")


def modules() -> list[str]:
    names = []
    for package in IMPORTED:
        names.append(package)
        modules = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        names += [
            module_info.name
            for module_info in modules
            if "croupier.protocol.v1" not in module_info.name and not module_info.name.endswith("__main__")
        ]
    return names


def test_files_of_tests_that_pages_name_exist() -> None:
    """Reproduction: a page named two files that had moved to another folder."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    named = {name for page in pages for name in re.findall(r"\btests/[\w/]+\.\w+", page.read_text(encoding="utf-8"))}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


NUMERIC = "accounting", "demonstration", "report"
"""The modules of commands that compute: no other one loads a numeric library before its command runs."""


def test_a_client_and_an_organisation_that_approves_load_no_numeric_library() -> None:
    modules = {command.function.partition(":")[0] for command in BY_PATH.values()} - {*NUMERIC}
    program = (
        "import sys, croupier.client.one_answer, croupier.client.submission, croupier.client.verification;"
        "import croupier.client.round_checks, croupier.client.randomizers;"
        "import croupier; croupier.connect, croupier.AsyncClient, croupier.Refusal;"
        "import croupier.cli, croupier.operator.carry_out, croupier.operator.invitations;"
        f"import {', '.join(f'croupier.cli.{module}' for module in sorted(modules))};"
        "import croupier.show.documents, croupier.show.round_text;"
        "print([m for m in ('numpy', 'scipy', 'torch', 'opendp', 'matplotlib', 'dp_accounting') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_examples_in_docstrings_run() -> None:
    assert doctest.testmod(accountant).failed == doctest.testmod(croupier).failed == 0


def test_the_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """Else what the files of a group share, deployments above all, would be made again and again."""
    marks = [(item, item.get_closest_marker("xdist_group")) for item in request.session.items]
    grouped = [(mark.args[0], str(item.path)) for item, mark in marks if mark]
    for places in (grouped, [group for group, _ in grouped]):
        assert len(list(itertools.groupby(places))) == len(set(places))


def test_ci_has_every_python_all_rooms_and_the_oldest_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(project["tool"]["slipcover"]["source"]) == {"croupier", *ROLES}
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    runs_on = jobs["check-and-test"]["strategy"]["matrix"]["include"]
    assert {job["python"] for job in runs_on} >= {"3.11", "3.12", "3.13", "3.14"}
    assert "coverage" in " ".join(job["targets"] for job in runs_on).split()
    assert {"run": ".ci/lowest"} in jobs["lowest-dependencies"]["steps"]
    assert "--resolution lowest-direct" in (ROOT / ".ci" / "lowest").read_text(encoding="utf-8")


SKIPPING = (
    "import pytest\ndef test(): pytest.skip('not here')\n",
    "import pytest\n@pytest.mark.skipif(True, reason='not here')\ndef test(): pass\n",
    "import pytest\n@pytest.fixture\ndef server(): pytest.skip('not here')\ndef test(server): pass\n",
    "import pytest\npytest.skip('not here', allow_module_level=True)\n",
)


def test_in_ci_a_skipped_test_has_failed(tmp_path: Path) -> None:
    for number, program in enumerate(SKIPPING):
        (tmp_path / f"test_{number}.py").write_text(program)
    options = ["-p", "tests.conftest", "-c", os.devnull, "--rootdir", str(tmp_path), "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = {**os.environ, "CROUPIER_NO_SKIPS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 3 errors" in done.stdout.splitlines()[-1], done.stdout
    assert done.returncode == 1
    assert done.stdout.count("not here") >= 4


CALLS = {method.name for service in rpc.DESCRIPTOR.services_by_name.values() for method in service.methods}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def methods() -> dict[tuple[str, str], list[tuple[str, Function]]]:
    """Every method of the services, with its file, by the names of its class and of itself."""
    places: dict[tuple[str, str], list[tuple[str, Function]]] = {}
    for package in ("croupier/net", "croupier/runtime", "shuffler", "accountant", "analyzer", "deploy/node"):
        for file in (ROOT / package).rglob("*.py"):
            walked = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            for definition in (node for node in walked if isinstance(node, ast.ClassDef)):
                for method in (node for node in definition.body if isinstance(node, Function)):
                    place = f"{file.relative_to(ROOT)}::{method.name}", method
                    places.setdefault((definition.name, method.name), []).append(place)
    return places


def handlers() -> list[tuple[str, str, Function]]:
    """Every call, with the method that answers it and its file: "See `Part.method`" names a method of a part."""
    methods_of, nodes = methods(), []
    for (_, name), places in methods_of.items():
        for place, node in places if name in CALLS else ():
            part = re.match(r"See `(\w+)\.(\w+)`", ast.get_docstring(node) or "")
            followed = methods_of[part.group(1), part.group(2)] if part else [(place, node)]
            nodes += [(name, place, node) for place, node in followed]
    return nodes


BY_CALLING = {
    "require_caller": {"NOT_YOUR_CALL"},
    "terms": {"UNKNOWN_ROUND", "WRONG_STATE"},
    "check_kept": {"WRONG_STATE"},
    "round": {"UNKNOWN_ROUND"},
}
"""The refusals of what handlers call."""


def test_every_handler_names_the_refusals_that_it_gives() -> None:
    definitions = handlers()
    assert {name for name, _, _ in definitions} == CALLS
    for _, place, node in definitions:
        _, _, raises = (ast.get_docstring(node) or "").partition("Raises:\n")
        named = set(re.findall(r"\b[A-Z]+_?[A-Z_]+\b", raises.partition("SignatureError")[0])) & set(Code.__members__)
        given = {
            attribute.attr
            for attribute in ast.walk(node)
            if isinstance(attribute, ast.Attribute)
            and isinstance(attribute.value, ast.Name)
            and attribute.value.id == "Code"
        }
        called = {
            call.func.attr
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        }
        for call, codes in BY_CALLING.items():
            given |= codes if call in called else set()
        assert named, f"{place} names no refusal"
        assert given <= named, f"{place} does not name {given - named}"


class Read(NamedTuple):
    """What the tests below need of a file, which is parsed once."""

    imports: list[tuple[str, list[str]]]
    """Each module with the names that are taken from it."""
    texts: list[str]
    """Its texts, without docstrings."""


@cache
def read(file: Path) -> Read:
    contents, described = Read([], []), set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            package = file.relative_to(ROOT).parts[: -node.level] if node.level else ()
            room = ["croupier"] if package and (ROOT / "croupier" / package[0]).exists() else []
            module = ".".join([*room, *package, *filter(None, [node.module])])
            contents.imports.append((module, [alias.name for alias in node.names]))
        elif isinstance(node, ast.Import):
            contents.imports.extend((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.Expr):
            described.add(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            contents.texts.append(node.value)
    return contents


ROLES = sorted(folder.name for folder in (ROOT / "croupier").iterdir() if folder.is_symlink())
"""The subpackages that are links to folders at the root, which Python also finds by their bare names."""


def test_the_roles_are_imported_from_croupier_only() -> None:
    """A module that is imported by two names is there twice: its classes differ, and `except` misses its errors."""
    assert ROLES == ["accountant", "analyzer", "client", "deploy", "shuffler"]
    violations = []
    for folder in ("croupier", *ROLES, "research", "tests", "examples", "notebooks", "docs"):
        for file in sorted(
            file_found for file_found in (ROOT / folder).rglob("*.py*") if file_found.suffix in (".py", ".pyi")
        ):
            names = [module for module, _ in read(file).imports]
            for program in (text for text in read(file).texts if "import" in text):  # that tests start
                names += re.findall(r"from +([\w.]+) +import", program)
                names += re.split(r" *, *", ",".join(re.findall(r"import +([\w.]+(?: *, *[\w.]+)*) *(?:;|$)", program)))
            violations += [f"{file.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] in ROLES]
    assert violations == []


@pytest.mark.slow
def test_no_module_is_there_twice() -> None:
    """In a process of its own: other tests may have loaded a module by the name that it has in its folder."""
    program = (
        "import importlib, sys\n"
        f"for name in {modules()!r}: importlib.import_module(name)\n"
        f"print([name for name in sys.modules if name.split('.')[0] in {list(ROLES)!r}])\n"
        "print('sqlalchemy.dialects.postgresql' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\nFalse\n", done.stderr  # a service without PostgreSQL does not load what is for it


def test_tests_import_helpers_from_support_or_their_own_room() -> None:
    """A test that imports from another test's file collects that file with it, and breaks when it changes."""
    violations = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        room = file.relative_to(ROOT / "tests").parts[0]
        for module, names in read(file).imports:
            first, *path = [*module.split("."), *names[:1]]
            if first == "tests" and (
                path[0] not in (room, "support") or any(part.startswith("test_") for part in path)
            ):
                violations.append(f"{file.relative_to(ROOT)}: {module}")
    assert violations == []
