"""Puts the pages of the repository's root on the documentation site: README.md as its front page, and three others.

They are written for the root, so links that lead into docs/ are shortened, and links to each other point to the pages
here. Anything else that they link to is not on the site, and the build, which allows no warning, says so. The JSON
schema of certificates is on the site, too. The tables of codes, metrics, errors and commands are made from the program,
and the table of the attacks' tests from the list that the tests themselves are compared with.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from croupier.deploy.cli import app
from croupier.deploy.cli.help_pages import EXAMPLES
from croupier.protocol import codes
from croupier.protocol.errors import Code
from croupier.protocol.texts import TEXTS
from croupier.runtime.prometheus_metrics import PrometheusMetrics

ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
SCHEMA = "protocol/certificate.schema.json"
ATTACKS = "tests/attacks/attacks.toml"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the root pages, with their links as they are on the site."""
    root = Path(config.config_file_path).parent
    for source, page in ROOT_PAGES.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=re.sub(r"\]\(([^)#]+)", _on_the_site, text)))
    schema = (root / SCHEMA).read_text(encoding="utf-8")
    files.append(File.generated(config, Path(SCHEMA).name, content=schema))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Writes each table where its comment is, and the link to the schema as on the site."""
    if "<!-- attack tests -->" in markdown:
        attacks = tomllib.loads((Path(config.config_file_path).parent / ATTACKS).read_text(encoding="utf-8"))
        markdown = markdown.replace("<!-- tests without a defence -->", without_a_defence(attacks.pop("without")))
        markdown = markdown.replace("<!-- attack tests -->", attack_tests(attacks))
    for mark, table in (("metrics", metrics_table), ("errors", errors_table), ("commands", commands_tables)):
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", table())
    markdown = markdown.replace(f"](../{SCHEMA})", f"]({Path(SCHEMA).name})")
    return re.sub(r"<!-- codes: (\w+) -->", lambda found: _table(getattr(codes, found[1])), markdown)


def attack_tests(attacks: Mapping[str, list[str]]) -> str:
    """Returns the table of the tests of each attack."""
    rows = [f"| {attack} | {', '.join(f'`{test}`' for test in tests)} |" for attack, tests in attacks.items()]
    return "\n".join(["| attack | tests |", "|---|---|", *rows])


def without_a_defence(without: Mapping[str, list[str]]) -> str:
    """Returns the table of what a test needs to pass."""
    rows = [f"| `{test}` | {'; '.join(defences)} |" for test, defences in without.items()]
    return "\n".join(["| test | fails without |", "|---|---|", *rows])


def metrics_table() -> str:
    """Returns the table of what a service shows to Prometheus; the process's own numbers are left out."""
    rows = ["| metric | labels | what it says |", "|---|---|---|"]
    for family in PrometheusMetrics().registry.collect():
        if family.name.startswith("croupier_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            rows.append(f"| `{name}` | {', '.join(labels)} | {family.documentation} |")
    return "\n".join(rows)


def errors_table() -> str:
    """Returns the table of the codes with which services refuse calls."""
    rows = ["| code | gRPC status | what it says | the same call may succeed later |", "|---|---|---|---|"]
    rows += [
        f"| `{code.name}` | {code.status.name} | {code.message} | {'yes' if code.may_pass else ''} |" for code in Code
    ]
    return "\n".join(rows)


def commands_tables() -> str:
    """Returns a table of commands with their purpose and example for each heading of `croupier --help`."""
    groups: dict[str, list[str]] = {}
    for path, command, heading in _commands(typer.main.get_command(app)):
        if path in EXAMPLES:
            purpose = " ".join((command.help or "").split("\n\n")[0].split()).replace("|", "\\|")
            example = f"croupier {path} {EXAMPLES[path]}".rstrip()
            groups.setdefault(heading, []).append(f"| `{path}` | {purpose} | `{example}` |")
    tables = [
        "\n".join([f"## {heading}", "", "| command | what it does | example |", "|---|---|---|", *rows])
        for heading, rows in groups.items()
    ]
    return "\n\n".join(tables)


def _commands(group: Any, above: str = "", heading: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, command in group.commands.items():
        below = heading or str(command.rich_help_panel)
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above}{name} ", below)
        else:
            yield f"{above}{name}", command, below


def _table(family: Iterable[codes.Code]) -> str:
    rows = ["| code | parameters | sentence |", "|---|---|---|"]
    for code in family:
        names = ", ".join(f"`{name}`" for name in codes.PARAMETERS.get(code, {}))
        sentence = re.sub(r"\{(\w+)[^}]*\}", r"*\1*", TEXTS[code]).replace("|", "\\|")
        rows.append(f"| `{code}` | {names} | {sentence} |")
    return "\n".join(rows)


def _on_the_site(link: re.Match[str]) -> str:
    target = link[1].removeprefix("docs/")
    return f"]({ROOT_PAGES.get(target, target)}"
