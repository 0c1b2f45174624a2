"""The store on PostgreSQL where it differs from a file: lost and silent connections, its files, whole rounds.

What holds for both kinds of database is in test_store.py.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import PrivateKey, PublicKey, RoundId, StorageKey
from croupier.runtime.database import Timeouts
from croupier.runtime.kinds import Direction, DocumentKind, KeyPurpose
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction
from research.bench.stores import kinds_of, measure_stores, store_lines
from tests.support.messages import naming, refuses
from tests.support.postgresql import Server

KIND = DocumentKind.PASSED_ON
ROUND = RoundId("r")
WRAPPING_KEY = b"k" * 32
BODY = os.urandom(300)
OPENED = os.urandom(300)


class Wire:
    """A relay between a store and its server, which a test can cut, refuse, or make swallow everything.

    Every connection has a thread, which alone reads, writes and closes it. What others may do to it is shut it down:
    a descriptor that one thread closes while another one uses it may be a third connection's by then.
    """

    def __init__(self, url: str) -> None:
        self.server = sa.make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self.silent = False
        self.down = False
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        address = self.server.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        return address.render_as_string(hide_password=False)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # shut down
                return
            relay = threading.Thread(target=self._relay, args=(near,))
            with self._lock:
                self._connections[near] = relay
            relay.start()

    def _relay(self, near: socket.socket) -> None:
        """Ends both connections when either end does, or when this one is cut."""
        with suppress(OSError):
            if not self.down:
                with socket.create_connection((self.server.host or "", self.server.port or 5432)) as far:
                    self._pass_on(near, far)
        with self._lock:
            del self._connections[near]
        near.close()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, (near, far))
            selector.register(far, selectors.EVENT_READ, (far, near))
            while True:
                for key, _ in selector.select():
                    source, sink = key.data
                    data = source.recv(65536)
                    if not data:
                        return
                    if not self.silent:
                        sink.sendall(data)

    def cut(self) -> None:
        """Ends the connections that there are now."""
        with self._lock:
            for near in self._connections:
                with suppress(OSError):  # it has ended already
                    near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would leave the thread in its accept
        self._accepting.join()
        self._listener.close()
        with self._lock:
            relays = list(self._connections.values())
        self.cut()
        for relay in relays:
            relay.join()


@contextmanager
def relayed(server: Server, timeouts: Timeouts) -> Iterator[tuple[Store, Wire]]:
    with (
        closing(Wire(server.new_database())) as wire,
        closing(Store(wire.url, StorageKey(WRAPPING_KEY), timeouts)) as store,
    ):
        yield store, wire


async def put(store: Store, kind: str) -> None:
    await store.run("look", lambda tx: tx.put_document(ROUND, KIND, b"1", kind))


async def put_in_the_end(store: Store, kind: str) -> None:
    """As a service does: what may pass is tried again, so that a machine that is slow fails no test."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Refusal):
                return await put(store, kind)


@contextmanager
def silence(store: Store, wire: Wire) -> Iterator[None]:
    """No byte arrives, and the store's patience is short; only now, else a slow machine would use it up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.database, "timeouts", Timeouts(transaction_s=0.2, shred_s=0.2))
        wire.silent = True
        yield
        wire.silent = False


async def test_a_connection_that_the_server_ended_is_replaced_unnoticed(postgresql: Server) -> None:
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY))
    await put(store, "before")
    assert postgresql.disconnect(url) == 1
    await put(store, "after")
    assert await store.run("look", lambda tx: tx.document(ROUND, KIND, "before")) == b"1"
    with pytest.raises(ValueError, match=naming("another process")):  # the new connection holds the lock again
        Store(url, StorageKey(WRAPPING_KEY), Timeouts(lock_s=0.2))
    store.close()


@pytest.mark.slow
async def test_a_connection_lost_in_a_step_is_a_refusal_and_undoes_the_step(postgresql: Server) -> None:
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY))

    def step(tx: Transaction) -> None:
        tx.put_document(ROUND, KIND, b"1", "lost")
        postgresql.disconnect(url)
        tx.put_document(ROUND, KIND, b"1", "never")

    with pytest.raises(Refusal) as refused:
        await store.run("step", step)
    assert refused.value.code is Code.STORE_FAILED
    assert refused.value.code.may_pass
    await put(store, "kept")
    kept = [await store.run("look", lambda tx: tx.document(ROUND, KIND, kind)) for kind in ("lost", "never", "kept")]  # noqa: B023
    assert kept == [None, None, b"1"]
    store.close()


async def test_a_server_out_of_reach_is_a_refusal_until_it_is_back(postgresql: Server) -> None:
    with relayed(postgresql, Timeouts(connect_s=2)) as (store, wire):
        await put(store, "before")
        wire.down = True
        wire.cut()
        for _ in range(2):
            with refuses(Code.STORE_FAILED):
                await put(store, "meanwhile")
            with pytest.raises(Refusal):
                await store.shred()
        wire.down = False
        await put_in_the_end(store, "after")
        assert await store.run("look", lambda tx: tx.document(ROUND, KIND, "before")) == b"1"
        assert await store.run("look", lambda tx: tx.document(ROUND, KIND, "meanwhile")) is None


@pytest.mark.slow
async def test_a_server_that_falls_silent_does_not_hang_the_service(postgresql: Server) -> None:
    with relayed(postgresql, Timeouts(connect_s=2)) as (store, wire):
        await put(store, "before")
        with silence(store, wire), pytest.raises(Refusal) as refused:
            await asyncio.wait_for(put(store, "meanwhile"), 30)
        assert refused.value.code is Code.STORE_FAILED
        await put_in_the_end(store, "after")
        with silence(store, wire), pytest.raises(Refusal):
            await asyncio.wait_for(store.shred(), 30)
        await put_in_the_end(store, "after")


@pytest.mark.slow
async def test_a_store_closes_while_its_server_is_silent(
    postgresql: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited for the transaction under way as long as that may last, five minutes, and the process with it."""
    monkeypatch.setattr("croupier.runtime.store.CLOSE_S", 0.2)
    with relayed(postgresql, Timeouts(connect_s=2)) as (store, wire):
        await put(store, "before")
        wire.silent = True
        running, waiting = (asyncio.create_task(put(store, kind)) for kind in ("running", "waiting"))
        await asyncio.sleep(0)  # both are with the store's thread
        await asyncio.wait_for(asyncio.to_thread(store.close), 60)
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await running
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert "given up" in caplog.text


async def test_a_statement_or_a_lock_that_takes_too_long_is_given_up(postgresql: Server) -> None:
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY), Timeouts(statement_s=0.2, lock_s=0.1))
    with refuses(Code.STORE_FAILED):
        await store.run("look", lambda tx: tx.connection.execute(sa.text("SELECT pg_sleep(60)")))
    backup = sa.create_engine(url)
    with backup.begin() as connection:
        connection.execute(sa.text("LOCK TABLE documents"))
        with refuses(Code.STORE_FAILED):
            await put(store, "kept")
    await put(store, "kept")
    backup.dispose()
    store.close()


async def test_who_lost_the_connection_and_then_the_lock_does_not_write_again(
    postgresql: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with relayed(postgresql, Timeouts(connect_s=2, lock_s=0.2)) as (store, wire):
        wire.cut()
        other = Store(wire.server.render_as_string(hide_password=False), StorageKey(WRAPPING_KEY))
        with refuses(Code.STORE_FAILED):
            await put(store, "late")
        assert "lock timeout" in caplog.text
        assert await other.run("look", lambda tx: tx.document(ROUND, KIND, "late")) is None
        other.close()
        await put_in_the_end(store, "late")


def test_a_database_that_cannot_be_used_is_named_without_its_password(postgresql: Server) -> None:
    latin = postgresql.new_database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    none = sa.make_url(latin).set(database="nobody-made-this").render_as_string(hide_password=False)
    away = sa.make_url(latin).set(port=1).render_as_string(hide_password=False)
    stranger = sa.make_url(latin).set(password="hunter2").render_as_string(hide_password=False)
    password = postgresql.url.password
    for url, problem in (
        (latin, "encoding is LATIN1"),
        (none, "does not exist"),
        (away, "refused"),
        (stranger, "password authentication failed"),
    ):
        with pytest.raises(ValueError, match=problem) as refused:
            Store(url, StorageKey(WRAPPING_KEY))
        assert str(password) not in str(refused.value)
        assert "hunter2" not in str(refused.value)


async def test_what_the_role_may_not_do_is_said_and_is_an_outage(
    postgresql: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Privileges that were missing, or were taken away, were an internal error with a traceback."""
    role, url = f"role_{secrets.token_hex(8)}", postgresql.new_database()
    postgresql.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'guest'")
    as_guest = sa.make_url(url).set(username=role, password="guest").render_as_string(hide_password=False)
    server = Server(url)
    with pytest.raises(ValueError, match=naming("permission denied", "public")) as refused:
        Store(as_guest, StorageKey(WRAPPING_KEY))
    assert "guest" not in str(refused.value)
    server.execute(f"GRANT ALL ON SCHEMA public TO {role}")
    store = Store(as_guest, StorageKey(WRAPPING_KEY))
    server.execute(f"REVOKE ALL ON documents FROM {role}")
    with pytest.raises(Refusal) as failed:
        await put(store, "kept")
    assert failed.value.code is Code.STORE_FAILED
    assert "the store failed: look: permission denied for table documents" in caplog.text
    server.execute(f"GRANT ALL ON documents TO {role}")
    await put(store, "kept")
    server.execute("DROP TABLE documents")
    with pytest.raises(Refusal) as failed:
        await put(store, "kept")
    assert failed.value.code is Code.STORE_FAILED
    assert 'the store failed: look: relation "documents" does not exist' in caplog.text
    store.close()


async def test_a_server_that_takes_no_writes_is_named(postgresql: Server, caplog: pytest.LogCaptureFixture) -> None:
    url = postgresql.new_database()
    database = sa.make_url(url).database
    Store(url, StorageKey(WRAPPING_KEY)).close()
    postgresql.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    store = Store(url, StorageKey(WRAPPING_KEY))  # a standby, say; there may be rounds to read
    with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
        await put(store, "kept")
    assert "the store failed: look: cannot execute INSERT in a read-only transaction" in caplog.text
    store.close()


async def test_a_session_is_not_ended_for_being_idle(postgresql: Server) -> None:
    """It holds the lock: a second process could have come in between, and gone on with the same rounds."""
    url = postgresql.new_database()
    for name in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
        postgresql.execute(f'ALTER DATABASE "{sa.make_url(url).database}" SET {name} = 1000')
    store = Store(url, StorageKey(WRAPPING_KEY))
    for name in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
        question = sa.text(f"SHOW {name}")
        assert await store.run("look", lambda tx: tx.connection.execute(question).scalar_one()) == "0"  # noqa: B023
    store.close()


async def test_a_server_that_may_lose_what_it_has_written_is_warned_of_once(
    postgresql: Server, caplog: pytest.LogCaptureFixture
) -> None:
    if postgresql.execute("SHOW fsync") == [("on",)]:
        pytest.skip("the server that CROUPIER_TEST_POSTGRESQL names has fsync = on, as it should")
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY))
    postgresql.disconnect(url)
    await put(store, "kept")
    (said,) = [record.getMessage() for record in caplog.records if "fsync" in record.getMessage()]
    assert said == "the database's server has fsync = off: what is acknowledged may be lost when its machine fails"
    store.close()


@pytest.mark.slow
async def test_what_is_forgotten_is_gone_from_the_tables_of_the_server(postgresql: Server) -> None:
    """Only the write-ahead log's files, which are the operator's, may keep it."""
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY))
    pair = KeyPair(PublicKey(b"public"), PrivateKey(b"private"))
    await store.run("look", lambda tx: tx.add_round(ROUND, "suite", {KeyPurpose.ENVELOPE: pair}))
    await store.run("look", lambda tx: tx.add_round(RoundId("stays"), "suite", {KeyPurpose.ENVELOPE: pair}))
    large = os.urandom(100_000)
    await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.OUT, 2, 0, 1, large))
    await store.run("look", lambda tx: tx.put_chunk(RoundId("stays"), Direction.OUT, 2, 0, 1, BODY[::-1]))
    await store.run("look", lambda tx: tx.append_chunk(ROUND, 1, BODY))
    await store.run("look", lambda tx: tx.put_opened(ROUND, 1, [(0, OPENED)]))
    await store.run("look", lambda tx: tx.add_submissions(ROUND, [(b"client", b"hash")]))
    wrapped = (await store.run("look", lambda tx: tx.connection.execute(sa.text("SELECT * FROM round_keys")).all()))[0][
        3
    ]
    models = [os.urandom(400), os.urandom(400)]
    for model in models:
        await store.run("look", lambda tx: tx.replace_document(ROUND, DocumentKind.MODEL, model))  # noqa: B023
    needles = [bytes(wrapped[12:28]), BODY[:64], OPENED[:64], large[:64], large[-64:], models[1][:64]]
    postgresql.execute("CHECKPOINT")
    before = files_of(postgresql, url)
    assert [needle in before for needle in needles] == [True] * 6

    def forget(tx: Transaction) -> None:
        tx.shred_round(ROUND)
        tx.delete_documents(ROUND, DocumentKind.MODEL)

    # A backup, say, that began before: for its sake VACUUM FULL would take along all that it might still want to see.
    backup = sa.create_engine(url)
    with backup.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(sa.text("SELECT count(*) FROM rounds")).all()
        await store.run("look", forget)
        await store.shred()
        postgresql.execute("CHECKPOINT")
        after = files_of(postgresql, url)
        assert [needle in after for needle in (*needles, models[0][:64])] == [False] * 7
        assert BODY[::-1][:64] in after
    backup.dispose()
    store.close()


@pytest.mark.slow
async def test_what_stays_of_other_rounds_is_not_written_anew(postgresql: Server) -> None:
    """Once the service stood still for as long as the bodies of all rounds took to be written."""
    store, taken, stays = Store(postgresql.new_database(), StorageKey(WRAPPING_KEY)), "round-1", "round-2"
    await store.shred()  # the first time, all

    async def files() -> dict[str, int]:
        """The file of each table, which is another one when the table has been rewritten."""
        question = sa.text("SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relfilenode > 0")
        rows = await store.run("look", lambda tx: tx.connection.execute(question).all())
        return {name: number for name, number in rows if not name.startswith(("pg_", "sql_"))}

    for name in (taken, stays):
        await store.run("look", lambda tx: tx.add_round(RoundId(name), "suite", {}))  # noqa: B023
        await store.run("look", lambda tx: tx.append_chunk(RoundId(name), 1, BODY))  # noqa: B023
        await store.run("look", lambda tx: tx.put_document(RoundId(name), KIND, b"1", "list"))  # noqa: B023
    before = await files()
    await store.shred()
    assert await files() == before
    await store.run("look", lambda tx: tx.shred_round(RoundId(taken)))
    await store.shred()
    after = await files()
    changed = {name for name, number in after.items() if before[name] != number}
    place = sa.text("SELECT tableoid::regclass::text FROM chunks WHERE round_id = :name")
    parts = [
        await store.run("look", lambda tx: tx.connection.execute(place, {"name": name}).scalar_one())  # noqa: B023
        for name in (taken, stays)
    ]
    assert parts[0] != parts[1]
    assert changed == {"round_keys", parts[0], parts[0].replace("chunks", "opened")}
    assert await store.run(
        "look", lambda tx: [tx.chunk(RoundId(name), Direction.IN, 1, 0) for name in (taken, stays)]
    ) == [
        b"",
        BODY,
    ]
    store.close()


@pytest.mark.slow
async def test_a_lock_that_keeps_the_tables_from_being_written_anew_is_reported(postgresql: Server) -> None:
    url = postgresql.new_database()
    store = Store(url, StorageKey(WRAPPING_KEY), Timeouts(lock_s=0.1))
    await put(store, "kept")
    backup = sa.create_engine(url)
    with backup.begin() as connection:
        connection.execute(sa.text("SELECT count(*) FROM documents")).all()
        with pytest.raises(Refusal, match=Code.NOT_READY.message):
            await store.shred()
    await store.shred()
    assert await store.run("look", lambda tx: tx.document(ROUND, KIND, "kept")) == b"1"
    backup.dispose()
    store.close()


def files_of(server: Server, url: str) -> bytes:
    """Returns every file of one database, as the server's machine has it."""
    name = sa.make_url(url).database
    ((directory, oid),) = server.execute(
        f"SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = '{name}'"
    )
    return b"".join(file.read_bytes() for file in Path(directory, "base", str(oid)).iterdir())


@pytest.mark.slow
def test_the_bench_of_the_stores_measures_both(postgresql: Server, tmp_path: Path) -> None:
    kinds = [kind for kind in kinds_of(postgresql.new_database()) if kind.name in ("SQLite", "PostgreSQL")]
    measured = measure_stores(kinds, 1000, tmp_path)
    for row in measured["rows"]:
        assert row["bytes_per_body"] > row["body_bytes"]  # it was kept
        assert row["longest_wait_s"] > 0
        assert row["fill"]["bodies_per_s"] > 0
    assert "| 1,000 bodies of 456 bytes | SQLite | PostgreSQL |" in store_lines(measured)
