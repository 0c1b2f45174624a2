"""A client's calls over HTTPS, to a gateway that passes them on, where gRPC does not get through.

The form is that of unary calls of the Connect protocol; its statuses stand here, for the gateway too. The server
that answers need not be trusted: what a client checks is signed by the services, however it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from croupier.net.retrying import RETRY_AFTER, NotTrustedError
from croupier.net.sizes import MESSAGE_BYTES

CONTENT_TYPE = "application/proto"
RETRY_AFTER_HEADER = f"trailer-{RETRY_AFTER}"
HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
"""The HTTP status of a gRPC status, as the Connect protocol has it."""
_PASSES = (429, 502, 503, 504)  # of a proxy on the way, which says nothing in our form
_PATIENCE_S = 60.0


def code_name(status: grpc.StatusCode) -> str:
    """Returns a status as the Connect protocol names it."""
    return "canceled" if status is grpc.StatusCode.CANCELLED else status.name.lower()


_STATUSES = {code_name(status): status for status in HTTP_STATUS}


class HttpAnswer(NamedTuple):
    """What came back; headers by their names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpChannel:
    """Replaces a grpc.aio.Channel for the calls that a client makes in batch rounds."""

    def __init__(self, url: str) -> None:
        """Makes a channel to a gateway; nothing is called yet.

        Raises:
            ValueError: it is no URL of a web server, or one in the clear that is not on this machine.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the gateway is {url!r}; it must be like https://gateway.example")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(f"the gateway is {url!r}; a gateway on another machine must have an https URL")
        self._url = url.rstrip("/")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Does nothing: every call has a connection of its own, which ends with it."""

    async def get(self, path: str, patience_s: float) -> HttpAnswer:
        """Returns what is served under a path; raises AioRpcError if nothing is in time."""
        return await exchange(self._url + path, None, patience_s)

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., Any]:
        """Returns what makes a call."""

        async def call(request: Any, *, timeout: float | None = None, **_: Any) -> Any:  # noqa: ASYNC109 (gRPC's name)
            answer = await exchange(self._url + method, request_serializer(request), timeout or _PATIENCE_S)
            if answer.status != 200:
                raise failure_of(answer)
            try:
                return response_deserializer(answer.body)
            except DecodeError as error:
                raise _error(grpc.StatusCode.INTERNAL, "the gateway's answer cannot be read") from error

        return call

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Sequential rounds, whose calls are streams, do not go through a gateway."""

        def call(*_: Any, **__: Any) -> Any:
            raise _error(grpc.StatusCode.UNIMPLEMENTED, f"{method} does not go through a gateway")

        return call

    unary_stream = stream_unary = stream_stream


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine, by its name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _error(status: grpc.StatusCode, details: str, retry_after_ms: str = "") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(RETRY_AFTER, retry_after_ms)] if retry_after_ms else []))
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, details)


def failure_of(answer: HttpAnswer) -> grpc.aio.AioRpcError:
    """Returns the status that the gateway passes on, or what the status of another server on the way comes to."""
    try:
        said = json.loads(answer.body)
        return _error(_STATUSES[said["code"]], str(said["message"]), answer.headers.get(RETRY_AFTER_HEADER, ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        passes = answer.status in _PASSES
        status = grpc.StatusCode.UNAVAILABLE if passes else grpc.StatusCode.UNKNOWN
        return _error(status, f"the gateway answered with HTTP status {answer.status}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Exchange(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """One request and its answer, on a connection that another thread can end.

    A timeout of a socket is for one read: a server that sends a byte now and then would hold the thread for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._ended = False

    def do_open(self, http_class: Any, req: urllib.request.Request, **how: Any) -> http.client.HTTPResponse:
        """Opens the request on a connection whose socket is known here; see the base class."""

        def connection(*place: Any, **how: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(*place, **how)
            made._create_connection = self._connect  # type: ignore[attr-defined]
            return made

        return super().do_open(connection, req, **how)

    def _connect(self, *place: Any, **how: Any) -> socket.socket:
        connected = socket.create_connection(*place, **how)
        with self._lock:
            if self._ended:
                connected.close()
                raise ConnectionAbortedError("the call was ended")
            self._socket = connected.dup()  # what TLS makes of the other one, it keeps to itself
        return connected

    def end(self) -> None:
        """Ends the connection, and with it what waits for it."""
        with self._lock:
            self._ended = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it has ended already
                    self._socket.shutdown(socket.SHUT_RDWR)
                self._socket.close()
                self._socket = None


async def exchange(url: str, body: bytes | None, patience_s: float) -> HttpAnswer:
    """Returns what a server answers; raises AioRpcError if none does in time. No thread is left behind then.

    Without a body the request is a GET.
    """
    connection = _Exchange()
    try:
        async with asyncio.timeout(patience_s):
            return await asyncio.to_thread(_ask_and_wait, url, body, patience_s, connection)
    except TimeoutError as error:
        raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer of {url} in {patience_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise _not_trusted(url, error) from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(reason := getattr(error, "reason", None), ssl.SSLCertVerificationError):
            raise _not_trusted(url, reason) from error
        raise _error(grpc.StatusCode.UNAVAILABLE, f"{url}: {getattr(error, 'reason', error)}") from error
    finally:
        connection.end()


def _not_trusted(url: str, error: ssl.SSLCertVerificationError) -> grpc.aio.AioRpcError:
    where = urlsplit(url).netloc
    why = f"this system does not trust the certificate of the gateway {where}: {error.verify_message}"
    return NotTrustedError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), why)


def _ask_and_wait(url: str, body: bytes | None, patience_s: float, connection: _Exchange) -> HttpAnswer:
    headers = {} if body is None else {"Content-Type": CONTENT_TYPE, "Connect-Protocol-Version": "1"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310 (https, or loopback)
    try:
        with urllib.request.build_opener(_NoRedirects, connection).open(request, timeout=patience_s) as answer:
            return HttpAnswer(answer.status, _small(answer.headers), answer.read(MESSAGE_BYTES + 1))
    except urllib.error.HTTPError as answer:
        with answer:
            return HttpAnswer(answer.code, _small(answer.headers), answer.read(MESSAGE_BYTES))


def _small(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
