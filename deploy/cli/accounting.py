"""The accountant at the command line: certify, curve, audit, plan. No deployment is needed for any of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.cli.console import Json, RandomizerOption, plain_errors, show

if TYPE_CHECKING:
    from accountant import Budgets, Certificate, LowerBound, Randomizer

__all__ = ["add_commands", "randomizer_of"]

BudgetFile = Annotated[
    Path,
    typer.Argument(
        help="CSV with a column epsilon (of the local budgets), optionally delta and count (of users; default 1)."
    ),
]
Letters = Annotated[int | None, typer.Option("--k", help="krr: the number of letters.")]
Lattice = Annotated[int | None, typer.Option(help="laplace, gaussian: steps between the ends; none: the real line.")]
Dimension = Annotated[int | None, typer.Option(help="hemisphere, gaussian: the number of coordinates.")]
Dishonest = Annotated[int, typer.Option(help="How many of the other clients may be dishonest.")]
Linkage = Annotated[str, typer.Option(help="separate, or stratified: a report shows its tier.")]
Rounds = Annotated[
    int,
    typer.Option(
        help="How many such rounds one client takes part in, at least 1; delta and epsilon are of all together."
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    for command in (certify, curve, audit, plan, tightness):
        app.command()(command)
    app.command("bench-accountant")(bench_accountant)


def randomizer_of(
    name: str, k: int | None = None, lattice: int | None = None, dimension: int | None = None
) -> Randomizer:
    """The accountant's randomizer of this name. Raises ValueError for a parameter that is missing or has no place."""
    from accountant import randomizer_from_name

    if name == "krr" and k is None:
        raise ValueError("k is missing; krr needs --k, the number of letters")
    takes = {"krr": ("k",), "laplace": ("lattice",), "gaussian": ("lattice", "dimension"), "hemisphere": ("dimension",)}
    given = {"k": k, "lattice": lattice, "dimension": dimension}
    for parameter, value in given.items():
        if value is not None and name in ("rr", "onebit", *takes) and parameter not in takes.get(name, ()):
            raise ValueError(f"{parameter} is {value}, but {name} has no {parameter}")
    return randomizer_from_name(name, **{key: value for key, value in given.items() if value is not None})


def certify(
    budgets: BudgetFile,
    randomizer: RandomizerOption = "rr",
    k: Letters = None,
    lattice: Lattice = None,
    dimension: Dimension = None,
    delta: Annotated[
        float | None, typer.Option(help="Certify epsilon at this central delta, 0 < delta < 1; this or --epsilon.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Certify delta at this central epsilon, at least 0; this or --delta.")
    ] = None,
    dishonest: Dishonest = 0,
    linkage: Linkage = "separate",
    rounds: Rounds = 1,
    compare: Annotated[bool, typer.Option("--compare", help="Every published bound, judged by the attack.")] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="rr, onebit: spend seconds on the exact worst case.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Every step with its number.")] = False,
    as_json: Json = False,
) -> None:
    """Certify the central guarantee of a shuffled batch from its local budgets, with an attack beside it."""
    with plain_errors():
        from rich.text import Text

        import accountant
        from deploy.render import certificate_table, steps_table

        result = accountant.certify(
            accountant.read_budgets_csv(budgets),
            randomizer_of(randomizer, k, lattice, dimension),
            delta=delta,
            epsilon=epsilon,
            dishonest=dishonest,
            linkage=linkage,
            rounds=rounds,
            compare_all=compare,
            thorough=thorough,
        )
        document = result.to_json() | ({"steps": list(result.steps)} if explain else {})
        notes = [
            Text.assemble(f"{bound.name}: {bound.note}  ", (bound.reference, "dim"))
            for bound in result.comparison
            if compare
        ]
        tables: list[Any] = [certificate_table(document), *notes]
        if explain:
            tables += [steps_table(result.steps), *(f"assumes: {line}" for line in result.assumptions)]
        show(as_json, document, *tables)


def curve(
    budgets: BudgetFile,
    randomizer: RandomizerOption = "rr",
    k: Letters = None,
    lattice: Lattice = None,
    dimension: Dimension = None,
    dishonest: Dishonest = 0,
    linkage: Linkage = "separate",
    rounds: Rounds = 1,
    out: Annotated[Path, typer.Option(help="Where to draw it (PNG, SVG or PDF).")] = Path("curve.png"),
    as_json: Json = False,
) -> None:
    """Draw delta against epsilon: certified, the attack, and the published bounds."""
    with plain_errors():
        import accountant
        from deploy.render import curve_table, plot_curve

        found = accountant.privacy_curve(
            accountant.read_budgets_csv(budgets),
            randomizer_of(randomizer, k, lattice, dimension),
            dishonest=dishonest,
            linkage=linkage,
            rounds=rounds,
        )
        points = [point.certificate.to_json() for point in found.points]
        plot_curve(found.randomizer, points, out)
        document = {"randomizer": found.randomizer, "points": points, "plot": str(out)}
        show(as_json, document, curve_table(points), f"drawn in {out}")


def audit(
    budgets: BudgetFile,
    randomizer: RandomizerOption = "rr",
    k: Letters = None,
    lattice: Lattice = None,
    dimension: Dimension = None,
    delta: Annotated[float, typer.Option(help="The central delta of the attack.")] = 1e-6,
    dishonest: Dishonest = 0,
    linkage: Linkage = "separate",
    seconds: Annotated[float, typer.Option(help="How many seconds to search for better attacks.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Attack the shuffled batch: the largest epsilon that some data set and statistic reach, beside the certificate."""
    with plain_errors():
        import accountant

        multiset, family = accountant.read_budgets_csv(budgets), randomizer_of(randomizer, k, lattice, dimension)
        certificate = accountant.certify(
            multiset, family, delta=delta, dishonest=dishonest, linkage=linkage, attack=False
        )
        found = _searched(multiset, family, delta, dishonest, linkage, seconds)
        if found.epsilon > certificate.epsilon * (1 + 1e-9):
            raise RuntimeError(
                f"an attack reaches epsilon {found.epsilon!r}, the certificate says {certificate.epsilon!r}: "
                "this is a defect of croupier; please report it with the budgets"
            )
        ratio = certificate.epsilon / found.epsilon if found.epsilon > 0 else None
        document = {
            "lower_bound": {"epsilon": found.epsilon, "delta": found.delta, "attack": found.attack},
            "certificate": {"epsilon": certificate.epsilon, "delta": certificate.delta, "grade": certificate.grade},
            "ratio": ratio,
        }
        line = f"LOWER_BOUND ε ≥ {found.epsilon:.6g} at δ = {delta:g}: {found.attack}"
        close = f", {ratio:.4f} times the attack" if ratio is not None else ""
        certified = f"CERTIFIED ε = {certificate.epsilon:.6g} at δ = {delta:g}"
        show(as_json, document, line, f"{certified}{close}: {certificate.method}")


def _searched(
    budgets: Budgets, randomizer: Randomizer, delta: float, dishonest: int, linkage: str, seconds: float
) -> LowerBound:
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    import accountant

    started = time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("searching", total=seconds)

        def report(best: LowerBound, tried: int) -> None:
            bar.update(task, completed=time.monotonic() - started, description=f"{tried} tried, ε ≥ {best.epsilon:.6g}")

        return accountant.lower_bound(
            budgets,
            randomizer,
            delta=delta,
            dishonest=dishonest,
            linkage=linkage,
            seconds=seconds,
            progress=report,
        )


def plan(
    budgets: Annotated[Path | None, typer.Option(help="CSV of budgets, or of their proportions.")] = None,
    randomizer: RandomizerOption = "rr",
    k: Letters = None,
    lattice: Lattice = None,
    dimension: Dimension = None,
    users: Annotated[int | None, typer.Option(help="How many people will take part.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The central epsilon to stay below, over all rounds.")] = None,
    delta: Annotated[float, typer.Option(help="The central delta, over all rounds.")] = 1e-6,
    dishonest: Dishonest = 0,
    linkage: Linkage = "separate",
    rounds: Rounds = 1,
    as_json: Json = False,
) -> None:
    """Find what is not given: the largest local budgets, the number of users, or the accuracy to expect."""
    with plain_errors():
        import accountant
        from deploy.render import certificate_table

        found = accountant.plan(
            randomizer_of(randomizer, k, lattice, dimension),
            delta=delta,
            epsilon=epsilon,
            num_users=users,
            budgets=None if budgets is None else accountant.read_budgets_csv(budgets),
            rounds=rounds,
            dishonest=dishonest,
            linkage=linkage,
        )
        show(as_json, _plan_json(found), _plan_line(found), certificate_table(found.certificate.to_json()))


def _plan_json(found: Any) -> dict[str, Any]:
    certificate: Certificate = found.certificate
    return {
        "goal": str(found.goal),
        "num_users": found.budgets.num_users,
        "budgets": [
            {"epsilon": tier.local_epsilon, "delta": tier.local_delta, "count": tier.count}
            for tier in found.budgets.tiers[:1000]
        ],
        "standard_error": found.standard_error,
        "certificate": certificate.to_json(),
    }


def _plan_line(found: Any) -> str:
    low, high = float(found.budgets.local_epsilon[0]), float(found.budgets.local_epsilon[-1])
    spread = f"local ε {high:.4g}" if low == high else f"local ε {low:.4g} to {high:.4g}"
    error = "unknown" if found.standard_error is None else f"{found.standard_error:.3g} of the range"
    return f"{found.goal}: {found.budgets.num_users:,} users with {spread}; standard error from the noise {error}"


def tightness(
    seconds: Annotated[float, typer.Option(help="How many seconds to search for each attack.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    cases: Annotated[int | None, typer.Option(help="Only the first so many cases.")] = None,
    as_json: Json = False,
) -> None:
    """The certificate and the strongest attack, for the cases of the specification."""
    with plain_errors():
        from dataclasses import asdict

        from rich.console import Console
        from rich.table import Table

        from deploy.bench.tightness import markdown, tightness_rows

        rows = []
        table = Table("randomizer", "users × local ε", "δ", "certified ε", "attack ε ≥", "ratio")
        for row in tightness_rows(seconds, cases):
            rows.append(row)
            ratio = "" if row.ratio is None else f"{row.ratio:.4f}"
            table.add_row(
                row.randomizer, row.tiers, f"{row.delta:.0e}", f"{row.certified:.6g}", f"{row.attack:.6g}", ratio
            )
            Console(stderr=True).print(f"{row.randomizer}, {row.tiers}: {ratio}")
        if out is not None:
            out.write_text(markdown(rows, seconds), encoding="utf-8")
        show(as_json, {"rows": [asdict(row) for row in rows]}, table)


def bench_accountant(
    out: Annotated[Path, typer.Option(help="Directory for accountant.json.")] = Path("out"), as_json: Json = False
) -> None:
    """How long certificates take, each warm in a process of its own, beside what they may take."""
    with plain_errors():
        import json

        from rich.console import Console

        from deploy.bench.tightness import timings
        from deploy.render import timing_table

        say = Console(stderr=True)
        rows = timings(lambda row: say.print(f"{row['case']}: {row['certify_s']:.3f} s"))
        out.mkdir(parents=True, exist_ok=True)
        (out / "accountant.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        show(as_json, {"rows": rows}, timing_table(rows), str(out / "accountant.json"))
