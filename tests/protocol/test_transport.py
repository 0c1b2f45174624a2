"""Retries and refusals on the client's side of the wire."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from protocol.errors import Code, Refusal, refusal_of
from protocol.transport import retrying


def failure(status: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize("code", Code)
def test_a_refusal_survives_the_wire(code: Code) -> None:
    for hint in ("", "value is 3: allowed are 0..2"):
        sent = Refusal(code, hint)
        got = refusal_of(failure(code.status, sent.details()))
        assert got is not None
        assert (got.code, got.hint, str(got)) == (code, hint, str(sent))


def test_other_failures_are_no_refusals() -> None:
    assert refusal_of(failure(grpc.StatusCode.UNAVAILABLE, "connection refused")) is None
    assert refusal_of(grpc.RpcError()) is None


class Flaky:
    def __init__(self, *failures: grpc.aio.AioRpcError) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


@pytest.mark.asyncio
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
