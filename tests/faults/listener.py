"""Hears what should never happen in a service, whatever the faults: an INTERNAL answer, a round that stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["Listener"]


class Listener(logging.Handler):
    """Reports the errors that a service logs, except for those that have been ordered."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "runtime.store":
            return  # the failures of the store are ordered
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        if record.name == "runtime.round_driver" and kind in ("AioRpcError", "OperationalError"):
            return  # a step that failed for the network or the disk: ordered too, and tried again
        self._report(f"{record.name}: {record.getMessage()}")
        if record.exc_info:
            self._report(logging.Formatter().formatException(record.exc_info))
