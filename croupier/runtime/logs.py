"""Logs of a service: one JSON object a line on standard error, in all circumstances.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "service": "shuffler-1", "logger": "croupier.net.guard",
     "event": "refused: the round takes no more submissions", "code": "ROUND_CLOSED", "method": "/…/Submit"}

`round_id`, `state`, `code` and `method` are present if the logger was given them as `extra`. No other extra is written,
so that no key or ciphertext reaches a log in a convenient object.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

_EXTRAS = ("round_id", "code", "method", "state")
_LONGEST = 2000  # a peer chooses some of the words, such as a round's name
LOG_BYTES = 16 << 20
"""A bounded log is cut at this size: weeks of a service without trouble, and it opens in an editor."""


class JsonFormatter(logging.Formatter):
    """Formats records of one service."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Returns one JSON object; extras that are not known by name are left out."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "event": record.getMessage()[:_LONGEST],
        }
        for name in _EXTRAS:
            if hasattr(record, name):
                line[name] = str(getattr(record, name))[:_LONGEST]
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))[-10 * _LONGEST :]
        return json.dumps(line)


class BoundedFile(logging.StreamHandler[TextIO]):
    """Writes to a file that is also this process's standard error, and keeps it below a bound.

    At the bound the contents move to FILE.1, which they replace, and the file is cut: it stays the same file, because
    worker processes and libraries write to it, too. It must be open for appending.
    """

    def __init__(self, file: Path, stream: TextIO, most_bytes: int = LOG_BYTES) -> None:
        super().__init__(stream)
        self._file, self._most_bytes = file, most_bytes

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line; cuts the file before, if it is full."""
        with suppress(OSError):  # a full disk must not end the service
            if self._file.stat().st_size >= self._most_bytes:
                shutil.copyfile(self._file, self._file.with_name(f"{self._file.name}.1"))
                os.truncate(self._file, 0)
        super().emit(record)


def log_as_json(service: str, file: Path | None = None) -> None:
    """Writes all logs of this process as JSON, warnings and uncaught exceptions included.

    Args:
        service: the name in every line.
        file: of standard error, if no one else rotates it; kept below twice LOG_BYTES with its predecessor.
    """
    handler = BoundedFile(file, sys.stderr) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    log = logging.getLogger(__name__)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("the service ends: %s", error, exc_info=(kind, error, trace))

    def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.critical("a thread ends: %s", args.exc_value, exc_info=args.exc_value)

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread
