"""Newer versions of the deployment file, from any service: verified against the version that one has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc.aio

from croupier.protocol.deployment import Deployment
from croupier.protocol.toml_file import parse_toml
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.versions import follow

__all__ = ["newer_versions"]

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
    return await asyncio.to_thread(_followed, deployment, answer.versions)


def _followed(deployment: Deployment, files: Iterable[bytes]) -> dict[bytes, Deployment]:
    """Returns the versions in these files, each of which is followed before the next one is parsed."""
    versions = {}
    for raw in files:
        versions[raw] = deployment = follow(
            deployment, [parse_toml(raw, Deployment, "deployment file", "a version that a service shows")]
        )
    return versions
