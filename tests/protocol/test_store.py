"""The store: write-once, idempotent, atomic, and really forgetting."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from protocol.envelope import KeyPair
from protocol.errors import Refusal
from protocol.store import Store, Transaction
from protocol.v1 import messages_pb2 as pb

PAIR = KeyPair(b"public" * 5, b"very private key bytes of a round")
BODY = b"ciphertext-that-can-be-found" * 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'rounds.db'}", b"k" * 32)
    yield opened
    opened.close()


def add(tx: Transaction) -> None:
    tx.add_round("r", "suite", {"envelope": PAIR})


@pytest.mark.asyncio
async def test_rounds_keys_and_costs_come_back(store: Store) -> None:
    await store.run(add)
    await store.run(lambda tx: tx.update_round("r", state=pb.ROUND_STATE_OPEN, manifest=b"m"))
    await store.run(lambda tx: tx.add_cost("r", "mix", 1.0, 2.0))
    await store.run(lambda tx: tx.add_cost("r", "mix", 1.0, 2.0))
    row = await store.run(lambda tx: tx.round("r"))
    assert (row.state, row.manifest) == (pb.ROUND_STATE_OPEN, b"m")
    assert await store.run(lambda tx: tx.keys("r")) == {"envelope": PAIR}
    assert [(c.stage, c.wall_s, c.cpu_s) for c in await store.run(lambda tx: tx.costs("r"))] == [("mix", 2.0, 4.0)]
    with pytest.raises(Refusal, match="'other'"):
        await store.run(lambda tx: tx.round("other"))


@pytest.mark.asyncio
async def test_a_failed_step_leaves_nothing(store: Store) -> None:
    await store.run(add)

    def half(tx: Transaction) -> None:
        tx.update_round("r", state=pb.ROUND_STATE_MIXED)
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await store.run(half)
    assert (await store.run(lambda tx: tx.round("r"))).state == pb.ROUND_STATE_PREPARED


@pytest.mark.asyncio
async def test_chunks_are_idempotent_and_never_change(store: Store) -> None:
    await store.run(lambda tx: tx.put_chunk("r", "in", 2, 1, 2, b"b"))
    assert await store.run(lambda tx: tx.chunks("r", "in", 2)) is None
    for _ in range(2):
        await store.run(lambda tx: tx.put_chunk("r", "in", 2, 0, 2, b"a"))
    assert await store.run(lambda tx: tx.chunks("r", "in", 2)) == [b"a", b"b"]
    with pytest.raises(Refusal, match="different content"):
        await store.run(lambda tx: tx.put_chunk("r", "in", 2, 0, 2, b"z"))
    with pytest.raises(Refusal, match="different content"):
        await store.run(lambda tx: tx.put_chunk("r", "in", 2, 2, 3, b"c"))
    await store.run(lambda tx: tx.forget("r"))
    await store.run(lambda tx: tx.put_chunk("r", "in", 2, 0, 2, b"a"))
    assert await store.run(lambda tx: tx.chunks("r", "in", 2)) is None


@pytest.mark.asyncio
async def test_documents_are_written_once(store: Store) -> None:
    for _ in range(2):
        await store.run(lambda tx: tx.put_document("r", "certificate", b"c"))
    with pytest.raises(Refusal, match="certificate of round 'r'"):
        await store.run(lambda tx: tx.put_document("r", "certificate", b"d"))
    assert await store.run(lambda tx: tx.document("r", "certificate")) == b"c"
    assert await store.run(lambda tx: tx.document("r", "publication")) is None


def read_wrapped(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as db:
        wrapped: bytes = db.execute("SELECT wrapped_private FROM round_keys").fetchone()[0]
        return wrapped


def everything_on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


@pytest.mark.asyncio
async def test_what_is_forgotten_is_gone_from_the_files(store: Store, tmp_path: Path) -> None:
    await store.run(add)
    await store.run(lambda tx: tx.put_chunk("r", "out", 2, 0, 1, BODY))
    await store.run(lambda tx: tx.add_submissions("r", [(b"client", b"hash", BODY)]))
    assert BODY in everything_on_disk(tmp_path)
    wrapped = read_wrapped(tmp_path / "rounds.db")
    assert wrapped[12:28] in everything_on_disk(tmp_path)
    assert PAIR.private not in everything_on_disk(tmp_path)
    await store.run(lambda tx: tx.forget("r"))
    await store.erase_log()
    left = everything_on_disk(tmp_path)
    assert BODY not in left
    assert wrapped[12:28] not in left
    assert await store.run(lambda tx: tx.keys("r")) == {}
    assert await store.run(lambda tx: tx.submission_hashes("r")) == {b"client": b"hash"}


@pytest.mark.asyncio
async def test_one_submission_a_client(store: Store) -> None:
    await store.run(lambda tx: tx.add_submissions("r", [(b"a", b"2", b"x"), (b"b", b"1", b"y")]))
    with pytest.raises(Exception, match="UNIQUE"):
        await store.run(lambda tx: tx.add_submissions("r", [(b"c", b"3", b"z"), (b"a", b"4", b"w")]))
    assert await store.run(lambda tx: tx.num_submissions("r")) == 2
    assert await store.run(lambda tx: tx.envelopes("r")) == [b"y", b"x"]
