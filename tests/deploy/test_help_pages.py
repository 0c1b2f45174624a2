"""`--help`: every command has an example that its parser takes, and long lists of options are in groups."""

from __future__ import annotations

import shlex

import pytest

from croupier.cli import app
from croupier.cli.commands import BY_PATH
from tests.support.command_line import croupier


@pytest.mark.parametrize("path", BY_PATH)
def test_the_parser_takes_the_example(path: str) -> None:
    command, bound, _ = app.parse_args([*path.split(), *shlex.split(BY_PATH[path].example)])
    assert command.__module__.endswith(BY_PATH[path].function.partition(":")[0])
    assert bound.arguments or not BY_PATH[path].example


def test_help_shows_the_example_and_the_groups() -> None:
    shown = croupier("survey", "open", "--help").stdout
    assert "Example: croupier survey open" in shown
    assert all(group in shown for group in ("Hops and their fake reports", "People and time", "Privacy"))
