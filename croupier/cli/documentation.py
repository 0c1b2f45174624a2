"""The command `docs`: the pages of the documentation, which are installed with the program."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markdown import Markdown

from croupier.cli.console import Argument

_PACKAGE = Path(__file__).resolve().parents[1]
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def docs(
    page: Annotated[
        str, Argument(help="A page, such as runbook, or runbook#drops for one section; all pages if not given.")
    ] = "",
    /,
    *,
    path: Annotated[bool, Parameter(help="Print where the page's file is.")] = False,
) -> None:
    folder = next(place / "docs" for place in (_PACKAGE, _PACKAGE.parent) if (place / "docs").is_dir())
    name, _, anchor = page.removeprefix("docs/").partition("#")
    file = folder / f"{name.removesuffix('.md')}.md"
    files = [*sorted(folder.glob("*.md")), *sorted(folder.glob("design/*.md"))]
    pages = {f"{each.relative_to(folder).with_suffix('')}": each for each in files}
    if page and file not in pages.values():
        raise ValueError(f"{name!r} is not a page; the pages are {', '.join(pages)}")
    if path:
        sys.stdout.write(f"{file if page else folder}\n")
        return
    console = Console()
    if not page:
        for known, where in pages.items():
            console.print(f"{known:24}{_title(where)}", markup=False, highlight=False)
        return
    text = _COMMENT.sub("", file.read_text(encoding="utf-8"))
    read = Markdown(_section(text, anchor) if anchor else text)
    if sys.stdout.isatty():
        with console.pager(styles=True):
            console.print(read)
    else:
        console.print(read)


def _title(file: Path) -> str:
    return next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# "))[2:]


def _section(text: str, anchor: str) -> str:
    """Returns the section whose heading has this anchor, with the sections below it; ValueError if none has."""
    headings = {
        re.sub(r"[^\w\- ]", "", heading[2]).strip().lower().replace(" ", "-"): heading
        for heading in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE)
    }
    if anchor not in headings:
        raise ValueError(f"{anchor!r} is not a section of this page; the sections are {', '.join(headings)}")
    start, level = headings[anchor].start(), len(headings[anchor][1])
    end = next((each.start() for each in headings.values() if each.start() > start and len(each[1]) <= level), None)
    return text[start:end]
