"""`croupier cluster`: the machines that a service hands its work to (docs/cluster.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import Argument


def cluster(
    scheduler: Annotated[
        str, Argument(help="tls://HOST:PORT of the scheduler, to run workers for it; without it, run the scheduler.")
    ] = "",
    /,
    *,
    certificates: Annotated[Path, Parameter(help="Directory of this machine's certificate, its key, and ca.pem.")] = (
        Path("cluster")
    ),
    listen: Annotated[str, Parameter(help="Scheduler: HOST:PORT for workers and the service.")] = "0.0.0.0:8786",
    processes: Annotated[int, Parameter(help="Workers: how many processes; 0: one for each core.")] = 0,
    host: Annotated[
        str, Parameter(help="Workers: the address of this machine that the others reach; found if empty.")
    ] = "",
) -> None:
    from croupier.deploy.node.cluster import run_scheduler, run_workers

    if scheduler:
        run_workers(scheduler, certificates, processes or os.cpu_count() or 1, host or None)
    else:
        run_scheduler(certificates, listen)
