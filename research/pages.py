"""The parts of pages that a command writes: between `<!-- NAME: ARGUMENTS -->` and `<!-- end of NAME -->`.

`croupier research pages` writes them again, and `make check` refuses a page whose parts are others. They lie in the
repository, so that a page can be read where its Markdown is shown.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from research.protocol_reference import calls_table, enum_table, message_tables, notation
from research.reference import (
    checks_table,
    classes_table,
    errors_table,
    exit_codes_table,
    fakes_table,
    functions_table,
    mechanisms_table,
    metrics_table,
    rooms_table,
    settings_table,
    steps_table,
)

ROOT = Path(__file__).parents[1]
_NEW_FILE = "--- /dev/null"


def changes(path: str) -> str:
    """Returns a block for each change of a file: a diff without line numbers, or the whole text of a new file.

    Args:
        path: from the root of the repository. Each change is below `+++ FILE`; that of a new file has `--- /dev/null`
            before it.
    """
    blocks: list[list[str]] = []
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        if line == _NEW_FILE:
            blocks.append([line])
        elif line.startswith("+++ ") and (not blocks or len(blocks[-1]) != 1):
            blocks.append([f'```diff title="{line[4:]}"'])
        elif line.startswith("+++ "):
            blocks[-1] = [f'```python title="{line[4:]}"']
        else:
            blocks[-1].append(line[1:] if blocks[-1][0].startswith("```python") else line)
    return "\n\n".join("\n".join([*block, "```"]) for block in blocks)


def program(path: str) -> str:
    """Returns a Python program as a block, without its docstring."""
    text = re.sub(r'^""".*?"""\s*', "", (ROOT / path).read_text(encoding="utf-8"), flags=re.DOTALL)
    return f"```python\n{text.strip()}\n```"


def sample(path: str) -> str:
    """Returns a TOML file as a block."""
    return f"```toml\n{(ROOT / path).read_text(encoding='utf-8').strip()}\n```"


def machine_steps(path: str) -> str:
    """Returns a block of commands for each machine in turn, which a comment in the file names."""
    text = (ROOT / path).read_text(encoding="utf-8").strip()
    return "\n\n".join(f"```sh\n{block.strip()}\n```" for block in re.split(r"\n(?=# )", text))


def vector_fields() -> str:
    """Returns the table of the fields of the golden vectors."""
    fields = tomllib.loads((ROOT / "tests" / "vectors" / "fields.toml").read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {meaning} |" for name, meaning in fields.items()]
    return "\n".join(["| field | meaning |", "|---|---|", *rows])


WRITTEN: Mapping[str, Callable[..., str]] = {
    "notation": notation,
    "messages": message_tables,
    "values": enum_table,
    "calls": calls_table,
    "settings": settings_table,
    "vectors": vector_fields,
    "changes": changes,
    "sample": sample,
    "program": program,
    "steps": machine_steps,
    "metrics": metrics_table,
    "rooms": rooms_table,
    "round steps": steps_table,
    "errors": errors_table,
    "checks": checks_table,
    "classes": classes_table,
    "fakes": fakes_table,
    "functions": functions_table,
    "mechanisms": mechanisms_table,
    "exit codes": exit_codes_table,
}
"""What writes a part, by its name; what follows a colon are arguments, separated by blanks."""


def written_again(markdown: str) -> str:
    """Returns a page with its parts as they are to be.

    Raises:
        ValueError: a part has no end, or the arguments name nothing.
    """

    def part(begin: re.Match[str]) -> str:
        name, arguments = begin["name"], (begin["arguments"] or "").split()
        return f"{begin['comment']}\n\n{WRITTEN[name](*arguments)}\n\n<!-- end of {name} -->"

    names = "|".join(map(re.escape, WRITTEN))
    comment = rf"(?P<comment><!-- (?P<name>{names})(?:: (?P<arguments>[^>]*?))? -->)"
    markers = re.findall(rf"<!-- (?:end of )?(?:{names})(?=: | -->)", markdown)
    for begin, end in itertools.zip_longest(markers[::2], markers[1::2], fillvalue="nothing"):
        if end != begin.replace("<!-- ", "<!-- end of "):
            raise ValueError(f"'{begin} -->' is followed by '{end} -->'; each part must end before the next one begins")
    return re.sub(rf"{comment}.*?<!-- end of (?P=name) -->", part, markdown, flags=re.DOTALL)


def write_pages(root: Path = ROOT, *, check: bool = False) -> list[Path]:
    """Writes the parts of all pages below the root of the repository; returns the pages that were other.

    Args:
        root: the folder with README.md and docs/.
        check: only look, and leave the pages as they are.
    """
    changed = []
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "deploy").rglob("*.md")]):
        before = page.read_text(encoding="utf-8")
        after = written_again(before)
        if after != before:
            changed.append(page.relative_to(root))
            if not check:
                page.write_text(after, encoding="utf-8")
    return changed
