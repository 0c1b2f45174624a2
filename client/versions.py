"""Newer versions of the deployment file, from any service: verified against the version that one has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio

from croupier.protocol.deployment import Deployment
from croupier.protocol.toml_file import parse_toml
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.versions import follow

ANSWER_BYTES = 1 << 20
"""The most bytes of versions in one answer; there are more in the next one."""

_PATIENCE_S = 5.0
"""Seconds after which the call for newer versions of the manifest is given up."""


async def newer_versions(channel: grpc.aio.Channel, deployment: Deployment) -> dict[bytes, Deployment]:
    """Returns the versions that follow a deployment, by the bytes of their files, oldest first.

    Args:
        channel: to any service, which need not be trusted.
        deployment: the version that one has.

    Raises:
        ValueError: the service shows a version to which not all services of the one before have agreed.
        grpc.aio.AioRpcError: the service does not answer.
    """
    request = rpc.GetVersionsRequest(after=deployment.version)
    answer = await stubs.VersionsStub(channel).GetVersions(request, timeout=_PATIENCE_S)
    return await asyncio.to_thread(_verified, answer.versions, deployment)  # a service that lies freezes nobody


def _verified(files: Sequence[bytes], deployment: Deployment) -> dict[bytes, Deployment]:
    if (size := sum(map(len, files))) > ANSWER_BYTES:
        raise ValueError(f"the versions in one answer have {size:,} bytes; they must have at most {ANSWER_BYTES:,}")
    versions = {raw: parse_toml(raw, Deployment, "deployment file", "a version") for raw in files}
    follow(deployment, versions.values())
    return versions
