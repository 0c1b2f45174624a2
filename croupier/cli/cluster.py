"""`croupier cluster`: the machines that a service hands its work to (docs/cluster.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli.console import (
    SET_UP,
    Json,
    plain_errors,
    show,
)

Certificates = Annotated[Path, typer.Option(help="Directory of this machine's certificate, its key, and ca.pem.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the group `cluster` to the command line."""
    group = typer.Typer(
        no_args_is_help=True, help="More machines for one service: the keys and processes of a cluster."
    )
    group.command("keys")(keys)
    group.command("scheduler")(scheduler)
    group.command("worker")(worker)
    app.add_typer(group, name="cluster", rich_help_panel=SET_UP)


def keys(
    directory: Annotated[Path, typer.Argument(help="A new directory; a service's own is cluster/ in its directory.")],
    as_json: Json = False,
) -> None:
    """Make the certificates of scheduler, workers and client, by an authority that signs nothing else."""
    with plain_errors():
        from croupier.operator.keys import make_cluster_keys

        files = [str(file) for file in make_cluster_keys(directory)]
        show(as_json, {"files": files}, "\n".join(files))


def scheduler(
    certificates: Certificates = Path("cluster"),
    listen: Annotated[str, typer.Option(help="HOST:PORT for workers and the service.")] = "0.0.0.0:8786",
) -> None:
    """Run the scheduler of a cluster in the foreground until SIGTERM."""
    with plain_errors():
        from croupier.deploy.node.cluster import run_scheduler

        run_scheduler(certificates, listen)


def worker(
    address: Annotated[str, typer.Argument(help="Of the scheduler: tls://HOST:PORT.")],
    certificates: Certificates = Path("cluster"),
    processes: Annotated[int, typer.Option(help="Worker processes; 0: one for each core.")] = 0,
    host: Annotated[str, typer.Option(help="Address of this machine that the others reach; found if empty.")] = "",
) -> None:
    """Run the workers of one machine in the foreground until SIGTERM."""
    with plain_errors():
        import os

        from croupier.deploy.node.cluster import run_workers

        run_workers(address, certificates, processes or os.cpu_count() or 1, host or None)
