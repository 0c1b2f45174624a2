"""A TCP link between two services that can be cut, stalled and slowed; it forwards bytes and understands none.

Cut: connections are reset and new ones closed at once. Stalled: nothing passes, nothing is lost, as while TCP resends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal

LinkState = Literal["open", "cut", "stalled"]


class Link:
    """Listens on a port of its own and forwards to `target` (host:port)."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._connections: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._cut = False
        self._server: asyncio.Server | None = None
        self.delay_s = 0.0
        self.address = ""

    async def start(self, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._accept, host, 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    def become(self, state: LinkState) -> None:
        """Changes the state; whatever was stalled goes on when the link opens."""
        self._cut = state == "cut"
        if self._cut:
            for connection in self._connections:
                connection.cancel()
        if state == "stalled":
            self._passing.clear()
        else:
            self._passing.set()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.become("cut")
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task of its own forwards; its end closes the connection, also where it is cancelled before it begins."""
        if self._cut:
            writer.transport.abort()
            return
        forwarding = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(forwarding)

        def end(_: asyncio.Task[None]) -> None:
            self._connections.discard(forwarding)
            writer.transport.abort()

        forwarding.add_done_callback(end)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):  # the target is down, or the link was cut
            back, onward = await asyncio.open_connection(self._host, self._port)
            pumps = [asyncio.create_task(self._pump(reader, onward)), asyncio.create_task(self._pump(back, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                onward.transport.abort()
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
