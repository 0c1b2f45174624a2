"""`croupier research`: what maintainers of this project measure, and what writes the tables in its documentation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from croupier.cli.console import Hops, Json, note, show
from croupier.protocol.names import JsonObject

app = App("research", version_flags=())


@app.command
def tightness(
    *,
    seconds: Annotated[float, Parameter(help="How many seconds to search for each attack.")] = 2.0,
    out: Annotated[Path | None, Parameter(help="Write the table as Markdown.")] = None,
    cases: Annotated[int | None, Parameter(help="How many cases to run, from the first; all if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Show the certificate and the strongest attack, for the cases of the specification."""
    from research.bench.tightness import tightness_page, tightness_rows
    from research.tables import tightness_table

    rows = []
    for row in tightness_rows(seconds, cases):
        rows.append(row)
        note(f"{row.randomizer}, {row.tiers}: {'' if row.ratio is None else f'{row.ratio:.4f}'}")
    if out is not None:
        out.write_text(tightness_page(rows, seconds), encoding="utf-8")
    show(as_json, {"rows": [asdict(row) for row in rows]}, tightness_table(rows))


@app.command
def sgd_results(
    *,
    data: Annotated[Path | None, Parameter(help="Directory of MNIST's IDX files; downloaded if absent.")] = None,
    page: Annotated[Path, Parameter(help="The page whose tables are replaced.")] = Path("docs/sgd-results.md"),
    out: Annotated[Path, Parameter(help="For sgd-results.json and sgd-scattering.json.")] = Path("out"),
    part: Annotated[str, Parameter(help="Only this part of the page: results or scattering; both if empty.")] = "",
    epochs: Annotated[
        int, Parameter(help="Train for this many epochs, for a quick look; 0: as many as the settings say.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Repeat every row of docs/sgd-results.md: the paper's experiment, and 60,000 users with certified ε."""
    from croupier.training.datasets import load_dataset
    from research.sgd_results import PARTS, write_page

    parts = (part,) if part else tuple(PARTS)
    outcomes = write_page(page, out, load_dataset("mnist", data), note, epochs, parts)
    written = ", ".join(str(out / f"sgd-{name}.json") for name in parts)
    show(as_json, {"rows": [outcome.document() for outcome in outcomes]}, f"{page}, {written}")


@app.command
def bench_accountant(
    *, out: Annotated[Path, Parameter(help="Directory for accountant.json.")] = Path("out"), as_json: Json = False
) -> None:
    """Measure the processor seconds of certificates, each a process of its own, beside what they may take."""
    from croupier.show.documents import write_json
    from research.bench.certificates import measure_certificates
    from research.tables import certificate_seconds_table

    rows = measure_certificates(lambda row: note(f"{row['case']}: {row['processor_s']:.2f} s"))
    write_json(out / "accountant.json", rows)
    show(as_json, {"rows": rows}, certificate_seconds_table(rows), str(out / "accountant.json"))


@app.command
def bench_training(
    *,
    epochs: Annotated[int, Parameter(help="Measured through the deployment; ten times as many simulated.")] = 5,
    hops: Hops = 2,
    users: Annotated[int, Parameter(help="How many of the 1,297 users to take, at least 100.")] = 1297,
    as_json: Json = False,
) -> None:
    """Measure an epoch of the digits through a deployment on loopback, and the same epoch simulated."""
    from research.bench.training import measure_training

    measured = measure_training(epochs, hops, users, note)
    show(
        as_json,
        measured,
        f"{measured['users']} users, d = {measured['dimension']}: an epoch takes "
        f"{measured['deployed_s_per_epoch']:.2f} s deployed and {measured['simulated_s_per_epoch']:.4f} s "
        f"simulated, {measured['ratio']:.0f} times faster",
    )


@app.command
def bench_cluster(
    *,
    workers: Annotated[str, Parameter(help="Numbers of workers, separated by commas.")] = "1,2,4",
    items: Annotated[int, Parameter(help="How many envelopes each opens.")] = 50_000,
    out: Annotated[Path, Parameter(help="Directory for cluster.json.")] = Path("out"),
    page: Annotated[Path | None, Parameter(help="Write the table into this page, too.")] = None,
    as_json: Json = False,
) -> None:
    """Measure how opening scales with the workers of a Dask cluster on this machine."""
    from croupier.show.documents import write_json
    from research.bench.cluster import measure_scaling, scaling_lines
    from research.page_parts import write_part

    def say(row: JsonObject) -> None:
        note(f"{row['workers']} workers: {row['items_per_s']:,.0f} envelopes a second")

    document = measure_scaling(_whole_numbers("workers", workers), items, say)
    write_json(out / "cluster.json", document)
    if page is not None:
        write_part(page, "scaling", scaling_lines(document))
    show(as_json, document, "\n".join(scaling_lines(document)), str(out / "cluster.json"))


@app.command
def bench_load(
    *,
    clients: Annotated[int, Parameter(help="How many clients, each with a connection of its own.")] = 10_000,
    at_once: Annotated[int, Parameter(help="How many of them have a connection at the same time.")] = 2000,
    bad: Annotated[
        str, Parameter(help="How many silent, slow and vanished peers are among them, for each round.")
    ] = "0,300",
    times: Annotated[int, Parameter(help="Rounds for each of these numbers, in turn.")] = 3,
    processes: Annotated[int, Parameter(help="Over which clients and bad peers are spread.")] = 2,
    hops: Hops = 1,
    out: Annotated[Path, Parameter(help="Directory for load.json.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Measure how long clients wait for hop 1 when very many come at once, what is refused, and whether any is lost."""
    from croupier.show.documents import write_json
    from research.bench.load import load_lines, measure_load

    rows: list[JsonObject] = []

    def say(row: JsonObject) -> None:
        rows.append(row)
        write_json(out / "load.json", {"hops": hops, "processes": processes, "rows": rows})  # may be stopped
        note(f"{row['bad']} bad peers: {row['acknowledged']:,} acknowledged, {row['lost']} lost")

    document = measure_load(clients, at_once, _whole_numbers("bad", bad), processes, hops, times, note, say)
    show(as_json, document, "\n".join(load_lines(document)), str(out / "load.json"))


@app.command
def bench_survey(
    *,
    people: Annotated[int, Parameter(help="How many simulated people answer.")] = 1000,
    questions: Annotated[int, Parameter(help="How many questions, each with five answers.")] = 5,
    at_once: Annotated[int, Parameter(help="How many of them answer at the same time.")] = 3,
    budget: Annotated[float, Parameter(help="The ε of all answers of one person together.")] = 5.0,
    hops: Hops = 2,
    out: Annotated[Path, Parameter(help="Directory for survey.json.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Have simulated people answer a survey through a gateway, and compare what was counted with who answered."""
    from croupier.show.documents import write_json
    from research.bench.survey import measure_survey, survey_lines

    measured = measure_survey(people, questions, at_once, budget, hops, note)
    write_json(out / "survey.json", measured)
    show(as_json, measured, *survey_lines(measured), str(out / "survey.json"))


@app.command
def bench_hop_noise(
    *,
    values: Annotated[str, Parameter(help="Numbers of different reports, separated by commas.")] = "2,64,1024",
    people: Annotated[str, Parameter(help="Numbers of people, separated by commas; 10000 takes minutes.")] = "100,1000",
    epsilon: Annotated[float, Parameter(help="The ε of the hop noise.")] = 1.0,
    times: Annotated[int, Parameter(help="Rounds with and rounds without hop noise of each size, in turn.")] = 1,
    hops: Hops = 2,
    out: Annotated[Path, Parameter(help="Directory for hop-noise.json.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Measure rounds with and without hop noise: fake reports, seconds, CPU seconds."""
    from croupier.show.documents import write_json
    from research.bench.hop_noise import hop_noise_lines, measure_hop_noise

    def say(row: JsonObject) -> None:
        note(hop_noise_lines([row])[-1])

    sizes = [(k, n) for k in _whole_numbers("values", values) for n in _whole_numbers("people", people)]
    rows = measure_hop_noise(sizes, epsilon, hops, times, say)
    write_json(out / "hop-noise.json", {"rows": rows})
    show(as_json, {"rows": rows}, "\n".join(hop_noise_lines(rows)), str(out / "hop-noise.json"))


@app.command
def bench_stores(
    *,
    bodies: Annotated[float, Parameter(help="How many submissions the round has.")] = 1e6,
    postgresql: Annotated[
        str, Parameter(help="URL of an empty PostgreSQL database to compare with: postgresql+psycopg://...")
    ] = "",
    out: Annotated[Path, Parameter(help="Directory for stores.json, on the disk to be measured.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Measure commits, pages and the erasure of a round, on SQLite and on PostgreSQL."""
    from croupier.show.documents import write_json
    from research.bench.stores import kinds_of, measure_stores, store_lines

    rows: list[JsonObject] = []

    def say(row: JsonObject) -> None:
        rows.append(row)
        write_json(out / "stores.json", {"rows": rows})  # what follows may be stopped
        note(f"{row['store']}: {row['fill']['bodies_per_s']:,.0f} bodies a second; erased in {row['erase_s']:.2f} s")

    document = measure_stores(kinds_of(postgresql), int(bodies), out, say)
    show(as_json, document, "\n".join(store_lines(document)), str(out / "stores.json"))


@app.command
def bench_report(
    *,
    out: Annotated[Path, Parameter(help="What the benches have written; this adds benchmarks.*.")] = Path("out"),
    kept: Annotated[Path, Parameter(help="What was kept of the last run.")] = Path("docs/bench"),
    keep: Annotated[bool, Parameter(help="Keep this run in its place, and write it into --page.")] = False,
    page: Annotated[Path, Parameter(help="The page that shows the run that is kept.")] = Path("docs/benchmarks.md"),
    as_json: Json = False,
) -> None:
    """Compare what the benches have measured with the run that was kept: medians, ratios, the machine."""
    import json
    import shutil

    from croupier.show.documents import write_json
    from research.bench.comparison import KEPT, WORSE, add_run, compare, comparison_lines, figures_of, page_parts
    from research.page_parts import write_part
    from research.plots import plot_comparison

    figures = figures_of(out)
    if not figures:
        raise ValueError(f"{out} has nothing that was measured; 'make bench' measures, or one of its commands")
    runs, last = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        for file in (out / "benchmarks.json", kept / "benchmarks.json")
    )
    runs = add_run(runs, figures)
    write_json(out / "benchmarks.json", runs)
    lines, rows = comparison_lines(runs, last), compare(runs, last)
    (out / "benchmarks.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ratios = [(row.name, row.ratio) for row in rows if row.ratio is not None]
    if ratios:
        plot_comparison(ratios, WORSE, out / "benchmarks.png")
    if keep:
        for name, part in page_parts(out).items():
            write_part(page, name, part)
        kept.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            if (out / name).exists():
                shutil.copyfile(out / name, kept / name)
    for row in rows:
        if row.ratio is not None and row.ratio >= WORSE:
            note(f"worse: {row.name}: {row.now:,.4g} {row.unit}, {row.before:,.4g} before")
    show(as_json, {**runs, "compared": [asdict(row) | {"ratio": row.ratio} for row in rows]}, "\n".join(lines))


@app.command
def capacity(
    *,
    users: Annotated[str, Parameter(help="Numbers of users, separated by commas.")] = "1e8,1e9",
    hours: Annotated[float, Parameter(help="Over which each service spreads the work of a round.")] = 24.0,
    bench: Annotated[Path, Parameter(help="What 'croupier bench' has measured, of two sizes at least.")] = Path(
        "out/bench.json"
    ),
    cluster: Annotated[Path, Parameter(help="What 'croupier research bench-cluster' has measured.")] = Path(
        "out/cluster.json"
    ),
    page: Annotated[Path | None, Parameter(help="Write the tables into this page, too.")] = None,
    as_json: Json = False,
) -> None:
    """Compute what rounds of very many users need, from what has been measured of small ones."""
    import json

    from research.bench.capacity import Machine, capacity_lines, costs_per_user, feed_of, needs
    from research.page_parts import write_part

    rows = json.loads(bench.read_text(encoding="utf-8"))["rows"]
    costs, feed = costs_per_user(rows), feed_of(json.loads(cluster.read_text(encoding="utf-8")))
    sizes, machine = _whole_numbers("users", users), Machine()
    lines = capacity_lines(costs, feed, sizes, hours, machine)
    if page is not None:
        write_part(page, "capacity", lines)
    needed = [
        {"users": size, "service": name, "first": need.first, **asdict(need)}
        for size in sizes
        for name, need in ((name, needs(cost, feed, size, hours, machine)) for name, cost in costs.items())
    ]
    show(as_json, {"hours": hours, "machine": asdict(machine), "rows": needed}, "\n".join(lines))


@app.command
def concept_pictures(
    *, out: Annotated[Path, Parameter(help="Directory of the pictures.")] = Path("docs/concepts"), as_json: Json = False
) -> None:
    """Draw the pictures of docs/concepts.md, whose numbers are computed exactly."""
    from research.concept_pictures import write_pictures

    written = [str(path) for path in write_pictures(out)]
    show(as_json, {"files": written}, "\n".join(written))


@app.command
def paper_results(
    *,
    seconds: Annotated[float, Parameter(help="How many seconds to search for each attack.")] = 2.0,
    source: Annotated[Path, Parameter(help="The source whose tables are replaced.")] = Path(
        "docs/paper/exchange-bound.md"
    ),
    as_json: Json = False,
) -> None:
    """Compute the tables and figures of the paper in docs/paper/."""
    from research.paper import draw_figures, paper_rows, write_tables

    rows = list(paper_rows(seconds, note))
    write_tables(rows, source)
    points = draw_figures(source.parent, seconds)
    show(as_json, {"rows": [asdict(row) for row in rows], "points": [asdict(row) for row in points]}, str(source))


@app.command
def paper_build(
    *,
    source: Annotated[Path, Parameter(help="Markdown with formulas.")] = Path("docs/paper/exchange-bound.md"),
    out: Annotated[Path, Parameter(help="Directory for the HTML page and the PDF.")] = Path("docs/paper"),
    as_json: Json = False,
) -> None:
    """Build the paper as one HTML page and as PDF; needs the extra 'paper'."""
    from research.paper import build_paper

    written = [str(path) for path in build_paper(source, out)]
    show(as_json, {"files": written}, "\n".join(written))


@app.command
def pages(
    *,
    check: Annotated[bool, Parameter(help="Change nothing; fail if a page would change.")] = False,
    as_json: Json = False,
) -> None:
    """Write the parts of pages that are made from the program, from proto/ and from tested files."""
    from research.pages import write_pages

    changed = [str(path) for path in write_pages(check=check)]
    if check and changed:
        raise ValueError(
            f"{', '.join(changed)}: the parts that a command writes are out of date; run 'croupier research pages'"
        )
    show(as_json, {"changed": changed}, "\n".join(changed) or "nothing has changed")


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(float(part)) for part in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is {text!r}; it must be whole numbers separated by commas") from error
