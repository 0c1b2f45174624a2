"""The store: write-once, idempotent, atomic, durable, one writer, and really forgetting; on every kind of database.

What a test finds in the files of a database is in this module for SQLite, and in test_postgresql.py for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa

from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import Entry
from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import Digest, PrivateKey, PublicKey, RoundId, StorageKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database import Timeouts
from croupier.runtime.kinds import Direction, DocumentKind, KeyPurpose
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction
from tests.support.lanes import chunks
from tests.support.messages import naming

KIND = DocumentKind.PASSED_ON
PAIR = KeyPair(PublicKey(b"public" * 5), PrivateKey(b"very private key bytes of a round"))
BODY = b"ciphertext-that-can-be-found" * 4
ROUND = RoundId("r")
WRAPPING_KEY = b"k" * 32
MIB = 1 << 20
ENTRY = Entry(1.0, 0.0, 10, 0.1, 1e-6, ((0.1, 1e-3), (0.30000000000000004, 1e-300)))


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = Store(database_url, StorageKey(WRAPPING_KEY))
    yield opened
    opened.close()


def add(tx: Transaction) -> None:
    tx.add_round(ROUND, "suite", {KeyPurpose.ENVELOPE: PAIR})


async def test_rounds_keys_and_costs_come_back(store: Store) -> None:
    await store.run("add", add)
    await store.run("look", lambda tx: tx.update_round(ROUND, state=pb.ROUND_STATE_OPEN, manifest=b"m"))
    await store.run("look", lambda tx: tx.add_cost(ROUND, "mix", 1.0, 2.0))
    await store.run("look", lambda tx: tx.add_cost(ROUND, "mix", 1.0, 2.0))
    row = await store.run("look", lambda tx: tx.round(ROUND))
    assert (row.state, row.manifest) == (pb.ROUND_STATE_OPEN, b"m")
    assert await store.run("look", lambda tx: tx.keys(ROUND)) == {KeyPurpose.ENVELOPE: PAIR}
    assert [(c.stage, c.wall_s, c.cpu_s) for c in await store.run("look", lambda tx: tx.costs(ROUND))] == [
        ("mix", 2.0, 4.0)
    ]
    with pytest.raises(Refusal, match="'other'"):
        await store.run("look", lambda tx: tx.round(RoundId("other")))


async def test_rounds_that_are_never_opened_are_told_by_when_they_were_prepared(store: Store) -> None:
    for name in map(RoundId, ("opened", "never")):
        await store.run("add", lambda tx: tx.add_round(name, "suite", {KeyPurpose.ENVELOPE: PAIR}))  # noqa: B023
        await store.run("note", lambda tx: tx.put_document(name, DocumentKind.CREATED, b"1000"))  # noqa: B023
    await store.run("open", lambda tx: tx.update_round(RoundId("opened"), state=pb.ROUND_STATE_OPEN, manifest=b"m"))
    assert await store.run("look", lambda tx: tx.never_opened(999)) == []
    assert await store.run("look", lambda tx: tx.never_opened(1000)) == ["never"]


async def test_a_failed_step_leaves_nothing(store: Store) -> None:
    await store.run("add", add)

    def half(tx: Transaction) -> None:
        tx.update_round(ROUND, state=pb.ROUND_STATE_MIXED)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await store.run("add half", half)
    assert (await store.run("look", lambda tx: tx.round(ROUND))).state == pb.ROUND_STATE_PREPARED


async def test_chunks_are_idempotent_and_never_change(store: Store) -> None:
    await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 1, 2, b"b"))
    assert await store.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2)) is None
    for _ in range(2):
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 0, 2, b"a"))
    assert await store.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2)) == [b"a", b"b"]
    with pytest.raises(Refusal, match="different content"):
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 0, 2, b"z"))
    with pytest.raises(Refusal, match="different content"):
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 2, 3, b"c"))
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 0, 2, b"a"))
    assert await store.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2)) is None


async def test_documents_are_written_once(store: Store) -> None:
    for _ in range(2):
        await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.CERTIFICATE, b"c"))
    with pytest.raises(Refusal, match=naming(Code.CONFLICT.message, "'r'")):
        await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.CERTIFICATE, b"d"))
    assert await store.run("look", lambda tx: tx.document(ROUND, DocumentKind.CERTIFICATE)) == b"c"
    assert await store.run("look", lambda tx: tx.document(ROUND, DocumentKind.PUBLICATION)) is None


async def test_documents_that_change_and_that_go(store: Store) -> None:
    for content in (b"1", b"2"):
        await store.run("look", lambda tx: tx.replace_document(ROUND, DocumentKind.MODEL, content))  # noqa: B023
    await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.MODEL, b"x", "answer-1"))
    await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.ANSWER_KEYS, b"y"))
    await store.run("look", lambda tx: tx.put_document(RoundId("other"), DocumentKind.MODEL, b"z"))
    assert await store.run("look", lambda tx: tx.document(ROUND, DocumentKind.MODEL)) == b"2"
    await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.CERTIFICATE, b"y"))
    await store.run("look", lambda tx: tx.delete_documents(ROUND, DocumentKind.MODEL))
    for kind, part in ((DocumentKind.MODEL, ""), (DocumentKind.MODEL, "answer-1"), (DocumentKind.ANSWER_KEYS, "")):
        assert await store.run("look", lambda tx: tx.document(ROUND, kind, part)) is None  # noqa: B023
    assert await store.run("look", lambda tx: tx.document(ROUND, DocumentKind.CERTIFICATE)) == b"y"
    assert await store.run("look", lambda tx: tx.document(RoundId("other"), DocumentKind.MODEL)) == b"z"


async def test_one_submission_a_client(store: Store) -> None:
    await store.run("look", lambda tx: tx.add_submissions(ROUND, [(b"a", b"2"), (b"b", b"1")]))
    with pytest.raises(sa.exc.IntegrityError):
        await store.run("look", lambda tx: tx.add_submissions(ROUND, [(b"c", b"3"), (b"a", b"4")]))
    assert await store.run("look", lambda tx: tx.num_submissions(ROUND)) == 2


@pytest.mark.slow
async def test_forgetting_deletes_bodies_and_keys_but_still_knows_repeats(store: Store) -> None:
    for round_id in ("r", "other"):
        await store.run("look", lambda tx: tx.add_round(RoundId(round_id), "suite", {KeyPurpose.ENVELOPE: PAIR}))  # noqa: B023
        await store.run("look", lambda tx: tx.put_chunk(RoundId(round_id), Direction.OUT, 2, 0, 1, BODY))  # noqa: B023
        await store.run("look", lambda tx: tx.append_chunk(RoundId(round_id), 1, BODY))  # noqa: B023
        await store.run("look", lambda tx: tx.put_opened(RoundId(round_id), 1, [(0, BODY)]))  # noqa: B023
        await store.run("look", lambda tx: tx.add_submissions(RoundId(round_id), [(b"client", b"hash")]))  # noqa: B023
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    for _ in range(2):
        await store.shred()
    assert await store.run("look", lambda tx: tx.keys(ROUND)) == {}
    await store.run("look", lambda tx: tx.put_opened(ROUND, 1, [(0, BODY)]))  # a worker was late
    assert await store.run("look", lambda tx: (tx.unopened(ROUND, 1, -1), tx.opened(ROUND, 1, -1))) == (
        [],
        [],
    )
    assert await store.run("look", lambda tx: tx.submission_hashes(ROUND)) == {b"client": b"hash"}
    assert await store.run("look", lambda tx: chunks(tx, "r", Direction.OUT, 2)) is None
    with pytest.raises(Refusal, match="different content"):
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.OUT, 2, 0, 1, BODY[1:]))
    assert await store.run("look", lambda tx: tx.keys(RoundId("other"))) == {KeyPurpose.ENVELOPE: PAIR}
    assert await store.run("look", lambda tx: tx.opened(RoundId("other"), 1, -1)) == [(0, BODY)]
    assert await store.run("look", lambda tx: chunks(tx, "other", Direction.OUT, 2)) == [BODY]


@pytest.mark.slow
async def test_a_hundred_megabytes_come_back_in_order_and_are_forgotten(store: Store) -> None:
    parts = 25

    def body(index: int) -> bytes:
        return index.to_bytes(4, "big") * MIB

    for index in range(parts):
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, index, parts, body(index)))  # noqa: B023
    parts_read = await store.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2))
    assert parts_read == [body(index) for index in range(parts)]
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    await store.shred()
    assert await store.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2)) is None


async def fill(store: Store, round_id: str, lanes: int = 2) -> None:
    """Ten chunks in each lane, opened ones behind those that came, one beyond any piece among them."""
    await store.run("look", lambda tx: tx.add_round(RoundId(round_id), "suite", {KeyPurpose.ENVELOPE: PAIR}))
    for index in range(10):
        body = BODY * (50 if index == 4 else 1)
        for lane in range(1, lanes + 1):
            await store.run("look", lambda tx: tx.append_chunk(RoundId(round_id), lane, body))  # noqa: B023
            await store.run("look", lambda tx: tx.put_opened(RoundId(round_id), lane, [(index, body)]))  # noqa: B023
            await store.run("look", lambda tx: tx.put_chunk(RoundId(round_id), Direction.OUT, lane, index, 10, body))  # noqa: B023


_LEFT = """
    SELECT coalesce(sum(length(ciphertexts)), 0) FROM chunks WHERE round_id = 'r'
    UNION ALL SELECT coalesce(sum(length(content)), 0) FROM opened WHERE round_id = 'r'
"""


def bytes_left(tx: Transaction) -> int:
    return int(sum(tx.connection.exec_driver_sql(_LEFT).scalars()))


@pytest.mark.slow
async def test_a_large_round_is_forgotten_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction it kept a service waiting for 24 s at 10^6 bodies."""
    monkeypatch.setattr("croupier.runtime.rows.chunks.SHREDDED_BYTES", 3 * len(BODY))
    for name in ("r", "another", "other"):
        await fill(store, name)
    await store.run("look", lambda tx: tx.shred_round(RoundId("another")))
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    after, lefts = None, [await store.run("look", bytes_left)]
    while True:
        # As if all of it were gone, and nothing comes in addition.
        assert await store.run("look", lambda tx: [tx.chunk(ROUND, Direction.IN, 2, index) for index in (0, 9)]) == [
            b"",
            b"",
        ]
        assert await store.run("look", lambda tx: tx.num_chunks(ROUND, Direction.OUT, 1)) is None
        await store.run("look", lambda tx: tx.put_opened(ROUND, 1, [(10, BODY)]))
        assert await store.run("look", lambda tx: (tx.unopened(ROUND, 1, -1), tx.opened(ROUND, 1, -1))) == ([], [])
        after = await store.run("forget", lambda tx: tx.shred_page(after))  # noqa: B023
        lefts.append(await store.run("look", bytes_left))
        if after is None:
            break
    taken = sorted(before - now for before, now in pairwise(lefts) if before > now)
    assert (lefts[0], lefts[-1]) == (6 * 59 * len(BODY), 0)
    assert len(taken) > 20
    assert taken[-7] <= 3 * len(BODY)
    assert taken[-1] <= 52 * len(BODY)  # what is larger than a piece is one
    assert await store.run("look", lambda tx: tx.being_shredded()) == set()
    assert len(await store.run("look", lambda tx: tx.opened(RoundId("other"), 2, -1))) == 10
    assert (await store.run("look", lambda tx: tx.chunk(RoundId("other"), Direction.OUT, 1, 9))) == BODY


async def test_pages_skip_what_is_opened_and_what_has_not_come(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.runtime.rows.chunks.ROWS_PER_PAGE", 4)
    come, opened = [0, 1, 2, 3, 5, 6, 20, 21, 22, 40], [0, 1, 5, 21]
    for index in come:
        await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 1, index, 41, bytes([index])))  # noqa: B023
    await store.run("look", lambda tx: tx.put_opened(ROUND, 1, [(index, bytes([index])) for index in (*opened, 7)]))
    for start, left in ((-1, [2, 3, 6, 20, 22, 40]), (2, [3, 6, 20, 22, 40]), (None, [22, 40]), (40, [])):
        pages, after = list[tuple[int, bytes]](), start
        while page := await store.run("look", lambda tx: tx.unopened(ROUND, 1, after)):  # noqa: B023
            pages += page
            after = page[-1][0]
        assert pages == [(index, bytes([index])) for index in left]
    read, behind = list[tuple[int, bytes]](), -1
    while page := await store.run("look", lambda tx: tx.opened(ROUND, 1, behind)):  # noqa: B023
        read += page
        behind = page[-1][0]
    assert read == [(index, bytes([index])) for index in opened]


async def test_what_is_opened_is_kept_in_a_few_statements_and_once(store: Store) -> None:
    """One for each chunk and look-up took PostgreSQL a minute for 40,000 chunks, while everybody waited."""
    for _ in range(50):
        await store.run("look", lambda tx: tx.append_chunk(ROUND, 1, BODY))
    said = list[str]()

    def keep(tx: Transaction) -> None:
        sa.event.listen(tx.connection, "before_cursor_execute", lambda _, __, statement, *___: said.append(statement))
        tx.put_opened(ROUND, 1, [(index, BODY) for index in range(40)])

    await store.run("look", keep)
    assert len(said) <= 5
    await store.run("look", lambda tx: tx.put_opened(ROUND, 1, [(index, BODY[::-1]) for index in range(60)]))
    assert await store.run("look", lambda tx: tx.opened(ROUND, 1, -1)) == [
        (index, BODY if index < 40 else BODY[::-1]) for index in range(50)
    ]


async def test_others_get_their_turn_between_two_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.runtime.rows.chunks.SHREDDED_BYTES", 3 * len(BODY))
    await fill(store, "r")
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    names, transact = list[str](), store.transact

    def noted(name: str, work: Callable[[Transaction], object]) -> object:
        names.append(name)
        return transact(name, work)

    monkeypatch.setattr(store, "transact", noted)
    erasing = asyncio.create_task(store.shred())
    await asyncio.sleep(0)
    for number in range(5):
        await store.run("another", lambda tx: tx.put_document(ROUND, KIND, b"1", str(number)))  # noqa: B023
    await erasing
    turns = [at for at, name in enumerate(names) if name == "another"]
    assert turns == [1, 3, 5, 7, 9]
    assert names.count(StoreStep.SHRED_PAGE) > 20


@pytest.mark.slow
async def test_what_was_cut_short_is_forgotten_after_the_restart(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.runtime.rows.chunks.SHREDDED_BYTES", 3 * len(BODY))
    pieces = 0
    with closing(Store(database_url, StorageKey(WRAPPING_KEY))) as store:
        await fill(store, "r")
        await store.run("look", lambda tx: tx.shred_round(ROUND))
    while True:
        with closing(Store(database_url, StorageKey(WRAPPING_KEY))) as store:
            pieces += 1
            if await store.run("forget", lambda tx: tx.shred_page()) is None:
                break
            assert await store.run("look", lambda tx: tx.being_shredded()) == {"r"}
    assert pieces > 20
    with closing(Store(database_url, StorageKey(WRAPPING_KEY))) as store:
        assert await store.run("look", bytes_left) == 0
        assert await store.run("look", lambda tx: tx.keys(ROUND)) == {}


async def test_steps_that_run_at_once_do_not_lose_each_other(store: Store) -> None:
    await store.run("add", add)
    steps = [store.run("look", lambda tx: tx.add_cost(ROUND, "mix", 1.0, 2.0)) for _ in range(100)]

    def submit(number: int, tx: Transaction) -> None:
        tx.add_submissions(ROUND, [(bytes([number]), b"hash")])

    submissions = [store.run("submit", partial(submit, number)) for number in range(100)]
    await asyncio.gather(*steps, *submissions)
    (cost,) = await store.run("look", lambda tx: tx.costs(ROUND))
    assert (cost.wall_s, cost.cpu_s) == (100.0, 200.0)
    assert await store.run("look", lambda tx: tx.num_submissions(ROUND)) == 100


async def test_everything_is_there_after_a_restart(database_url: str) -> None:
    first = Store(database_url, StorageKey(WRAPPING_KEY))
    await first.run("add", add)
    await first.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.CERTIFICATE, bytes(range(256))))
    await first.run("look", lambda tx: tx.put_chunk(ROUND, Direction.IN, 2, 0, 1, BODY))
    await first.run("look", lambda tx: tx.update_round(ROUND, problem="a ≤ b: 'ε'", bytes_sent=1 << 40))
    await first.run("look", lambda tx: Ledger(tx.connection).enter(RoundId("r"), Digest(b"digest"), [ENTRY]))
    first.close()
    second = Store(database_url, StorageKey(WRAPPING_KEY))
    row = await second.run("look", lambda tx: tx.round(ROUND))
    assert (row.problem, row.bytes_sent) == ("a ≤ b: 'ε'", 1 << 40)
    assert await second.run("look", lambda tx: tx.keys(ROUND)) == {KeyPurpose.ENVELOPE: PAIR}
    assert await second.run("look", lambda tx: tx.document(ROUND, DocumentKind.CERTIFICATE)) == bytes(range(256))
    assert await second.run("look", lambda tx: chunks(tx, "r", Direction.IN, 2)) == [BODY]
    # The same entry again is recognised: every number came back to the last bit.
    await second.run("look", lambda tx: Ledger(tx.connection).enter(RoundId("r"), Digest(b"digest"), [ENTRY]))
    assert (await second.run("look", lambda tx: Ledger(tx.connection).spent(1e-3)))[-1].rounds == 1
    second.close()


async def test_the_ledger_is_entered_in_the_stores_transaction_or_not_at_all(store: Store) -> None:
    def half(tx: Transaction) -> None:
        Ledger(tx.connection).enter(RoundId("r"), Digest(b"digest"), [ENTRY])
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await store.run("add half", half)
    assert (await store.run("look", lambda tx: Ledger(tx.connection).spent(1e-3)))[-1].rounds == 0
    await store.run("look", lambda tx: Ledger(tx.connection).enter(RoundId("r"), Digest(b"digest"), [ENTRY]))
    assert (await store.run("look", lambda tx: Ledger(tx.connection).spent(1e-3)))[-1].rounds == 1


async def test_a_name_that_no_database_can_hold_is_a_bad_request_or_unknown(store: Store) -> None:
    with pytest.raises(Refusal) as refused:
        await store.run("look", lambda tx: tx.round(RoundId("a\0b")))
    assert refused.value.code in (Code.UNKNOWN_ROUND, Code.BAD_REQUEST)
    await store.run("add", add)


def test_a_second_writer_is_refused_until_the_first_has_gone(database_url: str) -> None:
    first = Store(database_url, StorageKey(WRAPPING_KEY))
    with pytest.raises(ValueError, match=naming("another process")):
        Store(database_url, StorageKey(WRAPPING_KEY), Timeouts(lock_s=0.2))
    first.close()
    Store(database_url, StorageKey(WRAPPING_KEY)).close()


_WRITER = """
import asyncio, sys
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.store import Store
store = Store(sys.argv[1], b"k" * 32)
asyncio.run(store.run("look", lambda tx: tx.put_document("r", DocumentKind.PASSED_ON, b"1", "kept")))
def half(tx):
    tx.put_document("r", DocumentKind.PASSED_ON, b"1", "lost")
    print("in the middle", flush=True)
    sys.stdin.read()
asyncio.run(store.run("add half", half))
"""


def test_kill_minus_nine_keeps_what_was_committed_and_frees_the_lock(database_url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "in the middle"
        with pytest.raises(ValueError, match=naming("another process")):
            Store(database_url, StorageKey(WRAPPING_KEY), Timeouts(lock_s=0.2))
        os.kill(process.pid, signal.SIGKILL)

    async def read(store: Store) -> list[bytes | None]:
        return [await store.run("look", lambda tx: tx.document(ROUND, KIND, kind)) for kind in ("kept", "lost")]  # noqa: B023

    store = Store(database_url, StorageKey(WRAPPING_KEY))
    assert asyncio.run(read(store)) == [b"1", None]
    store.close()


def read_wrapped(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as db:
        wrapped: bytes = db.execute("SELECT wrapped_private FROM round_keys").fetchone()[0]
        return wrapped


def everything_on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_forgotten_is_gone_from_the_files(store: Store, tmp_path: Path) -> None:
    await store.run("add", add)
    await store.run("look", lambda tx: tx.put_chunk(ROUND, Direction.OUT, 2, 0, 1, BODY))
    await store.run("look", lambda tx: tx.add_submissions(ROUND, [(b"client", b"hash")]))
    assert BODY in everything_on_disk(tmp_path)
    wrapped = read_wrapped(tmp_path / "rounds.db")
    assert wrapped[12:28] in everything_on_disk(tmp_path)
    assert bytes(PAIR.private) not in everything_on_disk(tmp_path)
    await store.run("look", lambda tx: tx.shred_round(ROUND))
    await store.shred()
    left = everything_on_disk(tmp_path)
    assert BODY not in left
    assert wrapped[12:28] not in left
    assert await store.run("look", lambda tx: tx.keys(ROUND)) == {}
    assert await store.run("look", lambda tx: tx.submission_hashes(ROUND)) == {b"client": b"hash"}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_reader_that_keeps_the_log_from_being_cut_is_reported(store: Store, tmp_path: Path) -> None:
    """SQLite says in a row that it has done nothing; nobody read that row, and the bytes stayed."""
    await store.run("look", lambda tx: tx.put_document(ROUND, DocumentKind.MODEL, BODY, "of-a-step"))
    with closing(sqlite3.connect(tmp_path / "rounds.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM documents").fetchall()
        await store.run("look", lambda tx: tx.delete_documents(ROUND, DocumentKind.MODEL))
        with pytest.raises(Refusal, match=Code.NOT_READY.message) as refused:
            await store.shred()
        assert refused.value.code.may_pass
        assert BODY in everything_on_disk(tmp_path)
        await store.run("look", lambda tx: tx.put_document(ROUND, KIND, b"is written meanwhile", "another"))
    await store.shred()
    assert BODY not in everything_on_disk(tmp_path)


@pytest.mark.parametrize("name", ["rounds.db", "rounds.db.lock"])
async def test_a_store_whose_file_is_gone_acknowledges_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite went on with a file that was deleted, for as long as the service ran; a second one could have begun."""
    store = Store(f"sqlite:///{tmp_path / 'rounds.db'}", StorageKey(WRAPPING_KEY))
    await store.run("put", lambda tx: tx.put_document(ROUND, KIND, b"1", "before"))
    file = tmp_path / name
    file.rename(tmp_path / "away")
    for replaced in (False, True):
        if replaced:
            file.touch()
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await store.run("put", lambda tx: tx.put_document(ROUND, KIND, b"1", "meanwhile"))
    assert f"{name} has been moved, deleted or replaced while the service runs" in caplog.text
    (tmp_path / "away").rename(file)
    assert await store.run("look", lambda tx: tx.document(ROUND, KIND, "meanwhile")) is None
    await store.run("put", lambda tx: tx.put_document(ROUND, KIND, b"1", "after"))
    store.close()
