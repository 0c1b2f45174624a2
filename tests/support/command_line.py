"""The command line: commands run in the process of the tests, or in one of their own as their user has them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from croupier.cli import run


class Said(NamedTuple):
    """What a command has written."""

    stdout: str
    stderr: str


class Done(NamedTuple):
    """What a command has written, and its exit code."""

    stdout: str
    stderr: str
    exit_code: int


def invoke(*arguments: object, typed: str | bytes = "", columns: int = 80) -> Done:
    """Runs a command in this process, whose output is as wide as a terminal of this many columns."""
    typed = typed.encode() if isinstance(typed, str) else typed
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), "utf-8")),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.dict(os.environ, COLUMNS=str(columns)),
    ):
        try:
            run([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    for stream in (out, err):
        stream.seek(0)
    return Done(out.read(), err.read(), code)


def croupier(*arguments: str | Path, expect: int = 0, typed: str = "") -> Said:
    """Runs a command in this process, which has imported already what it needs; services have their own."""
    done = invoke(*arguments, typed=typed)
    assert done.exit_code == expect, f"{arguments}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
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
    return " ".join(croupier(*map(str, arguments), expect=2).stderr.split())


@dataclass(frozen=True)
class Beside:
    """Commands on one directory, in threads beside the services that a test itself runs."""

    directory: Path

    async def say(self, *arguments: str | Path, expect: int = 0) -> Said:
        return await asyncio.to_thread(croupier, *arguments, "--dir", self.directory, expect=expect)

    async def ask(self, *arguments: str | Path, expect: int = 0) -> Any:
        return await asyncio.to_thread(answer, *arguments, "--dir", self.directory, expect=expect)
