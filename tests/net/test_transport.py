"""Retries and refusals on the client's side of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.net.retrying import retry_after_s, retrying, why_unreachable
from croupier.net.transport import make_server
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs


def failure(status: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize("code", Code)
def test_a_refusal_survives_the_wire(code: Code) -> None:
    for hint in ("", "value is 3; it must be 0..2"):
        sent = Refusal(code, hint)
        got = refusal_of(failure(code.status, sent.details()))
        assert got is not None
        assert (got.code, got.hint, str(got)) == (code, hint, str(sent))


def test_other_failures_are_not_refusals() -> None:
    assert refusal_of(failure(grpc.StatusCode.UNAVAILABLE, "connection refused")) is None
    assert refusal_of(grpc.RpcError()) is None


def test_a_name_that_does_not_exist_is_told_from_a_service_that_is_down() -> None:
    """Reproduction: `croupier doctor` said UNAVAILABLE of a host whose name was wrong. Texts are gRPC's and ours."""
    for details in (
        "errors resolving a.example:7101: [field:hostname lookup error:address lookup failed for a.example:7101: "
        "Domain name not found]",
        "https://a.example/croupier.protocol.v1.Shuffler/GetRound: [Errno -2] Name or service not known",
        "https://a.example/croupier.protocol.v1.Shuffler/GetRound: [Errno -3] Temporary failure in name resolution",
    ):
        why = why_unreachable(failure(grpc.StatusCode.UNAVAILABLE, details))
        assert why == "there is no address for the name of its host"
    refused = "failed to connect to all addresses; last error: ipv4:127.0.0.1:1: Connection refused"
    assert why_unreachable(failure(grpc.StatusCode.UNAVAILABLE, refused)) == "connection refused at 127.0.0.1:1"


class Flaky:
    def __init__(self, *failures: grpc.aio.AioRpcError) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def test_transient_failures_are_repeated_and_others_are_not() -> None:
    away = failure(grpc.StatusCode.UNAVAILABLE, "connection refused")
    flaky = Flaky(away, away)
    assert await retrying(flaky, give_up_after_s=60) == "done"
    assert flaky.calls == 3
    final = Flaky(failure(Code.CONFLICT.status, Refusal(Code.CONFLICT).details()))
    with pytest.raises(Refusal) as refused:
        await retrying(final, give_up_after_s=60)
    assert (final.calls, refused.value.code) == (1, Code.CONFLICT)
    with pytest.raises(grpc.aio.AioRpcError):
        await retrying(Flaky(*[away] * 9), give_up_after_s=0)
    with pytest.raises(Refusal):
        await retrying(Flaky(failure(Code.NOT_READY.status, Refusal(Code.NOT_READY).details())), give_up_after_s=0)


async def test_a_service_that_says_when_to_come_again_is_heeded_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    for hint, least_s in (
        ("300", 0.3),
        ("999999999", 30.0),
        *((odd, 0.0) for odd in ("0", "-5", "soon", "9" * 40, "")),
    ):
        trailing = grpc.aio.Metadata(("retry-after-ms", hint))
        busy = grpc.aio.AioRpcError(Code.OVERLOADED.status, grpc.aio.Metadata(), trailing, "OVERLOADED: x")
        assert await retrying(Flaky(busy), give_up_after_s=60) == "done"
        assert least_s < pauses.pop() <= least_s + 0.05
    assert pauses == []


class _Echo(stubs.AnalyzerServicer):
    """Answers when it is let."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.num_calls = 0

    async def GetResult(self, request: rpc.GetResultRequest, context: object) -> rpc.GetResultResponse:  # noqa: N802
        self.num_calls += 1
        await self.gate.wait()
        return rpc.GetResultResponse()

    async def Grant(self, request: pb.GrantRequest, context: object) -> pb.GrantResponse:  # noqa: N802
        self.num_calls += 1
        return pb.GrantResponse()


RESULT = "/croupier.protocol.v1.Analyzer/GetResult"


@asynccontextmanager
async def listening(calls: int) -> AsyncIterator[tuple[_Echo, str]]:
    echo, server = _Echo(), make_server(calls)
    stubs.add_AnalyzerServicer_to_server(echo, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield echo, f"127.0.0.1:{port}"
    await server.stop(0)


@asynccontextmanager
async def served(calls: int) -> AsyncIterator[tuple[_Echo, grpc.aio.Channel]]:
    async with listening(calls) as (echo, address), grpc.aio.insecure_channel(address) as channel:
        yield echo, channel


async def test_one_caller_cannot_take_every_slot_and_is_told_when_to_come_again() -> None:
    async with served(32) as (echo, channel):
        stub = stubs.AnalyzerStub(channel)
        calls = [asyncio.ensure_future(stub.GetResult(rpc.GetResultRequest(), timeout=30)) for _ in range(20)]
        refused: list[BaseException | None] = []
        while len(refused) < 14:  # six of the 24 slots for clients are one client's
            done, calls_left = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=30)
            refused += [task.exception() for task in done]
            calls = list(calls_left)
        for error in refused:
            assert isinstance(error, grpc.aio.AioRpcError)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_after_s(error) > 0
        assert echo.num_calls == 6
        echo.gate.set()
        await asyncio.gather(*calls)
        await stub.GetResult(rpc.GetResultRequest(), timeout=30)


@pytest.mark.slow
async def test_calls_that_come_all_at_once_are_taken_up_one_after_the_other() -> None:
    """Once a caller read CANCELLED, and no reason: from 1000 waiting calls on gRPC cancelled new ones at random."""
    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    async with listening(1_000_000) as (echo, address), AsyncExitStack() as stack:
        echo.gate.set()
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, own_connection)) for _ in range(15)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        results = [stubs.AnalyzerStub(channel).GetResult for channel in channels for _ in range(100)]
        # All of them leave before the server, in the same event loop, takes up the first.
        await asyncio.gather(*(result(rpc.GetResultRequest(), timeout=60) for result in results))
        assert echo.num_calls == 1500


async def test_calls_without_a_request_take_no_slot() -> None:
    """As slow-loris does: open calls, and never say what is wanted."""
    async with served(8) as (echo, channel):
        echo.gate.set()
        idle: list[Any] = [channel.stream_unary(RESULT)() for _ in range(20)]
        for call in idle:
            await call.wait_for_connection()
        await stubs.AnalyzerStub(channel).GetResult(rpc.GetResultRequest(), timeout=30)
        assert echo.num_calls == 1
        for call in idle:
            call.cancel()


async def test_an_unreadable_message_is_a_bad_request() -> None:
    async with served(8) as (echo, channel):
        echo.gate.set()
        for method, raw, status in (
            (RESULT, b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (RESULT, b"\x0a\x02\xff\xfe", grpc.StatusCode.INVALID_ARGUMENT),  # not UTF-8
            (RESULT, b"\x12\x00" * 5000, grpc.StatusCode.INVALID_ARGUMENT),
            ("/croupier.protocol.v1.Analyzer/Grant", b"\xff", grpc.StatusCode.PERMISSION_DENIED),
            ("/croupier.protocol.v1.Analyzer/Grant", b"", grpc.StatusCode.PERMISSION_DENIED),
        ):
            call: Any = channel.unary_unary(method)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(raw, timeout=30)
            assert refused.value.code() is status
        assert echo.num_calls == 0
