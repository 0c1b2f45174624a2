"""How much of a service one caller may use at once, so that none can take it from the others.

What gRPC itself can bound stands in `SERVER_OPTIONS`. The calls that are worked on are bounded by `Slots`: those of
everybody, and those of one caller, which is a pinned certificate or an address. The bytes of callers without a
certificate are bounded by `Room`, from before the first of them is read until the answer has left. What is beyond a
bound is refused at once, with a hint when to return.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from protocol.errors import Code, Refusal

__all__ = [
    "MAX_FIELDS",
    "MESSAGE_BYTES",
    "ROOM_BYTES",
    "SERVER_OPTIONS",
    "Held",
    "Room",
    "Slots",
    "check_fields",
    "host_of",
    "let_in",
]

MESSAGE_BYTES = 4 * 1024 * 1024
MAX_FIELDS = 4096
"""How many fields a client's request may have: an empty one takes 2 bytes on the wire and 90 in memory."""
ROOM_BYTES = 256 * 1024 * 1024
_RETRY_AFTER_S = 0.5
_ARRIVES_S = 20.0
_CALL_BYTES = 16 * 1024  # what a call takes that says next to nothing

_CONNECTIONS = 4000

SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second process on the same port is a mistake, not a helper
    # Our own clients and services have a few calls under way on a connection; beyond it they wait on their side.
    ("grpc.max_concurrent_streams", 100),
    # Before a message is asked for, a call holds no more of it than HTTP/2's first window, however fast it comes.
    ("grpc.http2.lookahead_bytes", 64 * 1024),
    ("grpc.http2.bdp_probe", 0),
    # Headers of a call: names and a deadline. (The status of a refusal is as small: see `Refusal.details`.)
    ("grpc.max_metadata_size", 8 * 1024),
    # A connection that opens and does not finish TLS and the HTTP/2 preface in this time ends (default: 120 s).
    ("grpc.server_handshake_timeout_ms", 20_000),
    # A caller that has vanished without a word is noticed, and its calls end (default: after two hours).
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Pings do not replace calls: at most one in so long without data, and two offences end the connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ("grpc.http2.max_ping_strikes", 2),
    # Idle connections end, and old ones are asked to reconnect. That
    # also ends calls whose request never arrives.
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_connection_age_ms", 1_800_000),
    ("grpc.max_connection_age_grace_ms", 90_000),
    # The most connections that a port accepts; a further one is closed at once, before any work for TLS.
    ("grpc.max_allowed_incoming_connections", _CONNECTIONS),
    # Calls wait until they are taken up, one after the other. gRPC cancels new ones while many wait, and the oldest
    # after a time (defaults: some from 1000 on, all from 3000 on; 30 s), and its CANCELLED gives a caller no reason.
    # So there is room for two from every connection, at 20 KB each, and time until callers have given up themselves.
    ("grpc.server.max_pending_requests", 2 * _CONNECTIONS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * _CONNECTIONS),
    ("grpc.server_max_unrequested_time_in_server", 180),
]


def host_of(peer: str) -> str:
    """Returns whose an address is, of gRPC's "ipv4:1.2.3.4:5" or "ipv6:[::1]:5": one host, or one IPv6 network."""
    kind, _, rest = peer.replace("%5B", "[").replace("%5D", "]").partition(":")
    host = rest.rpartition(":")[0].strip("[]")
    if kind != "ipv6":
        return host or peer
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


class Slots:
    """The calls of one server. Used from its event loop only.

    Args:
        total: calls that are worked on at once. A quarter of them is kept for callers with a pinned certificate:
            clients cannot keep the services of a deployment from each other. One caller gets a quarter.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._working: Counter[str] = Counter()

    @contextmanager
    def work(self, caller: str, *, pinned: bool) -> Iterator[None]:
        """Holds a call that is worked on; raises Refusal OVERLOADED."""
        limit = self._total if pinned else self._total * 3 // 4
        mine = self._working[caller]
        if self._working.total() >= limit or mine >= max(1, limit // 4):
            raise Refusal(Code.OVERLOADED, f"{mine} calls of yours are under way", retry_after_s=_RETRY_AFTER_S)
        self._working[caller] += 1
        try:
            yield
        finally:
            self._working[caller] -= 1
            if not self._working[caller]:
                del self._working[caller]


class Held:
    """What one call holds of a `Room`."""

    def __init__(self, caller: str, num_bytes: int) -> None:
        self.caller, self.num_bytes = caller, num_bytes
        self.on_entry: Callable[[], object] = lambda: None
        self._patience: asyncio.Timeout | None = None

    @property
    def arrives(self) -> bool:
        """Whether the call is still to say what it wants."""
        return self._patience is not None

    def turn_away(self) -> None:
        """Ends the wait for a message, for another one."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
            self._patience, self.num_bytes = None, 0

    async def message(self, requests: AsyncIterator[bytes]) -> bytes | None:
        """Returns the next message, None after the last; a caller that holds no room may take any time.

        Raises:
            Refusal: OVERLOADED, the message has not come in time, or was turned away.
        """
        if not self.num_bytes:
            return await anext(requests, None)
        try:
            async with asyncio.timeout(_ARRIVES_S) as self._patience:
                return await anext(requests, None)
        except TimeoutError:
            raise Refusal(Code.OVERLOADED, "the request did not arrive in time", retry_after_s=_RETRY_AFTER_S) from None
        finally:
            self._patience = None


_held: ContextVar[Held | None] = ContextVar("held", default=None)


def let_in() -> None:
    """Says that the caller of the stream that is being served has proved who it is.

    From the first time on the stream holds no room, but one of the slots for streams; raises Refusal OVERLOADED.
    """
    held = _held.get()
    if held is not None and held.num_bytes:
        held.on_entry()
        held.num_bytes = 0


class Room:
    """The bytes that callers without a certificate hold: messages that arrive or are worked on, answers not yet read.

    A message that arrives counts as one of the largest size, because gRPC tells its size only when it is there. Where
    there is no room for one more, the oldest that has not arrived is turned away: silent callers keep no other out.

    Args:
        total: for all of them together; one caller gets a quarter.
    """

    def __init__(self, total: int = ROOM_BYTES) -> None:
        self._total = total
        self._all: dict[Held, None] = {}  # oldest first

    @contextmanager
    def hold(self, caller: str, num_bytes: int = MESSAGE_BYTES, *, pinned: bool) -> Iterator[Held]:
        """Makes room for a message, of unknown size if none is given; a pinned caller needs none.

        Raises:
            Refusal: OVERLOADED.
        """
        held = Held(caller, 0)
        if not pinned:
            self.resize(held, num_bytes)
            self._all[held] = None
        token = _held.set(held)
        try:
            yield held
        finally:
            _held.reset(token)
            self._all.pop(held, None)

    def resize(self, held: Held, num_bytes: int) -> None:
        """Changes what a call holds. Raises Refusal OVERLOADED where it would be more than there is."""
        num_bytes = max(num_bytes, _CALL_BYTES)
        while num_bytes > held.num_bytes:
            others = [one for one in self._all if one is not held]
            mine = [one for one in others if one.caller == held.caller]
            if sum(one.num_bytes for one in mine) + num_bytes > self._total // 4:
                among = mine
            elif sum(one.num_bytes for one in others) + num_bytes > self._total:
                among = others
            else:
                break
            oldest = next((one for one in among if one.arrives), None)
            if oldest is None:
                raise Refusal(Code.OVERLOADED, "your messages fill the room for them", retry_after_s=_RETRY_AFTER_S)
            oldest.turn_away()
        held.num_bytes = num_bytes


def check_fields(message: bytes) -> None:
    """Raises Refusal BAD_REQUEST for bytes with more than MAX_FIELDS fields, before anything is made of them."""
    at, count, end = 0, 0, len(message)
    while at < end:
        count += 1
        if count > MAX_FIELDS:
            raise Refusal(Code.BAD_REQUEST, f"more than {MAX_FIELDS} fields in one request")
        tag, at = (message[at], at + 1) if message[at] < 128 else _varint(message, at)
        if tag & 7 == 2:
            length, at = _varint(message, at)
            at += length
        elif tag & 7 == 0:
            _, at = _varint(message, at)
        else:
            at += {1: 8, 5: 4}.get(tag & 7, 0)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the number that starts there and where the next field starts; the parser refuses malformed numbers."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
    return number, at
