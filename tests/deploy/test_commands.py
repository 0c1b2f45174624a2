"""Which commands there are: those of users and operators at the top, those of maintainers in a group of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import croupier as library
from croupier.cli import app
from tests.support.command_line import croupier
from tests.support.messages import naming


def command(*path: str) -> Any:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return command


def test_an_experiment_in_the_place_of_a_command_is_understood() -> None:
    """Reproduction: 'croupier experiment gspa-fig2' ended with 'No such command' and no way out."""
    for typed in ("gspa-fig2", "gspa-fg2"):
        done = CliRunner().invoke(app, ["experiment", typed], env={"COLUMNS": "200"})
        assert done.exit_code == 2
        assert re.search(naming(f"'{typed}'", "'croupier experiment run gspa-fig2'"), done.output)
    assert "gspa" not in CliRunner().invoke(app, ["experiment", "lits"], env={"COLUMNS": "200"}).output


def test_the_names_of_commands_are_an_interface() -> None:
    operator = {
        "init",
        "keygen",
        "rotate",
        "enrol",
        "revoke",
        "serve",
        "up",
        "down",
        "status",
        "doctor",
        "ledger",
    }
    operator |= {"canary", "round", "survey", "study", "org", "deployment", "proposal"}
    accountant = {"certify", "explain", "curve", "audit", "plan"}
    assert set(command().commands) == operator | accountant | {
        "cluster",
        "submit",
        "limits",
        "verify",
        "join",
        "joined",
        "leave",
        "console",
        "gateway",
        "invite",
        "participant-page",
        "report",
        "demo",
        "docs",
        "discover",
        "bench",
        "train",
        "experiment",
        "research",
    }
    rounds = {"forecast", "propose", "approve", "open", "list", "show", "close", "withdraw", "result"}
    assert set(command("round").commands) == rounds
    assert set(command("proposal").commands) == {"show", "approve", "merge", "send"}
    assert set(command("survey").commands) == {"new", "forecast", "open", "show", "close", "results"}
    assert set(command("study").commands) == {"new", "plan", "show", "run", "change", "results"}
    assert set(command("experiment").commands) == {"all", "list", "run"}
    assert set(command("cluster").commands) == {"keys", "scheduler", "worker"}
    measured = ("accountant", "cluster", "hop-noise", "load", "report", "stores", "survey", "training")
    benches = {f"bench-{what}" for what in measured}
    others = {
        "tightness",
        "sgd-results",
        "capacity",
        "pages",
        "concept-pictures",
        "paper-results",
        "paper-build",
    }
    assert set(command("research").commands) == others | benches


def test_a_shell_completes_commands() -> None:
    typed = {"_CROUPIER_COMPLETE": "complete_bash", "COMP_WORDS": "croupier ro", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], prog_name="croupier", env=typed)
    assert (done.exit_code, done.stdout.split()) == (0, ["rotate", "round"])


@pytest.mark.slow
def test_help_has_a_short_name() -> None:
    """Reproduction: 'croupier -h' ended with 2."""
    for path in ((), ("certify",), ("round", "open")):
        assert croupier(*path, "-h").stdout == croupier(*path, "--help").stdout


def test_the_version_is_printed_and_nothing_else() -> None:
    assert croupier("--version") == (f"{library.__version__}\n", "")
    assert croupier("--version", "no-such-command").stdout == f"{library.__version__}\n"


def commands(group: Any) -> Iterator[Any]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from commands(command)


def test_no_help_text_is_taken_for_markup() -> None:
    """Reproduction: "rows outside [low, high]" was shown as "rows outside "."""
    for listed in commands(command()):
        for text in (listed.help, *(getattr(parameter, "help", None) for parameter in listed.params)):
            assert "[" not in (text or ""), f"{listed.name}: {text}"
