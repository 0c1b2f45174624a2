"""Versions of the deployment file at a service or gateway: those that it has, and newer ones from services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc.aio

from croupier.client.versions import ANSWER_BYTES, newer_versions
from croupier.deploy.version_files import install, kept_versions, signed_text
from croupier.net.tls import Context
from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs

EVERY_S = 60.0
"""Seconds between two looks for newer versions of the manifest."""
_log = logging.getLogger(__name__)


class VersionLog(stubs.VersionsServicer):
    """Shows the versions that lie in the directory of a service; `replace` looks for new ones."""

    def __init__(self, directory: Path, deployment: Deployment) -> None:
        self._directory = directory
        self.replace(deployment)

    def replace(self, deployment: Deployment) -> None:
        """Goes on with a new version."""
        try:
            versions = {kept_version.version: kept_version for kept_version in kept_versions(self._directory)}
        except (ValueError, OSError):
            _log.exception("the older versions of the deployment file are not shown")
            versions = {}
        versions[deployment.version] = deployment
        self._files = {number: signed_text(versions[number]).encode() for number in sorted(versions)}

    async def GetVersions(self, request: rpc.GetVersionsRequest, context: Context) -> rpc.GetVersionsResponse:  # noqa: N802
        """Returns the next versions after the one that the caller has, as many as fit; none is missing among them.

        Raises:
            Refusal: OVERLOADED alone, as any call.
        """
        versions: list[bytes] = []
        while file := self._files.get(request.after + 1 + len(versions)):
            if versions and sum(map(len, versions)) + len(file) > ANSWER_BYTES:
                break
            versions.append(file)
        return rpc.GetVersionsResponse(versions=versions)


class VersionWatch:
    """Asks services for newer versions, and installs those to which all services have agreed."""

    def __init__(
        self,
        directory: Path,
        channel: Callable[[ServiceEntry], grpc.aio.Channel],
        replace: Callable[[Deployment], None],
    ) -> None:
        """Asks nobody until `start` is called.

        Args:
            directory: of the deployment here.
            channel: returns a new channel to a service.
            replace: called with a new version where it cannot be written, as in a pod.
        """
        self._directory = directory
        self._channel, self._replace = channel, replace
        self._task: asyncio.Task[None] | None = None

    def start(self, current: Callable[[], tuple[Deployment, Sequence[ServiceEntry]]]) -> None:
        """Starts to ask; `current` returns the version in force, and whom to ask."""
        self._task = asyncio.create_task(self._watch(current))

    def stop(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self, current: Callable[[], tuple[Deployment, Sequence[ServiceEntry]]]) -> None:
        while True:
            deployment, asked = current()
            for entry in asked:
                if await self.ask(entry, deployment):
                    break
            await asyncio.sleep(EVERY_S)

    async def ask(self, entry: ServiceEntry, deployment: Deployment) -> bool:
        """Asks one service; returns whether it had a newer version than this one, which is installed then."""
        async with self._channel(entry) as channel:
            try:
                versions = await newer_versions(channel, deployment)
            except grpc.aio.AioRpcError:
                return False  # another service has it, too
            except ValueError as error:
                _log.warning("a version of the deployment file that %s shows is not followed: %s", entry.name, error)
                return False
        for version in versions.values():
            try:
                await asyncio.to_thread(install, self._directory, version)
            except OSError:
                _log.warning("version %d cannot be written here; it is in force until a restart", version.version)
                self._replace(version)
        return bool(versions)
