"""SQLite and PostgreSQL as hop 1 uses them: commits, pages, the write-ahead log, and how long erasing a round stops it.

The store's own transactions run here, with bodies of the size that clients send, and nothing of the network or the
cryptography. What clients feel of an erasure is how long their commits wait: so other ones go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from croupier.deploy.local.throughput import SUITE, plain_sizes
from croupier.protocol.envelope import overhead
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import JsonObject, RoundId, StorageKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction

COMMITS = (1, 30, 1000)
"""How many bodies are committed together: of one client alone, of a few at once, and of a fleet."""
_SAMPLES = 100
_FILL = 1000
AGAIN_S = 0.2
"""Seconds between two tries at a store that is not there yet."""
_RECORD_BYTES = 33  # beside the content of what is opened: a hash and a status
_BUSY_ROUND, _LIVE_ROUND = RoundId("round-1"), RoundId("round-2")  # on PostgreSQL in different parts of the tables


@dataclass(frozen=True)
class StoreKind:
    """A store to measure.

    Attributes:
        name: for the table.
        url: of an empty PostgreSQL database; "" for a SQLite file of its own.
        page_bytes: of the SQLite file.
        checkpoint_pages: the length at which SQLite copies its log into the file.
    """

    name: str
    url: str = ""
    page_bytes: int = 4096
    checkpoint_pages: int = 1000


def kinds_of(postgresql: str = "") -> list[StoreKind]:
    """Returns what is compared: SQLite as services have it, with other settings, and PostgreSQL if there is a URL."""
    kinds = [
        StoreKind("SQLite"),
        StoreKind("SQLite, pages of 16 KiB", page_bytes=16384, checkpoint_pages=250),
        StoreKind("SQLite, a log of 64 MiB", checkpoint_pages=16000),
    ]
    return [*kinds, *([StoreKind("PostgreSQL", postgresql)] if postgresql else [])]


def measure_stores(
    kinds: Sequence[StoreKind], bodies: int, folder: Path, report: Callable[[JsonObject], None] = lambda row: None
) -> JsonObject:
    """Plays the work of a round with this number of bodies on each store, and returns a row for each.

    "commits" has the median, the 99th percentile and the largest time by the number of bodies in a commit; "fill" those
    of large commits, and their rate.

    Args:
        kinds: of stores.
        bodies: at least 1000.
        folder: SQLite's files are below it while they are measured; its disk is what is measured.
        report: called with each row as soon as it is measured.

    Raises:
        ValueError: fewer bodies, or a database that cannot be opened.
    """
    if bodies < _FILL:
        raise ValueError(f"bodies is {bodies}; it must be at least {_FILL}")
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind in kinds:
        with tempfile.TemporaryDirectory(dir=folder, prefix="stores-") as scratch:
            file = Path(scratch) / "rounds.db"
            if not kind.url:  # the size of its pages is fixed with the first one
                with contextlib.closing(sqlite3.connect(file)) as fresh:
                    fresh.execute(f"PRAGMA page_size={kind.page_bytes}")
                    fresh.execute("VACUUM")
            store = Store(kind.url or f"sqlite:///{file}", StorageKey(os.urandom(32)))
            try:
                rows.append(asyncio.run(_measure(kind, store, None if kind.url else file, bodies)))
            finally:
                store.close()
        report(rows[-1])
    return {"rows": rows}


async def _measure(kind: StoreKind, store: Store, file: Path | None, bodies: int) -> JsonObject:
    size = plain_sizes(2)[-1]
    body_bytes, log_bytes = size + overhead(SUITE), 0
    if file is not None:
        pages = f"PRAGMA wal_autocheckpoint={kind.checkpoint_pages}"
        await store.run("set", lambda tx: tx.connection.exec_driver_sql(pages).close())
    for name in (_BUSY_ROUND, _LIVE_ROUND):
        await store.run("add", lambda tx: tx.add_round(name, SUITE, {}))  # noqa: B023
    await shred(store)  # as a service does at its start

    async def commit(round_id: RoundId, number: int) -> float:
        """Keeps `number` submissions as hop 1 does, and returns the seconds until they are durable."""
        nonlocal log_bytes
        rows = [(os.urandom(32), os.urandom(32)) for _ in range(number)]
        envelopes = os.urandom(number * body_bytes)

        def keep(tx: Transaction) -> None:
            tx.add_submissions(round_id, rows)
            tx.append_chunk(round_id, pb.LANE_JOINT, envelopes)

        started = time.perf_counter()
        await store.run("admit", keep)
        spent = time.perf_counter() - started
        if file is not None:
            log_bytes = max(log_bytes, _size(Path(f"{file}-wal")))
        return spent

    commits = {
        str(number): _spread([await commit(_LIVE_ROUND, number) for _ in range(min(_SAMPLES, bodies // 100))])
        for number in COMMITS
    }
    before = await _database_bytes(store, file)
    filling = [await commit(_BUSY_ROUND, min(_FILL, bodies - start)) for start in range(0, bodies, _FILL)]
    opening_bytes_per_s = bodies * body_bytes / await _open_all(store, size, body_bytes)
    reading_bytes_per_s = bodies * (size + _RECORD_BYTES) / await _read_all(store)
    bytes_per_body = (await _database_bytes(store, file) - before) / bodies

    waits: list[float] = []
    erased = asyncio.Event()

    async def others() -> None:
        while not erased.is_set():
            waits.append(await commit(_LIVE_ROUND, 1))

    meanwhile = asyncio.create_task(others())
    await asyncio.sleep(0)
    started = time.perf_counter()
    await store.run("forget", lambda tx: tx.shred_round(_BUSY_ROUND))
    await store.shred_pages()
    forget_s = time.perf_counter() - started
    started = time.perf_counter()
    await shred(store)
    erase_s = time.perf_counter() - started
    erased.set()
    await meanwhile
    return {
        "store": kind.name,
        "bodies": bodies,
        "body_bytes": body_bytes,
        "commits": commits,
        "fill": {**_spread(filling), "bodies_per_s": bodies / sum(filling)},
        "opening_bytes_per_s": opening_bytes_per_s,
        "reading_bytes_per_s": reading_bytes_per_s,
        "bytes_per_body": bytes_per_body,
        "forget_s": forget_s,
        "erase_s": erase_s,
        "longest_wait_s": max(waits),
        "bytes_left": await _database_bytes(store, file),
        "log_bytes": log_bytes,
    }


async def _open_all(store: Store, size: int, body_bytes: int) -> float:
    """Reads all chunks and keeps what comes of them, page by page; returns the seconds."""
    random = os.urandom(2 * 1024 * 1024)  # as ciphertexts are, which no database makes smaller
    started, after = time.perf_counter(), None
    while page := await store.run("read", lambda tx: tx.unopened(_BUSY_ROUND, pb.LANE_JOINT, after)):  # noqa: B023

        def keep(tx: Transaction) -> None:
            sizes = ((number, len(chunk) // body_bytes * (size + _RECORD_BYTES)) for number, chunk in page)
            opened = [(number, random[:num_bytes]) for number, num_bytes in sizes]
            tx.put_opened(_BUSY_ROUND, pb.LANE_JOINT, opened)

        await store.run("keep", keep)
        after = page[-1][0]
    return time.perf_counter() - started


async def _read_all(store: Store) -> float:
    started, after = time.perf_counter(), -1
    while page := await store.run("read", lambda tx: tx.opened(_BUSY_ROUND, pb.LANE_JOINT, after)):  # noqa: B023
        after = page[-1][0]
    return time.perf_counter() - started


async def shred(store: Store) -> None:
    """Erases as a service does: once more while something has a table, such as PostgreSQL's own vacuum."""
    while True:
        try:
            return await store.shred()
        except Refusal as refusal:
            if refusal.code != Code.NOT_READY:
                raise
            await asyncio.sleep(AGAIN_S)


async def _database_bytes(store: Store, file: Path | None) -> int:
    await shred(store)  # what is in SQLite's log goes into the file
    if file is not None:
        return _size(file)
    question = sa.text("SELECT pg_database_size(current_database())")
    return int(await store.run("size", lambda tx: tx.connection.execute(question).scalar_one()))


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _spread(seconds: Sequence[float]) -> JsonObject:
    ordered = sorted(seconds)
    return {"median_s": ordered[len(ordered) // 2], "p99_s": ordered[(len(ordered) * 99) // 100], "most_s": ordered[-1]}


def store_lines(document: JsonObject) -> list[str]:
    """Returns a Markdown table of `measure_stores`, a column for each store."""
    rows = document["rows"]

    def line(name: str, cell: Callable[[JsonObject], str]) -> str:
        return f"| {' | '.join([name, *(cell(row) for row in rows)])} |"

    def waits(number: int) -> Callable[[JsonObject], str]:
        def cell(row: JsonObject) -> str:
            spread = row["commits"][str(number)]
            return f"{1000 * spread['median_s']:.1f} / {1000 * spread['p99_s']:.1f}"

        return cell

    return [
        line(f"{rows[0]['bodies']:,} bodies of {rows[0]['body_bytes']} bytes", lambda row: row["store"]),
        "|---" * (len(rows) + 1) + "|",
        *(line(f"commit of {number:,}: median / 99 %, ms", waits(number)) for number in COMMITS),
        line("kept in commits of 1,000: bodies a second", lambda row: f"{row['fill']['bodies_per_s']:,.0f}"),
        line("the slowest of these commits, ms", lambda row: f"{1000 * row['fill']['most_s']:.0f}"),
        line("read, and what was opened kept: MB a second", lambda row: f"{row['opening_bytes_per_s'] / 1e6:.0f}"),
        line("what was opened read: MB a second", lambda row: f"{row['reading_bytes_per_s'] / 1e6:.0f}"),
        line("bytes of the database a body", lambda row: f"{row['bytes_per_body']:,.0f}"),
        line("largest write-ahead log, MB", lambda row: f"{row['log_bytes'] / 1e6:.0f}" if row["log_bytes"] else ""),
        line("forget the round: seconds", lambda row: f"{row['forget_s']:.2f}"),
        line("then erase it: seconds", lambda row: f"{row['erase_s']:.2f}"),
        line("longest that another commit waited meanwhile: seconds", lambda row: f"{row['longest_wait_s']:.2f}"),
        line("size of the database afterwards, MB", lambda row: f"{row['bytes_left'] / 1e6:,.0f}"),
    ]
