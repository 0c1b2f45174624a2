"""Commands for whoever runs services: their keys, starting and stopping them, their state, the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.cli.console import HERE, UNREACHABLE, Directory, Json, plain_errors, run_async, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accountant.service.ledger import Spent

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    for command in (keygen, rotate, tokens, serve, up, down, status, ledger):
        app.command()(command)


def keygen(
    directory: Directory = HERE,
    name: Annotated[str, typer.Option(help="The deployment's name.")] = "local",
    hops: Annotated[int, typer.Option(help="Number of shufflers.")] = 2,
    client: Annotated[Path | None, typer.Option(help="Instead: write one client's signing key to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Make the keys of a deployment, or one client's key."""
    with plain_errors():
        from deploy.operator.keys import DEPLOYMENT_FILE, make_client_key, make_deployment

        if client is not None:
            public = make_client_key(client)
            show(as_json, {"client_key": public}, f"client key {public} in {client}")
            return
        deployment = make_deployment(directory, name, hops)
        names = [entry.name for entry in deployment.services]
        file = str(directory / DEPLOYMENT_FILE)
        show(as_json, {"deployment": file, "services": names}, f"{file}: {', '.join(names)}")


def rotate(
    name: Annotated[str, typer.Argument(help="The service's name.")],
    directory: Directory = HERE,
    activate: Annotated[bool, typer.Option("--activate", help="Second step: use the pending keys.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Last step: trust the old identity no more.")] = False,
    as_json: Json = False,
) -> None:
    """Change the identity and TLS key of a running service; hand out the deployment file after each step."""
    with plain_errors():
        from deploy.operator import rotation
        from deploy.operator.keys import DEPLOYMENT_FILE

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


def tokens(
    count: Annotated[int, typer.Argument(help="How many, 1 to a million.")],
    out: Annotated[Path, typer.Option(help="A new file for them, one a line.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Issue one-use tokens: each admits one person, with a key of their own making, to one round."""
    from deploy.operator.keys import write_secret
    from deploy.operator.rounds import Operator

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


def serve(name: Annotated[str, typer.Argument(help="The service's name.")], directory: Directory = HERE) -> None:
    """Run one service in the foreground until SIGTERM."""
    with plain_errors():
        from deploy.node.serve import serve as run

        run(name, directory)


def up(
    directory: Directory = HERE,
    hops: Annotated[int, typer.Option(help="Number of shufflers, when the directory is new.")] = 2,
    as_json: Json = False,
) -> None:
    """Start a local deployment, each service in its own process."""
    with plain_errors():
        from deploy.local.processes import LocalDeployment

        pids = LocalDeployment(directory.absolute(), hops).up()
        lines = "\n".join(f"{name}  pid {pid}" for name, pid in pids.items())
        show(as_json, {"pids": pids}, f"{lines}\nin {directory}; stop with: croupier down --dir {directory}")


def down(directory: Directory = HERE, as_json: Json = False) -> None:
    """Stop a local deployment."""
    with plain_errors():
        from deploy.local.processes import LocalDeployment
        from deploy.operator.keys import DEPLOYMENT_FILE
        from protocol.deployment import load_deployment

        load_deployment(directory / DEPLOYMENT_FILE)
        stopped = LocalDeployment(directory.absolute()).down()
        show(as_json, {"stopped": stopped}, f"stopped: {', '.join(stopped) or 'nothing was running'}")


def status(directory: Directory = HERE, as_json: Json = False) -> None:
    """Show every service, whether it is ready, and its newest rounds."""
    import grpc

    from deploy.operator.documents import status_json
    from deploy.operator.rounds import Operator

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


def ledger(
    directory: Directory = HERE,
    delta: Annotated[float, typer.Option(help="The total delta to state the cost at, above 0.")] = 1e-6,
    backup: Annotated[Path | None, typer.Option(help="Write the ledger to this new file.")] = None,
    restore: Annotated[
        Path | None, typer.Option(help="Enter the rounds of this backup; stop the accountant before.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what all rounds together have cost, or back that record up. Run it where the accountant runs."""
    with plain_errors():
        from deploy.operator.ledger import backup_ledger, restore_ledger, spent

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

    table = Table("who took part with", "rounds", f"total ε at δ = {delta:g}, CERTIFIED")
    for one in tiers:
        table.add_row(one.tier, str(one.rounds), f"{one.guarantee.epsilon:.4g}" if one.guarantee else "no bound")
    document = [
        {"tier": one.tier, "rounds": one.rounds, "epsilon": one.guarantee.epsilon if one.guarantee else None}
        for one in tiers
    ]
    show(as_json, {"delta": delta, "spent": document}, table)
