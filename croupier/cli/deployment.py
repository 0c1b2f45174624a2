"""Commands of operators: keys, starting and stopping services, their state, the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Group
from rich.live import Live
from rich.text import Text

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.cli.console import HERE, NOT_NOW, Argument, Directory, Hops, Json, lines_of, plain_errors, show
from croupier.cli.web import serve_page
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.processes import LocalDeployment
from croupier.deploy.node.extras import check_installed
from croupier.operator import rotation
from croupier.operator.canaries import enrol_with_canaries
from croupier.operator.keys import make_client_key, make_cluster_keys, make_collector_key, make_deployment
from croupier.operator.ledger_stores import has_ledger, hop_ledgers, new_ledger
from croupier.operator.operator import Operator
from croupier.operator.overview import overview, watch
from croupier.operator.roster import enrolled, read_keys, revoke_keys
from croupier.operator.storage_key import rotate_storage_key, storage_key_manifests
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.protocol.names import JsonObject
from croupier.show.blocks import Block
from croupier.show.documents import spent_json
from croupier.show.ledger import left_lines, noise_line, spent_blocks
from croupier.show.round_text import rounds_sections, services_text
from croupier.show.terminal import drawn
from croupier.show.text import counted

ServiceName = Annotated[str, Argument(help="The service: shuffler-1, shuffler-2, …, accountant or analyzer.")]

_MOST_ROUNDS = 5
"""The most rounds that a status shows."""
_EVERY_S = 2.0
"""Seconds between two looks at the services."""
_WATCHED = ("service", "health", "problem")
"""The fields of a service whose changes are printed."""


def keygen(
    *,
    directory: Directory = HERE,
    name: Annotated[str, Parameter(help="The deployment's name.")] = "local",
    hops: Hops = 2,
    client: Annotated[Path | None, Parameter(help="Instead: write one client's signing key to this file.")] = None,
    collector: Annotated[
        Path | None, Parameter(help="Instead: write a collector's key to this file, and its public half to FILE.pub.")
    ] = None,
    cluster: Annotated[
        Path | None,
        Parameter(
            help="Instead: write the certificates of scheduler, workers and client of a cluster into this new "
            "directory, by an authority that signs nothing else; a service's own is cluster/ in its directory."
        ),
    ] = None,
    suite: Annotated[str, Parameter(help="HPKE suite of a collector's key.")] = "x25519-sha256-chacha20poly1305",
    as_json: Json = False,
) -> None:
    if (client is not None) + (collector is not None) + (cluster is not None) > 1:
        raise ValueError("client, collector and cluster have keys of their own; give one at a time")
    if client is not None:
        public = make_client_key(client)
        document = {"client_key": public, "file": str(client), "public": f"{client}.pub"}
        show(as_json, document, f"client key {public} in {client}; give the operator {client}.pub")
        return
    if collector is not None:
        public_file = make_collector_key(collector, suite)
        document = {"collector_key": str(collector), "public": str(public_file)}
        show(as_json, document, f"{collector} opens results; give {public_file} to 'survey open --collector'")
        return
    if cluster is not None:
        files = [str(file) for file in make_cluster_keys(cluster)]
        show(as_json, {"files": files}, "\n".join(files))
        return
    deployment = make_deployment(directory, name, hops)
    names = [entry.name for entry in deployment.services]
    file = str(directory / DEPLOYMENT_FILE)
    show(as_json, {"deployment": file, "services": names}, f"{file}: {', '.join(names)}")


def rotate(
    name: ServiceName,
    /,
    *,
    directory: Directory = HERE,
    activate: Annotated[bool, Parameter(help="Second step: use the pending keys.")] = False,
    compromised: Annotated[
        bool,
        Parameter(
            help="After the second step, where someone else may know the old identity: nothing that it has signed is "
            "believed any more, results of its time included."
        ),
    ] = False,
    storage_key: Annotated[
        bool, Parameter(help="Instead: change the storage key of the service, which is stopped.")
    ] = False,
    host: Annotated[str, Parameter(help="In the first step: the host that the service moves to.")] = "",
    kubernetes: Annotated[bool, Parameter(help="In a pod: print the step as manifests for 'kubectl apply'.")] = False,
    as_json: Json = False,
) -> None:
    if activate and compromised:
        raise ValueError("activate and compromised are two steps; give one at a time")
    if storage_key:
        if activate or compromised or host:
            raise ValueError("storage-key is a change of its own; give it without activate, compromised and host")
        _rotate_storage_key(directory, name, kubernetes, as_json)
        return
    if activate or compromised:
        if host:
            raise ValueError("host belongs to the first step, which makes the certificate for it")
        step = rotation.activate if activate else rotation.mark_compromised
        deployment = step(directory, name, in_pod=kubernetes)
    else:
        deployment = rotation.rotate(directory, name, host=host, in_pod=kubernetes)
    if kubernetes:
        show(True, rotation.manifests_of(directory, name, deployment))
        return
    entry = deployment.service(name)
    document = {
        "service": name,
        "identity": entry.identity,
        "pending": entry.pending_identity,
        "not_signed_by": deployment.not_signed_by(),
        "retired": [retired.model_dump(mode="json") for retired in entry.retired_identities],
    }
    states = [f"active   {entry.identity}"]
    states += [f"pending  {entry.pending_identity}"] if entry.pending_identity else []
    for retired in entry.retired_identities:
        until = f", valid until {retired.valid_until:%Y-%m-%d %H:%M UTC}" if retired.valid_until else ""
        states.append(f"retired  {retired.identity}{until}{', compromised' * retired.compromised}")
    missing = deployment.not_signed_by()
    if missing:
        after = f"{directory}/proposal.toml lacks the signature of {', '.join(missing)}: sign it, and send it on, or "
        after += f"have {name}.public.toml assembled with the changes of others ('croupier proposal new --help')"
    else:
        after = f"all have signed {directory / DEPLOYMENT_FILE}; services and clients fetch it"
    lines = ["\n".join(states), after]
    if activate:
        lines.append(
            "rounds from before and their results stay valid; where someone else may know the old identity, go on "
            "with --compromised"
        )
    if compromised:
        lines.append("rounds and results that only this identity has signed are not believed any more")
    show(as_json, document, *lines)


def _rotate_storage_key(directory: Path, name: str, kubernetes: bool, as_json: bool) -> None:
    if kubernetes:
        show(True, storage_key_manifests(directory, name))
        return
    file = rotate_storage_key(directory, name)
    if file is None:
        said = f"{name} has a new storage key; start it, and destroy every copy of the old one"
    else:
        said = f"put {file} where the settings of {name} take the storage key, delete it here, and start {name}"
    show(as_json, {"service": name, "file": str(file) if file else None}, said)


def enrol(
    *files: Annotated[
        Path,
        Parameter(
            "FILE",
            help="Clients' public keys: FILE.pub of 'keygen --client', or one KEY or KEY,LABEL a line, CSV or Excel; - "
            "for standard input.",
        ),
    ],
    label: Annotated[str, Parameter(help="Whose key it is, for a single key without a label.")] = "",
    canaries: Annotated[int, Parameter(help="Extra keys to enrol among these, reserved for 'croupier canary'.")] = 0,
    listed: Annotated[bool, Parameter("--list", help="Instead: show who has been enrolled from here.")] = False,
    revoke: Annotated[
        list[str] | None,
        Parameter(
            metavar="KEY",
            help="Instead: revoke this public key, as 'keygen --client' has printed it, for good; may be repeated.",
        ),
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    if revoke:
        if files or label or canaries or listed:
            raise ValueError("--revoke ends the admission of keys, and takes no file and no other option but --dir")
        counts = asyncio.run(revoke_keys(directory, revoke))
        lines = [f"{name}: {count:,} revoked that were not before" for name, count in counts.items()]
        show(as_json, {"revoked": counts}, *lines)
        return
    if listed:
        if files or label or canaries:
            raise ValueError("--list shows who is enrolled, and takes no file, no --label and no --canaries")
        read_deployment(directory)
        roster = enrolled(directory)
        texts = [entry.line() for entry in roster] or ["no client has been enrolled from here"]
        show(
            as_json,
            {"enrolled": [asdict(entry) for entry in roster]},
            *(Text(text, no_wrap=True) for text in texts),
        )
        return
    keys = [key for file in files for key in read_keys(lines_of(file), str(file))]
    if label:
        if len(keys) != 1 or keys[0].label not in ("", label):
            raise ValueError(
                f"--label names the owner of one key without a label, and {counted(len(keys), 'key')} are given; "
                "write KEY,LABEL on each line instead"
            )
        keys = [replace(keys[0], label=label)]
    new = asyncio.run(enrol_with_canaries(directory, keys, canaries))
    document = {"enrolled": len(keys) + canaries, "new": new}
    show(as_json, document, f"enrolled: {counted(len(keys) + canaries, 'key')}, {new:,} of them new in the list")


def serve(name: ServiceName, /, *, directory: Directory = HERE) -> None:
    from croupier.deploy.node.serve import serve as run

    run(name, directory)


def up(
    *,
    directory: Directory = HERE,
    hops: Annotated[int, Parameter(help="Number of shufflers, 1..32, when the directory is new.")] = 2,
    console: Annotated[
        bool, Parameter(help="Then serve 'croupier console' until Ctrl-C; the deployment stays up.")
    ] = False,
    as_json: Json = False,
) -> None:
    needed = "console" if console else "accountant"  # which comes with what every service needs
    with plain_errors(needed):
        check_installed(needed)
    pids = LocalDeployment(directory.resolve(), hops, stays=True).up()
    lines = "\n".join(f"{name}  pid {pid}" for name, pid in pids.items())
    ending = Text(f"croupier down --dir {directory}", no_wrap=True)
    show(as_json, {"pids": pids}, f"{lines}\nin {directory}; stop with:", ending)
    if console:
        serve_page(directory)


def down(*, directory: Directory = HERE, as_json: Json = False) -> None:
    read_deployment(directory)  # else LocalDeployment would make one
    stopped = LocalDeployment(directory.resolve()).down()
    show(as_json, {"stopped": stopped}, f"stopped: {', '.join(stopped) or 'nothing was running'}")


def status(
    *,
    directory: Directory = HERE,
    watch: Annotated[bool, Parameter(help="Go on until Ctrl-C; with --json one line for every change.")] = False,
    as_json: Json = False,
) -> None:
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(directory, as_json))
        return

    async def ask() -> JsonObject:
        async with Operator(directory, only_reads=True) as operator:
            return await overview(operator, {})

    seen = asyncio.run(ask())
    show(as_json, seen, *_state(seen))
    if any(service.get("problem") for service in seen["services"]):
        raise SystemExit(NOT_NOW)


def _state(seen: JsonObject) -> tuple[Block | str, ...]:
    """The services, and the newest rounds."""
    rounds = rounds_sections(seen, time.time(), most=_MOST_ROUNDS, services=True)
    return services_text(seen["services"]), "", *rounds


async def _watch(directory: Path, as_json: bool) -> None:
    """Shows the state again and again, or writes a line of JSON whenever it is another."""
    async with Operator(directory, only_reads=True) as operator:
        if as_json:
            before = ""
            async for seen in watch(operator, ticks()):
                services = [{name: service.get(name) for name in _WATCHED} for service in seen["services"]]
                line = json.dumps({"services": services, "rounds": seen["rounds"]})
                if line != before:
                    sys.stdout.write(f"{line}\n")
                    sys.stdout.flush()
                before = line
            return
        with Live(auto_refresh=False) as live:
            async for seen in watch(operator, ticks()):
                now = f"{datetime.now(UTC):%H:%M:%S} UTC; Ctrl-C ends this"
                live.update(Group(now, "", *map(drawn, _state(seen))), refresh=True)


async def ticks() -> AsyncIterator[None]:
    """When to look again."""
    while True:
        yield
        await asyncio.sleep(_EVERY_S)


def ledger(
    *,
    directory: Directory = HERE,
    delta: Annotated[float, Parameter(help="The total delta to state the cost at, 0 < delta < 1.")] = DEFAULT_DELTA,
    backup: Annotated[Path | None, Parameter(help="Write the ledger to this new file.")] = None,
    restore: Annotated[
        Path | None, Parameter(help="Enter the rounds of this backup; stop the accountant first.")
    ] = None,
    begin: Annotated[
        str,
        Parameter(
            "--new-ledger",
            metavar="NAME",
            help="State that the empty ledger of the accountant, or of this shuffler, begins at zero; stop it first.",
        ),
    ] = "",
    fixed_terms: Annotated[
        bool,
        Parameter(
            negative="--no-fixed-terms",
            help="State that all rounds, and who takes part in each with which budget, were fixed before the first "
            "result. Privacy losses then compose, to less than what holds however rounds were chosen.",
        ),
    ] = False,
    forecast: Annotated[
        bool, Parameter(help="Say how many more rounds like the earlier ones the limit allows.")
    ] = False,
    as_json: Json = False,
) -> None:
    if (backup is not None) + (restore is not None) + bool(begin) > 1:
        raise ValueError("--backup, --restore and --new-ledger are steps of their own; give one at a time")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta:g}; it must be 0 < delta < 1")
    if begin:
        new_ledger(directory, begin)
        show(as_json, {"service": begin}, f"the ledger of {begin} begins at zero")
        return
    only_shows = backup is None and restore is None and not forecast
    hops = hop_ledgers(directory) if only_shows else {}
    hop_lines = [noise_line(name, noise) for name, noise in hops.items()]
    if hops and not has_ledger(directory):
        show(as_json, {"hops": hops}, *hop_lines)
        return
    if only_shows and not has_ledger(directory):
        raise ValueError(f"{directory} has no store of the accountant; run this where the accountant's directory is")
    # The accountant's ledger needs numeric libraries, which only the accountant's machine has.
    from croupier.operator.ledger import (
        backup_ledger,
        budgets_told,
        published_without_entry,
        restore_ledger,
        rounds_left,
        spent,
    )

    if backup is not None:
        rounds = backup_ledger(directory, backup)
        show(as_json, {"rounds": rounds, "file": str(backup)}, f"{counted(rounds, 'round')} in {backup}")
    elif restore is not None:
        rounds = restore_ledger(directory, restore)
        missing = asyncio.run(published_without_entry(directory))
        compared = "; the analyzer does not answer, so the accountant compares it with the results when it starts"
        if missing is not None:
            compared = f"; published, but not in it: {', '.join(missing)}" if missing else ""
        restored = {"rounds": rounds, "file": str(restore), "missing": missing}
        show(as_json, restored, f"the ledger has {counted(rounds, 'round')}{compared}")
    elif forecast:
        left = rounds_left(directory)
        show(as_json, left, *left_lines(left))
    else:
        totals, told = spent(directory, delta, fixed_terms=fixed_terms), budgets_told(directory)
        document = spent_json(totals, delta, told, fixed_terms=fixed_terms)
        blocks = spent_blocks(document, fixed_terms=fixed_terms)
        show(as_json, {**document, "hops": hops}, *blocks, *hop_lines)
