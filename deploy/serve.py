"""Runs one service of a deployment until it is told to stop: `croupier serve NAME --dir DIR`.

Prints one JSON line `{"ready": NAME}` when it serves. SIGTERM, SIGINT: no new calls, finish those under way, exit 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.keygen import DEPLOYMENT_FILE
from protocol.clock import Clock, SystemClock
from protocol.deployment import load_deployment
from protocol.service import RoundService, ServiceSetup
from protocol.service_directory import Settings, load_secrets, load_settings
from protocol.store import Store
from protocol.transport import add_ports, make_server
from protocol.v1 import services_pb2_grpc as stubs
from protocol.workers import WorkerPool

__all__ = ["RunningService", "serve"]

_GRACE_S = 5.0


def _role(setup: ServiceSetup) -> RoundService:
    """Returns the service for the entry's role; imports only what that role needs."""
    if setup.entry.role == "shuffler":
        from shuffler.service import ShufflerService

        return ShufflerService(setup)
    if setup.entry.role == "accountant":
        from accountant.service import AccountantService

        return AccountantService(setup)
    from analyzer.service import AnalyzerService

    return AnalyzerService(setup)


def _store_url(settings: Settings, directory: Path) -> str:
    return f"sqlite:///{directory / 'rounds.db'}" if settings.store == "sqlite" else settings.store


class RunningService:
    """One service with its server, store and workers, in this process.

    Whoever tests a service may hand in its clock, its pool of workers, and what opens its store.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        workers: int | None = None,
        clock: Clock | None = None,
        pool: WorkerPool | None = None,
        open_store: Callable[[str, bytes], Store] = Store,
    ) -> None:
        deployment = load_deployment(directory / DEPLOYMENT_FILE)
        entry = deployment.service(name)
        secrets = load_secrets(directory / name)
        settings = load_settings(directory / name)
        self._store = open_store(_store_url(settings, directory / name), secrets.storage_key)
        self._pool = pool or WorkerPool(workers or settings.workers)
        setup = ServiceSetup(entry, deployment, secrets, self._store, self._pool, clock or SystemClock())
        self.service = _role(setup)
        self._server = make_server(settings.max_concurrent_calls)
        stubs.add_RoundControlServicer_to_server(self.service, self._server)
        stubs.add_DeliveryServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.ShufflerServicer):
            stubs.add_ShufflerServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.AccountantServicer):
            stubs.add_AccountantServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.AnalyzerServicer):
            stubs.add_AnalyzerServicer_to_server(self.service, self._server)
        add_ports(self._server, entry, deployment, secrets, settings)

    async def start(self) -> None:
        await self._pool.warm()
        await self._server.start()
        await self.service.start()

    async def stop(self) -> None:
        await self._server.stop(_GRACE_S)
        await self.service.stop()
        self._pool.close()
        self._store.close()


async def _serve(name: str, directory: Path, workers: int | None) -> None:
    running = RunningService(name, directory, workers=workers)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await running.start()
    sys.stdout.write(json.dumps({"ready": name}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await running.stop()


def serve(name: str, directory: Path, workers: int | None = None) -> None:
    """Runs the service; returns after a graceful stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(name, directory, workers))


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
