"""What callers without a certificate can take of a server over real gRPC: memory, answers they do not read, turns."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, ClassVar
from weakref import WeakSet

import grpc
import grpc.aio
import pytest

from croupier.net.limits import MAX_FIELDS
from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.transport import make_server
from croupier.protocol.errors import Code, Refusal
from research.bench.http2 import Caller

SUBMIT = "/croupier.protocol.v1.Shuffler/Submit"
CALLS_OF_EACH_KIND = 250


class Message:
    """A request whose life can be followed."""

    alive: ClassVar[WeakSet[Message]] = WeakSet()

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        Message.alive.add(self)


class Large:
    """An answer whose life can be followed, apart from that of its bytes."""

    alive: ClassVar[WeakSet[Large]] = WeakSet()

    def __init__(self) -> None:
        Large.alive.add(self)

    def __bytes__(self) -> bytes:
        return bytes(1_000_000)


class Answering(grpc.GenericRpcHandler):
    """Answers as a request asks for."""

    async def _answer(self, request: Message, _: Any) -> bytes | Large:
        match request.raw[:4]:
            case b"no!!":
                raise Refusal(Code.UNKNOWN_ROUND)
            case b"fail":
                raise RuntimeError
            case b"much":
                return Large()
        return request.raw

    def service(self, _: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer, Message, bytes)


@asynccontextmanager
async def answering() -> AsyncIterator[str]:
    """Yields the address of a server without TLS."""
    server = make_server(64)
    server.add_generic_rpc_handlers((Answering(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@contextmanager
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.slow
async def test_no_message_outlives_its_call_whatever_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger took 4.5 GB in 12 s: cycles kept every refused call until the garbage collector came."""
    caplog.set_level(logging.CRITICAL, "croupier.net.guard")  # a kept record would keep its traceback
    kinds = {
        b"yes!" + bytes(1000): None,
        b"no!!" + bytes(1000): grpc.StatusCode.NOT_FOUND,
        b"fail" + bytes(1000): grpc.StatusCode.INTERNAL,
        b"\x12\x00" * (MAX_FIELDS + 1): grpc.StatusCode.INVALID_ARGUMENT,
    }
    async with answering() as address, grpc.aio.insecure_channel(address) as channel:
        submit: Any = channel.unary_unary(SUBMIT)
        with no_garbage_collector():
            for raw, status in kinds.items():
                for _ in range(CALLS_OF_EACH_KIND):
                    try:
                        assert await submit(raw, timeout=60) == raw
                        assert status is None
                    except grpc.aio.AioRpcError as error:
                        assert error.code() is status  # noqa: PT017 (most calls raise nothing)
            contexts = [instance for instance in gc.get_objects() if type(instance).__name__ == "_ServicerContext"]
            assert (len(Message.alive), len(contexts)) == (0, 0)


class DoesNotRead:
    """A stranger on one connection that asks for answers and takes nothing of them."""

    def __init__(self, caller: Caller, gone: asyncio.Task[None]) -> None:
        self._caller, self.gone = caller, gone

    async def ask(self, num_calls: int) -> None:
        """Returns when that many answers have begun, or the service has hung up."""
        for _ in range(num_calls):
            stream = self._caller.call("Shuffler/Submit")
            self._caller.say(stream, b"much")
            begun = asyncio.create_task(self._caller.answered(stream))
            await asyncio.wait({begun, self.gone}, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()


@asynccontextmanager
async def not_reading(address: str, source: str) -> AsyncIterator[DoesNotRead]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    caller = Caller(reader, writer, "shuffler-1")
    caller.greet(window=0)
    gone = asyncio.create_task(caller.listen())
    yield DoesNotRead(caller, gone)
    writer.transport.abort()
    await gone


async def test_answers_that_are_not_read_keep_no_other_answer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """248 small calls from 5 addresses had every other client refused, as long as their connections lasted."""
    monkeypatch.setattr("croupier.net.guard.BUDGET_BYTES", 4 * MESSAGE_BYTES)  # 16 answers, 4 of one address
    async with answering() as address, AsyncExitStack() as entered:
        strangers = [await entered.enter_async_context(not_reading(address, f"127.0.0.{n}")) for n in range(61, 66)]
        for stranger in strangers[:4]:
            await stranger.ask(4)
        channel = await entered.enter_async_context(grpc.aio.insecure_channel(address))
        submit: Any = channel.unary_unary(SUBMIT)
        for stranger in strangers:
            assert len(await submit(b"much", timeout=60)) == 1_000_000
            if not stranger.gone.done():
                await stranger.ask(1)
        assert any(stranger.gone.done() for stranger in strangers)


async def test_an_answer_that_is_not_read_in_time_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.net.guard.LEAVES_S", 0.01)
    async with answering() as address, not_reading(address, "127.0.0.61") as stranger, asyncio.timeout(60):
        await stranger.ask(1)
        await stranger.gone


async def test_an_answer_that_is_not_read_is_held_as_bytes_only() -> None:
    """248 unread manifests of 1 MiB took 1,066 MB: each was held as a message, too."""
    async with answering() as address, not_reading(address, "127.0.0.61") as stranger, asyncio.timeout(60):
        with no_garbage_collector():
            await stranger.ask(3)
            assert not stranger.gone.done()
            assert len(Large.alive) == 0
