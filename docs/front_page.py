"""Puts the pages of the repository's root on the documentation site: README.md as its front page, and three others.

They are written for the root, so links that lead into docs/ are shortened, and links to each other point to the pages
here. Anything else that they link to is not on the site, and the build, which allows no warning, says so. The JSON
schema of certificates is on the site, too. The tables of their codes and of the metrics are made from the program, and
the table of the attacks' tests from the list that the tests themselves are compared with.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from croupier.protocol import codes
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
    if "<!-- metrics -->" in markdown:
        markdown = markdown.replace("<!-- metrics -->", metrics_table())
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
