"""Runs one service of a deployment until it is told to stop: `croupier serve NAME --dir DIR`.

Prints one JSON line `{"ready": NAME}` when it serves, and tells systemd so where NOTIFY_SOCKET is set; logs are JSON on
standard error. SIGTERM, SIGINT: health says NOT_SERVING, no new calls, finish those under way, exit 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import grpc.aio

from deploy.health import Readiness, make_admin_server
from deploy.keygen import DEPLOYMENT_FILE
from deploy.logs import log_as_json
from deploy.metrics import MetricsPort, PrometheusMetrics
from protocol.clock import Clock, SystemClock
from protocol.deployment import load_deployment
from protocol.service import RoundService, ServiceSetup
from protocol.service_directory import Settings, load_secrets, load_settings
from protocol.store import Store
from protocol.transport import ServerTls, add_ports, make_server
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from protocol.workers import WorkerPool

__all__ = ["RunningService", "serve"]

_log = logging.getLogger("deploy.serve")  # not __main__
_GRACE_S = 5.0
_WATCH_S = 0.5


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
    """One service with its server, store and workers, in this process."""

    def __init__(self, name: str, directory: Path, *, workers: int | None = None, clock: Clock | None = None) -> None:
        deployment = load_deployment(directory / DEPLOYMENT_FILE)
        entry = deployment.service(name)
        secrets = load_secrets(directory / name)
        settings = load_settings(directory / name)
        self._store = Store(_store_url(settings, directory / name), secrets.storage_key)
        self._pool = WorkerPool(workers or settings.workers)
        self._metrics = metrics = PrometheusMetrics()
        metrics.certificate_of(secrets.tls_certificate)
        setup = ServiceSetup(entry, deployment, secrets, self._store, self._pool, clock or SystemClock(), metrics)
        self.service = _role(setup)
        metrics.ask(lambda: self.service.num_waiting_submissions, lambda: self.service.num_waiting_rounds)
        self._readiness = Readiness(self._store, metrics)
        self._server = make_server(settings.max_concurrent_calls, metrics)
        stubs.add_RoundControlServicer_to_server(self.service, self._server)
        stubs.add_DeliveryServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.ShufflerServicer):
            stubs.add_ShufflerServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.AccountantServicer):
            stubs.add_AccountantServicer_to_server(self.service, self._server)
        if isinstance(self.service, stubs.AnalyzerServicer):
            stubs.add_AnalyzerServicer_to_server(self.service, self._server)
        self._readiness.add_to(self._server)
        self._admin: grpc.aio.Server | None = None
        if settings.admin_listen:
            self._admin = make_admin_server(self._readiness, settings.admin_listen, _offered(self.service))
        self._metrics_port = MetricsPort(metrics, settings.metrics_listen) if settings.metrics_listen else None
        self._tls = ServerTls(entry, deployment, secrets)
        add_ports(self._server, entry, self._tls, settings)
        self._directory, self._name = directory, name
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._readiness.begin()
        if self._admin:
            await self._admin.start()
        await self._pool.warm()
        await self._server.start()
        await self.service.start()
        self._watcher = asyncio.create_task(self._watch_files())
        await self._readiness.start()

    async def _watch_files(self) -> None:
        """Goes on with new keys and pins as soon as their files have stopped changing."""
        seen = used = self._file_times()
        while True:
            await asyncio.sleep(_WATCH_S)
            now = self._file_times()
            if now == seen and now != used:
                used = now
                try:
                    self.reload()
                except (ValueError, OSError):
                    _log.exception("the new files are not used")
            seen = now

    def _file_times(self) -> list[int]:
        own = self._directory / self._name
        files = [self._directory / DEPLOYMENT_FILE, own / "identity.key", own / "tls.key", own / "tls.crt"]
        return [file.stat().st_mtime_ns if file.exists() else 0 for file in files]

    def reload(self) -> None:
        """Reads the deployment file and this service's keys again, without stopping.

        Raises:
            ValueError: they cannot be used; the old ones stay.
        """
        deployment = load_deployment(self._directory / DEPLOYMENT_FILE)
        deployment.service(self._name)
        secrets = load_secrets(self._directory / self._name)
        self._tls.replace(deployment, secrets)
        self.service.replace(deployment, secrets)
        self._metrics.certificate_of(secrets.tls_certificate)
        _log.info("keys and pins are read again")

    async def stop(self) -> None:
        """Not ready, no new calls, those under way finished, then the drivers; the admin ports answer to the end."""
        await self._readiness.stop()
        if self._watcher is not None:
            self._watcher.cancel()
        await self._server.stop(_GRACE_S)
        await self.service.stop()
        self._pool.close()
        self._store.close()
        if self._admin:
            await self._admin.stop(1.0)
        if self._metrics_port:
            self._metrics_port.close()


def _offered(service: RoundService) -> list[str]:
    """Returns the full names of the gRPC services that a role offers."""
    described = rpc.DESCRIPTOR.services_by_name
    return [one.full_name for name, one in described.items() if isinstance(service, getattr(stubs, f"{name}Servicer"))]


async def _serve(name: str, directory: Path, workers: int | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running = RunningService(name, directory, workers=workers)
    await running.start()
    sys.stdout.write(json.dumps({"ready": name}) + "\n")
    sys.stdout.flush()
    _log.info("serving")
    _notify("READY=1")
    await stop.wait()
    _log.info("stopping")
    _notify("STOPPING=1")
    await running.stop()
    _log.info("stopped")


def _notify(state: str) -> None:
    """Tells systemd, if it asked to be told; see sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def serve(name: str, directory: Path, workers: int | None = None) -> None:
    """Runs the service; returns after a graceful stop."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the C core would write lines that are not JSON
    log_as_json(name)
    asyncio.run(_serve(name, directory, workers))


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
