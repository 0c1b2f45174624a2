"""Hears what services log: what should never happen, whatever the faults, and the last lines before it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from croupier.runtime import round_engine, store

SERVICE: ContextVar[str] = ContextVar("service", default="-")
"""Whose code runs, where several services share a process; tasks inherit it, the threads of stores do not."""
ROOMS = tuple(f"croupier.{room}" for room in ("net", "runtime", "shuffler", "accountant", "analyzer", "deploy"))
_LINES = 300


class Listener(logging.Handler):
    """Reports the errors that a service logs, except for those that have been ordered."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == store.__name__:
            return  # the failures of the store are ordered
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        if record.name == round_engine.__name__ and kind in ("AioRpcError", "OperationalError"):
            return  # a step that failed for the network or the disk: ordered too, and tried again
        self._report(f"{record.name}: {record.getMessage()}")
        if record.exc_info:
            self._report(logging.Formatter().formatException(record.exc_info))


class LogTail(logging.Handler):
    """Keeps the last lines that the services of this process have logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=_LINES)
        self.setFormatter(logging.Formatter("%(asctime)s %(service)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        record.service = SERVICE.get()
        self.lines.append(self.format(record))


@contextmanager
def listening(*handlers: logging.Handler) -> Iterator[None]:
    """Has the handlers, and no others, hear what the services of this process log."""
    loggers = [logging.getLogger(room) for room in ROOMS]
    were = [(logger, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.setLevel(logging.INFO)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, propagates, level in were:
            logger.propagate = propagates
            logger.setLevel(level)
            for handler in handlers:
                logger.removeHandler(handler)
