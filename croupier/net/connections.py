"""How many connections an address and its networks may have, so that few cannot take all that a port accepts.

gRPC and asyncio count the connections of a port and not whose they are. So the process looks at its own sockets, once a
second and more often while a port is busy, and ends the newest beyond the limits: the server sees a caller that has
hung up. It needs Linux's /proc; elsewhere only the limit of the port holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from croupier.net.shares import Holdings, caller_at, host_of, place_of

_log = logging.getLogger(__name__)
_EVERY_S, _SOON_S = 1.0, 0.1
_OWN = Path("/proc/self/fd")
_Connection = tuple[str, int, int]
CONNECTIONS = 4000
"""The most that a service's port accepts. A quarter is for connections that arrive between two looks at the sockets."""


class ConnectionWatch:
    """Ends connections to this process where an address has more than its share, or where a port is nearly full.

    When a port is nearly full, the newest connections of the network that has most end, as long as one has more than
    a fair part. So few networks cannot fill a port, however many addresses they have; a crowd of clients, each with a
    connection from a network of its own, can.

    Args:
        ports: on which it listens.
        limit: connections to each port from one address (one network of IPv6).
        most: connections to each port that networks with more than a fair share may have together.
    """

    def __init__(self, ports: Collection[int], limit: int, most: int = CONNECTIONS * 3 // 4) -> None:
        self._ports, self._limit, self._most = frozenset(ports), limit, most
        self._fair = max(1, most // 100)
        self._seen: dict[_Connection, None] = {}  # oldest first
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to look."""
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            ended = 0
            try:
                if len(_descriptors()) > min(self._limit, self._most):  # else none has too many
                    ended = await asyncio.to_thread(self.look)
                else:
                    self._busy = False
            except OSError as error:  # too many open files, say
                _log.warning("connections cannot be counted: %s", error)
            if ended:
                _log.warning("some addresses have more connections than their share: %d are ended", ended)
            await asyncio.sleep(_SOON_S if self._busy else _EVERY_S)

    def look(self) -> int:
        """Ends what is beyond the limits, and returns how many connections that were."""
        descriptors = {connection: number for number, connection in _connections(self._ports)}
        self._seen = {connection: None for connection in (*self._seen, *descriptors) if connection in descriptors}
        too_many = set[_Connection]()
        held = {port: Holdings[_Connection]() for port in self._ports}
        for connection in self._seen:
            host, _, port = connection
            caller = caller_at(host)
            if held[port].held_by(caller) < self._limit:
                held[port].set(connection, caller, 1)
            else:
                too_many.add(connection)
        for of_port in held.values():
            while of_port.total > self._most and of_port.largest() > self._fair:
                newest = next(of_port.largest_first(newest_first=True))
                of_port.remove(newest)
                too_many.add(newest)
        _shut_down((descriptors[connection], connection) for connection in too_many)
        self._busy = bool(too_many) or any(2 * of_port.total > self._most for of_port in held.values())
        return len(too_many)


class ConnectionCloser:
    """Ends the connections of callers, given as gRPC's "ipv4:1.2.3.4:5", several in one look at the sockets.

    gRPC cannot end a call whose answer is not read. Without Linux's /proc nothing is ended.
    """

    def __init__(self) -> None:
        self._peers: set[tuple[str, int]] = set()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, peer: str) -> None:
        """Ends the connection of a caller soon."""
        if (place := place_of(peer)) is not None:
            self._peers.add((host_of(place[0]), place[1]))
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._end())

    async def _end(self) -> None:
        while self._peers:
            peers, self._peers = self._peers, set()
            try:
                await asyncio.to_thread(_end_all, peers)
            except OSError as error:
                _log.warning("connections cannot be ended: %s", error)


def _end_all(peers: Collection[tuple[str, int]]) -> None:
    _shut_down(
        (number, connection)
        for number, connection in _connections()
        if (host_of(connection[0]), connection[1]) in peers
    )


def _connections(ports: Collection[int] | None = None) -> Iterator[tuple[int, _Connection]]:
    """Yields the descriptors of this process's connections, to these ports or to any, one open beside it at a time."""
    for number in _descriptors():
        with contextlib.suppress(OSError):  # closed meanwhile, or not connected
            if (sock := _socket(number)) is not None:
                with sock:
                    connection = _ends(sock)
                if connection is not None and (ports is None or connection[2] in ports):
                    yield number, connection


def _ends(sock: socket.socket) -> _Connection | None:
    """Returns host and port of the caller, and the port that it has called."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port, *_ = sock.getpeername()
    return host, port, sock.getsockname()[1]


def _shut_down(connections: Iterable[tuple[int, _Connection]]) -> None:
    for number, connection in connections:
        with contextlib.suppress(OSError):
            if (sock := _socket(number)) is not None:
                with sock:
                    if _ends(sock) == connection:  # the number may be another one's by now
                        sock.shutdown(socket.SHUT_RDWR)


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_OWN)]  # noqa: PTH208 (every second, in every service)
    except FileNotFoundError:  # not Linux
        return []


def _socket(number: int) -> socket.socket | None:
    """Returns a socket with a descriptor of its own: the number may be another file's at any moment."""
    if not str((_OWN / str(number)).readlink()).startswith("socket:"):
        return None
    own = os.dup(number)
    if not stat.S_ISSOCK(os.fstat(own).st_mode):
        return None  # and left open: to close a second descriptor of SQLite's file would give up its locks
    return socket.socket(fileno=own)
