"""Notices new files, a deployment file or a service's keys, so that a process goes on with them without stopping."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

_log = logging.getLogger(__name__)
_EVERY_S = 0.5
"""Seconds between two looks at whether a file has changed."""


class FileWatch:
    """Has files read again as soon as they have stopped changing; unusable ones change nothing."""

    def __init__(self, files: Sequence[Path], read_again: Callable[[], None]) -> None:
        """Watches once `start` is called.

        Args:
            files: whose times tell whether something has changed.
            read_again: reads them and goes on with what they hold; raises ValueError or OSError if that is unusable.
        """
        self._files = [str(file) for file in files]
        self._read_again = read_again
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
                    self._read_again()
                    _log.info("keys and pins are read again")
                except (ValueError, OSError):
                    _log.exception("the new files are not used")
            seen = now


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 (many times a minute, in every service)
    except (FileNotFoundError, NotADirectoryError):
        return 0
