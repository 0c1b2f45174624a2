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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc.aio

from croupier.deploy.directory import read_deployment, store_url
from croupier.deploy.node.extras import missing_library
from croupier.deploy.node.reload import FileWatch
from croupier.deploy.node.versions import VersionLog, VersionWatch
from croupier.net.connections import ConnectionWatch
from croupier.net.tls import ServerTls
from croupier.net.transport import TLS, Transport
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, ServiceEntry, load_deployment
from croupier.protocol.errors import Refusal
from croupier.protocol.names import StorageKey
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.cluster import Cluster, Sources
from croupier.runtime.core_files import forbid_core_files
from croupier.runtime.health import PROBE_EVERY_S, Readiness, make_admin_server
from croupier.runtime.logs import log_as_json
from croupier.runtime.metrics import Metrics, MetricsPort
from croupier.runtime.service import RoundService
from croupier.runtime.service_directory import (
    CLUSTER_DIRECTORY,
    Secrets,
    ServiceSettings,
    load_secrets,
    load_settings,
    not_pinned,
)
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.store import Store
from croupier.runtime.workers import WorkerPool, collect_rarely

GRACE_S = 5.0
"""Seconds in which calls in progress may end when the service stops."""
_WORK = {
    "shuffler": "croupier.runtime.tasks",
    "accountant": "croupier.accountant.service.checking",
    "analyzer": "croupier.runtime.tasks",
}
"""The module with the work of a role's workers."""
_log = logging.getLogger(__name__)


def role_of(setup: ServiceSetup) -> RoundService:
    """Returns the service for the entry's role; imports only what that role needs."""
    if setup.entry.role == "shuffler":
        from croupier.shuffler.service import ShufflerService

        return ShufflerService(setup)
    if setup.entry.role == "accountant":
        from croupier.accountant.service.service import AccountantService

        return AccountantService(setup)
    from croupier.analyzer.service import AnalyzerService

    return AnalyzerService(setup)


def _sources(role: str) -> Sources:
    """Returns what a cluster of a role must have in common with the service."""
    numeric = ("dp-accounting", "numpy", "scipy") if role == "accountant" else ()
    return Sources(libraries=(*Sources().libraries, *numeric))


class RunningService:
    """One service with its server, store and workers, in this process."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        workers: int | None = None,
        clock: Clock | None = None,
        pool: WorkerPool | None = None,
        open_store: Callable[[str, StorageKey], Store] = Store,
        transport: Transport = TLS,
        probe_every_s: float = PROBE_EVERY_S,
    ) -> None:
        """Reads the files of a service, opens its store and binds its ports.

        Args:
            name: of the service in the deployment file.
            directory: of the deployment.
            workers: processes for the cryptography; as the service's settings say if not given.
            clock: tells the time; the system's if not given.
            pool: used instead of `workers` new processes.
            open_store: opens the store with a URL and a storage key.
            transport: how the service is reached and reaches others.
            probe_every_s: how often it is checked that the store takes what is written.

        Raises:
            ValueError: a file or a setting that cannot be used.
        """
        deployment = read_deployment(directory)
        entry = deployment.service(name)
        secrets = load_secrets(directory / name)
        settings = load_settings(directory / name)
        warn_of_unpinned(entry, secrets)
        with ExitStack() as undo:  # a service that cannot be made leaves neither workers nor a locked store behind
            self.store = open_store(store_url(settings, directory / name), secrets.storage_key)
            undo.callback(self.store.close)
            self.pool = pool or WorkerPool(workers or settings.workers, preload_module=_WORK[entry.role])
            undo.callback(self.pool.close)
            self._cluster = None
            if settings.scheduler:
                there = Cluster.of(settings.scheduler, directory / name / CLUSTER_DIRECTORY)
                self._cluster = WorkerPool(executor=there.executor(_sources(entry.role)))
                undo.callback(self._cluster.close)
            self._name = name
            self.metrics = metrics = Metrics()
            metrics.certificate_of(secrets.tls_certificate)
            clock = clock or SystemClock()
            if settings.noise_limit is not None and entry.role != "shuffler":
                raise ValueError(f"{name} has a noise_limit, but only shufflers add noise: remove the line")
            setup = ServiceSetup(
                entry,
                deployment,
                secrets,
                self.store,
                self.pool,
                clock,
                metrics,
                transport,
                settings.keep_days,
                self._cluster,
                settings.noise_limit,
                settings.rules,
            )
            self.service = role_of(setup)
            metrics.ask(lambda: self.service.num_waiting_submissions, lambda: len(self.service.peers.waiting))
            self.readiness = Readiness(self.store, metrics, probe_every_s)
            self._tls = ServerTls(deployment, secrets)
            self._server = transport.make_server(settings.max_concurrent_calls, metrics.refusal, self._tls)
            stubs.add_RoundControlServicer_to_server(self.service, self._server)
            stubs.add_DeliveryServicer_to_server(self.service, self._server)
            if isinstance(self.service, stubs.ShufflerServicer):
                stubs.add_ShufflerServicer_to_server(self.service, self._server)
            if isinstance(self.service, stubs.AccountantServicer):
                stubs.add_AccountantServicer_to_server(self.service, self._server)
            if isinstance(self.service, stubs.AnalyzerServicer):
                stubs.add_AnalyzerServicer_to_server(self.service, self._server)
            self._versions = VersionLog(directory, deployment)
            stubs.add_VersionsServicer_to_server(self._versions, self._server)
            self._newer = VersionWatch(
                directory,
                lambda other: transport.peer_channel(other, self.service.peers.secrets),
                lambda newer: self._replace(newer, self.service.peers.secrets),
            )
            self.readiness.add_to(self._server)
            transport.add_ports(self._server, entry, self._tls, settings)
            self._connections = ConnectionWatch(_ports(entry, settings), settings.max_connections_per_address)
            self._directory = directory
            own = [directory / name / file for file in ("identity.key", "tls.key", "tls.crt")]
            self._files = FileWatch([directory / DEPLOYMENT_FILE, *own], self._read_again)
            self._admin: grpc.aio.Server | None = None
            if settings.admin_listen:
                self._admin = make_admin_server(self.readiness, settings.admin_listen, _offered(self.service))
            self._metrics_port = MetricsPort(metrics, settings.metrics_listen) if settings.metrics_listen else None
            undo.pop_all()

    async def start(self) -> None:
        """Serves from now on, and goes on with the rounds that are in the store."""
        await self.readiness.begin()
        if self._admin:
            await self._admin.start()
        await self.pool.warm()
        await self._server.start()
        await self.service.start()
        await self.readiness.start()
        self._files.start()
        self._newer.start(self._others)
        self._connections.start()

    def _others(self) -> tuple[Deployment, list[ServiceEntry]]:
        deployment = self.service.peers.deployment
        return deployment, [entry for entry in deployment.services if entry.name != self._name]

    def _read_again(self) -> None:
        deployment = load_deployment(self._directory / DEPLOYMENT_FILE)
        deployment.service(self._name)
        self._replace(deployment, load_secrets(self._directory / self._name))

    def _replace(self, deployment: Deployment, secrets: Secrets) -> None:
        warn_of_unpinned(deployment.service(self._name), secrets)
        self._tls.replace(deployment, secrets)
        self.service.replace(deployment, secrets)
        self._versions.replace(deployment)
        self.metrics.certificate_of(secrets.tls_certificate)

    async def stop(self) -> None:
        """Not ready, no new calls, those under way finished, then the drivers; the admin ports answer to the end."""
        self._files.stop()
        self._newer.stop()
        self._connections.stop()
        await self.readiness.stop()
        self.service.close_streams()
        await self._server.stop(GRACE_S)
        await self.service.stop()
        self.pool.close()
        if self._cluster:
            self._cluster.close()
        await asyncio.to_thread(self.store.close)  # which may wait for a transaction under way
        if self._admin:
            await self._admin.stop(1.0)
        if self._metrics_port:
            self._metrics_port.close()


def warn_of_unpinned(entry: ServiceEntry, secrets: Secrets) -> None:
    """Logs a warning where the others would not recognise this service; a newer deployment file may come any time."""
    if file := not_pinned(entry, secrets):
        _log.warning("%s is not what deployment.toml pins: others do not accept this service", file)


def _ports(entry: ServiceEntry, settings: ServiceSettings) -> list[int]:
    """Returns the ports at which peers, the operator and clients come."""
    places = (settings.listen or entry.address, settings.public_listen or entry.public_address)
    return [int(place.rpartition(":")[2]) for place in places if place]


def _offered(service: RoundService) -> list[str]:
    """Returns the full names of the gRPC services that a role offers."""
    described = rpc.DESCRIPTOR.services_by_name
    return [
        descriptor.full_name
        for name, descriptor in described.items()
        if isinstance(service, getattr(stubs, f"{name}Servicer"))
    ]


async def serve_until_stopped(name: str, directory: Path, workers: int | None, until_end_of_input: bool) -> None:
    """Runs the service `name` until SIGTERM, SIGINT or, where asked, the end of standard input."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_end_of_input:

        def end() -> None:
            loop.remove_reader(sys.stdin)
            stop.set()

        loop.add_reader(sys.stdin, end)
    forbid_core_files()
    _log.info("starting")
    running = RunningService(name, directory, workers=workers)
    await running.start()
    collect_rarely()
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


def serve(
    name: str,
    directory: Path,
    workers: int | None = None,
    *,
    until_end_of_input: bool = False,
    log_file: Path | None = None,
) -> None:
    """Runs the service; returns after a graceful stop.

    An error that ends the service is the last line of its log.

    Args:
        name: of the service in the deployment file.
        directory: of the deployment.
        workers: processes for the cryptography; as the service's settings say if not given.
        until_end_of_input: also stop when standard input, a pipe to which nothing is written, is closed.
        log_file: what standard error is, to be kept below a bound; otherwise the starting process rotates it.

    Raises:
        SystemExit: with code 2 for a file or a setting that cannot be used, 4 for a store that fails while it starts,
            1 for any other error.
    """
    log_as_json(name, log_file)
    os.umask(0o077)  # only the service's own user reads the store
    # multiprocessing's tracker outlives a service that is killed, and would write its warning into our log.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    try:
        asyncio.run(serve_until_stopped(name, directory, workers, until_end_of_input))
    except ValueError as error:
        _log.critical("the service ends: %s", error)
        raise SystemExit(2) from error
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        _log.critical(
            "the service ends: %s: %s; it must be a file of the service's own user", error.filename, error.strerror
        )
        raise SystemExit(2) from error
    except Refusal as error:  # the store's, which has logged why; a supervisor starts the service again
        _log.critical("the service ends: %s", error, extra={"code": error.code.name})
        raise SystemExit(4) from error
    except ImportError as error:
        _log.critical("the service ends: %s", missing_library(error, read_deployment(directory).service(name).role))
        raise SystemExit(2) from error
    except Exception as error:
        _log.critical("the service ends: %s", error, exc_info=error)
        raise SystemExit(1) from error
