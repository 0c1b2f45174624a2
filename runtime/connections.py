"""How many connections one address may have, so that none can take all that a port accepts.

gRPC counts the connections of a port and not whose they are. So the service looks at its own sockets, once a second and
more often while an address has too many, and ends the newest beyond the limit: gRPC sees a caller that has hung up. It
needs Linux's /proc; elsewhere only the limit of the port holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from runtime.limits import host_of

__all__ = ["ConnectionWatch"]

_log = logging.getLogger(__name__)
_EVERY_S, _SOON_S = 1.0, 0.1
_OWN = Path("/proc/self/fd")
_Connection = tuple[str, int, int]


class ConnectionWatch:
    """Ends connections to this process where an address has more than its share.

    Args:
        ports: on which it listens.
        limit: connections to each port from one address (one network of IPv6).
    """

    def __init__(self, ports: Collection[int], limit: int) -> None:
        self._ports, self._limit = frozenset(ports), limit
        self._seen: dict[_Connection, None] = {}  # oldest first
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
                if len(_descriptors()) > self._limit:  # else no address can have so many
                    ended = await asyncio.to_thread(self.look)
            except OSError as error:  # too many open files, say
                _log.warning("connections cannot be counted: %s", error)
            if ended:
                _log.warning("an address has more than %d connections: %d are ended", self._limit, ended)
            await asyncio.sleep(_SOON_S if ended else _EVERY_S)

    def look(self) -> int:
        """Ends what is beyond the limit, and returns how many connections that were."""
        with contextlib.ExitStack() as closing:
            found = {}
            for number in _descriptors():
                with contextlib.suppress(OSError):  # closed meanwhile, or not connected
                    one = _socket(number)
                    if one is None:
                        continue
                    closing.enter_context(one)
                    if one.family in (socket.AF_INET, socket.AF_INET6) and one.getsockname()[1] in self._ports:
                        found[one.getpeername()[0], one.getpeername()[1], one.getsockname()[1]] = one
            self._seen = {one: None for one in (*self._seen, *found) if one in found}
            numbers: defaultdict[tuple[str, int], int] = defaultdict(int)
            ended = 0
            for connection in self._seen:
                host, _, port = connection
                numbers[_whose(host), port] += 1
                if numbers[_whose(host), port] > self._limit:
                    with contextlib.suppress(OSError):
                        found[connection].shutdown(socket.SHUT_RDWR)
                        ended += 1
            return ended


def _descriptors() -> list[int]:
    try:
        return [int(link.name) for link in _OWN.iterdir()]
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


def _whose(host: str) -> str:
    """Returns whose a socket's address is, as `host_of` says; IPv4 arrives in an IPv6 socket as ::ffff:1.2.3.4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped) if address.ipv4_mapped else host_of(f"ipv6:[{address}]:0")
