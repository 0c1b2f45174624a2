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
from contextlib import closing
from pathlib import Path

__all__ = ["overwrite_log"]

_HEADER, _FRAME_HEADER = 32, 24
_BLOCK = 1 << 20


def overwrite_log(database: Path, patience_s: float) -> bool:
    """Overwrites the log, and cuts it; returns whether nothing is left of what was in it.

    Args:
        database: the SQLite file, in WAL mode.
        patience_s: how long to wait for other processes that read or write.

    Raises:
        sqlite3.Error: the file cannot be read or written.
        OSError: the log cannot be.
    """
    log = Path(f"{database}-wal")
    if _header(log) is None:
        return True
    with (
        closing(_connect(database, patience_s)) as writer,
        closing(_connect(database, patience_s)) as observer,
    ):
        try:
            writer.execute("PRAGMA synchronous=FULL").close()
            (busy, *_) = writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            if busy:
                return False
            before = _header(log)
            _commit_one_page(writer)
            writer.execute("BEGIN IMMEDIATE").close()
            (busy, num_frames, _) = observer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if busy or _header(log) == before:  # a reader has come in between; it keeps the log as it is
                return False
            (page_size,) = writer.execute("PRAGMA page_size").fetchone()
            _overwrite(log, _HEADER + num_frames * (_FRAME_HEADER + page_size))
            writer.execute("ROLLBACK").close()
            # Gives the room back. What a reader keeps of the log now is one page, of the schema.
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return False
            raise
    return True


def _connect(database: Path, patience_s: float) -> sqlite3.Connection:
    """Opens a database that exists; a missing one is an error and not a new file."""
    where = f"{database.resolve().as_uri()}?mode=rw"
    return sqlite3.connect(where, uri=True, timeout=patience_s, isolation_level=None)


def _commit_one_page(connection: sqlite3.Connection) -> None:
    """Writes the first page of the database, which holds the schema and no row of ours, as it is."""
    connection.execute("BEGIN IMMEDIATE").close()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version={version}").close()
    connection.execute("COMMIT").close()


def _header(log: Path) -> bytes | None:
    """Returns the log's header, with its salts; None for a log without any frame."""
    try:
        with log.open("rb") as file:
            return file.read(_HEADER) or None
    except FileNotFoundError:
        return None


def _overwrite(log: Path, start: int) -> None:
    with log.open("r+b", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        file.seek(start)
        while (left := end - file.tell()) > 0:
            file.write(bytes(min(left, _BLOCK)))
        os.fdatasync(file.fileno())
