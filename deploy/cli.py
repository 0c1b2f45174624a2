"""The `croupier` command line. Each command also prints one JSON object with `--json`.

Exit codes: 0 done; 2 an input that cannot be used; 3 a service refused; 4 a service is out of reach; 5 the accountant
refused the round, so there is no result; 6 some submissions were not accepted. Messages go to standard error.

Commands import what they need when they run, so that `croupier --help` and a client stay light.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from deploy import accounting
from deploy.console import (
    BAD_INPUT,
    NOT_ACCEPTED,
    NOT_CERTIFIED,
    UNREACHABLE,
    Json,
    RandomizerOption,
    fail,
    plain_errors,
    run_async,
    show,
)
from deploy.training import command as training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accountant.ledger import Spent
    from protocol.questions import Question

__all__ = ["main"]

Choice = TypeVar("Choice", bound=str)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Statistics from private data, certified, through a shuffle."
)
round_app = typer.Typer(no_args_is_help=True, help="Open and close rounds, read results.")
app.add_typer(round_app, name="round")
accounting.add_commands(app)
training.add_commands(app)

Directory = Annotated[Path, typer.Option("--dir", help="The deployment's directory.")]
HERE = Path("croupier-local")


# ------------------------------------------------------------------ deployment


@app.command()
def keygen(
    directory: Directory = HERE,
    name: Annotated[str, typer.Option(help="The deployment's name.")] = "local",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    client: Annotated[Path | None, typer.Option(help="Instead: write one client's signing key to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make the keys of a deployment, or one client's key."""
    with plain_errors():
        from deploy.keygen import DEPLOYMENT_FILE, make_client_key, make_deployment

        if client is not None:
            public = make_client_key(client)
            show(as_json, {"client_key": public}, f"client key {public} in {client}")
            return
        deployment = make_deployment(directory, name, hops)
        names = [entry.name for entry in deployment.services]
        file = str(directory / DEPLOYMENT_FILE)
        show(as_json, {"deployment": file, "services": names}, f"{file}: {', '.join(names)}")


@app.command()
def rotate(
    name: Annotated[str, typer.Argument(help="The service's name.")],
    directory: Directory = HERE,
    activate: Annotated[bool, typer.Option("--activate", help="Second step: use the pending keys.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Last step: trust the old identity no more.")] = False,
    as_json: Json = False,
) -> None:
    """Change the identity and TLS key of a running service; hand out the deployment file after each step."""
    with plain_errors():
        from deploy import rotation
        from deploy.keygen import DEPLOYMENT_FILE

        if activate and retire:
            raise ValueError("activate and retire are two steps; allowed is one at a time")
        step = rotation.activate if activate else rotation.retire if retire else rotation.rotate
        entry = step(directory, name).service(name)
        document = {
            "service": name,
            "identity": entry.identity,
            "pending": entry.pending_identity,
            "retired": list(entry.retired_identities),
        }
        states = [f"active   {entry.identity}"]
        states += [f"pending  {entry.pending_identity}"] if entry.pending_identity else []
        states += [f"retired  {identity}" for identity in entry.retired_identities]
        show(as_json, document, "\n".join(states), f"hand {directory / DEPLOYMENT_FILE} to all services and clients")


@app.command()
def tokens(
    count: Annotated[int, typer.Argument(help="How many, 1 to a million.")],
    out: Annotated[Path, typer.Option(help="A new file for them, one a line.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Issue one-use tokens: each admits one person, with a key of their own making, to one round."""
    from deploy.keygen import write_secret
    from deploy.operator import Operator

    async def issue() -> list[bytes]:
        if not 1 <= count <= 1_000_000:
            raise ValueError(f"count is {count}; allowed are 1..1000000")
        if out.exists():
            raise ValueError(f"{out} exists; choose another file")
        async with Operator(directory) as operator:
            return await operator.issue_tokens(count)

    issued = run_async(issue())
    write_secret(out, "".join(f"{token.hex()}\n" for token in issued))
    show(as_json, {"count": count, "file": str(out)}, f"{count} tokens in {out}; hand each to one person")


@app.command()
def serve(name: Annotated[str, typer.Argument(help="The service's name.")], directory: Directory = HERE) -> None:
    """Run one service in the foreground until SIGTERM."""
    with plain_errors():
        from deploy.serve import serve as run

        run(name, directory)


@app.command()
def up(
    directory: Directory = HERE,
    hops: Annotated[int, typer.Option(help="Number of shufflers, when the directory is new.")] = 2,
    as_json: Json = False,
) -> None:
    """Start a local deployment, each service in its own process."""
    with plain_errors():
        from deploy.local import LocalDeployment

        pids = LocalDeployment(directory.absolute(), hops).up()
        lines = "\n".join(f"{name}  pid {pid}" for name, pid in pids.items())
        show(as_json, {"pids": pids}, f"{lines}\nin {directory}; stop with: croupier down --dir {directory}")


@app.command()
def down(directory: Directory = HERE, as_json: Json = False) -> None:
    """Stop a local deployment."""
    with plain_errors():
        from deploy.keygen import DEPLOYMENT_FILE
        from deploy.local import LocalDeployment
        from protocol.deployment import load_deployment

        load_deployment(directory / DEPLOYMENT_FILE)
        stopped = LocalDeployment(directory.absolute()).down()
        show(as_json, {"stopped": stopped}, f"stopped: {', '.join(stopped) or 'nothing was running'}")


@app.command()
def status(directory: Directory = HERE, as_json: Json = False) -> None:
    """Show every service, whether it is ready, and its newest rounds."""
    import grpc

    from deploy.documents import status_json
    from deploy.operator import Operator

    async def ask() -> list[dict[str, Any]]:
        async with Operator(directory) as operator:
            answers, health = await operator.status(), await operator.readiness()
            return [
                {
                    **(
                        {"service": name, "problem": answer.code().name, "rounds": []}
                        if isinstance(answer, grpc.aio.AioRpcError)
                        else status_json(answer)
                    ),
                    "health": serving,
                }
                for name, answer, serving in zip(operator.deployment.chain, answers, health, strict=True)
            ]

    services = run_async(ask())
    from rich.table import Table

    table = Table("service", "health", "round", "state", "clients", "problem")
    for service in services:
        rounds = service["rounds"] or [{"round_id": "", "state": "", "num_items": "", "problem": ""}]
        for one in rounds[:5]:
            problem = one["problem"] or service.get("problem", "")
            items = str(one["num_items"] or "")
            table.add_row(service["service"], service["health"], one["round_id"], one["state"], items, problem)
    show(as_json, {"services": services}, table)
    if any(service.get("problem") for service in services):
        raise typer.Exit(UNREACHABLE)


# ------------------------------------------------------------------ rounds


def _question(
    name: str,
    randomizer: str,
    k: int | None,
    labels: str | None,
    low: float | None,
    high: float | None,
    lattice: int | None,
    local_delta: float | None,
) -> Question:
    from protocol.questions import RANDOMIZERS, Question

    for known in RANDOMIZERS:
        if randomizer == known:
            letters = tuple(labels.split(",")) if labels else ()
            steps = lattice or {"laplace": 1000, "gaussian": 100}.get(known)
            return Question(
                name,
                known,
                k=k or len(letters) or None,
                low=low,
                high=high,
                lattice=steps,
                labels=letters,
                local_delta=local_delta,
            )
    raise ValueError(f"randomizer is {randomizer!r}; allowed are {', '.join(RANDOMIZERS)}")


def _one_of(name: str, value: str, allowed: tuple[Choice, ...]) -> Choice:
    for known in allowed:
        if value == known:
            return known
    raise ValueError(f"{name} is {value!r}; allowed are {', '.join(allowed)}")


@round_app.command("open")
def round_open(
    name: Annotated[str, typer.Argument(help="A short name for the question.")],
    directory: Directory = HERE,
    randomizer: RandomizerOption = "rr",
    k: Annotated[int | None, typer.Option(help="krr: the number of letters.")] = None,
    labels: Annotated[str | None, typer.Option(help="krr: the letters, separated by commas.")] = None,
    low: Annotated[float | None, typer.Option(help="A number: the smallest value.")] = None,
    high: Annotated[float | None, typer.Option(help="A number: the largest value.")] = None,
    lattice: Annotated[int | None, typer.Option(help="Steps from low to high (laplace 1000, gaussian 100).")] = None,
    local_delta: Annotated[float | None, typer.Option(help="gaussian: the delta of every local budget.")] = None,
    grid: Annotated[str, typer.Option(help="The local epsilons that clients may use.")] = "0.1,0.25,0.5,1,2,4",
    delta: Annotated[float, typer.Option(help="The central delta to certify.")] = 1e-6,
    epsilon_max: Annotated[float, typer.Option(help="Refuse to release above this certified epsilon.")] = 1.0,
    dishonest: Annotated[int, typer.Option(help="Certify against this many dishonest clients.")] = 0,
    min_batch_size: Annotated[int, typer.Option(help="Fewest clients that are mixed.")] = 100,
    max_batch_size: Annotated[int, typer.Option(help="Most clients that are admitted; 0: all that may.")] = 0,
    short_batch: Annotated[str, typer.Option(help="With fewer: hold the round open, or dispose of it.")] = "hold",
    suite: Annotated[str, typer.Option(help="HPKE suite.")] = "x25519-sha256-chacha20poly1305",
    close_after_s: Annotated[float, typer.Option(help="Close by itself after so long; 0: by hand.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Open a round: every service makes keys and signs the manifest."""
    import time

    from deploy.operator import Operator, RoundSettings
    from protocol.envelope import SUITES

    async def open_it() -> str:
        try:
            budgets = tuple(sorted(float(part) for part in grid.split(",")))
        except ValueError as error:
            raise ValueError(f"grid is {grid!r}; numbers separated by commas are expected") from error
        settings = RoundSettings(
            _question(name, randomizer, k, labels, low, high, lattice, local_delta),
            budgets,
            delta=delta,
            epsilon_max=epsilon_max,
            dishonest=dishonest,
            min_batch_size=min_batch_size,
            max_batch_size=max_batch_size,
            short_batch_policy=_one_of("short_batch", short_batch, ("hold", "dispose")),
            hpke_suite=_one_of("suite", suite, SUITES),
            close_deadline_unix_s=math.ceil(time.time() + close_after_s) if close_after_s else 0,
        )
        async with Operator(directory) as operator:
            return (await operator.open_round(settings)).round_id

    round_id = run_async(open_it())
    show(as_json, {"round_id": round_id}, f"round {round_id} is open")


@round_app.command("close")
def round_close(
    round_id: Annotated[str, typer.Argument(help="As printed by 'round open'.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """End admission; the round is then mixed, certified and published by itself."""
    from deploy.operator import Operator
    from protocol.v1 import messages_pb2 as pb

    async def close_it() -> tuple[str, int]:
        async with Operator(directory) as operator:
            answer = await operator.close_round(round_id)
            return pb.RoundState.Name(answer.state).removeprefix("ROUND_STATE_"), answer.num_clients

    state, clients = run_async(close_it())
    note = {"OPEN": " (too few clients: held)", "DISPOSED": " (too few clients: deleted)"}.get(state, "")
    show(as_json, {"round_id": round_id, "state": state, "num_clients": clients}, f"{state}{note}: {clients} clients")


@round_app.command("result")
def round_result(
    round_id: Annotated[str, typer.Argument(help="As printed by 'round open'.")],
    directory: Directory = HERE,
    wait_s: Annotated[float, typer.Option(help="How long to wait for it.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Print a published result with its certificate, both verified."""
    from rich.table import Table

    from client.rounds import fetch_publication
    from deploy.documents import publication_json
    from deploy.keygen import DEPLOYMENT_FILE
    from deploy.render import certificate_table
    from protocol.deployment import load_deployment
    from protocol.transport import public_channel

    async def fetch() -> tuple[Any, Any]:
        deployment = load_deployment(directory / DEPLOYMENT_FILE)
        async with public_channel(deployment.analyzer) as channel:
            return await fetch_publication(channel, deployment, round_id, wait_s)

    publication, certificate = run_async(fetch())
    if not certificate.granted:
        raise fail(NOT_CERTIFIED, f"the accountant refused round {round_id}: {'; '.join(certificate.refusals)}")
    result = publication_json(publication, certificate)
    table = Table("", "estimate", "± standard error", "95 % interval")
    for value in publication.values:
        interval = f"[{value.confidence_interval.low:.5g}, {value.confidence_interval.high:.5g}]"
        table.add_row(value.label, f"{value.estimate:.5g}", f"{value.standard_error:.2g}", interval)
    show(as_json, result, table, certificate_table(result["certificate"]), *result["notes"])


@app.command()
def submit(
    directory: Directory = HERE,
    round_id: Annotated[str, typer.Option("--round", help="The round; the newest open one if not given.")] = "",
    value: Annotated[str | None, typer.Option(help="One user's value.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="One user's wish: the largest local epsilon to spend.")] = None,
    key: Annotated[Path | None, typer.Option(help="One user's key, from 'keygen --client'.")] = None,
    token: Annotated[str, typer.Option(help="One user's one-use token, instead of a registered key.")] = "",
    enrol: Annotated[bool, typer.Option(help="Also register the key, with the operator's certificate.")] = False,
    csv: Annotated[Path | None, typer.Option(help="A fleet: one user per row.")] = None,
    value_column: Annotated[str | None, typer.Option(help="Fleet: the column of values.")] = None,
    epsilon_column: Annotated[str | None, typer.Option(help="Fleet: the column of wishes.")] = None,
    budgets: Annotated[
        str, typer.Option(help="Fleet: groups epsilon:share that wishes are drawn from.")
    ] = "0.5:54,1:37,2:9",
    limit: Annotated[int | None, typer.Option(help="Fleet: use the first so many rows.")] = None,
    as_json: Json = False,
) -> None:
    """Randomize, seal and submit: one user, or a fleet from a CSV file."""
    if csv is not None:
        _submit_fleet(directory, round_id, csv, value_column, epsilon_column, budgets, limit, as_json)
        return

    from deploy.single import submit_one
    from protocol.errors import Code

    async def send() -> tuple[str, str, float]:
        if value is None or epsilon is None:
            raise ValueError("value or epsilon is missing; one user needs --value and --epsilon, a fleet --csv")
        try:
            admits = bytes.fromhex(token)
        except ValueError as error:
            raise ValueError(f"token is {token!r}; 64 hexadecimal digits are expected") from error
        return await submit_one(directory, round_id, value, epsilon, key, token=admits, enrol=enrol)

    sent_to, code, spent = run_async(send())
    show(
        as_json,
        {"round_id": sent_to, "code": code, "local_epsilon": spent},
        f"{code} in round {sent_to}, local ε {spent:g}",
    )
    if code != "ACCEPTED":
        raise fail(NOT_ACCEPTED, Code[code].message)


def _submit_fleet(
    directory: Path,
    round_id: str,
    csv: Path,
    value_column: str | None,
    epsilon_column: str | None,
    budgets: str,
    limit: int | None,
    as_json: bool,
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from client.submission import Participant
    from deploy.fleet import fleet_json, play_people
    from deploy.people import parse_wishes, read_people
    from protocol.manifest import RoundTerms

    if value_column is None:
        raise fail(BAD_INPUT, "value_column is missing; a fleet needs --value-column")
    rejected: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(value_column)

        def read(terms: RoundTerms) -> dict[str, Participant]:
            people = read_people(
                csv, value_column, terms.question, parse_wishes(budgets), epsilon_column=epsilon_column, limit=limit
            )
            rejected.update(people.rejected)
            return people.users

        terms, report = run_async(
            play_people(directory, round_id, read, lambda done, total: bar.update(task, completed=done, total=total))
        )
    for reason in list(rejected.values())[:10]:
        Console(stderr=True).print(f"left out: {reason}", highlight=False)
    document = {"round_id": terms.round_id, **fleet_json(report), "rejected": len(rejected)}
    codes = ", ".join(f"{count} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in report.codes.items())
    show(as_json, document, f"round {terms.round_id}: {codes}; {len(rejected)} rows left out")
    if report.accepted != report.codes.total():
        raise typer.Exit(NOT_ACCEPTED)


@app.command()
def verify(
    round_id: Annotated[str, typer.Argument(help="A closed round.")], directory: Directory = HERE, as_json: Json = False
) -> None:
    """Check that hop 1 has passed on everything that was submitted from here."""
    from deploy.single import verify_inclusion

    submitted, missing = run_async(verify_inclusion(directory, round_id))
    show(as_json, {"submitted": submitted, "missing": missing}, f"{submitted} submitted, {len(missing)} missing")
    if missing:
        raise typer.Exit(NOT_ACCEPTED)


@app.command()
def canary(
    round_id: Annotated[str, typer.Argument(help="An open round, or with --check a finished one.")],
    directory: Directory = HERE,
    count: Annotated[int, typer.Option(help="How many; the round has to allow for as many dishonest clients.")] = 1,
    check: Annotated[bool, typer.Option(help="Look for them behind every hop.")] = False,
    as_json: Json = False,
) -> None:
    """Play clients of your own, and find out whether a hop loses or replaces submissions."""
    from deploy.canary import check_canaries, send_canaries

    if not check:
        sent = run_async(send_canaries(directory, round_id, count))
        show(as_json, {"round_id": round_id, "canaries": sent}, f"{sent} canaries in round {round_id}")
        return
    report = run_async(check_canaries(directory, round_id))
    lines = [f"{name}: {count} of {report.sent} canaries missing" for name, count in report.missing.items()]
    show(as_json, {"canaries": report.sent, "missing": report.missing}, "\n".join(lines))
    if any(report.missing.values()):
        raise typer.Exit(NOT_ACCEPTED)


@app.command()
def ledger(
    directory: Directory = HERE,
    delta: Annotated[float, typer.Option(help="The total delta to state the cost at.")] = 1e-6,
    backup: Annotated[Path | None, typer.Option(help="Write the ledger to this new file.")] = None,
    restore: Annotated[Path | None, typer.Option(help="Enter the rounds of this backup; stop the accountant.")] = None,
    as_json: Json = False,
) -> None:
    """Show what all rounds together have cost, or back that record up. Run it where the accountant runs."""
    with plain_errors():
        from deploy.ledger import backup_ledger, restore_ledger, spent

        if backup is not None and restore is not None:
            raise ValueError("backup and restore are two steps; allowed is one at a time")
        if backup is not None:
            rounds = backup_ledger(directory, backup)
            show(as_json, {"rounds": rounds, "file": str(backup)}, f"{rounds} rounds in {backup}")
        elif restore is not None:
            rounds = restore_ledger(directory, restore)
            show(as_json, {"rounds": rounds, "file": str(restore)}, f"the ledger has {rounds} rounds")
        else:
            _show_spent(spent(directory, delta), delta, as_json)


def _show_spent(tiers: Sequence[Spent], delta: float, as_json: bool) -> None:
    from rich.table import Table

    table = Table("who took part with", "rounds", f"total ε at δ = {delta:g}")
    for one in tiers:
        table.add_row(one.tier, str(one.rounds), f"{one.guarantee.epsilon:.4g}" if one.guarantee else "no bound")
    document = [
        {"tier": one.tier, "rounds": one.rounds, "epsilon": one.guarantee.epsilon if one.guarantee else None}
        for one in tiers
    ]
    show(as_json, {"delta": delta, "spent": document}, table)


# ------------------------------------------------------------------ demo and bench


@app.command()
def demo(
    csv: Annotated[Path | None, typer.Option(help="A file of your own, one row a person.")] = None,
    value_column: Annotated[str | None, typer.Option(help="The column to ask about.")] = None,
    low: Annotated[float | None, typer.Option(help="For a mean: the smallest possible value.")] = None,
    high: Annotated[float | None, typer.Option(help="For a mean: the largest possible value.")] = None,
    users: Annotated[int | None, typer.Option(help="Use the first so many rows.")] = None,
    budgets: Annotated[
        str, typer.Option(help="Groups epsilon:share that users' wishes are drawn from.")
    ] = "0.5:54,1:37,2:9",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    delta: Annotated[float, typer.Option(help="The central delta to certify.")] = 1e-6,
    plot: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path("out/demo.png"),
    as_json: Json = False,
) -> None:
    """Run a whole deployment on loopback and answer questions about real people."""
    from rich.console import Console

    from deploy.demo import SURVEY, SURVEY_QUESTIONS, DemoQuestion, demo_json, run_demo
    from deploy.local import LocalDeployment
    from deploy.people import guess_question, parse_wishes
    from deploy.render import demo_table, plot_demo, privacy_table, stage_table

    say = Console(stderr=True)
    with plain_errors(), tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        questions: tuple[DemoQuestion, ...] = SURVEY_QUESTIONS
        if csv is not None or value_column is not None:
            if csv is None or value_column is None:
                raise ValueError("a file of your own needs both --csv and --value-column")
            questions = (DemoQuestion(guess_question(csv, value_column, low, high, users), value_column),)
        wishes = parse_wishes(budgets)
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        say.print(f"starting {hops} shufflers, the accountant and the analyzer, each in its own process, over TLS …")
        try:
            local.up()
            answers = asyncio.run(
                run_demo(local.directory, csv or SURVEY, questions, wishes, limit=users, delta=delta, quiet=as_json)
            )
        finally:
            local.down()
        result = demo_json(answers)
        plot_demo(result, plot)
        show(as_json, result, demo_table(result), privacy_table(result), stage_table(result), f"plot: {plot}")


@app.command()
def bench(
    users: Annotated[str, typer.Option(help="Numbers of users, separated by commas.")] = "100,1000,10000,100000",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    out: Annotated[Path, typer.Option(help="Directory for bench.json and bench.png.")] = Path("out"),
    as_json: Json = False,
) -> None:
    """Measure throughput against the number of users, beside the bare cryptography."""
    from rich.console import Console

    from deploy.bench import bench as measure
    from deploy.local import LocalDeployment
    from deploy.render import bench_table, plot_bench

    say = Console(stderr=True)
    with plain_errors(), tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        try:
            sizes = [int(float(part)) for part in users.split(",")]
        except ValueError as error:
            raise ValueError(f"users is {users!r}; whole numbers separated by commas are expected") from error
        if min(sizes) < 2:
            raise ValueError(f"users is {users!r}; at least 2 are needed")
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        try:
            local.up()
            result = asyncio.run(
                measure(
                    local.directory,
                    sizes,
                    lambda row: say.print(
                        f"{row['users']:,} users: {row['wall_s']:.2f} s, {row['ratio_to_floor']:.2f} of the floor"
                    ),
                )
            )
        finally:
            local.down()
        plot_bench(result["rows"], out / "bench.png")
        (out / "bench.json").write_text(json.dumps(result, indent=1))
        show(as_json, result, bench_table(result["rows"]), f"{out / 'bench.json'}, {out / 'bench.png'}")


def main() -> None:
    # Small products only: a second BLAS thread waits busily and takes the core from whoever else needs it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    app()


if __name__ == "__main__":
    main()
