"""`croupier lab`: what maintainers of this project measure, and what writes the tables in its documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.console import Hops, Json, note, plain_errors, show

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the group `lab` to the command line."""
    group = typer.Typer(
        no_args_is_help=True, help="For maintainers: measurements, and the tables in the documentation."
    )
    group.command("tightness")(tightness)
    group.command("sgd-results")(sgd_results)
    group.command("bench-accountant")(bench_accountant)
    group.command("bench-training")(bench_training)
    app.add_typer(group, name="lab")


def tightness(
    seconds: Annotated[float, typer.Option(help="How many seconds to search for each attack.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    cases: Annotated[int | None, typer.Option(help="How many cases to run, from the first; all if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Show the certificate and the strongest attack, for the cases of the specification."""
    with plain_errors():
        from dataclasses import asdict

        from deploy.bench.tightness import tightness_page, tightness_rows
        from deploy.show.tables import tightness_table

        found = []
        for row in tightness_rows(seconds, cases):
            found.append(row)
            note(f"{row.randomizer}, {row.tiers}: {'' if row.ratio is None else f'{row.ratio:.4f}'}")
        if out is not None:
            out.write_text(tightness_page(found, seconds), encoding="utf-8")
        rows = [asdict(row) for row in found]
        show(as_json, {"rows": rows}, tightness_table(rows))


def sgd_results(
    data: Annotated[Path | None, typer.Option(help="Directory of MNIST's IDX files; downloaded if absent.")] = None,
    page: Annotated[Path, typer.Option(help="The page whose tables are replaced.")] = Path("docs/sgd.md"),
    out: Annotated[Path, typer.Option(help="For sgd-results.json and sgd-scattering.json.")] = Path("out"),
    part: Annotated[str, typer.Option(help="Only this part of the page: results or scattering; both if empty.")] = "",
    epochs: Annotated[
        int, typer.Option(help="Train for this many epochs, for a quick look; 0: as many as the settings say.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Repeat every row of docs/sgd.md: the paper's experiment, and 60,000 users with certified central epsilon."""
    with plain_errors():
        from deploy.training.datasets import load_dataset
        from deploy.training.results import PARTS, write_page

        parts = (part,) if part else tuple(PARTS)
        outcomes = write_page(page, out, load_dataset("mnist", data), note, epochs, parts)
        written = ", ".join(str(out / f"sgd-{name}.json") for name in parts)
        show(as_json, {"rows": [one.document() for one in outcomes]}, f"{page}, {written}")


def bench_accountant(
    out: Annotated[Path, typer.Option(help="Directory for accountant.json.")] = Path("out"), as_json: Json = False
) -> None:
    """Measure the processor seconds of certificates, each a process of its own, beside what they may take."""
    with plain_errors():
        from deploy.bench.certificates import measure_certificates
        from deploy.show.documents import write_json
        from deploy.show.tables import certificate_seconds_table

        rows = measure_certificates(lambda row: note(f"{row['case']}: {row['processor_s']:.2f} s"))
        write_json(out / "accountant.json", rows)
        show(as_json, {"rows": rows}, certificate_seconds_table(rows), str(out / "accountant.json"))


def bench_training(
    epochs: Annotated[int, typer.Option(help="Measured through the deployment; ten times as many simulated.")] = 5,
    hops: Hops = 2,
    users: Annotated[int, typer.Option(help="The first so many of 1,297, at least 100.")] = 1297,
    as_json: Json = False,
) -> None:
    """Measure an epoch of the digits through a deployment on loopback, and the same epoch simulated."""
    with plain_errors():
        from deploy.bench.training import measure_training

        found = measure_training(epochs, hops, users, note)
        show(
            as_json,
            found,
            f"{found['users']} users, d = {found['dimension']}: an epoch takes {found['deployed_s_per_epoch']:.2f} s "
            f"deployed and {found['simulated_s_per_epoch']:.4f} s simulated, {found['ratio']:.0f} times faster",
        )
