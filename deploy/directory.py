"""A deployment's directory: where its public file lies, and where a service that runs there keeps its store.

Also how its services are reached from there: as the file says, or through a gateway.

DIR/deployment.toml     public, the same for all: `protocol.deployment`
DIR/NAME/               secrets, settings and store of one service or of the operator: `runtime.service_directory`
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc.aio

from croupier.net.http_channel import HttpChannel
from croupier.net.transport import TLS, Transport
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, load_deployment
from croupier.runtime.service_directory import ServiceSettings


def read_deployment(directory: Path) -> Deployment:
    """Returns the deployment whose file lies in a directory.

    Raises:
        ValueError: the file does not exist or cannot be used.
    """
    return load_deployment(directory / DEPLOYMENT_FILE)


def store_url(settings: ServiceSettings, directory: Path) -> str:
    """Returns the database of the service with this directory of its own, as SQLAlchemy names it."""
    return f"sqlite:///{directory / 'rounds.db'}" if settings.store == "sqlite" else settings.store


def client_transport(gateway: str = "", transport: Transport = TLS) -> Transport:
    """Returns how a client reaches the services: through the gateway with this URL, or without one as `transport` says.

    Raises:
        ValueError: the URL is not valid, or it is not encrypted and not on this machine.
    """
    if not gateway:
        return transport
    channel = cast(grpc.aio.Channel, HttpChannel(gateway))
    return replace(transport, public_channel=lambda _: channel)
