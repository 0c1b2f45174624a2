"""Just enough HTTP/2 to be a bad caller: calls whose messages never end, and answers that are never read.

gRPC's own client sends whole messages and reads what comes; a stranger need not. Written here by hand, because a
library would keep the rules that a stranger breaks.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.deployment import ServiceEntry

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_INITIAL_WINDOW = 4
_PIECE = bytes(16384)


class Caller:
    """One connection. Use `calling`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self._reader, self._writer, self._authority = reader, writer, authority
        self._first_window = self._connection_window = 65535
        self._windows: dict[int, int] = {}
        self._news = asyncio.Event()
        self._next = 1
        self._begun: set[int] = set()
        self.ended: set[int] = set()
        self.with_data: set[int] = set()
        """Calls that have got a message, and not a status alone."""

    def frame(self, kind: int, flags: int, stream: int, body: bytes = b"") -> None:
        """Sends a frame; stream 0 is the connection."""
        self._writer.write(struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body)

    def greet(self, window: int) -> None:
        """Opens the connection; `window` is how much of an answer the service may send."""
        self._writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, window))

    async def listen(self) -> None:
        """Follows what the service allows, until it hangs up."""
        while True:
            try:
                head = await self._reader.readexactly(9)
                length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
                stream = int.from_bytes(head[5:]) & 0x7FFFFFFF
                body = await self._reader.readexactly(length)
            except (OSError, asyncio.IncompleteReadError):
                return
            if kind == _SETTINGS and not flags & 1:
                for at in range(0, length, 6):
                    name, value = struct.unpack(">HI", body[at : at + 6])
                    if name == _INITIAL_WINDOW:
                        self._windows = {k: v + value - self._first_window for k, v in self._windows.items()}
                        self._first_window = value
                self.frame(_SETTINGS, 1, 0)
            elif kind == _PING and not flags & 1:
                self.frame(_PING, 1, 0, body)
            elif kind == _WINDOW and stream:
                self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(body)
            elif kind == _WINDOW:
                self._connection_window += int.from_bytes(body)
            elif kind == _DATA:
                self.with_data.add(stream)
            elif kind in (_RESET, _HEADERS):
                self._begun.add(stream)
                if kind == _RESET or flags & 1:
                    self.ended.add(stream)
                    self._windows.pop(stream, None)
            elif kind == _GOAWAY:
                return
            self._news.set()

    def call(self, method: str) -> int:
        """Begins a call, and returns its stream."""
        stream, self._next = self._next, self._next + 2
        headers = {
            ":method": "POST",
            ":scheme": "https",
            ":path": f"/croupier.protocol.v1.{method}",
            ":authority": self._authority,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        texts = [(name.encode(), value.encode()) for name, value in headers.items()]
        block = b"".join(bytes([0, len(n)]) + n + bytes([len(v)]) + v for n, v in texts)
        self._windows[stream] = self._first_window
        self.frame(_HEADERS, 4, stream, block)
        return stream

    def say(self, stream: int, message: bytes) -> None:
        """Sends a whole message on a call, and ends it."""
        self.frame(_DATA, 1, stream, b"\0" + struct.pack(">I", len(message)) + message)

    def begin(self, stream: int, length: int, first: bytes) -> None:
        """Sends the beginning of a message of this length on a call."""
        self.frame(_DATA, 0, stream, b"\0" + struct.pack(">I", length) + first)

    async def answered(self, stream: int) -> None:
        """Returns once an answer to a call has begun to come."""
        while stream not in self._begun:
            self._news.clear()
            await self._news.wait()

    async def over(self, stream: int) -> None:
        """Returns once a call has ended."""
        while stream not in self.ended:
            self._news.clear()
            await self._news.wait()

    async def say_almost_all(self, streams: list[int]) -> int:
        """Sends messages of the largest size, side by side, but for their last bytes; as fast as it is allowed to.

        Returns how many bytes the service has taken when it takes no more, or has ended all calls.
        """
        left = dict.fromkeys(streams, MESSAGE_BYTES - 16)
        for stream in streams:
            self.frame(_DATA, 0, stream, b"\0" + struct.pack(">I", MESSAGE_BYTES))
            self._windows[stream] -= 5
            self._connection_window -= 5
        taken = 0
        while True:
            moved = False
            for stream in streams:
                size = min(len(_PIECE), left[stream], self._windows.get(stream, 0), self._connection_window)
                if size > 0:
                    self.frame(_DATA, 0, stream, _PIECE[:size])
                    left[stream] -= size
                    self._windows[stream] -= size
                    self._connection_window -= size
                    taken += size
                    moved = True
            await self._writer.drain()
            if not any(left[stream] for stream in streams if stream in self._windows):
                return taken
            if not moved:
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), 1.0)
                except TimeoutError:
                    return taken


UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE
UNVERIFIED.set_alpn_protocols(["h2"])


@asynccontextmanager
async def calling(entry: ServiceEntry, window: int = 65535, source: str = "") -> AsyncIterator[Caller]:
    """Connects to a service's public address without a certificate, from an address of this machine."""
    host, _, port = (entry.public_address or "").rpartition(":")
    here = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(host, int(port), ssl=UNVERIFIED, local_addr=here)
    caller = Caller(reader, writer, entry.name)
    caller.greet(window)
    listening = asyncio.create_task(caller.listen())
    try:
        yield caller
    finally:
        writer.transport.abort()
        await asyncio.gather(listening, return_exceptions=True)
