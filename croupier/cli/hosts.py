"""Commands about machines: lay a deployment out on several, and examine one that runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.text import Text

from croupier.cli.console import HERE, Directory, ExitCode, Json, note, show
from croupier.deploy.render.compose import GATEWAY
from croupier.deploy.render.layout import Layout
from croupier.operator.doctor import CheckResult, examine
from croupier.operator.init import MACHINES, NEXT_FILE, initialise
from croupier.operator.organisations import shared
from croupier.protocol.names import HostName
from croupier.show.terminal import wrapped

_HOST_HELP = "HOST, or HOST,PUBLIC where clients know it by another name."


def init(
    *,
    shuffler: Annotated[list[str], Parameter(help=f"Host of a shuffler, in the order of the chain. {_HOST_HELP}")],
    accountant: Annotated[str, Parameter(help="Host of the accountant.")],
    analyzer: Annotated[str, Parameter(help="Host of the analyzer.")],
    directory: Annotated[Path, Parameter("--dir", help="A new directory for all files.")],
    gateway: Annotated[
        str, Parameter(help="HOST, or HOST:PORT, of an HTTPS gateway, as clients know it; none if not given.")
    ] = "",
    name: Annotated[str, Parameter(help="The deployment's name.")] = "local",
    run_with: Annotated[
        Literal["systemd", "compose"], Parameter(help="What starts the services on their machines.")
    ] = "systemd",
    as_json: Json = False,
) -> None:
    layout = Layout.of(name, shuffler, accountant, analyzer, gateway)
    deployment = initialise(directory, layout, run_with)
    for warning in shared(deployment):
        note(f"croupier: {warning}")
    machines = {host: [place.service for place in places] for host, places in layout.hosts.items()}
    if layout.gateway:
        machines[HostName(layout.gateway.host)].append(GATEWAY)
    document = {
        "deployment": str(directory / "deployment.toml"),
        "machines": {str(directory / MACHINES / host): names for host, names in machines.items()},
        "next": str(directory / NEXT_FILE),
    }
    lines = [f"{directory / MACHINES / host}: copy it to {host}" for host in machines]
    show(as_json, document, "\n".join(lines), f"{directory / NEXT_FILE} says how, and what to do then")


def doctor(*, directory: Directory = HERE, as_json: Json = False) -> None:
    findings = asyncio.run(examine(directory))
    wrong = [finding for finding in findings if not finding.is_well]
    show(as_json, {"ok": not wrong, "checks": [asdict(finding) for finding in findings]}, _text(findings))
    if wrong:
        raise SystemExit(ExitCode.SOMETHING_WRONG)


def _text(findings: list[CheckResult]) -> Text:
    """What is wrong, with its remedies, and then what is well."""
    text = Text(no_wrap=True)
    wrong, well = ([finding for finding in findings if finding.is_well is value] for value in (False, True))
    for finding in wrong:
        text.append("WRONG  ", "bold red")
        text.append(wrapped(f"{finding.service}: {finding.check}: {finding.says}", " " * 7)[7:] + "\n")
        text.append(wrapped(finding.remedy, "    →  ") + "\n")
    for finding in well:
        text.append(wrapped(f"{finding.service}: {finding.check}: {finding.says}", "ok     ") + "\n")
    counted = f"{len(wrong)} of {len(findings)} checks failed" if wrong else f"all {len(findings)} checks passed"
    text.append(f"\n{counted}", "bold")
    return text
