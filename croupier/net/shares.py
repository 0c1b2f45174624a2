"""Who holds how much of a service, whose turn it is, and which call goes where there is not enough for all.

A caller is a pinned certificate, or an address together with the networks that it is in: a stranger can have many
neighbouring addresses as easily as one. Connections, bytes, calls and work for the workers are all shared in one way:
where there is not enough, the caller that holds most is turned away, and work is taken up from each caller in turn.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

from croupier.protocol.errors import Code, Refusal

T = TypeVar("T")
Caller = tuple[str, ...]
"""Networks from the largest to the caller itself; amounts are added up and compared at each of them."""
RETRY_AFTER_S = 0.5
_NETWORKS = {4: (24,), 6: (48, 56)}
"""Counted beside the caller itself: what one customer of a hosting or internet provider usually gets at most."""
_CALLER = {4: 32, 6: 64}
"""An IPv6 host chooses its last 64 bits as it likes."""


def host_of(address: str) -> str:
    """Returns an IP address without its zone, and as IPv4 where it arrives in an IPv6 socket: ::ffff:1.2.3.4.

    Raises:
        ValueError: it is not an address.
    """
    host = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(host, "ipv4_mapped", None) or host)


def place_of(peer: str) -> tuple[str, int] | None:
    """Returns the address and the port in gRPC's "ipv4:1.2.3.4:5" or "ipv6:[::1]:5"; None for anything else."""
    kind, _, rest = peer.replace("%5B", "[").replace("%5D", "]").partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None


def caller_at(host: str) -> Caller:
    """Returns the caller at an IP address; a host that is not an address is a caller by its name."""
    try:
        address = ipaddress.ip_address(host_of(host))
    except ValueError:
        return (host,)
    version = address.version
    networks = [ipaddress.ip_network((address, bits), strict=False) for bits in (*_NETWORKS[version], _CALLER[version])]
    return tuple(str(network).removesuffix("/32") for network in networks)


def caller_of(peer: str) -> Caller:
    """Returns the caller behind a peer of gRPC's; see `place_of`."""
    place = place_of(peer)
    return (peer,) if place is None else caller_at(place[0])


class Call:
    """A call that is being served, and what it waits for: while it waits it can be turned away for another call."""

    def __init__(self, caller: Caller, *, pinned: bool) -> None:
        self.caller, self.pinned = caller, pinned
        self.ended = False
        self.on_entry: Callable[[], object] = lambda: None
        """Called when a stream's caller has proved who it is."""
        self._waits: set[asyncio.Timeout] = set()
        self._turned_away = False

    @property
    def can_go(self) -> bool:
        """Whether the call waits, and can be turned away."""
        return bool(self._waits) and not self.pinned and not self._turned_away

    def turn_away(self) -> None:
        """Ends the waits of a call that can go; they raise Refusal OVERLOADED."""
        self._turned_away = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    async def wait_for(self, awaited: Awaitable[T], seconds: float | None, what: str) -> T:
        """Returns what is awaited, for as many seconds at most; the call can be turned away meanwhile.

        Raises:
            Refusal: OVERLOADED, it took too long, or the call was turned away.
        """
        self._turned_away = False
        wait = asyncio.timeout(seconds)
        try:
            async with wait:
                self._waits.add(wait)
                try:
                    return await awaited
                finally:
                    self._waits.remove(wait)
        except TimeoutError:
            if not wait.expired():  # the error is that of what is awaited
                raise
            why = "others hold less than you" if self._turned_away else f"{what} took more than {seconds:g} s"
            raise Refusal(Code.OVERLOADED, why, retry_after_s=RETRY_AFTER_S) from None


_call: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call | None:
    """Returns the call that is being served; None in a task that has outlived its call, and outside of calls."""
    call = _call.get()
    return None if call is None or call.ended else call


@contextmanager
def serving(call: Call) -> Iterator[None]:
    """Makes a call the current one."""
    token = _call.set(call)
    try:
        yield
    finally:
        call.ended = True
        _call.reset(token)


class _Node(Generic[T]):
    """A network, or a caller: what is held in it, and its parts."""

    __slots__ = ("amount", "items", "parts")

    def __init__(self) -> None:
        self.amount = 0
        self.parts: dict[str, _Node[T]] = {}
        self.items: dict[T, int] = {}  # oldest first

    def largest_first(self, *, newest_first: bool) -> Iterator[T]:
        parts, items = list(self.parts.values()), list(self.items)
        if newest_first:
            parts.reverse()
            items.reverse()
        for part in sorted(parts, key=lambda part: part.amount, reverse=True):  # equal ones stay in order
            yield from part.largest_first(newest_first=newest_first)
        yield from items


class Holdings(Generic[T]):
    """What is held of something limited, by item; amounts are added up for every network of the items' callers."""

    def __init__(self) -> None:
        self.root = _Node[T]()
        self._callers: dict[T, Caller] = {}

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def total(self) -> int:
        """What all callers hold."""
        return self.root.amount

    def largest(self) -> int:
        """Returns what the largest network holds that holds most."""
        return max((part.amount for part in self.root.parts.values()), default=0)

    def held_by(self, network: Caller) -> int:
        """Returns what a caller, or the beginning of one, holds."""
        node: _Node[T] | None = self.root
        for name in network:
            node = node.parts.get(name) if node else None
        return node.amount if node else 0

    def of(self, item: T) -> int:
        """Returns what one item holds."""
        return self._path(self._callers[item])[-1].items[item] if item in self._callers else 0

    def set(self, item: T, caller: Caller, amount: int) -> None:
        """Enters an item, or changes what it holds."""
        path = self._path(caller)
        change = amount - path[-1].items.get(item, 0)
        path[-1].items[item] = amount
        self._callers[item] = caller
        for node in path:
            node.amount += change

    def remove(self, item: T) -> None:
        """Removes an item, if it is there."""
        caller = self._callers.pop(item, None)
        if caller is None:
            return
        path = self._path(caller)
        amount = path[-1].items.pop(item)
        for node in path:
            node.amount -= amount
        for above, name, node in reversed(list(zip(path, caller, path[1:], strict=False))):
            if not node.items and not node.parts:
                del above.parts[name]

    def items_of(self, caller: Caller, *, newest_first: bool = False) -> Iterator[T]:
        """Returns the items of one caller."""
        return self._path(caller)[-1].largest_first(newest_first=newest_first)

    def largest_first(self, *, newest_first: bool = False) -> Iterator[T]:
        """Returns all items: of the network that holds most, and in it of the caller that holds most, before others.

        Networks that hold the same, and the items of a caller, come oldest first, or newest first. Take no more of it
        once something has changed.
        """
        return self.root.largest_first(newest_first=newest_first)

    def _path(self, caller: Caller) -> list[_Node[T]]:
        path = [self.root]
        for name in caller:
            path.append(path[-1].parts.setdefault(name, _Node()))
        return path


class FairQueue(Generic[T]):
    """Items that wait, taken from each network in turn, and in it from each of its parts in turn."""

    def __init__(self) -> None:
        self._parts: dict[str, FairQueue[T]] = {}  # whose turn comes first
        self._items: deque[T] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts or self._items)

    def put(self, caller: Caller, item: T) -> None:
        """Puts an item last of its caller's."""
        if caller:
            self._parts.setdefault(caller[0], FairQueue()).put(caller[1:], item)
        else:
            self._items.append(item)

    def take(self) -> T:
        """Returns the next item."""
        if not self._parts:
            return self._items.popleft()
        name = next(iter(self._parts))
        part = self._parts.pop(name)
        item = part.take()
        if part:
            self._parts[name] = part
        return item
