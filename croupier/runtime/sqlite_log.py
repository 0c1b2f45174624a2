"""Overwrites the write-ahead log of a SQLite file, which SQLite itself only truncates or unlinks.

`secure_delete` overwrites deleted rows in the database file. Older versions of the same pages are in the log, destroyed
keys among them, and the blocks of a truncated or unlinked log keep them until the file system uses them again. So the
log is overwritten before SQLite gives its blocks back.

No commit and no reader is at risk, whenever the process or the machine fails:

1. A checkpoint copies every committed page into the database file and syncs it.
2. A small commit makes SQLite begin its log again at the first frame, with new salts. SQLite does so only while no
   process reads the log. Recovery ignores all frames with the old salts, and no reader can open them any more.
3. Those frames are overwritten with zeros, and synced, under the write lock, so that nothing is appended meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HEADER, _FRAME_HEADER = 32, 24
_SALTS_IN_HEADER, _SALTS_IN_FRAME, _SALTS = 16, 8, 8
BLOCK = 1 << 20
"""Bytes that are overwritten with one call: the zeros for it are in memory."""


def overwrite_log(connection: Any, database: Path, patience_s: float) -> bool:
    """Overwrites the log, and cuts it; returns whether all of its former content is gone.

    Args:
        connection: SQLite's own (`sqlite3.Connection`), in WAL mode and outside of a transaction.
        database: the SQLite file.
        patience_s: how long to wait for other processes that read or write.

    Raises:
        sqlite3.Error: the database cannot be read or written.
        OSError: the log cannot be.
    """
    log = Path(f"{database}-wal")
    if not _salts(log):
        return True
    with _busy_timeout(connection, patience_s):
        try:
            return _overwrite(connection, log)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        finally:
            connection.rollback()


def _overwrite(connection: sqlite3.Connection, log: Path) -> bool:
    if _pragma(connection, "wal_checkpoint(RESTART)"):
        return False  # busy
    before = _salts(log)
    # The first page of the database is written unchanged. It holds the schema and no row of ours.
    connection.execute("BEGIN IMMEDIATE").close()
    connection.execute(f"PRAGMA user_version={_pragma(connection, 'user_version')}").close()
    connection.commit()
    connection.execute("BEGIN IMMEDIATE").close()
    begun = _salts(log)
    if begun == before:  # a reader has come since the checkpoint
        return False
    if not begun:  # another process has overwritten and cut the log since the commit
        return True
    frame = _FRAME_HEADER + _pragma(connection, "page_size")
    with log.open("r+b", buffering=0) as file:
        _overwrite_old_frames(file.fileno(), frame)
        if _pragma(connection, "synchronous"):
            os.fdatasync(file.fileno())
    connection.rollback()
    _pragma(connection, "wal_checkpoint(TRUNCATE)")  # gives the room back; a reader may keep the page from above
    return True


def _overwrite_old_frames(log: int, frame: int) -> None:
    """Writes zeros behind the last frame that has the salts of the header."""
    salts = os.pread(log, _SALTS, _SALTS_IN_HEADER)
    position = _HEADER
    while os.pread(log, _SALTS, position + _SALTS_IN_FRAME) == salts:
        position += frame
    end = os.fstat(log).st_size
    while position < end:
        position += os.pwrite(log, bytes(min(end - position, BLOCK)), position)


def _salts(log: Path) -> bytes:
    """Returns the salts of a log; nothing for one without any frame."""
    try:
        with log.open("rb") as file:
            return file.read(_HEADER)[_SALTS_IN_HEADER:][:_SALTS]
    except FileNotFoundError:
        return b""


@contextmanager
def _busy_timeout(connection: sqlite3.Connection, patience_s: float) -> Iterator[None]:
    before = _pragma(connection, "busy_timeout")
    _pragma(connection, f"busy_timeout={int(patience_s * 1000)}")
    try:
        yield
    finally:
        _pragma(connection, f"busy_timeout={before}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    cursor = connection.execute(f"PRAGMA {name}")
    (first, *_) = cursor.fetchone()
    cursor.close()
    return int(first)
