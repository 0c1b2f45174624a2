"""Serves the pages: in the foreground until the process is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from croupier.console.app import make_app
from croupier.console.guard import Listening
from croupier.console.source import EVERY_S, Source
from croupier.deploy.listening import HttpServer
from croupier.net.transport import TLS, Transport


class ConsoleServer(HttpServer):
    """An HTTP server whose streams end with it."""

    def __init__(
        self,
        directory: Path,
        where: Listening,
        transport: Transport = TLS,
        every_s: float = EVERY_S,
    ) -> None:
        """Listens, and does not serve yet.

        Args:
            directory: of the deployment.
            where: to listen.
            transport: how services are reached.
            every_s: see `Source`.

        Raises:
            ValueError: the directory has no deployment, or nothing can listen there.
        """
        self._source = Source(directory, transport, every_s)
        super().__init__(make_app(self._source, where), where)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams first, which would otherwise have to be cut."""
        self._source.end()
        await super().shutdown(sockets)


def serve(
    directory: Path,
    where: Listening,
    ready: Callable[[str], None],
    work: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until Ctrl-C or SIGTERM, which also end the work.

    Args:
        directory: of the deployment.
        where: to listen.
        ready: called with the page's address, which can be opened then.
        work: what is done meanwhile; the page goes on when it is done.

    Raises:
        ValueError: as `ConsoleServer`; and what the work raises.
        KeyboardInterrupt: the work was not done.
    """
    server = ConsoleServer(directory, where)
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
