"""`croupier experiment` and `croupier research`: the maintainers' tools, which are in a checkout and not in a wheel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import typer

from croupier.cli.console import BAD_INPUT, MEASURE, fail

_ROOT = Path(__file__).resolve().parents[2]
"""The root of a checkout, where research/ lies beside croupier/; beside an installed package it does not."""
_GROUPS = {
    "experiment": ("research.experiment_commands", "Repeat the papers' figures and tables; needs a checkout."),
    "research": (
        "research.commands",
        "Measurements and the tables of the documentation; needs a checkout.",
    ),
}
"""Where the commands of a group are, and what is said about the group where they are not."""


def add_commands(app: typer.Typer) -> None:
    """Adds the groups `experiment` and `research`, or else commands that say how to get them."""
    in_checkout = (_ROOT / "research" / "experiment_commands.py").is_file()
    if in_checkout and str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))
    for name, (module, purpose) in _GROUPS.items():
        if in_checkout:
            import_module(module).add_commands(app)
        else:
            accepts_everything = {"allow_extra_args": True, "ignore_unknown_options": True}
            said = app.command(name, help=purpose, context_settings=accepts_everything, rich_help_panel=MEASURE)
            said(_missing(name))


def _missing(name: str) -> Callable[[], None]:
    def command() -> None:
        raise fail(
            BAD_INPUT,
            f"'croupier {name}' is not part of an installed package: clone the repository, "
            f"run 'make check' in it, and then .venv/bin/croupier {name}",
        )

    return command
