"""A sequential round as it is in the field: TLS, worker processes, real time. All other tests have theirs in memory.

What only gRPC and HTTP/2 do is seen here: a stream whose caller does not read fills up on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.support.sequential import laid, people, settings, task


@pytest.mark.slow
async def test_a_caller_that_never_reads_leaves_nothing_behind(tmp_path: Path) -> None:
    async with laid(tmp_path, over_tls=True) as table:
        group = people(8)
        terms = await table.gather(group, settings(task(period_ms=200)))
        async with table.operator.client_channel() as channel:
            call: Any = stubs.ShufflerStub(channel).Attend(timeout=60)
            await call.write(pb.AttendRequest(round_id=terms.round_id))
            many = [pb.Attendance(client_key=bytes([index % 256]) * 32) for index in range(500)]
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                for _ in range(300):
                    await asyncio.wait_for(call.write(pb.AttendRequest(attendances=many)), 5)
            waiting = [stream.outgoing.qsize() for stream in table.first.sequential.attendance.streams]
            assert max(waiting, default=0) <= 64
        while table.first.sequential.attendance.streams:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        taken = await table.take(terms, group)
        assert taken.report.num_answers == 8
