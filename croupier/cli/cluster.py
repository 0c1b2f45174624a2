"""`croupier cluster`: the machines that a service hands its work to (docs/cluster.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import Argument, Json, show
from croupier.operator.keys import make_cluster_keys

Certificates = Annotated[Path, Parameter(help="Directory of this machine's certificate, its key, and ca.pem.")]


def keys(
    directory: Annotated[Path, Argument(help="A new directory; a service's own is cluster/ in its directory.")],
    /,
    *,
    as_json: Json = False,
) -> None:
    files = [str(file) for file in make_cluster_keys(directory)]
    show(as_json, {"files": files}, "\n".join(files))


def scheduler(
    *,
    certificates: Certificates = Path("cluster"),
    listen: Annotated[str, Parameter(help="HOST:PORT for workers and the service.")] = "0.0.0.0:8786",
) -> None:
    from croupier.deploy.node.cluster import run_scheduler

    run_scheduler(certificates, listen)


def worker(
    address: Annotated[str, Argument(help="Of the scheduler: tls://HOST:PORT.")],
    /,
    *,
    certificates: Certificates = Path("cluster"),
    processes: Annotated[int, Parameter(help="Worker processes; 0: one for each core.")] = 0,
    host: Annotated[str, Parameter(help="Address of this machine that the others reach; found if empty.")] = "",
) -> None:
    from croupier.deploy.node.cluster import run_workers

    run_workers(address, certificates, processes or os.cpu_count() or 1, host or None)
