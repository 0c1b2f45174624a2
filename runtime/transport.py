"""gRPC over TLS with pinned certificates: servers, channels, the identity of callers, and errors on the wire.

A service listens twice: peers and the operator come with mutual TLS, clients without a certificate. No certificate
authority is trusted; each certificate in the deployment file is trusted for its own name only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from protocol.deployment import OPERATOR, Deployment, ServiceEntry
from protocol.errors import TRANSIENT, Code, Refusal, SignatureError, refusal_of
from runtime.limits import MESSAGE_BYTES, SERVER_OPTIONS, Held, Room, Slots, check_fields, host_of
from runtime.metrics import Metrics
from runtime.service_directory import Secrets, Settings

__all__ = [
    "TLS",
    "Caller",
    "ServerTls",
    "Transport",
    "add_ports",
    "caller_name",
    "is_not_pinned",
    "listening_at",
    "make_guard",
    "make_server",
    "peer_channel",
    "public_channel",
    "retrying",
    "why_unreachable",
]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # Without a limit a peer that was away for long is not tried again for two minutes after it has come back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5000),
]
_RETRY_AFTER = "retry-after-ms"
_LONGEST_RETRY_AFTER_S = 30.0
_OURS = "/croupier."
_LARGE = 64 * 1024
_LINES_PER_SECOND, _LONGEST_TEXT = 20, 300
_FOR_CLIENTS = frozenset({"GetRound", "Submit", "GetInclusion", "GetResult", "Attend", "GetTickets"})
Caller = str
Context = grpc.aio.ServicerContext[Any, Any]


class _Guard(grpc.aio.ServerInterceptor):
    """Stands before every call: its room, its slot, its request, its answer, and what its handler raises.

    Only a Refusal's own words leave the process. Every method is a stream to gRPC, and its messages are bytes: so it
    is decided here when and whether a request is read, and a call is over only when its answer has left. A call holds
    no slot before its request has arrived: silent callers keep no other caller out.
    """

    def __init__(self, metrics: Metrics, slots: Slots, streams: Slots, tls: ServerTls | None) -> None:
        self._metrics = metrics
        self._tls = tls
        self._slots = slots
        self._streams = streams
        self._room, self._large_answers = Room(), Room()
        self._log = _RefusalLog()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method
        serve: Callable[..., Awaitable[None]]
        if handler.unary_unary is not None:
            serve = self._one_answer
        elif handler.stream_stream is None:
            return None  # health's Watch, which would hold a call open
        elif method.startswith(_OURS):
            serve = self._many_answers
        else:
            return handler  # reflection, on the admin port

        async def guarded(requests: AsyncIterator[bytes], context: Context) -> None:
            try:
                caller, pinned = self._who_calls(context, method)
                with self._room.hold(caller, pinned=pinned) as held:
                    await serve(handler, requests, context, held, pinned)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:  # noqa: BLE001 (the last line of defence: nothing internal may travel)
                if not context.done():  # else the caller has hung up
                    await self._refuse(error, method, context)

        return grpc.stream_stream_rpc_method_handler(guarded)

    def _who_calls(self, context: Context, method: str) -> tuple[str, bool]:
        """Returns the caller that a call is counted for, and whether its certificate is pinned.

        TLS has let in a certificate that it could lead back to a pinned one; here it must be one itself. One that was
        pinned when its connection began comes from before a change of keys: NOT_READY, and it comes again with the new.
        """
        presented = _presented(context)
        if presented is None:
            if method.startswith(_OURS) and method.rpartition("/")[2] not in _FOR_CLIENTS:
                raise Refusal(Code.NOT_YOUR_CALL, "a client called")
            return host_of(context.peer()), False
        if self._tls is not None and not self._tls.pins(presented):
            if self._tls.has_pinned(presented):
                raise Refusal(Code.NOT_READY, "your certificate is not pinned any more; come again with your new one")
            raise Refusal(Code.NOT_YOUR_CALL, "your certificate is not pinned")
        return presented, True

    async def _one_answer(
        self, handler: Any, requests: AsyncIterator[bytes], context: Context, held: Held, pinned: bool
    ) -> None:
        raw = await held.message(requests)
        if raw is None:
            raise Refusal(Code.BAD_REQUEST, "there is no request")
        if not pinned:
            self._room.resize(held, len(raw))
            check_fields(raw)
        with self._slots.work(held.caller, pinned=pinned):
            response = await handler.unary_unary(_parsed(raw, handler.request_deserializer), context)
        answer = handler.response_serializer(response)
        if len(answer) <= _LARGE:
            if not pinned:
                self._room.resize(held, len(answer))
            await _write(context, answer)
        else:  # in a room of their own: callers that read nothing keep no submission out
            with self._large_answers.hold(held.caller, len(answer), pinned=pinned):
                await _write(context, answer)

    async def _many_answers(
        self, handler: Any, requests: AsyncIterator[bytes], context: Context, held: Held, pinned: bool
    ) -> None:
        async def parsed() -> AsyncIterator[Any]:
            while (raw := await held.message(requests)) is not None:
                if not pinned:
                    check_fields(raw)
                yield _parsed(raw, handler.request_deserializer)

        with ExitStack() as entered:  # until then a stream holds room: strangers keep no client off the slots
            held.on_entry = lambda: entered.enter_context(self._streams.work(held.caller, pinned=pinned))
            if pinned:
                held.on_entry()
            async with aclosing(handler.stream_stream(parsed(), context)) as responses:
                async for response in responses:
                    await _write(context, handler.response_serializer(response))

    async def _refuse(self, error: Exception, method: str, context: Context) -> None:
        refusal = self._log.public(error, method)
        self._metrics.refusal(refusal.code)
        hint = refusal.retry_after_s
        trailing = () if hint is None else ((_RETRY_AFTER, str(round(1000 * hint))),)
        await context.abort(refusal.code.status, refusal.details(), trailing)


async def _write(context: Context, raw: bytes) -> None:
    try:
        await context.write(raw)
    except Exception as error:  # gRPC's own, where the caller has hung up
        raise asyncio.CancelledError from error


def _parsed(raw: bytes, parse: Callable[[bytes], Any] | None) -> Any:
    try:
        return parse(raw) if parse else raw
    except DecodeError as error:
        raise Refusal(Code.BAD_REQUEST, "the bytes are not a message of this method") from error


class _RefusalLog:
    """What the log says of calls that are refused: a line each, short, and so many a second for each reason.

    A stranger can make a call at the price of a few bytes; it must not be able to write the disk full.
    """

    def __init__(self) -> None:
        self._second = 0
        self._lines: Counter[Code] = Counter()

    def public(self, error: Exception, method: str) -> Refusal:
        """Returns what the caller may know of an error, and logs the rest."""
        if not isinstance(error, Refusal | SignatureError):
            _log.error("a call failed", extra={"method": method, "code": Code.INTERNAL.name}, exc_info=error)
            return Refusal(Code.INTERNAL)
        refusal = error if isinstance(error, Refusal) else Refusal(Code.BAD_SIGNATURE, str(error))
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        self._lines[refusal.code] += 1
        if self._lines[refusal.code] <= _LINES_PER_SECOND:
            text = f"{refusal} ({refusal.log_only})" if refusal.log_only else str(refusal)
            last = "; further ones of this second are not logged"
            more = last if self._lines[refusal.code] == _LINES_PER_SECOND else ""
            # Only what is printed as one byte: JSON makes twelve of others.
            text = text[:_LONGEST_TEXT].encode("ascii", "replace").decode()
            _log.info("refused: %s%s", text, more, extra={"method": method, "code": refusal.code.name})
        return refusal


def make_guard(
    concurrent_calls: int, metrics: Metrics | None = None, tls: ServerTls | None = None
) -> grpc.aio.ServerInterceptor:
    """Returns what stands before every call of a server: limits, checks of the request, refusals as statuses."""
    # Streams last: they do not take the slots of calls, and there are as many of them.
    return _Guard(metrics or Metrics(), Slots(concurrent_calls), Slots(concurrent_calls), tls)


def make_server(concurrent_calls: int, metrics: Metrics | None = None, tls: ServerTls | None = None) -> grpc.aio.Server:
    """Returns a server without ports.

    Args:
        concurrent_calls: more at once get RESOURCE_EXHAUSTED.
        metrics: are told of refusals.
        tls: says which callers' certificates are pinned; a server without it has none.
    """
    return grpc.aio.server(interceptors=[make_guard(concurrent_calls, metrics, tls)], options=SERVER_OPTIONS)


def _plain(certificate: str) -> str:
    return "".join(certificate.split())


def _presented(context: Context) -> str | None:
    """Returns the certificate that the caller has shown, in PEM."""
    (presented, *_) = context.auth_context().get("x509_pem_cert", [None])
    return None if presented is None else presented.decode()


class ServerTls:
    """The certificate that a server shows and those that it trusts; `replace` takes effect with the next handshake.

    gRPC asks before every handshake whether they have changed. What it is given then it takes for new and frees what it
    had, while other handshakes may be using that: the process dies. So it is given something only once a change.
    """

    def __init__(self, entry: ServiceEntry, deployment: Deployment, secrets: Secrets) -> None:
        self._name = entry.name
        self._changes = 0
        self._ever_pinned: set[str] = set()
        self.replace(deployment, secrets)

    def replace(self, deployment: Deployment, secrets: Secrets) -> None:
        """Changes to the keys and pins of a new deployment file."""
        others = [one for entry in deployment.services if entry.name != self._name for one in entry.tls_certificates]
        self.trusted = [*others, deployment.operator_tls_certificate]
        self._pinned = {_plain(one) for one in self.trusted}
        self._ever_pinned |= self._pinned
        self.certificate = secrets.tls_certificate
        own = [(secrets.tls_key, secrets.tls_certificate)]
        trusted = "\n".join(self.trusted).encode()
        self._peers = grpc.ssl_server_certificate_configuration(own, root_certificates=trusted)
        self._clients = grpc.ssl_server_certificate_configuration(own)
        self._changes += 1

    def pins(self, certificate: str) -> bool:
        """Returns whether this very certificate is pinned."""
        return _plain(certificate) in self._pinned

    def has_pinned(self, certificate: str) -> bool:
        """Returns whether it is, or has been since the service started."""
        return _plain(certificate) in self._ever_pinned

    def for_peers(self) -> grpc.ServerCredentials:
        """Mutual TLS with the pinned certificates."""
        changed = self._once_a_change(lambda: self._peers)
        return grpc.dynamic_ssl_server_credentials(self._peers, changed, require_client_authentication=True)

    def for_clients(self) -> grpc.ServerCredentials:
        """TLS, for callers without a certificate."""
        return grpc.dynamic_ssl_server_credentials(self._clients, self._once_a_change(lambda: self._clients))

    def _once_a_change(self, current: Callable[[], T]) -> Callable[[], Any]:
        given = self._changes

        def changed() -> T | None:
            nonlocal given
            if given == self._changes:
                return None
            given = self._changes
            return current()

        return changed


def add_ports(server: grpc.aio.Server, entry: ServiceEntry, tls: ServerTls, settings: Settings) -> None:
    """Listens for peers and operator with mutual TLS, for clients with plain TLS; where, the settings may say."""
    with listening_at(address := settings.listen or entry.address):
        server.add_secure_port(address, tls.for_peers())
    if entry.public_address:
        with listening_at(address := settings.public_listen or entry.public_address):
            server.add_secure_port(address, tls.for_clients())


@contextmanager
def listening_at(address: str) -> Iterator[None]:
    """Says in one sentence that an address cannot be listened at.

    Raises:
        ValueError: the block has raised what gRPC or the operating system raise then.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"nothing can listen at {address}: another program uses the port, or the address is not this machine's; "
            "end that program, or choose another address"
        ) from error


def caller_name(context: grpc.aio.ServicerContext[Any, Any], deployment: Deployment) -> Caller | None:
    """Returns the name that the caller's certificate is pinned for, or None for a client."""
    presented = _presented(context)
    if presented is None:
        return None
    certificate = _plain(presented)
    if certificate == _plain(deployment.operator_tls_certificate):
        return OPERATOR
    for entry in deployment.services:
        if any(certificate == _plain(one) for one in entry.tls_certificates):
            return entry.name
    return None


def _roots(entry: ServiceEntry) -> bytes:
    return "\n".join(entry.tls_certificates).encode()


def _channel(address: str, entry: ServiceEntry, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    options = [*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", entry.name)]
    return grpc.aio.secure_channel(address, credentials, options=options)


def peer_channel(entry: ServiceEntry, secrets: Secrets) -> grpc.aio.Channel:
    """Returns a mutual-TLS channel to a service, as the holder of `secrets`."""
    credentials = grpc.ssl_channel_credentials(_roots(entry), secrets.tls_key, secrets.tls_certificate)
    return _channel(entry.address, entry, credentials)


def public_channel(entry: ServiceEntry) -> grpc.aio.Channel:
    """Returns a client's channel to a service.

    Raises:
        ValueError: the service has no public address.
    """
    if entry.public_address is None:
        raise ValueError(f"{entry.name} has no public_address; clients cannot call it")
    return _channel(entry.public_address, entry, grpc.ssl_channel_credentials(_roots(entry)))


@dataclass(frozen=True)
class Transport:
    """How services and their callers reach each other: `TLS`, or for tests a transport without sockets.

    Attributes:
        make_server: as the function of this name, and so on.
    """

    make_server: Callable[[int, Metrics, ServerTls], grpc.aio.Server]
    add_ports: Callable[[grpc.aio.Server, ServiceEntry, ServerTls, Settings], None]
    peer_channel: Callable[[ServiceEntry, Secrets], grpc.aio.Channel]
    public_channel: Callable[[ServiceEntry], grpc.aio.Channel]


TLS = Transport(make_server, add_ports, peer_channel, public_channel)


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    give_up_after_s: float,
    longest_wait_s: float = 5.0,
    on_failure: Callable[[grpc.aio.AioRpcError], None] = lambda _: None,
) -> T:
    """Returns the call's answer, repeating transient failures with jittered exponential backoff.

    A caller with limited patience hears of a certificate that is not pinned at once, and of an outage by a warning.
    Where the service says when to try again, the wait is at least as long, up to 30 s.

    Args:
        call: makes the call; made anew for every attempt.
        give_up_after_s: total waiting after which the last failure is raised; infinity keeps trying.
        longest_wait_s: the longest wait between two attempts that the service has not asked for.
        on_failure: called with every failure that will be repeated.

    Raises:
        Refusal: the service said no.
        grpc.aio.AioRpcError: the transport failed for good, or for too long.
    """
    wait_s, waited_s = 0.05, 0.0
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            hopeless = math.isfinite(give_up_after_s) and is_not_pinned(error)
            if error.code() not in TRANSIENT or waited_s >= give_up_after_s or hopeless:
                refusal = refusal_of(error)
                if refusal is not None:
                    raise refusal from error
                raise
            if not waited_s and 1 < give_up_after_s < math.inf and refusal_of(error) is None:
                _log.warning("no answer yet (%s); trying for %g s", why_unreachable(error), give_up_after_s)
            on_failure(error)
            hint_s = _retry_after_s(error)
        pause_s = wait_s * random.uniform(0.5, 1.0) + hint_s  # noqa: S311 (spreads load; protects no one)
        await asyncio.sleep(pause_s)
        waited_s += pause_s
        wait_s = min(wait_s * 2, longest_wait_s)


def is_not_pinned(error: grpc.aio.AioRpcError) -> bool:
    """Returns whether a call failed because the server has not the certificate that the deployment file pins."""
    return "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")


def why_unreachable(error: grpc.aio.AioRpcError) -> str:
    """Returns in a few words why a call did not arrive, and where."""
    details = error.details() or ""
    found = re.search(r"ipv[46]:([\d.]+:\d+|\[[^\]]+\]:\d+)", details)
    if is_not_pinned(error):
        why = "a certificate that is not pinned"
    else:
        why = "connection refused" if "Connection refused" in details else error.code().name
    return f"{why} at {found[1]}" if found else why


def _retry_after_s(error: grpc.aio.AioRpcError) -> float:
    """Returns how long the service asks its caller to stay away: a number of milliseconds, or nothing is asked."""
    value = dict(error.trailing_metadata() or ()).get(_RETRY_AFTER, "")
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 9:
        return 0.0
    return min(int(value) / 1000, _LONGEST_RETRY_AFTER_S)
