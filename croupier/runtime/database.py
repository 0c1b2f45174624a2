"""The database under a service's store: a SQLite file, or PostgreSQL. `runtime.transaction` gives the tables meaning.

One service is one process: its rounds live in memory too, and a second writer would contradict it. A lock enforces this
and ends with the process that holds it, however that ends: a lock on a file beside the SQLite file, or an advisory lock
of the PostgreSQL session on the connection that does the work, so that a process that has lost its connection has lost
the right to write as well.
"""

from __future__ import annotations

import abc
import fcntl
import logging
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from croupier.protocol.names import RoundId
from croupier.runtime.sqlite_log import overwrite_log

_log = logging.getLogger(__name__)
_LOCK = int.from_bytes(b"croupier")  # the name of the advisory lock; each service has a database of its own
_LOCK_NOT_AVAILABLE, _NO_PRIVILEGE, _NO_TABLE = "55P03", "42501", "42P01"
_LONGEST_REASON = 300
IN_PARTS = "in parts"
"""A key in a table's `info`: see `has_parts`."""
_PARTS = 16
_OF_ROUNDS = (
    "submissions",
    "chunks",
    "opened",
    "documents",
)  # on PostgreSQL each has _PARTS parts, each with some rounds
_BUSY_MS, _ERASE_PATIENCE_MS = 10_000, 250


@dataclass(frozen=True)
class Timeouts:
    """The limits on waiting for a PostgreSQL server, in seconds; nothing waits for it forever.

    Attributes:
        connect_s: for a connection.
        lock_s: for a lock, held by another process of this service or by a backup.
        statement_s: for one statement.
        transaction_s: for a whole transaction, also if a server or a network has fallen silent.
        shred_s: for rewriting the tables after a round was shredded.
    """

    connect_s: int = 10
    lock_s: float = 10.0
    statement_s: float = 60.0
    transaction_s: float = 300.0
    shred_s: float = 3600.0


DEFAULT_TIMEOUTS = Timeouts()


class NotShreddedError(Exception):
    """Deleted rows are still in the database's files, because another process reads them."""


def has_parts(table: sa.Table) -> None:
    """Makes PostgreSQL partition a table by rounds; other databases make one table."""
    table.info[IN_PARTS] = True
    sa.event.listen(table, "before_create", _divide)
    for part in range(_PARTS):
        values = f"FOR VALUES WITH (MODULUS {_PARTS}, REMAINDER {part})"
        make = sa.DDL(f"CREATE TABLE {table.name}_{part} PARTITION OF {table.name} {values}")  # type: ignore[no-untyped-call]
        sa.event.listen(table, "after_create", make.execute_if(dialect="postgresql"))


def _divide(table: sa.Table, connection: sa.Connection, **_: object) -> None:
    """Sets the options for PostgreSQL when a table is made: other services need not load that part of SQLAlchemy."""
    if connection.dialect.name == "postgresql":
        table.dialect_options["postgresql"]["partition_by"] = "HASH (round_id)"


def mark_for_shredding(connection: sa.Connection, round_id: RoundId, *tables: str) -> None:
    """Marks tables with deleted rows of a round, which `Database.shred` has to remove from the files."""
    marked: set[tuple[str, str]] | None = connection.get_execution_options().get("marked")
    if marked is not None:
        marked.update((table, round_id if table in _OF_ROUNDS else "") for table in tables)


def is_outage(error: sa.exc.DBAPIError) -> bool:
    """Returns whether the database cannot be read or written now, for a reason that lies outside of this program."""
    if isinstance(error, sa.exc.ProgrammingError):
        return getattr(error.orig, "sqlstate", None) in (_NO_PRIVILEGE, _NO_TABLE)
    return isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.InternalError)


def why_failed(error: sa.exc.DBAPIError) -> str:
    """Returns the error message of the database, or of its driver, in one line."""
    said = (str(error.orig).strip() or type(error.orig).__name__).splitlines()[0][:_LONGEST_REASON]
    if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        return f"{said}: another process has the database, or a lock in it"
    return said


class Database(abc.ABC):
    """An open database that no other process writes to."""

    engine: sa.Engine

    @abc.abstractmethod
    def begin(self) -> AbstractContextManager[sa.Connection]:
        """Returns a transaction: committed at the end of the block, rolled back if it raises."""

    @abc.abstractmethod
    def shred(self) -> None:
        """Removes deleted rows from the database's files, too; raises NotShreddedError."""

    def free_bytes(self) -> int | None:
        """Returns how many bytes are free on its disk; None if that is another machine's."""
        return None

    @contextmanager
    def patience(self, _limit_s: float) -> Iterator[None]:
        """Cancels a wait in this block after this many seconds, for a database that has fallen silent."""
        yield

    def close(self) -> None:
        """Ends the connection, and with it the lock; a second call changes nothing."""
        self.engine.dispose()


def open_database(url: str, timeouts: Timeouts) -> Database:
    """Opens a database; blocks.

    Raises:
        ValueError: another process has it, it cannot be reached, or it does not meet a store's needs.
    """
    shown = sa.make_url(url).render_as_string()
    database = _Sqlite(url) if url.startswith("sqlite") else _Postgresql(url, timeouts)
    try:
        with database.begin():
            return database
    except sa.exc.DBAPIError as error:
        database.close()
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            raise ValueError(f"{shown} is in use by another process; one service is one process") from error
        raise ValueError(f"{shown} cannot be opened: {error.orig}") from error
    except BaseException:
        database.close()
        raise


class _Sqlite(Database):
    def __init__(self, url: str) -> None:
        # Parameters would carry ciphertexts and clients' keys into the log with every error.
        self.engine = sa.create_engine(url, hide_parameters=True)
        self._directory = Path(self.engine.url.database or "").parent
        lock = Path(f"{self.engine.url.database}.lock")
        self._lock: int | None = _lock_file(lock)
        self._files = {lock: _identity(lock)}
        sa.event.listen(self.engine, "connect", _configure_sqlite)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        with self.engine.begin() as connection:
            yield connection
            self._check_files()

    def _check_files(self) -> None:
        """Checks that the files are still those that were opened, because SQLite continues with a deleted one."""
        database = Path(str(self.engine.url.database))
        self._files.setdefault(database, _identity(database))
        for file, identity in self._files.items():
            if _identity(file) != identity:
                why = f"{file} has been moved, deleted or replaced while the service runs"
                raise sa.exc.OperationalError(None, None, sqlite3.OperationalError(why))

    def shred(self) -> None:
        """Overwrites the write-ahead log: `secure_delete` has overwritten the pages in the database file only.

        Not while another process reads the log; waits for it only as long as rounds can bear.
        """
        self._check_files()
        database = Path(str(self.engine.url.database))
        try:
            with closing(self.engine.raw_connection()) as connection:
                done = overwrite_log(connection.driver_connection, database, _ERASE_PATIENCE_MS / 1000)
        except (sqlite3.Error, OSError) as error:
            raise sa.exc.OperationalError(None, None, error) from error
        if not done:
            raise NotShreddedError("another process reads the database, and so its log cannot be overwritten")

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._directory).free

    def close(self) -> None:
        """Overwrites the log before SQLite unlinks it, which it does with the last connection."""
        if self._lock is not None:
            try:
                self.shred()
            except (NotShreddedError, sa.exc.DBAPIError) as error:
                _log.warning("the database's log is not overwritten at the end; the next start does it: %s", error)
        super().close()
        lock, self._lock = self._lock, None
        if lock is not None:  # by a second call the number may belong to another open file
            os.close(lock)


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _lock_file(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ValueError(f"{path} is in use by another process; one service is one process") from error
    return descriptor


def _configure_sqlite(connection: Any, _record: Any) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", f"busy_timeout={_BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}").close()


class _Postgresql(Database):
    def __init__(self, url: str, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._driver: Any = None
        self._marked: set[tuple[str, str]] = set()
        self._all_shredded = False
        self._has_warned = False
        options = {
            "lock_timeout": f"{timeouts.lock_s}s",
            "statement_timeout": f"{timeouts.statement_s}s",
            "synchronous_commit": "on",  # an acknowledgement means that it is on the disk
            # The session has the lock that makes this the only process; a transaction has a limit of our own.
            "idle_session_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
            # The server releases the lock of a process that is gone, even if its machine went with it.
            "client_connection_check_interval": "5s",
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "3",
        }
        self.engine = sa.create_engine(
            url,
            hide_parameters=True,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            execution_options={"marked": self._marked},
            connect_args={
                "connect_timeout": timeouts.connect_s,
                "application_name": "croupier",
                "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 15000,
            },
        )
        sa.event.listen(self.engine, "connect", self._prepare)

    def _prepare(self, connection: Any, _record: Any) -> None:
        """Makes a new connection this service's only one."""
        self._driver = connection
        connection.cursor_factory = _in_binary(connection.cursor_factory)
        connection.server_cursor_factory = _in_binary(connection.server_cursor_factory)
        try:
            (encoding,) = connection.execute("SHOW server_encoding").fetchone()
            if encoding != "UTF8":
                raise ValueError(f"the database's encoding is {encoding}; it must be UTF8")
            self._warn_of_loss(connection)
            connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
            connection.commit()
        except BaseException:
            connection.close()
            raise

    def _warn_of_loss(self, connection: Any) -> None:
        """Logs, once, a server that may lose writes that it has acknowledged."""
        off = connection.execute(
            "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY 1"
        ).fetchall()
        warning = "; ".join(f"the database's server has {name} = off" for (name,) in off)
        if warning and not self._has_warned:
            _log.warning("%s: what is acknowledged may be lost when its machine fails", warning)
            self._has_warned = True

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        with self.patience(self.timeouts.transaction_s), self.engine.begin() as connection:
            yield connection

    def shred(self) -> None:
        """Rewrites the tables with deleted rows, with their present rows; the first time all tables.

        The service waits meanwhile, for the remaining rows of a part. Bodies are among them only if a running round
        shares its part with one that has ended. VACUUM would keep deleted rows: a plain one marks the space as free and
        leaves the bytes, and FULL copies everything that an open transaction might need.
        """
        with self.patience(self.timeouts.shred_s), self.engine.connect() as connection:
            places = self._places(connection)
            for place in places:
                try:
                    with connection.begin():
                        _write_anew(connection, place)
                except sa.exc.OperationalError as error:
                    if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
                        raise NotShreddedError("another process holds a lock on its tables") from error
                    raise
            self._all_shredded = True
            self._marked.clear()

    def _places(self, connection: sa.Connection) -> list[str]:
        if not self._all_shredded:  # deletions before this process began are unknown
            return ["round_keys", *(f"{table}_{part}" for table in _OF_ROUNDS for part in range(_PARTS))]
        part_of = (
            "SELECT part FROM generate_series(0, %(parts)s - 1) part "
            "WHERE satisfies_hash_partition('chunks'::regclass, %(parts)s, part, %(round_id)s::varchar)"
        )
        places = set()
        with connection.begin():
            for table, round_id in self._marked:
                if not round_id:
                    places.add(table)
                    continue
                part = connection.exec_driver_sql(part_of, {"parts": _PARTS, "round_id": round_id}).scalar_one()
                places.add(f"{table}_{part}")
        return sorted(places)

    @contextmanager
    def patience(self, limit_s: float) -> Iterator[None]:
        """Limits the wait for an answer that does not arrive, which the server's own timeouts do not."""
        timer = threading.Timer(limit_s, self._close_this_side)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _close_this_side(self) -> None:
        """Ends the connection from this side; callers that wait for an answer see it as lost."""
        driver = self._driver
        if driver is not None and not driver.closed:
            _log.error("the database has not answered in time; the connection is given up")
            with socket.socket(fileno=os.dup(driver.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)


def _in_binary(make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a cursor read bytes as binary, because text, the default, is twice as long."""
    from psycopg.pq import Format

    def cursor(*args: Any, **how: Any) -> Any:
        made = make(*args, **how)
        made.format = Format.BINARY
        return made

    return cursor


def _write_anew(connection: sa.Connection, table: str) -> None:
    """Replaces the files of a table by new ones with the same rows."""
    for statement in (
        "SET LOCAL statement_timeout = 0",
        f"SET LOCAL lock_timeout = {_ERASE_PATIENCE_MS}",
        f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
        f"CREATE TEMPORARY TABLE stays ON COMMIT DROP AS TABLE {table}",
        f"TRUNCATE {table}",
        f"INSERT INTO {table} TABLE stays",
    ):
        connection.exec_driver_sql(statement)
