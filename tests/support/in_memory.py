"""A transport without sockets: channels whose calls go straight to the handlers of a server in the same event loop.

All of our own code between caller and handler is the real one: messages go through bytes both ways, the
guard of `net.guard` checks every call first, and a caller is known by a certificate that has to be pinned
on both sides. Left out are TLS, HTTP/2 and gRPC's own tasks. `tests/net/test_transport_contract.py` holds this
transport and the real one to the same behaviour.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import grpc
import grpc.aio

from croupier.net.guard import OnRefusal, make_guard
from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.tls import ServerTls, TlsSecrets
from croupier.net.transport import ListenAddresses, Transport
from croupier.protocol.deployment import ServiceEntry

T = TypeVar("T")
_WINDOW = 32
"""Messages of a stream that wait to be read before its writer has to wait, in place of HTTP/2's 64 KiB."""


class Network:
    """Addresses, and who listens there. `transport` is what services and callers are given."""

    def __init__(self) -> None:
        self._listening: dict[str, _Port] = {}
        self._links: dict[str, MemoryLink] = {}
        self.transport = Transport(self._make_server, self._add_ports, self._peer_channel, self._public_channel)

    def _make_server(self, concurrent_calls: int, on_refusal: OnRefusal, tls: ServerTls) -> Any:
        return _Server(self, make_guard(concurrent_calls, on_refusal, tls))

    def _add_ports(self, server: Any, entry: ServiceEntry, tls: ServerTls, settings: ListenAddresses) -> None:
        server.ports.append(_Port(settings.listen or entry.address, server, tls, for_peers=True))
        if entry.public_address:
            server.ports.append(_Port(settings.public_listen or entry.public_address, server, tls, for_peers=False))

    def _peer_channel(self, entry: ServiceEntry, secrets: TlsSecrets) -> Any:
        return _Channel(self, entry.address, entry.tls_certificates, secrets.tls_certificate.decode())

    def _public_channel(self, entry: ServiceEntry) -> Any:
        if entry.public_address is None:
            raise ValueError(f"{entry.name} has no public_address; clients cannot call it")
        return _Channel(self, entry.public_address, entry.tls_certificates, None)

    def bind(self, port: _Port) -> None:
        if port.address in self._listening:
            raise RuntimeError(f"{port.address} is in use")
        self._listening[port.address] = port

    def free(self, port: _Port) -> None:
        if self._listening.get(port.address) is port:
            del self._listening[port.address]

    def link_to(self, target: str) -> MemoryLink:
        """Returns a new link to an address; it has an address of its own."""
        link = MemoryLink(target, f"127.0.0.1:{len(self._links) + 1}")
        self._links[link.address] = link
        return link

    async def carry(self, address: str, work: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """Returns what a call comes to at an address, or behind the link that has it."""
        link = self._links.get(address)
        return await (work(address) if link is None else link.carry(work(link.target)))

    def connect(self, address: str, pinned: Iterable[str], certificate: str | None) -> _Port:
        """Returns who listens there, if both sides accept each other's certificates."""
        port = self._listening.get(address)
        if port is None:
            raise _error(grpc.StatusCode.UNAVAILABLE, f"{address}: connection refused")
        if _plain(port.tls.certificate.decode()) not in map(_plain, pinned):
            raise _error(grpc.StatusCode.UNAVAILABLE, f"{address}: the server's certificate is not pinned")
        if port.for_peers and _plain(certificate or "") not in map(_plain, port.tls.trusted):
            raise _error(grpc.StatusCode.UNAVAILABLE, f"{address}: the caller's certificate is not pinned")
        return port


class MemoryLink:
    """A way to another address that can be cut, stalled and slowed, as `tests.faults.links.Link` is one of TCP."""

    def __init__(self, target: str, address: str) -> None:
        self.target, self.address = target, address
        self.delay_s = 0.0
        self._calls: set[asyncio.Task[Any]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._cut = False

    def become(self, state: Literal["open", "cut", "stalled"]) -> None:
        """Changes the state; whatever was stalled goes on when the link opens."""
        self._cut = state == "cut"
        if self._cut:
            for call in self._calls:
                call.cancel()
        if state == "stalled":
            self._passing.clear()
        else:
            self._passing.set()

    async def close(self) -> None:
        self.become("cut")
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def carry(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns what a call comes to; a cut ends it on both sides."""
        if self._cut:
            work.close()
            raise _error(grpc.StatusCode.UNAVAILABLE, f"{self.address}: connection refused")
        call = asyncio.create_task(self._pass_on(work))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait({call})
        finally:
            call.cancel()
        if call.cancelled():
            raise _error(grpc.StatusCode.UNAVAILABLE, f"{self.address}: connection reset")
        return call.result()

    async def _pass_on(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self._delay()
            answer = await work
        finally:
            work.close()
        await self._delay()
        return answer

    async def _delay(self) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self._passing.wait()


@dataclass(frozen=True)
class _Port:
    address: str
    server: _Server
    tls: ServerTls
    for_peers: bool


def _plain(certificate: str) -> str:
    return "".join(certificate.split())


def _error(code: grpc.StatusCode, details: str, trailing: Iterable[tuple[str, str]] = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


@dataclass
class _Context:
    """What a handler is told of its caller, and with what it ends a call (grpc.aio.ServicerContext)."""

    certificate: str | None
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailing: Any = ()
    ended: bool = False
    requests: _Pipe = field(default_factory=lambda: _Pipe())
    responses: _Pipe = field(default_factory=lambda: _Pipe())

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self.certificate is None else {"x509_pem_cert": [self.certificate.encode()]}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:50000"

    def done(self) -> bool:
        return self.ended

    async def write(self, raw: bytes) -> None:
        await self.responses.put(raw)

    async def read(self) -> Any:
        raw = await self.requests.get()
        return grpc.aio.EOF if raw is None else raw

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing: Any) -> None:
        self.trailing = trailing


class _Server:
    """Replaces grpc.aio.Server: takes handlers, and runs them behind the guard."""

    def __init__(self, network: Network, guard: Any) -> None:
        self._network, self._guard = network, guard
        self._handlers: list[Any] = []
        self._calls: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.ports: list[_Port] = []

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, *_: Any) -> None:
        """Ignores handlers that were added already; gRPC looks these up faster by their names."""

    async def start(self) -> None:
        for port in self.ports:
            self._network.bind(port)

    async def stop(self, grace: float | None) -> None:
        """Takes no new calls, and ends those under way when the time is over."""
        self._stopping = True
        for port in self.ports:
            self._network.free(port)
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=grace or 0)
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def handler(self, method: str) -> Any:
        """Returns the guarded handler of a method."""

        async def found(details: Any) -> Any:
            return next(
                (handler for handler in (it.service(details) for it in self._handlers) if handler is not None), None
            )

        details = SimpleNamespace(method=method, invocation_metadata=())
        handler = await self._guard.intercept_service(found, details)
        if handler is None:
            raise _error(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return handler

    async def run(self, work: Coroutine[Any, Any, Any], context: _Context) -> Any:
        """Returns what a handler returns; raises the status of a call that has none.

        The handler is a task of its own: it ends with the caller, or with the server.
        """
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait({task})
        finally:
            context.ended = True
            task.cancel()
        if task.cancelled():
            raise _error(grpc.StatusCode.UNAVAILABLE, "the server has stopped")
        error = task.exception()
        if context.code is not grpc.StatusCode.OK:
            raise _error(context.code, context.details, context.trailing)
        if error is not None:
            raise _error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
        return task.result()


def _fits(raw: bytes) -> bytes:
    if len(raw) > MESSAGE_BYTES:
        raise _error(grpc.StatusCode.RESOURCE_EXHAUSTED, f"a message of {len(raw)} bytes; at most {MESSAGE_BYTES}")
    return raw


@dataclass
class _Channel:
    """Replaces grpc.aio.Channel, as far as the generated stubs use it."""

    network: Network
    address: str
    pinned: Iterable[str]
    certificate: str | None
    calls: set[_Call] = field(default_factory=set)

    async def __aenter__(self) -> _Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Ends the calls that are under way."""
        for call in list(self.calls):
            call.cancel()

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., _UnaryCall]:
        def call(request: Any, *, timeout: float | None = None, **_: Any) -> _UnaryCall:
            raw = request_serializer(request) if request_serializer else request
            return _UnaryCall(self, method, raw, response_deserializer, timeout)

        return call

    def stream_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., _StreamCall]:
        def call(requests: Any = None, *, timeout: float | None = None, **_: Any) -> _StreamCall:
            return _StreamCall(self, method, request_serializer, response_deserializer, requests, timeout)

        return call

    def _other(self, method: str, **_: Any) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{method}: nobody here calls a method of this kind")

        return call

    unary_stream = stream_unary = _other


class _Call:
    """What both kinds of calls have: a task that is the call's life, and how it ended."""

    def __init__(self, channel: _Channel, timeout: float | None) -> None:
        self._channel = channel
        self._task = asyncio.create_task(self.live(timeout))
        channel.calls.add(self)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._channel.calls.discard(self)
        if not task.cancelled():
            task.exception()  # a caller that waits hears of it; any other has dropped the call

    async def live(self, patience_s: float | None) -> Any:
        try:
            async with asyncio.timeout(patience_s):
                return await self._channel.network.carry(self._channel.address, self._call)
        except TimeoutError:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    async def _call(self, address: str) -> Any:
        """Makes the call to the server that listens there."""
        raise NotImplementedError

    async def _serve(self, address: str, method: str) -> tuple[_Server, Any, _Context]:
        port = self._channel.network.connect(address, self._channel.pinned, self._channel.certificate)
        handler = await port.server.handler(method)
        return port.server, handler, _Context(self._channel.certificate if port.for_peers else None)

    def cancel(self) -> bool:
        return self._task.cancel()

    def done(self) -> bool:
        return self._task.done()

    async def code(self) -> grpc.StatusCode:
        await asyncio.wait({self._task})
        if self._task.cancelled():
            return grpc.StatusCode.CANCELLED
        error = self._task.exception()
        return error.code() if isinstance(error, grpc.aio.AioRpcError) else grpc.StatusCode.OK


class _UnaryCall(_Call):
    def __init__(self, channel: _Channel, method: str, raw: bytes, read: Any, timeout: float | None) -> None:
        self._request = method, raw, read
        super().__init__(channel, timeout)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._task.__await__()

    async def _call(self, address: str) -> Any:
        method, raw, read = self._request
        server, handler, context = await self._serve(address, method)
        await context.requests.put(_fits(raw))
        context.requests.close()
        await server.run(handler.stream_stream(None, context), context)
        answer = await context.responses.get()
        if answer is None:
            raise _error(grpc.StatusCode.INTERNAL, "the method has no answer")
        return read(_fits(answer)) if read else answer


class _Pipe:
    """One direction of a stream: bytes in order, a bounded number of them waiting, and an end."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def put(self, raw: bytes) -> bool:
        """Returns whether there is still a reader."""
        while len(self._waiting) >= _WINDOW and not self._closed:
            await self._changed.wait()
        if not self._closed:
            self._waiting.append(raw)
            self._change()
        return not self._closed

    async def get(self) -> bytes | None:
        """Returns the next one, None after the last."""
        while not self._waiting and not self._closed:
            await self._changed.wait()
        raw = self._waiting.popleft() if self._waiting else None
        self._change()
        return raw

    def close(self) -> None:
        self._closed = True
        self._change()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (raw := await self.get()) is not None:
            yield raw


class _StreamCall(_Call):
    def __init__(
        self, channel: _Channel, method: str, write: Any, read: Any, requests: Any, timeout: float | None
    ) -> None:
        self._method, self._write_message, self._read_message = method, write, read
        self._requests, self._responses = _Pipe(), _Pipe()
        super().__init__(channel, timeout)
        self._sender = asyncio.create_task(self._send(requests)) if requests is not None else None

    async def _send(self, requests: AsyncIterable[Any]) -> None:
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            async for request in requests:
                await self.write(request)
            await self.done_writing()

    async def live(self, patience_s: float | None) -> None:
        try:
            await super().live(patience_s)
        finally:
            self._requests.close()
            self._responses.close()

    async def _call(self, address: str) -> None:
        server, handler, context = await self._serve(address, self._method)
        context.requests, context.responses = self._requests, self._responses
        await server.run(handler.stream_stream(None, context), context)

    async def write(self, request: Any) -> None:
        """Raises like gRPC: the error that the call has ended with, or InvalidStateError if it ended well."""
        raw = self._write_message(request) if self._write_message else request
        if not await self._requests.put(_fits(raw)):
            await self._raise_error()
            raise asyncio.InvalidStateError("RPC already finished.")

    async def done_writing(self) -> None:
        self._requests.close()

    async def read(self) -> Any:
        raw = await self._responses.get()
        if raw is None:
            await self._raise_error()
            return grpc.aio.EOF
        _fits(raw)
        return self._read_message(raw) if self._read_message else raw

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (response := await self.read()) is not grpc.aio.EOF:
            yield response

    def cancel(self) -> bool:
        if self._sender is not None:
            self._sender.cancel()
        return super().cancel()

    async def _raise_error(self) -> None:
        await asyncio.wait({self._task})
        self._task.result()
