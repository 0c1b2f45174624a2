"""Puts the pages of the repository's root on the documentation site: README.md as its front page, and three others.

They are written for the root, so links that lead into docs/ are shortened, and links to each other point to the pages
here. Anything else that they link to is not on the site, and the build, which allows no warning, says so. The JSON
schemas of certificates and results are on the site, too. `research.reference` makes what pages leave to the program.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from research.reference import with_generated

ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
SCHEMAS = ("croupier/protocol/certificate.schema.json", "croupier/protocol/result.schema.json")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the root pages, with their links as they are on the site."""
    root = Path(config.config_file_path).parent
    for source, page in ROOT_PAGES.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=re.sub(r"\]\(([^)#]+)", _on_the_site, text)))
    for schema in SCHEMAS:
        content = (root / schema).read_text(encoding="utf-8")
        files.append(File.generated(config, Path(schema).name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Writes what is made from the program where its comment is, and the links to the schemas as on the site."""
    return with_generated(markdown).replace("](../croupier/protocol/", "](")


def _on_the_site(link: re.Match[str]) -> str:
    target = link[1].removeprefix("docs/")
    return f"]({ROOT_PAGES.get(target, target)}"
