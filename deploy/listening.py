"""Where an HTTP server listens, and the server itself: on loopback in the clear, elsewhere with TLS.

The web page and the gateway are served with it. What they answer stands in their own rooms.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from runtime.transport import listening_at

__all__ = ["HttpServer", "WebAddress"]


@dataclass(frozen=True)
class WebAddress:
    """Where something is served.

    Attributes:
        host: an address of this machine, or "localhost".
        port: 0 for any that is free.
        certificate: PEM file for TLS; needed, with its key, unless the host is loopback.
        key: PEM file.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a host that is no address, a port out of range, or a way in the clear to others."""
        if not 0 <= self.port < 2**16:
            raise ValueError(f"the port is {self.port}; it must be in 0..65535")
        if not self.on_loopback and (self.certificate is None or self.key is None):
            raise ValueError(
                f"what is sent to {self.host} would travel in the clear; give --tls-certificate and --tls-key"
            )

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it. Raises ValueError for a host that is no address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError as error:
            raise ValueError(f"the host is {self.host!r}; it must be an IP address or localhost") from error


class HttpServer(uvicorn.Server):
    """An HTTP server that is told what to serve. Nothing of a request is logged."""

    def __init__(self, app: ASGIApp, where: WebAddress, **settings: Any) -> None:
        """Listens, and does not serve yet.

        Args:
            app: answers.
            where: to listen.
            settings: further ones of uvicorn's.

        Raises:
            ValueError: nothing can listen there.
        """
        secured = {"ssl_certfile": where.certificate, "ssl_keyfile": where.key} if not where.on_loopback else {}
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_level="error",
                server_header=False,
                ws="none",
                log_config=None,
                timeout_graceful_shutdown=2,
                **{"proxy_headers": False, **secured, **settings},
            )
        )
        family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        with listening_at(f"{where.host}:{where.port}"):
            self.socket = socket.create_server((where.host, where.port), family=family)
        host = f"[{where.host}]" if ":" in where.host else where.host
        self.url = f"http{'' if where.on_loopback else 's'}://{host}:{self.socket.getsockname()[1]}/"

    async def run_until_stopped(self) -> None:
        """Serves until a signal comes or `should_exit` is set."""
        await super().serve([self.socket])
