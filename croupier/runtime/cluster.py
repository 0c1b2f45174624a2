"""A Dask cluster as an executor: work travels to its workers over TLS, and its scheduler and workers can be lost.

The messages are executable in both directions, so every side shows a certificate of an authority that signs nothing
else, and a cluster is part of the service that uses it (docs/cluster.md describes the trust in it). Only idempotent
work belongs here, because another worker repeats the work of one that dies.

`distributed` is imported when an executor is made, and not before: services without a cluster do not need it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import pickle
import ssl
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.toml_file import tls_address

T = TypeVar("T")
AUTHORITY_FILE = "ca.pem"
PATIENCE_S = 30
"""Seconds to wait for the scheduler, and for its first worker; then the cluster is reported as out of reach."""
_GOODBYE_S = 5
KEPT_IN_MEMORY = ("distributed.worker.memory.target", "distributed.worker.memory.spill")


def certificate_files(directory: Path, side: str) -> tuple[Path, Path]:
    """Returns the files of the certificate and the private key of "client", "scheduler" or "worker"."""
    return directory / f"{side}.pem", directory / f"{side}-key.pem"


@dataclass(frozen=True)
class Sources:
    """The code that work depends on; a worker with other code does not do it.

    Attributes:
        packages: of this project, by their full names.
        libraries: distributions, by their version.
    """

    packages: tuple[str, ...] = (
        "croupier.accountant",
        "croupier.analyzer",
        "croupier.net",
        "croupier.protocol",
        "croupier.runtime",
        "croupier.shuffler",
    )
    libraries: tuple[str, ...] = ("cryptography", "protobuf", "rbcl")

    def digest(self) -> str:
        """Returns a digest of this process's sources, which is constant while it lives."""
        return _digest(self)


@cache
def _digest(sources: Sources) -> str:
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in sources.libraries).encode())
    for package in sources.packages:
        for folder in _folders(package):
            for file in sorted(folder.rglob("*.py")):
                digest.update(f"\0{package}/{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _folders(package: str) -> list[Path]:
    """Returns the folders of a package; none if it is not installed, which changes the digest."""
    try:
        return [Path(folder) for folder in import_module(package).__path__]
    except ModuleNotFoundError:
        return []


class _Answer(NamedTuple):
    """The outcome of a call: a result, an error of the work, or the reason why this worker did not do it."""

    result: Any = None
    error: Exception | None = None
    refusal: str = ""


@dataclass(frozen=True, repr=False)
class Job:
    """One call as it travels: function and arguments pickled, so that the scheduler passes them on unchanged.

    Dask logs and keeps the arguments of a task that fails. This job shows none, and an error is an answer to it.
    """

    sources: Sources
    digest: str
    call: bytes

    @classmethod
    def of(cls, sources: Sources, work: Callable[..., Any], args: tuple[Any, ...]) -> Job:
        """Returns the job that calls `work` with `args` on a worker with the same sources."""
        return cls(sources, sources.digest(), pickle.dumps((work, args)))

    def __repr__(self) -> str:
        return "<work of croupier>"

    def __call__(self) -> _Answer:
        """Does the work; an error is part of the answer, and is not raised."""
        import dask

        if self.sources.digest() != self.digest:
            return _Answer(refusal="a worker has another version of croupier than this machine")
        if any(dask.config.get(setting) for setting in KEPT_IN_MEMORY):
            return _Answer(refusal="a worker would write to its disk; 'croupier cluster' starts one that does not")
        try:
            work, args = pickle.loads(self.call)  # noqa: S301 (from a side that has shown its certificate)
            return _Answer(work(*args))
        except Exception as error:  # noqa: BLE001 (whatever it was, its place is with the caller)
            return _Answer(error=error)


def check_scheduler(address: str) -> None:
    """Raises ValueError unless this is the address of a scheduler."""
    try:
        tls_address(address)
    except ValueError as error:
        raise ValueError(f"scheduler: {error}") from None


@dataclass(frozen=True)
class Cluster:
    """The address of a scheduler, and the credentials for it.

    Attributes:
        scheduler: its address, "tls://HOST:PORT".
        ca: the authority that certifies scheduler, workers and clients, PEM.
        certificate: of this client, PEM.
        key: the private key of the certificate, PEM.

    Raises:
        ValueError: at construction; another address, or a file that does not exist.
    """

    scheduler: str
    ca: Path
    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        """Checks address and files."""
        check_scheduler(self.scheduler)
        for file in (self.ca, self.certificate, self.key):
            if not file.is_file():
                raise ValueError(
                    f"{file} does not exist; 'croupier keygen --cluster' makes the certificates of a cluster"
                )

    @classmethod
    def of(cls, scheduler: str, directory: Path) -> Cluster:
        """Returns the cluster whose certificates are in a directory, written by 'croupier keygen --cluster'."""
        return cls(scheduler, directory / AUTHORITY_FILE, *certificate_files(directory, "client"))

    def executor(self, sources: Sources | None = None) -> ClusterExecutor:
        """Returns an executor that runs functions on the workers; it connects at its first function.

        Args:
            sources: the code of the functions; by default that of services.

        Raises:
            ImportError: Dask is not installed.
        """
        return ClusterExecutor(self, sources or Sources())


class ClusterExecutor(Executor):
    """Runs functions on a cluster, from an event loop in a thread of its own.

    Its futures raise Refusal CLUSTER_FAILED if the scheduler is out of reach or lost, if there is no worker, if a
    worker is not fit, and if several workers have died of the same work. The same call may succeed later.
    """

    def __init__(self, cluster: Cluster, sources: Sources) -> None:
        import distributed

        _log_like_the_rest()
        self._dask = distributed
        self._cluster = cluster
        self._sources = sources
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._under_way: set[Future[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See `Executor.submit`; keyword arguments do not travel.

        Raises:
            RuntimeError: the executor is shut down.
        """
        if kwargs or not self._thread.is_alive():
            raise RuntimeError("this executor takes positional arguments, until it is shut down")
        future = asyncio.run_coroutine_threadsafe(self._run(fn, args), self._loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    async def _run(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        job = Job.of(self._sources, work, args)
        client = await self._connected()
        try:
            answer: _Answer = await client.submit(job, key=f"croupier-{uuid.uuid4().hex}", pure=False)
        except self._dask.client.FutureCancelledError as error:
            await self._disconnect(client)
            raise self._failed("has been lost") from error
        except (self._dask.KilledWorker, OSError) as error:
            raise self._failed("has lost the workers that did it") from error
        if answer.refusal:
            raise self._failed(f"does not do it: {answer.refusal}")
        if answer.error is not None:
            raise answer.error
        return answer.result  # type: ignore[no-any-return]

    def _failed(self, what: str) -> Refusal:
        return Refusal(Code.CLUSTER_FAILED, f"{self._cluster.scheduler} {what}")

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is not None and self._client.status != "running":  # lost while there was nothing to do
                await self._disconnect(self._client)
            if self._client is None:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> Any:
        security = self._dask.Security(
            require_encryption=True,
            tls_min_version=ssl.TLSVersion.TLSv1_3,
            tls_ca_file=str(self._cluster.ca),
            tls_client_cert=str(self._cluster.certificate),
            tls_client_key=str(self._cluster.key),
        )
        how = {"security": security, "timeout": PATIENCE_S, "asynchronous": True, "set_as_default": False}
        client = self._dask.Client(self._cluster.scheduler, **how)
        said = "is out of reach"
        try:
            await client
            said = "has no worker"
            await client.wait_for_workers(1, timeout=PATIENCE_S)
        except BaseException as error:  # also if the executor is shut down meanwhile
            await client.close()
            if isinstance(error, OSError):  # a TimeoutError is one
                raise self._failed(f"{said}: {error}") from error
            raise
        return client

    async def _disconnect(self, client: Any) -> None:
        if client is not None and self._client is client:
            self._client = None
            with suppress(OSError):
                await asyncio.wait_for(client.close(), _GOODBYE_S)

    async def _goodbye(self) -> None:
        async with self._connecting:  # also a call that was cancelled has closed its connection
            await self._disconnect(self._client)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`; `wait` is always true: running work ends before the connection does."""
        if not self._thread.is_alive():
            return
        under_way = set(self._under_way)
        if cancel_futures:
            for future in under_way:
                future.cancel()
        wait_for(under_way)
        asyncio.run_coroutine_threadsafe(self._goodbye(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _log_like_the_rest() -> None:
    """Dask's loggers write to standard error by themselves; in a service, one handler writes everything."""
    for name in ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "tornado.application"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
