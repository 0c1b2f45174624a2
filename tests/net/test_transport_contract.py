"""What every transport keeps, the real one and the one in memory that most tests use: same calls, same answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.tls import ServerTls, caller_name
from croupier.net.transport import TLS, Transport
from croupier.operator.keys import make_deployment
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.logs import JsonFormatter
from croupier.runtime.service_directory import Secrets, ServiceSettings, load_secrets
from research.bench.http2 import calling
from tests.support.in_memory import Network

TRANSPORTS: dict[str, Callable[[], Transport]] = {"tls": lambda: TLS, "memory": lambda: Network().transport}
S = grpc.StatusCode


class Echo(stubs.ShufflerServicer, stubs.RoundControlServicer):
    """Says who called, refuses, fails, waits; what its handlers went through is kept."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.waiting, self.cancelled, self.hung_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def GetRound(self, request: rpc.GetRoundRequest, context: Any) -> rpc.GetRoundResponse:  # noqa: N802
        match request.round_id:
            case "refuse":
                raise Refusal(Code.OVERLOADED, "three are under way", retry_after_s=0.25)
            case unknown if unknown.startswith("unknown"):
                raise Refusal(Code.UNKNOWN_ROUND, repr(unknown))
            case "much":
                return rpc.GetRoundResponse(round=pb.SignedRound(survey=bytes(2_000_000)))
            case "fail":
                raise RuntimeError("inside")
            case "wait":
                self.waiting.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        return rpc.GetRoundResponse(round=pb.SignedRound(survey=request.round_id.encode()))

    async def Status(self, request: rpc.StatusRequest, context: Any) -> rpc.StatusResponse:  # noqa: N802
        return rpc.StatusResponse(service=caller_name(context, self.deployment) or "")

    async def Attend(  # noqa: N802
        self, requests: AsyncIterator[pb.AttendRequest], context: Any
    ) -> AsyncIterator[pb.AttendResponse]:
        try:
            async for request in requests:
                if request.round_id == "refuse":
                    raise Refusal(Code.UNKNOWN_ROUND)
                yield pb.AttendResponse(challenge=request.round_id.encode())
        finally:
            self.hung_up.set()


@dataclass
class Place:
    """A first hop that echoes, and ways to it."""

    transport: Transport
    directory: Path
    deployment: Deployment
    echo: Echo
    server: grpc.aio.Server

    def secrets(self, name: str) -> Secrets:
        return load_secrets(self.directory / name)

    def as_client(self) -> grpc.aio.Channel:
        return self.transport.public_channel(self.deployment.shufflers[0])

    def as_peer(self, name: str) -> grpc.aio.Channel:
        return self.transport.peer_channel(self.deployment.shufflers[0], self.secrets(name))


@asynccontextmanager
async def placed(directory: Path, transport: Transport) -> AsyncIterator[Place]:
    deployment = make_deployment(directory, "local", 1)
    entry = deployment.shufflers[0]
    echo = Echo(deployment)  # type: ignore[abstract]
    tls = ServerTls(deployment, load_secrets(directory / entry.name))
    server = transport.make_server(8, lambda code: None, tls)
    stubs.add_ShufflerServicer_to_server(echo, server)
    stubs.add_RoundControlServicer_to_server(echo, server)
    transport.add_ports(server, entry, tls, ServiceSettings())
    await server.start()
    try:
        yield Place(transport, directory, deployment, echo, server)
    finally:
        await server.stop(0)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    return TRANSPORTS[request.param]()


def send_bytes(channel: grpc.aio.Channel, method: str, raw: bytes) -> Any:
    """Calls a method with bytes that no stub would send."""
    multicallable: Any = channel.unary_unary(f"/croupier.protocol.v1.{method}")
    return multicallable(raw, timeout=20)


async def status_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_caller_is_known_by_its_pinned_certificate(tmp_path: Path, transport: Transport) -> None:
    async with placed(tmp_path, transport) as place:
        for name in (OPERATOR, "accountant", "analyzer"):
            async with place.as_peer(name) as channel:
                assert (await stubs.RoundControlStub(channel).Status(rpc.StatusRequest(), timeout=20)).service == name
        async with place.as_client() as channel:
            answer = await stubs.ShufflerStub(channel).GetRound(rpc.GetRoundRequest(round_id="x"), timeout=20)
            assert answer.round.survey == b"x"
            error = await status_of(stubs.RoundControlStub(channel).Status(rpc.StatusRequest(), timeout=20))
            assert error.code() is S.PERMISSION_DENIED


async def test_who_is_not_pinned_is_not_connected(tmp_path: Path, transport: Transport) -> None:
    async with placed(tmp_path / "here", transport) as place:
        make_deployment(tmp_path / "there", "local", 1)
        stranger = load_secrets(tmp_path / "there" / OPERATOR)
        async with transport.peer_channel(place.deployment.shufflers[0], stranger) as channel:
            error = await status_of(stubs.RoundControlStub(channel).Status(rpc.StatusRequest(), timeout=20))
            assert error.code() is S.UNAVAILABLE
        swapped = place.deployment.shufflers[0].model_copy(
            update={"tls_certificate": place.deployment.analyzer.tls_certificate}
        )
        async with transport.public_channel(swapped) as channel:
            error = await status_of(stubs.ShufflerStub(channel).GetRound(rpc.GetRoundRequest(), timeout=20))
            assert error.code() is S.UNAVAILABLE


async def test_a_refusal_arrives_with_its_hint_and_a_failure_tells_nothing(
    tmp_path: Path, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    async with placed(tmp_path, transport) as place, place.as_client() as channel:
        stub = stubs.ShufflerStub(channel)
        error = await status_of(stub.GetRound(rpc.GetRoundRequest(round_id="refuse"), timeout=20))
        refusal = refusal_of(error)
        assert (refusal and refusal.code, refusal and refusal.hint) == (Code.OVERLOADED, "three are under way")
        assert dict(error.trailing_metadata() or ())["retry-after-ms"] == "250"
        error = await status_of(stub.GetRound(rpc.GetRoundRequest(round_id="fail"), timeout=20))
        assert error.code() is S.INTERNAL
        assert "inside" not in (error.details() or "")
        assert "a call failed" in caplog.text
        error = await status_of(send_bytes(channel, "Shuffler/GetRound", b"\xff"))
        assert error.code() is S.INVALID_ARGUMENT
        error = await status_of(stub.GetInclusion(rpc.GetInclusionRequest(), timeout=20))
        assert error.code() in (S.UNIMPLEMENTED, S.INTERNAL)  # the servicer has none
        error = await status_of(send_bytes(channel, "Analyzer/GetResult", b""))
        assert error.code() is S.UNIMPLEMENTED


async def test_a_refused_call_writes_a_short_line_and_many_write_few(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A call of 8 KB wrote a line of 24 KB."""
    caplog.set_level(logging.INFO, "croupier.net.guard")
    async with placed(tmp_path, Network().transport) as place, place.as_client() as channel:
        stub = stubs.ShufflerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetRound(rpc.GetRoundRequest(round_id="unknown " + "\U0001f600\n" * 1600), timeout=20)
        (line,) = (JsonFormatter("shuffler-1").format(record) for record in caplog.records)
        assert len(line) < 800
        for _ in range(200):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.GetRound(rpc.GetRoundRequest(round_id="refuse"), timeout=20)
        seconds = {int(record.created) for record in caplog.records}
        assert len(caplog.records) <= 1 + 20 * (len(seconds) + 1)
        assert "are not logged" in caplog.text


async def test_a_call_that_fails_inside_writes_a_traceback_and_many_write_few(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with placed(tmp_path, Network().transport) as place, place.as_client() as channel:
        for _ in range(100):
            with pytest.raises(grpc.aio.AioRpcError):
                await stubs.ShufflerStub(channel).GetRound(rpc.GetRoundRequest(round_id="fail"), timeout=20)
    ours = [record for record in caplog.records if record.name == "croupier.net.guard"]  # others tell of earlier tests
    seconds = len({int(record.created) for record in ours}) + 1
    assert len(ours) <= 20 * seconds
    assert 1 <= sum(record.exc_info is not None for record in ours) <= seconds
    assert 'RuntimeError("inside")' in caplog.text


async def test_a_message_above_the_limit_is_refused(tmp_path: Path, transport: Transport) -> None:
    async with placed(tmp_path, transport) as place, place.as_client() as channel:
        error = await status_of(send_bytes(channel, "Shuffler/GetRound", bytes(MESSAGE_BYTES + 1)))
        assert error.code() is S.RESOURCE_EXHAUSTED


async def test_a_call_ends_with_its_deadline_its_caller_or_its_server(tmp_path: Path, transport: Transport) -> None:
    async with placed(tmp_path, transport) as place, place.as_client() as channel:
        stub, request = stubs.ShufflerStub(channel), rpc.GetRoundRequest(round_id="wait")
        error = await status_of(stub.GetRound(request, timeout=0.2))
        assert error.code() is S.DEADLINE_EXCEEDED
        await asyncio.wait_for(place.echo.cancelled.wait(), 20)
        place.echo.waiting.clear()
        place.echo.cancelled.clear()
        call = stub.GetRound(request, timeout=60)
        waiting = asyncio.ensure_future(status_of(call))
        await asyncio.wait_for(place.echo.waiting.wait(), 20)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(place.echo.cancelled.wait(), 20)
        place.echo.waiting.clear()
        waiting = asyncio.ensure_future(status_of(stub.GetRound(request, timeout=60)))
        await asyncio.wait_for(place.echo.waiting.wait(), 20)
        await place.server.stop(0)
        assert (await waiting).code() in (S.UNAVAILABLE, S.CANCELLED)
        assert (await status_of(stub.GetRound(request, timeout=20))).code() is S.UNAVAILABLE


async def test_a_stream_goes_both_ways_until_one_side_ends_it(tmp_path: Path, transport: Transport) -> None:
    async with placed(tmp_path, transport) as place, place.as_client() as channel:
        stub: Any = stubs.ShufflerStub(channel)
        call = stub.Attend(timeout=20)
        for name in ("one", "two"):
            await call.write(pb.AttendRequest(round_id=name))
            assert (await call.read()).challenge == name.encode()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is S.OK

        refused = stub.Attend(timeout=20)
        await refused.write(pb.AttendRequest(round_id="refuse"))
        error = await status_of(refused.read())
        refusal = refusal_of(error)
        assert refusal is not None
        assert refusal.code is Code.UNKNOWN_ROUND
        assert refused.done()

        async def requests() -> AsyncIterator[pb.AttendRequest]:
            yield pb.AttendRequest(round_id="three")
            yield pb.AttendRequest(round_id="four")

        assert [reply.challenge async for reply in stub.Attend(requests(), timeout=20)] == [b"three", b"four"]

        dropped = stub.Attend(timeout=20)
        await dropped.write(pb.AttendRequest(round_id="five"))
        await dropped.read()
        place.echo.hung_up.clear()
        dropped.cancel()
        await asyncio.wait_for(place.echo.hung_up.wait(), 20)
        assert await dropped.code() is S.CANCELLED


async def test_answers_that_are_not_read_give_way_to_others(tmp_path: Path) -> None:
    """Answers wait in memory until they are read: one address gets 64 MiB, and then loses the oldest of them."""
    ask = rpc.GetRoundRequest(round_id="much").SerializeToString()
    async with placed(tmp_path, TLS) as place, calling(place.deployment.shufflers[0], window=0) as caller:
        for _ in range(33):
            stream = caller.call("Shuffler/GetRound")
            caller.say(stream, ask)
            await asyncio.wait_for(caller.answered(stream), 20)
        assert not caller.ended
        async with place.as_client() as channel:  # at the same address
            stub = stubs.ShufflerStub(channel)
            for wanted, size in (("little", 6), ("much", 2_000_000)):
                answer = await stub.GetRound(rpc.GetRoundRequest(round_id=wanted), timeout=20)
                assert len(answer.round.survey) == size
