"""Where an HTTP server listens, and the server itself: on loopback in the clear, elsewhere with TLS.

The web page and the gateway are served with it. Their answers are made in their own rooms.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from croupier.net.connections import ConnectionWatch
from croupier.net.limits import ARRIVES_S, LEAVES_S
from croupier.net.transport import listening_at


@dataclass(frozen=True)
class WebAddress:
    """Where something is served.

    Attributes:
        host: an address of this machine, or "localhost".
        port: 0 for any that is free.
        certificate: PEM file for TLS; needed, with its key, unless the host is loopback, where it must be None.
        key: PEM file.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a host that is not an address, a port out of range, or TLS where it is not as above."""
        if not 0 <= self.port < 2**16:
            raise ValueError(f"the port is {self.port}; it must be in 0..65535")
        if self.on_loopback and (self.certificate is not None or self.key is not None):
            raise ValueError(f"{self.host} is served without TLS; leave out --tls-certificate and --tls-key")
        if not self.on_loopback and (self.certificate is None or self.key is None):
            raise ValueError(
                f"what is sent to {self.host} would travel in the clear; give --tls-certificate and --tls-key"
            )

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it. Raises ValueError for a host that is not an address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError as error:
            raise ValueError(f"the host is {self.host!r}; it must be an IP address or localhost") from error


CONNECTIONS = 1000
"""At once; further ones are answered with 503. A quarter is for those that arrive between two looks at them."""
KEPT_CONNECTIONS = CONNECTIONS * 3 // 4


class GuardedHttp(H11Protocol):
    """HTTP that ends a connection where a request does not come in time, and where what is sent is not read.

    The application finds `close_connection` in the state of a request.
    """

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, {**app_state, "close_connection": self._abort}, **more)
        self._due: dict[Literal["request", "reading"], asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the head of a request."""
        super().connection_made(transport)
        self._expect("request", ARRIVES_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing more."""
        self._has_come("request")
        self._has_come("reading")
        self.app_state = {}  # ends a cycle
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Waits for the rest of the head of a request, if that has begun; the application waits for its body."""
        if not self._is_answering():
            self._expect("request", ARRIVES_S)
        super().data_received(data)
        if self._is_answering():
            self._has_come("request")

    def pause_writing(self) -> None:
        """Waits until the other side reads."""
        super().pause_writing()
        self._expect("reading", LEAVES_S)

    def resume_writing(self) -> None:
        """Goes on."""
        self._has_come("reading")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Closes, which waits until the other side has read everything."""
        super().timeout_keep_alive_handler()
        self._expect("reading", LEAVES_S)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self, what: Literal["request", "reading"], seconds: float) -> None:
        if what not in self._due:
            self._due[what] = self.loop.call_later(seconds, self._abort)

    def _has_come(self, what: Literal["request", "reading"]) -> None:
        if timer := self._due.pop(what, None):
            timer.cancel()

    def _abort(self) -> None:
        self.transport.abort()


class HttpServer(uvicorn.Server):
    """An HTTP server that is told what to serve. Nothing of a request is logged.

    Of its connections one address keeps a quarter, on loopback, where a proxy has them all, three quarters.
    """

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
                http=GuardedHttp,
                limit_concurrency=CONNECTIONS,
                log_config=None,
                timeout_graceful_shutdown=2,
                **{"proxy_headers": False, **secured, **settings},
            )
        )
        family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        with listening_at(f"{where.host}:{where.port}"):
            self.socket = socket.create_server((where.host, where.port), family=family)
        host = f"[{where.host}]" if ":" in where.host else where.host
        port = self.socket.getsockname()[1]
        self.url = f"http{'' if where.on_loopback else 's'}://{host}:{port}/"
        self._watch = ConnectionWatch(
            [port], KEPT_CONNECTIONS if where.on_loopback else CONNECTIONS // 4, KEPT_CONNECTIONS
        )

    async def run_until_stopped(self) -> None:
        """Serves until a signal comes or `should_exit` is set."""
        self._watch.start()
        try:
            await super().serve([self.socket])
        finally:
            self._watch.stop()
