"""What the gateway answers: a client's calls as HTTP requests, passed on as they came.

`POST /croupier.protocol.v1.Shuffler/Submit` has the bytes of that call's message as its body, and is answered with the
bytes of its answer: a unary call of the Connect protocol. Messages are sealed and signed for others, and answers are
signed by others; the gateway has no key, stores nothing and logs nothing of a request. What comes from one address, and
from all, is bounded as at a service. Under `/participate/` is the page on which participants answer (`deploy.page`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from croupier.deploy.directory import read_deployment
from croupier.deploy.node.reload import FileWatch
from croupier.deploy.node.versions import VersionWatch
from croupier.deploy.page.participants import PAGE_PATH, ServedFile, page_hash, served_pages
from croupier.deploy.version_files import kept_versions
from croupier.net.http_channel import CONTENT_TYPE, HTTP_STATUS, RETRY_AFTER_HEADER, code_name
from croupier.net.limits import ARRIVES_S, BUDGET_BYTES, CALL_BYTES, LARGE_ANSWER, LEAVES_S, Budget, check_fields
from croupier.net.retrying import retry_after_s
from croupier.net.shares import Call, Caller, caller_at
from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.transport import Transport
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, ServiceEntry, load_deployment
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.v1 import services_pb2 as rpc

_log = logging.getLogger(__name__)
_SLOTS = 15
"""Calls at once, 3 of one address. To a service the gateway is one address, and can send 16 messages at once there."""
_CALL_S = 60.0
"""Seconds after which the gateway gives up a call to a service."""
_NOT_KEPT = {"Cache-Control": "no-store"}
_OFFERED = {
    "Shuffler": ("GetRound", "Submit", "GetInclusion"),
    "Accountant": ("GetTickets",),
    "Analyzer": ("GetResult",),
    "Versions": ("GetVersions",),
}

GATEWAY_PATHS = (PAGE_PATH.rstrip("/"), *(f"/{rpc.DESCRIPTOR.services_by_name[name].full_name}" for name in _OFFERED))
"""All that a gateway answers lies below one of these."""


def make_app(directory: Path, transport: Transport, origins: Sequence[str] = ()) -> Starlette:
    """Returns the application, which follows newer versions of the deployment file while it runs.

    Args:
        directory: of the deployment whose services are called, each only with a certificate that is pinned for it.
        transport: how they are reached.
        origins: of web pages that may call it from a browser, such as "https://survey.example", or "null" for the
            participants' page opened from a file; no other may.

    Raises:
        ValueError: the directory has no deployment, or an origin is not one.
    """
    for origin in origins:
        _check_origin(origin)
    gateway = _Gateway(directory, transport)

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        gateway.start()
        yield
        await gateway.close()

    others_pages = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["POST"],
        allow_headers=["content-type", "connect-protocol-version", "connect-timeout-ms"],
        expose_headers=["retry-after", RETRY_AFTER_HEADER],
    )
    return Starlette(
        routes=[Route("/health", gateway.health), Mount("/", gateway)],
        middleware=[others_pages] if origins else [],
        lifespan=opened,
    )


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if origin == "null":  # what a browser names as the origin of a file
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or origin != f"{parts.scheme}://{parts.netloc}":
        raise ValueError(
            f"the origin is {origin!r}; it must be like https://survey.example, without a path, or null for files"
        )


class _Gateway:
    """The calls, as an ASGI application."""

    def __init__(self, directory: Path, transport: Transport) -> None:
        self._directory, self._transport = directory, transport
        self._slots = Budget(_SLOTS, newest_first=True)
        self._messages, self._large_answers = Budget(BUDGET_BYTES), Budget(BUDGET_BYTES)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._old_channels: list[grpc.aio.Channel] = []
        self._versions = {version.version: version for version in kept_versions(directory)}
        self._replace(read_deployment(directory))
        self._newer = VersionWatch(directory, transport.public_channel, self._replace)
        self._files = FileWatch([directory / DEPLOYMENT_FILE], self._read_again)

    def start(self) -> None:
        """Follows newer versions of the deployment file from now on: from the directory, and from services."""
        self._files.start()
        self._newer.start(lambda: (self._deployment, list(_called_services(self._deployment).values())))

    def _read_again(self) -> None:
        self._replace(load_deployment(self._directory / DEPLOYMENT_FILE))

    def _replace(self, deployment: Deployment) -> None:
        """Goes on with another version; calls under way end on their old channels."""
        self._deployment = deployment
        self._versions[deployment.version] = deployment
        self._old_channels += self._channels.values()
        self._channels = {}
        self._pages = served_pages([self._versions[number] for number in sorted(self._versions)])
        if deployment.participant_pages and page_hash() not in deployment.participant_pages:
            _log.warning(
                "the services have not signed this release's participants' page: see 'croupier docs participants'"
            )

    def _channel(self, service: str) -> grpc.aio.Channel:
        if service not in self._channels:
            entry = _called_services(self._deployment)[service]
            self._channels[service] = self._transport.public_channel(entry)
        return self._channels[service]

    async def close(self) -> None:
        """Ends the calls that are under way."""
        self._files.stop()
        self._newer.stop()
        for channel in (*self._channels.values(), *self._old_channels):
            await channel.close()

    async def health(self, request: Request) -> Response:
        """Whether hop 1 can be reached from here."""
        try:
            with self._slots.hold(Call(_caller(request), pinned=False)):
                await self._pass_on("Shuffler", "GetRound", b"", 5.0)
        except Refusal as refusal:
            if refusal.code.may_pass:
                return JSONResponse({"status": "NOT_SERVING"}, 503)
        return JSONResponse({"status": "SERVING"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a call."""
        request = Request(scope, receive)
        call = Call(_caller(request), pinned=False)
        response: Response
        try:
            answer = _page(self._pages, request) or ServedFile(
                await self._answer(request, call), CONTENT_TYPE, _NOT_KEPT
            )
            if len(answer.body) > LARGE_ANSWER:
                await self._send_large(call, answer, scope, receive, send)
                return
            response = Response(answer.body, headers=answer.headers, media_type=answer.media_type)
        except ClientDisconnect:
            return
        except HTTPException as error:
            response = _said(error.status_code, grpc.StatusCode.INVALID_ARGUMENT, error.detail)
            response.headers.update(error.headers or {})
        except Refusal as refusal:
            response = _refused(refusal)
        except Exception as error:  # noqa: BLE001 (the last line of defence: nothing internal may travel)
            _log.error("a call failed", exc_info=error)
            response = _refused(Refusal(Code.INTERNAL))
        await response(scope, receive, send)

    async def _answer(self, request: Request, call: Call) -> bytes:
        service, method = _called(request.url.path)
        length = _length(request)
        with self._messages.hold(call, max(length, CALL_BYTES)):
            raw = await call.wait_for(_body(request, length), ARRIVES_S, "your message")
            check_fields(raw)
            with self._slots.hold(call):
                return await self._pass_on(service, method, raw, _CALL_S)

    async def _send_large(self, call: Call, answer: ServedFile, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends an answer that counts for its caller until it has been read.

        Raises:
            Refusal: OVERLOADED, nothing has been sent.
        """
        response = InPieces(answer.body, headers=answer.headers, media_type=answer.media_type)
        with self._large_answers.hold(call, len(answer.body)):
            try:
                await call.wait_for(response(scope, receive, send), LEAVES_S, "to read the answer")
            except Refusal:  # it has begun, and cannot become another answer
                if close_connection := scope.get("state", {}).get("close_connection"):
                    close_connection()
                    while (await receive())["type"] != "http.disconnect":
                        pass

    async def _pass_on(self, service: str, method: str, raw: bytes, patience_s: float) -> bytes:
        """Returns a service's answer.

        Raises:
            Refusal: the service's own, or NOT_READY where it is out of reach.
        """
        call: Any = self._channel(service).unary_unary(f"/{_full_name(service)}/{method}")  # bytes in, bytes out
        try:
            answer: bytes = await call(raw, timeout=patience_s)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error) or Refusal(Code.NOT_READY, f"the {service.lower()} is out of reach")
            refusal.retry_after_s = retry_after_s(error) or None
            raise refusal from error
        return answer


class InPieces(Response):
    """An answer that the server gets no faster than it is read: a piece at a time, the first of them ahead."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), LARGE_ANSWER):
            end = start + LARGE_ANSWER
            await send({"type": "http.response.body", "body": self.body[start:end], "more_body": end < len(self.body)})


def _called_services(deployment: Deployment) -> dict[str, ServiceEntry]:
    """Returns whom a call of each gRPC service is for."""
    return {
        "Shuffler": deployment.shufflers[0],
        "Accountant": deployment.accountant,
        "Analyzer": deployment.analyzer,
        "Versions": deployment.shufflers[0],
    }


def _full_name(service: str) -> str:
    return str(rpc.DESCRIPTOR.services_by_name[service].full_name)


def _page(pages: Mapping[str, ServedFile], request: Request) -> ServedFile | None:
    """Returns the page that is asked for, None for anything else; raises HTTPException where the slash is missing."""
    if request.method not in ("GET", "HEAD"):
        return None
    if request.url.path == PAGE_PATH.rstrip("/"):
        raise HTTPException(308, headers={"Location": PAGE_PATH})
    return pages.get(request.url.path)


def _called(path: str) -> tuple[str, str]:
    for service, methods in _OFFERED.items():
        for method in methods:
            if path == f"/{_full_name(service)}/{method}":
                return service, method
    raise HTTPException(404, "no such call here")


def _caller(request: Request) -> Caller:
    """Returns the caller that a request is counted for, as at a service; a proxy may name its client as it likes."""
    return caller_at(request.client.host if request.client else "")


def _length(request: Request) -> int:
    """Returns how long the body is said to be; raises HTTPException for a request that is not read."""
    headers = request.headers
    if request.method != "POST":
        raise HTTPException(405, "a call is a POST")
    if headers.get("content-type", "").partition(";")[0].strip() != CONTENT_TYPE or "content-encoding" in headers:
        raise HTTPException(415, f"a body must be {CONTENT_TYPE}, not compressed")
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers:  # with which a body ends where it likes
        raise HTTPException(411, "the request must say how long its body is")
    if len(length) > 9 or int(length) > MESSAGE_BYTES:
        raise HTTPException(413, f"a body has at most {MESSAGE_BYTES} bytes")
    return int(length)


async def _body(request: Request, length: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > length:
            raise HTTPException(413, "the body is longer than the request says")
    return bytes(body)


def _refused(refusal: Refusal) -> Response:
    response = _said(HTTP_STATUS[refusal.code.status], refusal.code.status, refusal.details())
    if refusal.retry_after_s is not None:
        response.headers[RETRY_AFTER_HEADER] = str(round(1000 * refusal.retry_after_s))
        response.headers["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    return response


def _said(http_status: int, status: grpc.StatusCode, text: str) -> Response:
    return JSONResponse({"code": code_name(status), "message": text}, http_status, _NOT_KEPT)
