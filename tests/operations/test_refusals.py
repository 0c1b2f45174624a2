"""What a refused caller reads, and what only the operator reads."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import pytest

from croupier.net.channels import public_channel
from croupier.net.transport import make_server
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.support import in_process


class Refusing(stubs.AnalyzerServicer):
    async def GetResult(  # noqa: N802
        self, request: rpc.GetResultRequest, context: object
    ) -> rpc.GetResultResponse:
        if request.round_id == "bug":
            raise ZeroDivisionError("secret of the service")
        raise Refusal(Code.OVERLOADED, request.round_id, log_only="17 others are waiting")

    async def Grant(self, request: pb.GrantRequest, context: object) -> pb.GrantResponse:  # noqa: N802
        raise NotImplementedError


async def test_what_is_for_the_log_does_not_travel(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    given: list[Code] = []
    server = make_server(8, given.append)
    stubs.add_AnalyzerServicer_to_server(Refusing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = stubs.AnalyzerStub(channel)
            for round_id, status, details in (
                (
                    "mine",
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"OVERLOADED: {Code.OVERLOADED.message}: mine",
                ),
                ("bug", grpc.StatusCode.INTERNAL, f"INTERNAL: {Code.INTERNAL.message}"),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.GetResult(rpc.GetResultRequest(round_id=round_id))
                assert (refused.value.code(), refused.value.details()) == (status, details)
    finally:
        await server.stop(0)
    assert "17 others are waiting" in caplog.text
    assert "secret of the service" in caplog.text
    assert given == [Code.OVERLOADED, Code.INTERNAL]


async def test_a_round_with_a_very_long_name_is_refused_and_not_retried(tmp_path: Path) -> None:
    """The hint contains the name; in full it would exceed what gRPC allows in a header, and look like an overload."""
    async with in_process(tmp_path / "deployment", 1) as inside:
        deployment = inside.running["shuffler-1"].service.peers.deployment
        async with public_channel(deployment.shufflers[0]) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stubs.ShufflerStub(channel).Submit(
                    pb.SubmitRequest(round_id="\N{GRINNING FACE}" * 100_000, submissions=[pb.Submission()])
                )
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert (refused.value.details() or "").startswith(
            f"UNKNOWN_ROUND: {Code.UNKNOWN_ROUND.message}: '\N{GRINNING FACE}"
        )
