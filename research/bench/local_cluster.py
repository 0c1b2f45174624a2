"""A Dask cluster on this machine: a scheduler and workers as processes on loopback, for measurements and tests."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from croupier.operator.keys import make_cluster_keys

_COMMAND = """
import os, signal, sys, threading

def end():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end, daemon=True).start()
from croupier.cli import main
main()
"""
"""The command line, until the pipe that is its input is closed: it ends with us, however we end."""


@dataclass(frozen=True)
class LocalCluster:
    """One that runs.

    Attributes:
        address: of its scheduler, "tls://HOST:PORT".
        certificates: the directory of its certificates.
        scheduler_pid: the process id of its scheduler.
    """

    address: str
    certificates: Path
    scheduler_pid: int


@contextmanager
def local_cluster(certificates: Path, workers: int) -> Iterator[LocalCluster]:
    """Runs a scheduler and `workers` workers, as `croupier cluster` does, until the block ends.

    Args:
        certificates: a new directory for them.
        workers: how many processes, at least 1.

    Raises:
        RuntimeError: a process did not start.
    """
    make_cluster_keys(certificates)
    common = ["--certificates", str(certificates)]
    with ExitStack() as stack:
        scheduler = _start(stack, "--listen", "127.0.0.1:0", *common)
        address = _wait_for(scheduler, "Scheduler at:", 1).split()[-1]
        worker = _start(stack, address, "--processes", str(workers), "--host", "127.0.0.1", *common)
        _wait_for(worker, "Registered to:", workers)
        yield LocalCluster(address, certificates, scheduler.pid)


def _start(stack: ExitStack, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _COMMAND, "cluster", *arguments]
    child = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    )
    stack.callback(child.terminate)
    return child


def _wait_for(child: subprocess.Popen[str], said: str, times: int) -> str:
    """Returns the line with which a process has said something for the `times`-th time; later lines are discarded."""
    if child.stderr is None:
        raise RuntimeError("it has no standard error")
    line = "nothing"
    for line in child.stderr:
        times -= said in line
        if not times:
            threading.Thread(target=child.stderr.read, daemon=True).start()
            return line
    raise RuntimeError(f"the cluster did not start; a process of it ended with: {line.strip()}")
