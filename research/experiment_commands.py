"""`croupier experiment`: repeats the papers' figures, and says which of their claims hold."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from croupier.cli.console import BAD_INPUT, Argument, Json, note, progress_bar, show
from croupier.protocol.names import JsonObject

if TYPE_CHECKING:
    from croupier.runtime.cluster import Cluster
    from research.experiments.figure import Settings


app = App("experiment", version_flags=())


@app.default
def _experiment(name: Annotated[str, Parameter(show=False)] = "", /) -> None:
    """Names the command that runs an experiment, where its name is given as the command."""
    from research.experiments.catalogue import FIGURES

    if not name:
        app.help_print([])
        raise SystemExit(BAD_INPUT)
    close = difflib.get_close_matches(name, [figure.name for figure in FIGURES], 1)
    way_out = f"did you mean 'croupier experiment run {close[0]}'?" if close else "the commands are all, list and run"
    raise ValueError(f"{name!r} is not a command; {way_out}")


@app.command(name="list")
def list_experiments(*, as_json: Json = False) -> None:
    """List what can be run."""
    from research.experiments.catalogue import FIGURES
    from research.tables import experiments_table

    rows: list[JsonObject] = [{"name": figure.name, "paper": figure.paper, "title": figure.title} for figure in FIGURES]
    show(as_json, {"figures": rows}, experiments_table(rows))


@Parameter(name="*")
@dataclass(frozen=True)
class SizeOptions:
    """How much is measured, and on which data."""

    quick: Annotated[bool, Parameter(help="The fewest points that give the verdicts: seconds.")] = False
    full: Annotated[bool, Parameter(help="The papers' own size.")] = False
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="Of budgets, values and noise.")] = 0
    data: Annotated[
        Path | None,
        Parameter(
            help="Directory of MNIST's IDX files and Gowalla's totalCheckins.txt; else digits and a synthetic city."
        ),
    ] = None

    def settings(self) -> Settings:
        """Returns the settings of a run; raises ValueError for two sizes."""
        from research.experiments.figure import Settings, Size

        if self.quick and self.full:
            raise ValueError("--quick and --full are both given; at most one of them can be")
        size = Size.QUICK if self.quick else Size.FULL if self.full else Size.NORMAL
        return Settings(size, self.seed, self.data)


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOptions:
    """The Dask cluster that measures, with the keys to it."""

    scheduler: Annotated[
        str, Parameter(help="tls://HOST:PORT of a Dask cluster, whose workers measure instead of processes here.")
    ] = ""
    tls_ca: Annotated[Path, Parameter(help="With --scheduler: the authority of its certificates.")] = Path("ca.pem")
    tls_cert: Annotated[Path, Parameter(help="With --scheduler: our certificate.")] = Path("client.pem")
    tls_key: Annotated[Path, Parameter(help="With --scheduler: our private key.")] = Path("client-key.pem")

    def cluster(self) -> Cluster | None:
        """Returns the cluster, None where no scheduler is named."""
        from croupier.runtime.cluster import Cluster

        return Cluster(self.scheduler, self.tls_ca, self.tls_cert, self.tls_key) if self.scheduler else None


@app.command
def run(
    *names: Annotated[str, Argument("NAME", help="As 'croupier experiment list' shows them; none: all of them.")],
    size: SizeOptions = SizeOptions(),
    out: Annotated[
        Path, Parameter(help="For a JSON document and a plot of each; what is in it is not computed again.")
    ] = Path("out/experiments"),
    jobs: Annotated[int, Parameter(validator=Number(gte=0), help="Processes at once; 0: one for each core.")] = 0,
    cluster: ClusterOptions = ClusterOptions(),
    page: Annotated[Path | None, Parameter(help="Write the verdicts, plots and numbers as a Markdown page.")] = None,
    as_json: Json = False,
) -> None:
    """Run some, and show what became of their claims. A run that was stopped goes on where it was."""
    from research.experiments.catalogue import chosen
    from research.experiments.page import write_experiments_page
    from research.experiments.runner import run_figures
    from research.tables import findings_table

    settings, figures = size.settings(), chosen([*names] or ["all"])
    measured_by = cluster.cluster()
    with progress_bar() as move:
        outcomes = run_figures(figures, out, settings, jobs=jobs or None, cluster=measured_by, progress=move)
    if page is not None:
        write_experiments_page(outcomes, out, page)
    documents = [outcome.document() for outcome in outcomes]
    shown = [{key: document[key] for key in ("name", "paper", "verdict", "reason")} for document in documents]
    show(as_json, {"figures": shown}, *map(findings_table, documents))
    note(f"plots and numbers: {out}")


app.command(run, name="all", help="The same as 'run' without names.")
