"""How much of a service one caller may use at once, so that none can take it from the others.

`SERVER_OPTIONS` has what gRPC itself can bound. A `Budget` bounds the calls that are worked on, and another the bytes
of callers without a certificate, from before the first of them is read until the answer has left. What is beyond a
bound is refused at once, with a hint when to return.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from croupier.net.connections import CONNECTIONS
from croupier.net.shares import RETRY_AFTER_S, Call, Holdings, current_call
from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.errors import Code, Refusal

MAX_FIELDS = 4096
"""How many fields a client's request may have: an empty one takes 2 bytes on the wire and 90 in memory."""
BUDGET_BYTES = 256 * 1024 * 1024
"""The most bytes of messages that arrive, and separately of large answers: unread answers keep no submission out."""
CALL_BYTES = 16 * 1024
"""What a call takes whose messages are small."""
LARGE_ANSWER = 64 * 1024
ARRIVES_S = 20.0
LEAVES_S = 120.0
"""An answer has more time than a message: it is larger as a rule, and the caller that reads slowest goes anyway where
answers are too many. The largest one needs 35 kB/s."""

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
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    # Calls wait until they are taken up, one after the other. gRPC cancels new ones while many wait, and the oldest
    # after a time (defaults: some from 1000 on, all from 3000 on; 30 s), and its CANCELLED gives a caller no reason.
    # So there is room for two from every connection, at 20 KB each, and time until callers have given up themselves.
    ("grpc.server.max_pending_requests", 2 * CONNECTIONS),
    ("grpc.server.max_pending_requests_hard_limit", 2 * CONNECTIONS),
    ("grpc.server_max_unrequested_time_in_server", 180),
]


class Budget:
    """An amount that calls share: bytes of memory, or calls that are worked on at once. Used from one event loop only.

    One caller gets a quarter. Where there is not enough for one more call, a call that waits (for its message, for the
    caller to read its answer, for a worker) goes: one of the caller that holds most, in the network that holds most.
    That may be the new call itself, which is then refused: callers that hold little come in, however many calls of
    others wait.

    Args:
        total: how much all callers may hold together.
        for_pinned: the part of it that only callers with a pinned certificate get, so that clients cannot keep the
            services of a deployment from each other.
        newest_first: whether of one caller's calls, and of networks that hold the same, the newest goes and not the
            oldest. Then a crowd of callers that all hold the same keeps what it has begun.
    """

    def __init__(self, total: int, *, for_pinned: int = 0, newest_first: bool = False) -> None:
        self._total, self._for_pinned, self._newest_first = total, for_pinned, newest_first
        self._held = Holdings[Call]()

    @contextmanager
    def hold(self, call: Call, amount: int = 1) -> Iterator[None]:
        """Holds a part of the budget for a call. Raises Refusal OVERLOADED."""
        self.resize(call, amount)
        try:
            yield
        finally:
            self._held.remove(call)

    def release(self, call: Call) -> None:
        """Gives back what a call holds."""
        self._held.remove(call)

    def resize(self, call: Call, amount: int) -> None:
        """Changes what a call holds. Raises Refusal OVERLOADED where that is too much; the call then holds nothing."""
        grows = amount > self._held.of(call)
        self._held.set(call, call.caller, amount)
        limit = self._total if call.pinned else self._total - self._for_pinned
        while grows:
            if self._held.held_by(call.caller) > max(1, limit // 4):
                candidates = self._held.items_of(call.caller, newest_first=self._newest_first)
            elif self._held.total > limit:
                candidates = self._held.largest_first(newest_first=self._newest_first)
            else:
                return
            gone = next((candidate for candidate in candidates if candidate is call or candidate.can_go), call)
            self._held.remove(gone)
            if gone is call:
                raise Refusal(
                    Code.OVERLOADED, "too many calls at once, of yours or of all", retry_after_s=RETRY_AFTER_S
                )
            gone.turn_away()


def mark_authenticated() -> None:
    """Marks the caller of the stream that is being served as authenticated.

    From the first time on the stream holds none of the bytes, but one of the slots for streams; raises Refusal
    OVERLOADED.
    """
    call = current_call()
    if call is not None:
        call.on_entry()


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
