"""Serves the gateway: in the foreground until the process is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from croupier.deploy.gateway.app import make_app
from croupier.deploy.listening import HttpServer, WebAddress
from croupier.net.transport import TLS, Transport
from croupier.runtime.core_files import forbid_core_files
from croupier.runtime.logs import log_as_json


def make_gateway(
    directory: Path, where: WebAddress, origins: Sequence[str] = (), transport: Transport = TLS
) -> HttpServer:
    """Returns a gateway that listens, and does not serve yet.

    On loopback, a proxy on the same machine is believed whom it calls for (X-Forwarded-For).

    Args:
        directory: of the deployment; only versions of the deployment file are read and written.
        where: to listen.
        origins: see `make_app`.
        transport: how services are reached.

    Raises:
        ValueError: the directory has no deployment, nothing can listen there, or an origin is not valid.
    """
    app = make_app(directory, transport, origins)
    return HttpServer(app, where, proxy_headers=where.on_loopback)


def serve_gateway(directory: Path, where: WebAddress, origins: Sequence[str], ready: Callable[[str], None]) -> None:
    """Serves until Ctrl-C or SIGTERM; arguments and errors as `make_gateway`.

    Args:
        directory: of the deployment.
        where: to listen.
        origins: see `make_app`.
        ready: called with the gateway's address when it listens.
    """
    log_as_json("gateway")
    forbid_core_files()
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn has its own handler, and raises it again at the end

    async def run() -> None:
        server = make_gateway(directory, where, origins)
        ready(server.url)
        await server.run_until_stopped()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
