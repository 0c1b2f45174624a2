"""Writes a new deployment for given hosts: keys, certificates, settings, and the files that start each service.

DIR/deployment.toml              public: services and clients get it
DIR/operator/                    the operator's keys, which stay
DIR/machines/HOST/               for that machine alone:
    NAME/                        the service's directory of the deployment, with its keys in NAME/NAME/
    storage-keys/NAME.storage-key
    gateway/deployment.toml, croupier-gateway.service   on the gateway's machine
    croupier@.service or compose.yaml
DIR/NEXT.md                      the next steps
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

from croupier.deploy.page.participants import page_hash
from croupier.deploy.render.compose import COMPOSE_FILE, GATEWAY, compose_file
from croupier.deploy.render.layout import HOME, GatewayPlace, Layout, Place
from croupier.deploy.render.settings import settings_of
from croupier.deploy.version_files import write_deployment
from croupier.operator.keys import new_keys, signed_by
from croupier.operator.organisations import shared
from croupier.protocol.deployment import DEPLOYMENT_FILE, OPERATOR, Deployment
from croupier.protocol.envelope import MAX_HOPS
from croupier.protocol.identity import Identity
from croupier.runtime.service_directory import SETTINGS_FILE, identity_keys

MACHINES = "machines"
"""The directory with a directory for each machine."""
NEXT_FILE = "NEXT.md"
_STORAGE_KEYS = "storage-keys"
_USER = 10001
"""The user of the containers."""
_UNIT_FILE, _GATEWAY_UNIT_FILE = "croupier@.service", "croupier-gateway.service"


def initialise(directory: Path, layout: Layout, run_with: Literal["systemd", "compose"]) -> Deployment:
    """Writes everything, and returns the deployment.

    Args:
        directory: a new one, or one without a deployment.
        layout: the machine of each service.
        run_with: the tool that starts the services.

    Raises:
        ValueError: the directory holds a deployment already, or there are too many shufflers.
    """
    hops = sum(place.role == "shuffler" for place in layout.places)
    if not 1 <= hops <= MAX_HOPS:
        raise ValueError(f"there are {hops} shufflers; it must be 1..{MAX_HOPS}")
    for taken in (DEPLOYMENT_FILE, MACHINES, OPERATOR):
        if (directory / taken).exists():
            raise ValueError(f"{directory / taken} exists; choose another directory, or delete it to make new keys")
    services, signers = [], []
    for place in layout.places:
        identity, certificate, signer = _make_keys(directory, place)
        signers.append(signer)
        services.append(
            {
                "name": place.service,
                "role": place.role,
                "address": place.address,
                "public_address": place.public_address,
                "identity": identity,
                "tls_certificate": certificate,
            }
        )
    _, operator_certificate, _ = new_keys(directory / OPERATOR, OPERATOR)
    unsigned = Deployment.model_validate(
        {
            "name": layout.name,
            "operator_tls_certificate": operator_certificate,
            "services": services,
            "gateway": layout.gateway.url if layout.gateway else None,
            "participant_pages": [page_hash()],
        }
    )
    deployment = signed_by(unsigned, signers)
    for host, places in layout.hosts.items():
        machine = directory / MACHINES / host
        for place in places:
            home = machine / place.service
            write_deployment(home, deployment)
            settings = settings_of(place, run_with)
            (home / place.service / SETTINGS_FILE).write_text(settings, encoding="utf-8")
        has_gateway = layout.gateway is not None and layout.gateway.host == host
        if has_gateway:
            (machine / GATEWAY).mkdir(parents=True, exist_ok=True)
            write_deployment(machine / GATEWAY, deployment)
        for name, text in _starting(layout, places, run_with, has_gateway=has_gateway).items():
            (machine / name).write_text(text, encoding="utf-8")
    (directory / NEXT_FILE).write_text(_next(directory, layout, run_with, shared(deployment)), encoding="utf-8")
    write_deployment(directory, deployment)  # last: while it is missing, there is no deployment
    return deployment


def _starting(
    layout: Layout, places: Sequence[Place], run_with: Literal["systemd", "compose"], *, has_gateway: bool
) -> dict[str, str]:
    """Returns the files, by name, that start the services of one machine."""
    if run_with == "compose":
        return {COMPOSE_FILE: compose_file(layout, places, has_gateway=has_gateway)}
    names = [*([_UNIT_FILE] if places else []), *([_GATEWAY_UNIT_FILE] if has_gateway else [])]
    units = resources.files("croupier.deploy") / "systemd"
    return {name: (units / name).read_text(encoding="utf-8") for name in names}


def _make_keys(directory: Path, place: Place) -> tuple[str, str, Identity]:
    """Writes the keys of a service; returns its public identity, its TLS certificate and the signer."""
    machine = directory / MACHINES / place.host
    own, stored = machine / place.service / place.service, machine / _STORAGE_KEYS / f"{place.service}.storage-key"
    identity, certificate, storage_key = new_keys(own, place.service, place.hosts, stored)
    (key,) = identity_keys(own, storage_key)
    return identity, certificate, Identity(place.service, key)


def _next(directory: Path, layout: Layout, run_with: str, warnings: Sequence[str]) -> str:
    """Returns the next steps with the files, as a page."""
    lines = [
        f"# What to do with the deployment {layout.name!r}",
        "",
        "**This is for one person who tries croupier.** This machine has made every key, so a reader of its disk can",
        "act for all services. Organisations that do not trust each other make their own keys: `croupier org new`,",
        "`croupier docs three-organisations`.",
        "",
    ]
    if warnings:
        lines += ["**Before you go on**:", "", *(f"* {line}." for line in warnings), ""]
    lines += [
        "Copy each folder to its machine over a channel that you trust, and to no other: it holds that machine's keys.",
        "",
    ]
    if run_with == "systemd":
        lines += ["Each machine needs a user `croupier`, and croupier in a virtual environment at `/opt/croupier`.", ""]
    steps = _systemd_steps if run_with == "systemd" else _compose_steps
    for host, places in layout.hosts.items():
        gateway = layout.gateway if layout.gateway and layout.gateway.host == host else None
        names = [*(place.service for place in places), *([GATEWAY] if gateway else [])]
        ports = [f"{place.first_port}" for place in places]
        public = [f"{place.first_port + 1}" for place in places if place.takes_clients]
        lines += [
            f"## {host}: {', '.join(names)}",
            "",
            *([_ports(ports, public), ""] if ports else []),
            *([_extras(places, has_gateway=gateway is not None), ""] if run_with == "systemd" else []),
            *(_of_gateway(gateway) if gateway else []),
            "```sh",
            f"scp -r {MACHINES}/{host} {host}:croupier-files   # from {directory}; then, as root on {host}, beside it:",
            *steps(names, layout),
            "```",
            "",
        ]
    lines += [
        "## Then",
        "",
        f"1. Delete `{MACHINES}/` here: it holds every key. Keep `{OPERATOR}/` and `{DEPLOYMENT_FILE}`.",
        "2. `croupier doctor --dir DIR` here, and with `--dir " + HOME + "` on each machine, says what is still wrong.",
        f"3. Give `{DEPLOYMENT_FILE}` to clients; it is public, and all that they trust.",
        "",
    ]
    return "\n".join(lines)


def _extras(places: Sequence[Place], *, has_gateway: bool) -> str:
    """Returns the extras to install on a machine."""
    extras = sorted({place.role for place in places}) + ([GATEWAY] if has_gateway else [])
    return f"Install `croupier[{','.join(extras)}]` there, from wheels of your own: `croupier docs install`."


def _ports(peers: Sequence[str], public: Sequence[str]) -> str:
    clients = f"; {', '.join(public)} for clients." if public else "."
    return f"Ports to open: {', '.join(peers)} for the other services and the operator{clients}"


def _of_gateway(gateway: GatewayPlace) -> list[str]:
    return [
        "The gateway listens on loopback, at 127.0.0.1:8790. A reverse proxy on this machine has to serve",
        f"{gateway.url}, with a certificate that clients trust, and to set X-Forwarded-For: `croupier docs gateway`.",
        f"Port to open: {gateway.port} for clients.",
        "",
    ]


def _systemd_steps(names: Sequence[str], _layout: Layout) -> list[str]:
    services = [name for name in names if name != GATEWAY]
    begin, end = ["cd croupier-files"], ["systemctl daemon-reload"]
    if services:
        begin += _install(services)
        end += [f"systemctl enable --now croupier@{name}" for name in services]
    if GATEWAY in names:
        begin += [
            f"install -D -m 644 {GATEWAY}/{DEPLOYMENT_FILE} /etc/croupier-gateway/{DEPLOYMENT_FILE}",
            f"cp {_GATEWAY_UNIT_FILE} /etc/systemd/system/",
        ]
        end += ["systemctl enable --now croupier-gateway"]
    return [*begin, *end, "cd .. && rm -r croupier-files"]


def _install(services: Sequence[str]) -> list[str]:
    """Returns the commands that copy the services' files to the unit's directories."""
    lines = [
        f"install -d -o croupier -g croupier -m 700 {HOME}",
        "install -d -m 700 /etc/croupier",
    ]
    for name in services:
        lines += [
            f"cp -r {name}/. {HOME}/",
            f"install -m 400 {_STORAGE_KEYS}/{name}.storage-key /etc/croupier/{name}.storage-key",
        ]
    return [*lines, f"chown -R croupier:croupier {HOME}", f"cp {_UNIT_FILE} /etc/systemd/system/"]


def _compose_steps(names: Sequence[str], layout: Layout) -> list[str]:
    has_keys = any(name != GATEWAY for name in names)
    return [
        "cd croupier-files",
        f"chown -R {_USER}:{_USER} {' '.join(names)}{f' {_STORAGE_KEYS}' if has_keys else ''}",
        *([f"chmod 400 {_STORAGE_KEYS}/*"] if has_keys else []),
        f"docker compose up --detach   # needs the image {layout.image}: deploy/compose/Containerfile",
    ]
