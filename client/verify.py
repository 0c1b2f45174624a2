"""Was my submission mixed? The client looks for its own envelope in the list that hop 1 publishes.

It downloads the whole list and asks for nothing that would name it.
"""

from __future__ import annotations

import hashlib

import grpc.aio

from protocol.transport import retrying
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs

__all__ = ["missing_from_inclusion_list"]


async def missing_from_inclusion_list(
    channel: grpc.aio.Channel, round_id: str, submissions: dict[str, bytes]
) -> list[str]:
    """Returns the users whose envelope is not in hop 1's list of a closed round."""
    stub = stubs.ShufflerStub(channel)
    included: set[bytes] = set()
    while True:
        request = rpc.GetInclusionRequest(round_id=round_id, offset=len(included))
        page = await retrying(lambda: stub.GetInclusion(request, timeout=20.0), give_up_after_s=30.0)  # noqa: B023
        included.update(page.hashes[start : start + 32] for start in range(0, len(page.hashes), 32))
        if len(included) >= page.total or not page.hashes:
            break
    return [
        user
        for user, raw in submissions.items()
        if hashlib.sha256(pb.Submission.FromString(raw).envelope).digest() not in included
    ]
