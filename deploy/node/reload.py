"""Notices a new deployment file or new keys of a service, so that it goes on with them without stopping."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, load_deployment
from croupier.runtime.service_directory import Secrets, load_secrets

__all__ = ["FileWatch"]

_log = logging.getLogger(__name__)
_EVERY_S = 0.5


class FileWatch:
    """Calls `replace` with what the files hold as soon as they have stopped changing; unusable ones change nothing."""

    def __init__(self, directory: Path, name: str, replace: Callable[[Deployment, Secrets], None]) -> None:
        """Watches the deployment file and the own files of one service, once `start` is called."""
        self._deployment_file = directory / DEPLOYMENT_FILE
        self._own, self._name = directory / name, name
        own = (self._own / file for file in ("identity.key", "tls.key", "tls.crt"))
        self._files = [str(file) for file in (self._deployment_file, *own)]
        self._replace = replace
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to watch."""
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()

    def _times(self) -> list[int]:
        return [_changed_ns(file) for file in self._files]

    async def _watch(self) -> None:
        seen = used = self._times()
        while True:
            await asyncio.sleep(_EVERY_S)
            now = self._times()
            if now == seen and now != used:
                used = now
                try:
                    deployment = load_deployment(self._deployment_file)
                    deployment.service(self._name)
                    self._replace(deployment, load_secrets(self._own))
                    _log.info("keys and pins are read again")
                except (ValueError, OSError):
                    _log.exception("the new files are not used")
            seen = now


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 (many times a minute, in every service)
    except (FileNotFoundError, NotADirectoryError):
        return 0
