"""`croupier experiment`: repeats the papers' figures, and says which of their claims hold."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from croupier.cli.console import MEASURE, Json, note, plain_errors, progress_bar, show
from croupier.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from croupier.runtime.cluster import Cluster
    from croupier.show.views.experiments import FigureView
    from research.experiments.figure import Settings


class _Group(typer.core.TyperGroup):
    """Knows what is meant by the name of an experiment where a command is expected."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command, as its base class does; a usage error names the command that runs the experiment."""
        if args[0] not in self.commands:
            from research.experiments.catalogue import FIGURES

            close = difflib.get_close_matches(args[0], [figure.name for figure in FIGURES], 1)
            if close:
                ctx.fail(f"No such command {args[0]!r}. Did you mean 'croupier experiment run {close[0]}'?")
        return super().resolve_command(ctx, args)


def add_commands(app: typer.Typer) -> None:
    """Adds the group `experiment` to the command line."""
    group = typer.Typer(
        cls=_Group, no_args_is_help=True, help="Repeat the papers' figures and tables: which of their claims hold?"
    )
    group.command("list")(list_experiments)
    group.command("run")(run)
    group.command("all", help="The same as 'run' without names.")(run)
    app.add_typer(group, name="experiment", rich_help_panel=MEASURE)


def list_experiments(as_json: Json = False) -> None:
    """List what can be run."""
    with plain_errors():
        from research.experiments.catalogue import FIGURES
        from research.tables import experiments_table

        rows: list[FigureView] = [
            {"name": figure.name, "paper": figure.paper, "title": figure.title} for figure in FIGURES
        ]
        show(as_json, {"figures": rows}, experiments_table(rows))


@dataclass(frozen=True)
class SizeOptions:
    """How much is measured, and on which data."""

    quick: Annotated[bool, typer.Option("--quick", help="The fewest points that give the verdicts: seconds.")] = False
    full: Annotated[bool, typer.Option("--full", help="The papers' own size.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Of budgets, values and noise.")] = 0
    data: Annotated[
        Path | None,
        typer.Option(
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


@dataclass(frozen=True)
class ClusterOptions:
    """The Dask cluster that measures, with the keys to it."""

    scheduler: Annotated[
        str, typer.Option(help="tls://HOST:PORT of a Dask cluster, whose workers measure instead of processes here.")
    ] = ""
    tls_ca: Annotated[Path, typer.Option(help="With --scheduler: the authority of its certificates.")] = Path("ca.pem")
    tls_cert: Annotated[Path, typer.Option(help="With --scheduler: our certificate.")] = Path("client.pem")
    tls_key: Annotated[Path, typer.Option(help="With --scheduler: our private key.")] = Path("client-key.pem")

    def cluster(self) -> Cluster | None:
        """Returns the cluster, None where no scheduler is named."""
        from croupier.runtime.cluster import Cluster

        return Cluster(self.scheduler, self.tls_ca, self.tls_cert, self.tls_key) if self.scheduler else None


@with_option_groups
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="As 'croupier experiment list' shows them; none: all of them.")
    ] = None,
    *,
    size: SizeOptions,
    out: Annotated[
        Path, typer.Option(help="For a JSON document and a plot of each; what is in it is not computed again.")
    ] = Path("out/experiments"),
    jobs: Annotated[int, typer.Option(min=0, help="Processes at once; 0: one for each core.")] = 0,
    cluster: ClusterOptions,
    page: Annotated[Path | None, typer.Option(help="Write the verdicts, plots and numbers as a Markdown page.")] = None,
    as_json: Json = False,
) -> None:
    """Run some, and show what became of their claims. A run that was stopped goes on where it was."""
    with plain_errors():
        from research.experiments.catalogue import chosen
        from research.experiments.page import write_experiments_page
        from research.experiments.runner import run_figures
        from research.tables import findings_table

        settings, figures = size.settings(), chosen(names or ["all"])
        measured_by = cluster.cluster()
        with progress_bar() as move:
            outcomes = run_figures(figures, out, settings, jobs=jobs or None, cluster=measured_by, progress=move)
        if page is not None:
            write_experiments_page(outcomes, out, page)
        documents = [outcome.document() for outcome in outcomes]
        shown = [{key: document[key] for key in ("name", "paper", "verdict", "reason")} for document in documents]
        show(as_json, {"figures": shown}, *map(findings_table, documents))
        note(f"plots and numbers: {out}")
