"""A local deployment: every service in its own process on loopback, started and stopped from one place.

The process ids stand in `DIR/processes.json`; only processes recorded there, and still what they were, are ended.
Services end with the process that has started them, however that ends, unless they are to stay.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from croupier.deploy.directory import read_deployment
from croupier.deploy.version_files import write_deployment
from croupier.operator.keys import free_addresses, make_deployment, signed_here
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, PrivacyLimit
from croupier.runtime.service_directory import SETTINGS_FILE

_PROCESSES = "processes.json"
_START_S = 60.0
"""Seconds in which a started service must say that it is ready."""
_STOP_S = 20.0
"""Seconds in which a service must end after it was told to."""


class LocalDeployment:
    """The services of one directory: `up` starts those that are not running."""

    def __init__(self, directory: Path, hops: int = 2, name: str = "local", *, stays: bool = False) -> None:
        """Takes the deployment in a directory, and makes one where there is none.

        Args:
            directory: of the deployment.
            hops: the number of shufflers of a new deployment.
            name: the name of a new deployment.
            stays: whether the services that are started here go on when this process ends.
        """
        self.directory = directory
        self._stays = stays
        if not (directory / DEPLOYMENT_FILE).exists():
            _make(directory, name, hops)
        self.children: dict[str, subprocess.Popen[str]] = {}

    @property
    def deployment(self) -> Deployment:
        """What the deployment file says now."""
        return read_deployment(self.directory)

    def pids(self) -> dict[str, int]:
        """Returns the process id of every service that runs."""
        file = self.directory / _PROCESSES
        recorded: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return {name: pid for name, pid in recorded.items() if self._is_ours(name, pid)}

    def _is_ours(self, name: str, pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return (
            b"croupier.deploy.node" in command and name.encode() in command and str(self.directory).encode() in command
        )

    def up(self, names: list[str] | None = None, workers: int | None = None) -> dict[str, int]:
        """Starts the named services, or all, waits until each serves, and returns all process ids.

        Raises:
            RuntimeError: a service did not start; its log says why.
        """
        running = self.pids()
        every = [entry.name for entry in self.deployment.services]
        starting = [name for name in (names or every) if name not in running]
        for name in starting:
            self.children[name] = self.spawn(name, workers)
            running[name] = self.children[name].pid
        running = {name: running[name] for name in every if name in running}
        (self.directory / _PROCESSES).write_text(json.dumps(running))
        for name in starting:
            self.wait_ready(name)
        return running

    def spawn(self, name: str, workers: int | None) -> subprocess.Popen[str]:
        """Starts the process of a service, without waiting until it is ready."""
        command = [sys.executable, "-m", "croupier.deploy.node", name, str(self.directory)]
        command += ["--workers", str(workers)] if workers else []
        command += [] if self._stays else ["--until-end-of-input"]
        file = self.directory / name / "service.log"
        command += ["--log-file", str(file)]
        with file.open("a") as log:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL if self._stays else _input_until_we_end(),
                text=True,
                start_new_session=True,
            )

    def wait_ready(self, name: str) -> None:
        """Waits for the line of a service that has started; raises RuntimeError where none comes."""
        child = self.children[name]
        with selectors.DefaultSelector() as selector:
            if child.stdout is None:
                raise RuntimeError(f"{name} has no standard output")
            selector.register(child.stdout, selectors.EVENT_READ)
            ready = bool(selector.select(_START_S)) and child.stdout.readline().strip()
            child.stdout.close()
        if not ready:
            with suppress(subprocess.TimeoutExpired):
                self.children.pop(name).wait(_STOP_S)
            log = self.directory / name / "service.log"
            raise RuntimeError(f"{name} did not start: {_last_event(log)} (all of it in {log})")

    def down(self, names: list[str] | None = None, *, kill: bool = False) -> list[str]:
        """Ends the named services, or all, gracefully or with SIGKILL, and returns those that were running."""
        running = self.pids()
        chosen = [name for name in (names or list(running)) if name in running]
        for name in chosen:
            os.kill(running[name], signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for name in chosen:
            self._wait_gone(name, running[name], deadline)
        left = {name: pid for name, pid in running.items() if name not in chosen}
        (self.directory / _PROCESSES).write_text(json.dumps(left))
        return chosen

    def _wait_gone(self, name: str, pid: int, deadline: float) -> None:
        child = self.children.pop(name, None)
        while True:
            gone = child.poll() is not None if child is not None else not self._is_ours(name, pid)
            if gone:
                return
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


@cache
def _input_until_we_end() -> int:
    """Returns the reading end of a pipe to which nothing is written; the kernel closes the other when we end."""
    reading, _ = os.pipe()
    return reading


def _last_event(log: Path) -> str:
    """Returns why a service has ended, without the prefix that all such lines have; else the last line of its log."""
    lines = log.read_text().splitlines() or ["it said nothing"]
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:  # not of our logs: a warning of a library, or a traceback
            continue
        if isinstance(record, dict) and record.get("level") == "CRITICAL":
            return str(record["event"]).removeprefix("the service ends: ")
    return lines[-1]


@contextmanager
def temporary_deployment(hops: int, limit: PrivacyLimit | None = None) -> Iterator[LocalDeployment]:
    """Runs a deployment on loopback, whose directory is deleted when it ends.

    Args:
        hops: the number of shufflers.
        limit: the most that one client may lose over all rounds; None for no limit.

    Raises:
        ValueError: the number of shufflers is out of range.
        RuntimeError: a service did not start.
    """
    with tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        if limit is not None:
            limited = local.deployment.model_copy(update={"privacy_limit": limit})
            write_deployment(local.directory, signed_here(limited, [local.directory]))
        try:
            local.up()
            yield local
        finally:
            local.down()


def _make(directory: Path, name: str, hops: int) -> None:
    """Makes a deployment whose services have their admin and metrics ports on loopback too."""
    num_services = hops + 2
    where = free_addresses(num_services + 3 + 2 * num_services)  # all at once, so that they differ
    deployment = make_deployment(directory, name, hops, where[: num_services + 3])
    for entry in deployment.services:
        settings = f'admin_listen = "{where.pop()}"\nmetrics_listen = "{where.pop()}"\n'
        (directory / entry.name / SETTINGS_FILE).write_text(settings)
