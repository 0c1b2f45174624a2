"""The command line: commands run in the process of the tests, or in one of their own as their user has them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from croupier.cli import app


class Said(NamedTuple):
    """What a command has written."""

    stdout: str
    stderr: str


def croupier(*arguments: str | Path, expect: int = 0, typed: str = "") -> Said:
    """Runs a command in this process, which has imported already what it needs; services have their own."""
    done = CliRunner().invoke(app, [*map(str, arguments)], input=typed)
    assert done.exit_code == expect, f"{arguments}: {done.exit_code}\n{done.output}\n{done.exception!r}"
    return Said(done.stdout, done.stderr)


def as_process(*arguments: str | Path, expect: int = 0) -> Said:
    """Runs a command as its user does."""
    command = [sys.executable, "-m", "croupier.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Said(done.stdout, done.stderr)


@contextmanager
def running(*command: str | Path, **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Runs a program that serves until it is told to stop; kills it when the block fails.

    `subprocess.Popen` by itself would then wait for the program for ever, and the failing test would hang.
    """
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing to a program that has ended


@contextmanager
def stopped_with_us(directory: Path) -> Iterator[None]:
    """Has `croupier down` run when this process is killed inside the block, of which `croupier up` knows nothing."""
    down = f'cat >/dev/null; exec "{sys.executable}" -m croupier.cli down --dir "{directory}"'
    with subprocess.Popen(["/bin/sh", "-c", down], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as guard:
        yield
        guard.kill()


def answer(*arguments: str | Path, expect: int = 0, run: Callable[..., Said] = croupier, **how: Any) -> Any:
    """Returns what a command says in JSON."""
    return json.loads(run(*arguments, "--json", expect=expect, **how).stdout)


def refused(*arguments: object) -> str:
    """Returns what a command says that refuses its arguments, in one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())
