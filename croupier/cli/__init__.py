"""The `croupier` command line: each command parses its options, calls another room, and shows what that returns.

Each command also prints one JSON object with `--json`. Exit codes: 0 done; 1 `doctor` has found something wrong, or an
error that nothing foresaw; 2 an input that cannot be used; 3 a service refused; 4 not now: a service is out of reach,
or what is asked for is not there yet; 5 the accountant refused the round, so there is no result; 6 some submissions
were not accepted or are missing; 130 cut short by Ctrl-C. Messages go to standard error.

Commands import what they need when they run, so that `croupier --help` and a client stay light.
"""

from __future__ import annotations

import gc
import os
from typing import Annotated

import typer

from croupier.cli import (
    accounting,
    checkout,
    clients,
    cluster,
    demonstration,
    deployment,
    documentation,
    hosts,
    organisations,
    participants,
    proposals,
    report,
    rounds,
    training,
    web,
)
from croupier.cli.help_pages import add_examples_and_groups
from croupier.cli.study import discovery, joining, studies, surveys

__all__ = ["app", "main"]

# Read when grpc is imported: its C core would write lines of its own between ours, which are JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_show_locals=False,  # of a client's: its answer, its key; older versions show them if not told
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("croupier"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # it is eager, and has done all when the command begins
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ask people what they would not tell you; learn the answer about all, with a proof of what it reveals about one.

    Begin with 'croupier demo'; --help after any command shows its options and an example.

    Exit codes: 0 done; 1 'doctor' found something wrong, or an unforeseen error;
    2 bad input; 3 refused; 4 not now, try again later; 5 not certified; 6 not all
    accepted; 130 cut short by Ctrl-C.
    """


for room in (
    demonstration,
    discovery,
    training,
    accounting,
    clients,
    rounds,
    surveys,
    studies,
    deployment,
    participants,
    proposals,
    report,
    web,
    hosts,
    joining,
    organisations,
    cluster,
    documentation,
    checkout,
):
    room.add_commands(app)
add_examples_and_groups(app)


def main() -> None:
    """Runs the command that the process was started with."""
    # The products here are small: a second BLAS thread would only wait busily, on a core that others need.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(10_000, 20, 20)  # what is made for one of very many users is freed without the collector
    app()
