"""The parts of the documentation that are made from the program, from its tests and from their data.

A comment such as `<!-- commands -->` or `<!-- codes: Assumption -->` on a page is replaced by what `GENERATED` makes
when the site is built, so nothing made lies in the repository and nothing can be out of date. Tables that readers of
the Markdown need as well are written by `research.pages`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from pydoc import locate
from typing import Any, NamedTuple

from croupier.accountant.mechanisms.registry import RANDOMIZERS
from croupier.analyzer.estimators import ESTIMATORS
from croupier.cli.commands import COMMANDS, Command
from croupier.cli.console import ExitCode
from croupier.operator.doctor import CHECKS
from croupier.protocol import codes
from croupier.protocol.errors import Code
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.kinds import MESSAGES
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.texts import TEXTS
from croupier.runtime.metrics import Metrics

ROOT = Path(__file__).parents[1]
ATTACKS = ROOT / "tests" / "attacks" / "attacks.toml"


def with_generated(markdown: str) -> str:
    """Returns a page with what its comments ask for."""

    def made(comment: re.Match[str]) -> str:
        make = GENERATED.get(comment["name"])
        return comment[0] if make is None else make(*re.findall(r"[^\s:]+", comment["arguments"] or ""))

    return re.sub(r"<!-- (?P<name>[\w ]+?)(?P<arguments>: [^>]*?)? -->", made, markdown)


class Attack(NamedTuple):
    """What the catalogue says of one attack.

    Attributes:
        by: the parties that can try it.
        attack: what they do, and what they would learn or change.
        defence: what prevents or reveals it.
        remains: what is not defended; empty where nothing is known.
        tests: that perform it.
    """

    by: str
    attack: str
    defence: str
    remains: str
    tests: list[str]


def attacks() -> tuple[dict[str, Attack], dict[str, list[str]]]:
    """Returns the catalogue, and what was taken out of the program when a test was last seen to fail."""
    catalogue: dict[str, Any] = tomllib.loads(ATTACKS.read_text(encoding="utf-8"))
    without = catalogue.pop("without")
    return {heading: Attack(**{"remains": "", **entry}) for heading, entry in catalogue.items()}, without


def _attacks_list() -> str:
    sections = []
    for heading, entry in attacks()[0].items():
        parts = [f"## {heading}", f"*By:* {entry.by}.", entry.attack, f"*Defence:* {entry.defence.strip()}"]
        sections.append("\n\n".join(parts + [f"*What remains:* {entry.remains.strip()}"] * bool(entry.remains)))
    return "\n\n".join(sections)


def _attack_tests() -> str:
    rows = [f"| {heading} | {_code(*entry.tests)} |" for heading, entry in attacks()[0].items()]
    return "\n".join(["| attack | tests |", "|---|---|", *rows])


def _without_a_defence() -> str:
    rows = [f"| `{test}` | {'; '.join(defences)} |" for test, defences in attacks()[1].items()]
    return "\n".join(["| test | fails without |", "|---|---|", *rows])


def _code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)


def metrics_table() -> str:
    """Returns the table of what a service shows to Prometheus; the process's own numbers are left out."""
    rows = ["| metric | labels | what it says |", "|---|---|---|"]
    for family in Metrics().registry.collect():
        if family.name.startswith("croupier_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            rows.append(f"| `{name}` | {', '.join(labels)} | {family.documentation} |")
    return "\n".join(rows)


def classes_table(*paths: str) -> str:
    """Returns the table of classes and the first paragraphs of their docstrings."""
    rows = []
    for path in paths:
        described: Any = locate(path)
        if not inspect.isclass(described):
            raise ValueError(f"{path} is not the path of a class")
        summary = " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())
        rows.append(f"| `{described.__name__}` | {with_links(summary)} |")
    return "\n".join(["| class | what it is |", "|---|---|", *rows])


def fakes_table() -> str:
    """Returns the table of how many fake reports hop noise takes."""
    rows = []
    for epsilon in (0.1, 0.25, 0.5, 1.0, 2.0):
        two, more = (HopNoise(epsilon, 1e-6).law(num_values) for num_values in (2, 3))
        counts = f"{two.radius}, {two.mean_total} | {math.sqrt(two.variance):.1f} | {more.radius}"
        rows.append(f"| {epsilon:g} | {counts} | {math.sqrt(more.variance):.1f} |")
    head = ("ε at δ = 10⁻⁶", "two values: c, fakes a hop", "standard deviation of Z", "more values: c")
    return "\n".join([f"| {' | '.join([*head, head[2]])} |", "|---|---|---|---|---|", *rows])


def mechanisms_table() -> str:
    """Returns the table of the kinds of mechanisms, from the docstrings of the modules that roles have for them."""
    rows = []
    for kind, mechanism in MECHANISMS.items():
        parameters = ", ".join(f"`{field.name}`" for field in MESSAGES[kind].fields) or "none"
        randomizer = RANDOMIZERS[kind]
        proved = " ".join((inspect.getdoc(randomizer) or "").split())
        certificate, attack = (re.search(rf"{name}: (.*?)\.(?= |$)", proved) for name in ("Certificate", "Attack"))
        if certificate is None or (attack is None) == (randomizer.no_attack is None):
            raise ValueError(f"{randomizer.__name__} does not describe its certificate, or its attack")
        estimate = (inspect.getdoc(inspect.getmodule(ESTIMATORS[kind])) or "").partition(": ")[2]
        cells = (
            f"`{kind}`",
            parameters,
            (inspect.getdoc(mechanism) or "").partition("\n\n")[0],
            certificate[1],
            f"none: {randomizer.no_attack}" if attack is None else attack[1],
            estimate.partition("\n\n")[0].removesuffix("."),
        )
        rows.append(f"| {' | '.join(with_links(' '.join(cell.split())) for cell in cells)} |")
    head = ("kind", "parameters", "a client's value and its report", "certificate", "attack", "estimate")
    return "\n".join([f"| {' | '.join(head)} |", "|---|---|---|---|---|---|", *rows])


def functions_table(path: str) -> str:
    """Returns the table of a module's public functions and the first sentences of their docstrings."""
    module: Any = locate(path)
    rows = []
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == path and not name.startswith("_"):
            summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
            rows.append(f"| `{name}` | {' '.join(summary.split())} |")
    if not rows:
        raise ValueError(f"{path} is not the path of a module with public functions")
    return "\n".join(["| function | what it does |", "|---|---|", *rows])


def with_links(text: str) -> str:
    """Returns a text of the program with links to the pages that it names, for a page beside them."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", text)


def exit_codes_table() -> str:
    """Returns the table of what commands end with."""
    rows = [f"| {code.value} | {code.happened} | {code.reaction} |" for code in ExitCode]
    return "\n".join(["| code | what has happened | what a script does then |", "|---|---|---|", *rows])


def checks_table() -> str:
    """Returns the table of the checks of `croupier doctor`."""
    rows = [f"| {name} | {with_links(check.compares)} | {check.place} |" for name, check in CHECKS.items()]
    return "\n".join(["| check | what it compares | where |", "|---|---|---|", *rows])


def rooms_table(*folders: str) -> str:
    """Returns the table of packages and the first paragraphs of their docstrings.

    Args:
        folders: from the root of the repository. Nothing is imported, so a package may need an extra.

    Raises:
        ValueError: there is no such package, or it has no docstring.
    """
    rows = []
    for folder in folders:
        init = ROOT / folder / "__init__.py"
        described = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) if init.exists() else None
        if not described:
            raise ValueError(f"{folder} is not the folder of a package that has a docstring")
        summary = " ".join(described.partition("\n\n")[0].split())
        rows.append(f"| `{folder}/` | {with_links(summary)} |")
    return "\n".join(["| room | what is in it |", "|---|---|", *rows])


def steps_table(*files: str) -> str:
    """Returns the table of what roles do in each state of a round: of the methods that a role gives its round engine.

    Args:
        files: from the root of the repository; each has the class of one role's service.

    Raises:
        ValueError: a file has no table of methods by state, or one of these methods has no docstring.
    """
    rows = ["| role | state | method | what it does |", "|---|---|---|---|"]
    for file in files:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        methods = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
        tables = [zip(node.keys, node.values, strict=True) for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        named = [
            (key.attr, value.attr)
            for key, value in itertools.chain.from_iterable(tables)
            if isinstance(key, ast.Attribute) and isinstance(value, ast.Attribute)
        ]
        steps = [(state, name) for state, name in named if state.startswith("ROUND_STATE_")]
        if not steps:
            raise ValueError(f"{file} has no table of methods by the state of a round")
        for state, name in steps:
            described = ast.get_docstring(methods[name]) if name in methods else None
            if not described:
                raise ValueError(f"{file}: {name} has no docstring; the table of steps needs one")
            summary = " ".join(described.partition("\n\n")[0].split())
            rows.append(f"| {file.partition('/')[0]} | {state.removeprefix('ROUND_STATE_')} | `{name}` | {summary} |")
    return "\n".join(rows)


def settings_table(path: str) -> str:
    """Returns the table of a file's settings: of the pydantic model at `path`, whose docstring describes each.

    Raises:
        ValueError: there is no such model, or its docstring leaves a setting out.
    """
    model: Any = locate(path)
    if not hasattr(model, "model_fields"):
        raise ValueError(f"{path} is not the path of a pydantic model")
    described = _attributes(model)
    if described.keys() != model.model_fields.keys():
        raise ValueError(f"{path} has {', '.join(model.model_fields)}; its docstring describes {', '.join(described)}")
    schema = model.model_json_schema()["properties"]
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        limits = _limits([schema[name], *schema[name].get("anyOf", [])])
        meaning = with_links(described[name].replace("|", "\\|"))
        rows.append(f"| `{name}` | {default} | {meaning}{f' Range: {limits}.' if limits else ''} |")
    return "\n".join(rows)


def _attributes(model: Any) -> dict[str, str]:
    """Returns the section 'Attributes' of a docstring by name; several names may share an entry."""
    _, _, section = (inspect.getdoc(model) or "").partition("Attributes:\n")
    described = {}
    for entry in re.split(r"\n(?=    \S)", section.partition("\n\n")[0]):
        names, _, meaning = " ".join(entry.split()).partition(": ")
        for name in names.split(", "):
            described[name] = f"{meaning[:1].upper()}{meaning[1:]}"
    return described


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str | int | float) and value != "":
        return f"`{value}`"
    return ""


def _limits(schemas: Iterable[Mapping[str, Any]]) -> str:
    """Returns the range of a number, as its JSON schema states it."""
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    return ", ".join(f"{sign} {schema[key]}" for schema in schemas for key, sign in signs.items() if key in schema)


def errors_table() -> str:
    """Returns the table of the codes with which services refuse calls."""
    rows = ["| code | gRPC status | what it says | the same call may succeed later |", "|---|---|---|---|"]
    rows += [
        f"| `{code.name}` | {code.status.name} | {code.message} | {'yes' if code.may_pass else ''} |" for code in Code
    ]
    return "\n".join(rows)


def commands_tables() -> str:
    """Returns a table of commands with their purpose and example for each heading of `croupier --help`."""
    tables = []
    for heading, commands in COMMANDS.items():
        rows = [f"## {heading}", "", "| command | what it does | example |", "|---|---|---|"]
        for path, command in commands.items():
            if isinstance(command, Command):
                purpose = command.help.partition("\n")[0].replace("|", "\\|")
                rows.append(f"| `{path}` | {purpose} | `{f'croupier {path} {command.example}'.rstrip()}` |")
        tables.append("\n".join(rows))
    return "\n\n".join(tables)


def _codes_table(family: Iterable[codes.Code]) -> str:
    rows = ["| code | parameters | sentence |", "|---|---|---|"]
    for code in family:
        names = ", ".join(f"`{name}`" for name in code.parameters)
        sentence = re.sub(r"\{(\w+)[^}]*\}", r"*\1*", TEXTS[code]).replace("|", "\\|")
        rows.append(f"| `{code}` | {names} | {sentence} |")
    return "\n".join(rows)


GENERATED: Mapping[str, Callable[..., str]] = {
    "attacks": _attacks_list,
    "attack tests": _attack_tests,
    "tests without a defence": _without_a_defence,
    "commands": commands_tables,
    "codes": lambda name: _codes_table(getattr(codes, name)),
}
"""What a comment on a page stands for, by the comment's name; what follows a colon are arguments."""
