"""`--help`: every command has an example that its parser takes, and long lists of options are in groups."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperOption

from croupier.cli import app
from croupier.cli.help_pages import EXAMPLES, GROUPS, MANY_OPTIONS
from tests.support.command_line import croupier

MAINTAINERS = ("research", "experiment")
"""Groups that are in a checkout alone; their commands have no example."""


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields every command with what is typed before its options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*above, name))
        else:
            yield " ".join((*above, name)), command


COMMANDS = {
    path: command for path, command in commands(typer.main.get_command(app)) if not path.startswith(MAINTAINERS)
}


def test_every_command_has_an_example_and_no_other() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_the_parser_takes_the_example(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in shlex.split(EXAMPLES[path]):
        if "/" not in word:
            (tmp_path / word).touch()  # files that the example reads
    assert COMMANDS[path].epilog == f"Example: croupier {path} {EXAMPLES[path]}".rstrip()
    with COMMANDS[path].make_context(path, shlex.split(EXAMPLES[path])) as parsed:
        assert parsed.params


def test_many_options_are_in_groups_and_few_are_not() -> None:
    long = {path for path, command in COMMANDS.items() if len(options(command)) > MANY_OPTIONS}
    assert long >= {"certify", "plan", "round open", "train"}
    for path in long:
        alone = [option for option in options(COMMANDS[path]) if option.rich_help_panel is None]
        assert len(alone) <= MANY_OPTIONS, path
    assert all(option.rich_help_panel is None for option in options(COMMANDS["status"]))
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= {option.name for command in COMMANDS.values() for option in options(command)}


def options(command: Any) -> list[TyperOption]:
    return [parameter for parameter in command.params if isinstance(parameter, TyperOption)]


def test_help_shows_the_example_and_the_groups() -> None:
    shown = croupier("round", "open", "--help").stdout
    assert "Example: croupier round open" in shown
    assert all(group in shown for group in ("Hops and their fake reports", "People and time", "Privacy"))
