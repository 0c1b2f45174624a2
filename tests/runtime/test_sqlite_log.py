"""An overwritten SQLite log: nothing remains, no commit is lost, whatever fails and however many readers there are."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from croupier.protocol.names import StorageKey
from croupier.runtime import sqlite_log
from croupier.runtime.sqlite_log import overwrite_log
from croupier.runtime.store import Store
from tests.support.raw_disk import freed_by_sqlite

SECRET = b"a secret that has been destroyed" * 3
KEPT = [(number, os.urandom(3000)) for number in range(20)]


def opened(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}").close()
    return connection


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    """A database with rows that stay, whose log has one that is deleted."""
    with closing(opened(database)) as connection:
        connection.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, content BLOB)")
        connection.execute("INSERT INTO t VALUES (100, ?)", (SECRET,))
        connection.executemany("INSERT INTO t VALUES (?, ?)", KEPT)
        connection.execute("DELETE FROM t WHERE number = 100")
        yield connection


def rows(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT number, content FROM t ORDER BY number").fetchall()


def after_power_failure(database: Path, copy: Path) -> list[tuple[int, bytes]]:
    """Returns the rows of a copy of the files as they are now, without what is in memory only."""
    for end in ("", "-wal"):
        if (source := Path(f"{database}{end}")).exists():
            shutil.copy(source, f"{copy}{end}")
    with closing(opened(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return rows(connection)


def test_the_log_is_zeros_before_it_is_cut(database: Path, connection: sqlite3.Connection) -> None:
    log = Path(f"{database}-wal")
    size = log.stat().st_size
    assert SECRET in log.read_bytes()
    with freed_by_sqlite() as freed:
        assert overwrite_log(connection, database, 0.0)
    assert len(freed) == 1
    assert len(freed[0]) == size
    assert SECRET not in freed[0]
    assert SECRET not in database.read_bytes()
    assert log.stat().st_size == 0
    assert overwrite_log(connection, database, 0.0)  # there is nothing to do
    assert rows(connection) == KEPT


def test_no_failure_of_power_loses_a_commit(
    database: Path, connection: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every statement, and while blocks of the log have reached the disk in any order."""
    monkeypatch.setattr(sqlite_log, "BLOCK", 512)
    drawn, pwrite, looks, blocks = random.Random(1), os.pwrite, [0], list[tuple[bytes, int]]()
    log = Path(f"{database}-wal")

    def look(_: str = "") -> None:
        looks[0] += 1
        assert after_power_failure(database, tmp_path / f"copy-{looks[0]}.db") == KEPT

    def collect(descriptor: int, content: bytes, position: int) -> int:
        blocks.append((content, position))
        return len(content)

    def write_in_any_order(descriptor: int) -> None:
        drawn.shuffle(blocks)
        for number, (content, position) in enumerate(blocks):
            pwrite(descriptor, content, position)
            if number % 10 == 0:
                look()

    monkeypatch.setattr(os, "pwrite", collect)
    monkeypatch.setattr(os, "fdatasync", write_in_any_order)
    connection.set_trace_callback(look)
    assert overwrite_log(connection, database, 0.0)
    assert len(blocks) > 50
    assert looks[0] > 20
    assert log.stat().st_size == 0
    look()


@pytest.mark.parametrize("begins", ["before", "after the checkpoint"])
def test_a_reader_keeps_its_pages(database: Path, connection: sqlite3.Connection, begins: str) -> None:
    with closing(opened(database)) as reader:

        def begin() -> None:
            reader.execute("BEGIN")
            assert rows(reader) == KEPT
            with closing(opened(database)) as writer:  # what is new is in the log, behind the reader's pages
                writer.execute("INSERT INTO t VALUES (200, x'00')")

        def statement(text: str) -> None:
            if begins != "before" and text == "BEGIN IMMEDIATE" and not reader.in_transaction:
                begin()

        if begins == "before":
            begin()
        connection.set_trace_callback(statement)
        done = overwrite_log(connection, database, 0.0)
        connection.set_trace_callback(None)
        assert done is (begins != "before")  # a reader of the database file alone does not need the log
        assert rows(reader) == KEPT
        reader.execute("COMMIT")
        assert overwrite_log(connection, database, 0.0)
        assert rows(reader) == [*KEPT, (200, b"\0")]


def test_another_writer_delays_it_and_loses_nothing(database: Path, connection: sqlite3.Connection) -> None:
    with closing(opened(database)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO t VALUES (200, x'00')")
        assert not overwrite_log(connection, database, 0.0)
        writer.execute("COMMIT")
    assert overwrite_log(connection, database, 0.0)
    assert rows(connection) == [*KEPT, (200, b"\0")]


class Overtaken:
    """A connection whose process is overtaken by another one after its next commit."""

    def __init__(self, connection: sqlite3.Connection, by: Callable[[], object]) -> None:
        self._connection, self._by = connection, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        self._by()


def test_a_log_that_another_process_has_cut_meanwhile_is_done(database: Path, connection: sqlite3.Connection) -> None:
    """Reproduction: behind the end of the empty log there were old frames for ever, and the client never ended."""
    with closing(opened(database)) as other:
        overtaken = Overtaken(connection, lambda: overwrite_log(other, database, 1.0))
        assert overwrite_log(overtaken, database, 1.0)
        assert Path(f"{database}-wal").stat().st_size == 0
        assert not connection.in_transaction
        assert rows(other) == rows(connection) == KEPT


def test_the_end_of_a_store_unlinks_no_key(tmp_path: Path) -> None:
    """With its last connection SQLite unlinks the log, keys of open rounds in it, which are destroyed later."""
    read: Callable[[], bytes] = lambda: b"".join(file.read_bytes() for file in tmp_path.iterdir())  # noqa: E731
    store = Store(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(bytes(32)))
    with store.database.begin() as connection:
        connection.exec_driver_sql("INSERT INTO documents VALUES ('r', 'kind', ?)", (SECRET,))
    assert SECRET in read()
    with freed_by_sqlite() as freed:
        store.close()
    assert not Path(tmp_path / "rounds.db-wal").exists()
    assert freed
    assert not any(SECRET in content for content in freed)
