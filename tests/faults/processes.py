"""The world of real processes: every service is `faulty_service` in its own process, and dies of a real SIGKILL."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.faults.faulty_service import COMPLAINTS_FILE, ORDERS_FILE, TESTIMONY_FILE
from tests.faults.faulty_store import Orders
from tests.faults.worlds import World

_START_TRIES = 5
_START_S = 60.0
_LOG_FILE = "service.log"
_LOG_LINES = 100


class ProcessWorld(World):
    """One process for every service; the links between them are in ours."""

    played_by = "run_as_processes"

    def __init__(self, deployed: Path, root: Path) -> None:
        super().__init__(deployed, root)
        self._processes: dict[str, Process] = {}
        self._unexpected: list[str] = []

    def order(self, name: str, **changes: Any) -> None:
        super().order(name, **changes)
        self._write_orders(name)

    def _write_orders(self, name: str) -> None:
        file = self.site(name) / ORDERS_FILE
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self.orders.get(name, Orders()))))
        fresh.rename(file)

    def testimony(self) -> dict[str, Iterable[str]]:
        files = {name: self.site(name) / TESTIMONY_FILE for name in self.deployment.chain}
        # What a killed service was about to write may be cut off; whole lines only.
        return {name: file.read_text().rpartition("\n")[0].splitlines() for name, file in files.items()}

    def complaints(self) -> list[str]:
        files = [self.site(name) / COMPLAINTS_FILE for name in self.deployment.chain]
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return [*self._unexpected, *(json.loads(line) for line in lines)]

    def log(self) -> list[str]:
        lines: list[str] = []
        for name in self.deployment.chain:
            file = self.site(name) / _LOG_FILE
            log = file.read_text(errors="replace").splitlines() if file.exists() else ["never started"]
            lines += [f"{name}: {line}" for line in log[-_LOG_LINES:]]
        return lines

    async def start(self, name: str) -> None:
        for _ in range(_START_TRIES):
            self._write_orders(name)
            with (self.site(name) / _LOG_FILE).open("a") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tests.faults.faulty_service", name, str(self.site(name))),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._processes[name] = process
            self.started.add(name)
            self.down.discard(name)
            if process.stdout is None:
                raise RuntimeError(f"{name} has no standard output")
            ready = await asyncio.wait_for(process.stdout.readline(), _START_S)
            if ready:
                return
            if await process.wait() == -signal.SIGKILL:
                await self.settle()
                return
            self._gone(name)  # it ended with an error, as when its disk is full; a supervisor starts it again
        raise RuntimeError(f"{name} does not start:\n{(self.site(name) / _LOG_FILE).read_text()[-3000:]}")

    def _gone(self, name: str) -> None:
        self.down.add(name)
        self.order(name, trap=None)

    async def kill(self, name: str) -> None:
        process = self._processes[name]
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        self._gone(name)

    async def stop(self, name: str) -> None:
        process = self._processes[name]
        if process.returncode is None:
            process.terminate()
            code = await process.wait()
            if code not in (0, -signal.SIGKILL):
                self._unexpected.append(f"{name} was asked to stop and ended with exit code {code}")
        self._gone(name)

    async def settle(self) -> None:
        await asyncio.sleep(0)
        for name, process in self._processes.items():
            if process.returncode is not None and name not in self.down:
                if process.returncode != -signal.SIGKILL:
                    self._unexpected.append(f"{name} ended with exit code {process.returncode}")
                self._gone(name)
