"""Serves the pages: in the foreground until the process is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvicorn

from deploy.console.app import make_app
from deploy.console.guard import Listening
from deploy.console.source import EVERY_S, Source
from runtime.transport import TLS, Transport, listening_at

__all__ = ["ConsoleServer", "serve"]


class ConsoleServer(uvicorn.Server):
    """An HTTP server whose streams end with it. Nothing of a request is logged."""

    def __init__(
        self,
        directory: Path,
        where: Listening,
        key: Path | None = None,
        transport: Transport = TLS,
        every_s: float = EVERY_S,
    ) -> None:
        """Listens, and does not serve yet.

        Args:
            directory: of the deployment.
            where: to listen.
            key: see `make_app`.
            transport: how services are reached.
            every_s: see `Source`.

        Raises:
            ValueError: the directory has no deployment, or nothing can listen there.
        """
        self._source = Source(directory, transport, every_s)
        secured = {"ssl_certfile": where.certificate, "ssl_keyfile": where.key} if not where.on_loopback else {}
        super().__init__(
            uvicorn.Config(
                make_app(self._source, where, key),
                access_log=False,
                log_level="error",
                server_header=False,
                proxy_headers=False,
                ws="none",
                log_config=None,
                timeout_graceful_shutdown=2,
                **secured,  # type: ignore[arg-type]
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams first, which would otherwise have to be cut."""
        self._source.end()
        await super().shutdown(sockets)


def serve(
    directory: Path,
    where: Listening,
    ready: Callable[[str], None],
    key: Path | None = None,
    work: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until Ctrl-C or SIGTERM, which also end the work.

    Args:
        directory: of the deployment.
        where: to listen.
        ready: called with the page's address, which can be opened then.
        key: see `make_app`.
        work: what is done meanwhile; the page goes on when it is done.

    Raises:
        ValueError: as `ConsoleServer`; and what the work raises.
        KeyboardInterrupt: the work was not done.
    """
    server = ConsoleServer(directory, where, key)
    ready(server.url)
    finished = work is None

    async def whole_work() -> None:
        nonlocal finished
        if work is not None:
            await work()
        finished = True

    try:
        asyncio.run(_serve(server, whole_work()))
    except (KeyboardInterrupt, asyncio.CancelledError):  # the latter where Python's own handler of Ctrl-C is not set
        if not finished:
            raise KeyboardInterrupt from None


async def _serve(server: ConsoleServer, work: Coroutine[Any, Any, None]) -> None:
    serving, working = asyncio.create_task(server.run_until_stopped()), asyncio.create_task(work)
    await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
    elif working.exception() is not None:
        server.should_exit = True
    await asyncio.wait({serving, working})
    working.result()
    serving.result()
