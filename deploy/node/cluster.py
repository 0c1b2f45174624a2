"""Runs the scheduler or the workers of a Dask cluster, as work for a service needs them.

Nothing of the work is written to a disk by them: results stay in memory, a process that dies leaves no image of its
memory, and no port but the one that asks for certificates is open to other machines.
"""

from __future__ import annotations

from pathlib import Path

from croupier.runtime.cluster import AUTHORITY_FILE, certificate_files, check_scheduler
from croupier.runtime.core_files import forbid_core_files

_SETTINGS = {
    "distributed.comm.require-encryption": True,
    "distributed.comm.tls.min-version": 1.3,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.profile.enabled": False,
}
_NOT_SHOWN = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


def run_scheduler(certificates: Path, listen: str) -> None:
    """Runs a scheduler until SIGTERM.

    Args:
        certificates: the directory with `ca.pem`, `scheduler.pem` and its key.
        listen: host:port.

    Raises:
        ValueError: a certificate is missing, or the address is not host:port.
        ImportError: Dask is not installed.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"listen is {listen!r}; it must be HOST:PORT with a port in 0..65535")
    options = _prepared(certificates, "scheduler")
    from distributed.cli.dask_scheduler import main

    main([*options, "--protocol", "tls", "--host", host, "--port", port], standalone_mode=False)


def run_workers(scheduler: str, certificates: Path, processes: int, host: str | None) -> None:
    """Runs `processes` worker processes until SIGTERM; one that dies is started again.

    Args:
        scheduler: its address, "tls://HOST:PORT".
        certificates: the directory with `ca.pem`, `worker.pem` and its key.
        processes: how many, each with one thread: the cryptography holds the interpreter lock.
        host: where they listen for the scheduler, the service and each other; chosen by the route to the scheduler if
            not given.

    Raises:
        ValueError: a certificate is missing, the address is not a TLS address, or processes is below 1.
        ImportError: Dask is not installed.
    """
    check_scheduler(scheduler)
    if processes < 1:
        raise ValueError(f"processes is {processes}; it must be at least 1")
    options = _prepared(certificates, "worker")
    from distributed.cli.dask_worker import main

    where = ["--host", host] if host else ["--protocol", "tls"]
    size = ["--nworkers", str(processes), "--nthreads", "1"]
    main([scheduler, *options, *where, *size], standalone_mode=False)


def _prepared(certificates: Path, side: str) -> list[str]:
    """Settles what all of these processes have in common, and returns the options for the certificates of a side."""
    files = (certificates / AUTHORITY_FILE, *certificate_files(certificates, side))
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} does not exist; 'croupier keygen --cluster' makes the certificates of a cluster")
    import dask

    dask.config.set(_SETTINGS)
    forbid_core_files()
    names = ("--tls-ca-file", "--tls-cert", "--tls-key")
    return [*(word for pair in zip(names, map(str, files), strict=True) for word in pair), *_NOT_SHOWN]
