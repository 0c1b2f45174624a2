"""What strangers can take of an HTTP server, the gateway's or the page's: connections, time, memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from croupier.deploy import listening
from croupier.deploy.gateway.app import InPieces
from croupier.deploy.listening import HttpServer, WebAddress
from tests.support.gateways import serving

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LARGE = 4 * 1024 * 1024
"""More than the operating system keeps of a connection whose other end reads nothing."""


async def small(_: Request) -> Response:
    return Response(b"here")


async def large(_: Request) -> Response:
    return InPieces(bytes(_LARGE))


@asynccontextmanager
async def connecting() -> AsyncIterator[Callable[[str], Awaitable[Ends]]]:
    """Yields what connects to an HTTP server from an address."""
    server = HttpServer(Starlette(routes=[Route("/small", small), Route("/large", large)]), WebAddress())
    writers = list[asyncio.StreamWriter]()

    async def connect(address: str) -> Ends:
        host, port = server.socket.getsockname()
        reader, writer = await asyncio.open_connection(host, port, local_addr=(address, 0), limit=1024)
        writers.append(writer)
        return reader, writer

    async with serving(server):
        try:
            yield connect
        finally:
            for writer in writers:
                writer.transport.abort()


async def answer(ends: Ends, path: str) -> bytes:
    """Returns the first line of what is answered, b"" where the server has hung up."""
    reader, writer = ends
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return await reader.readline()


async def test_idle_connections_of_one_address_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 of them stopped a gateway: every request was answered with 503 as long as they lasted."""
    monkeypatch.setattr(listening, "CONNECTIONS", 16)
    monkeypatch.setattr(listening, "KEPT_CONNECTIONS", 12)
    async with connecting() as connect:
        idle = [await connect("127.0.0.66") for _ in range(40)]
        waiting = {asyncio.create_task(reader.read()) for reader, _ in idle}
        while sum(task.done() for task in waiting) < 28:
            await asyncio.wait([task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        assert await answer(await connect("127.0.0.1"), "/small") == b"HTTP/1.1 200 OK\r\n"
        for task in waiting:
            task.cancel()


@pytest.mark.parametrize("said", ["", "GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
async def test_a_request_that_does_not_come_ends_its_connection(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(listening, "ARRIVES_S", 0.01)
    async with connecting() as connect:
        reader, writer = await connect("127.0.0.66")
        writer.write(said.encode())
        assert await reader.read() == b""


async def test_an_answer_that_is_not_read_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, really = asyncio.Event(), listening.GuardedHttp.connection_lost

    def connection_lost(http: listening.GuardedHttp, error: Exception | None) -> None:
        really(http, error)
        ended.set()

    monkeypatch.setattr(listening, "LEAVES_S", 0.01)
    monkeypatch.setattr(listening.GuardedHttp, "connection_lost", connection_lost)
    async with connecting() as connect, asyncio.timeout(60):
        assert await answer(await connect("127.0.0.66"), "/large") == b"HTTP/1.1 200 OK\r\n"
        await ended.wait()
