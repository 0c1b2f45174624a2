"""Erasure of what a round leaves: tried until it is done, and said in the round's status until then."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from croupier.protocol.names import RoundId
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.steps import StoreStep
from tests.support import BIT, settings
from tests.support.rounds import Table, people, table

pytestmark = pytest.mark.virtual_time


def files_of(at: Table, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in (at.inside.directory / name).glob("rounds.db*"))


async def problem_of(at: Table, name: str, round_id: str) -> str:
    async with at.peer_channel(name, "operator") as channel:
        answer = await stubs.RoundControlStub(channel).Status(rpc.StatusRequest(round_id=round_id), timeout=20)
        return answer.rounds[0].problem


async def until_erased(at: Table, round_id: str, *, erased: bool = True) -> None:
    for _ in range(600):
        if ("not erased yet" in await problem_of(at, "shuffler-1", round_id)) is not erased:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the status does not change")


@contextmanager
def reading(at: Table, which: str = "") -> Iterator[bytes]:
    """Holds hop 1's database open for reading, as a backup does; yields the beginning of what it has opened."""
    with closing(sqlite3.connect(at.inside.directory / "shuffler-1/rounds.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        (envelope,) = reader.execute(f"SELECT substr(content, 1, 300) FROM opened {which}").fetchone()
        yield envelope


async def test_a_reader_delays_the_erasure_of_a_round_and_its_status_says_so(tmp_path: Path) -> None:
    """Reports of a published round stayed in the log for as long as some backup read the database."""
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        with reading(at) as envelope:
            publication, _ = await at.finish(terms)
            assert publication.num_reports == 30
            await until_erased(at, terms.round_id, erased=False)
            assert envelope in files_of(at, "shuffler-1")
        await until_erased(at, terms.round_id)
        assert envelope not in files_of(at, "shuffler-1")


async def test_a_service_that_cannot_erase_at_its_start_serves_and_tries_again(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        with reading(at) as envelope:
            await at.finish(terms)
            await at.inside.restart("shuffler-1")
            assert "not erased yet" in await problem_of(at, "shuffler-1", terms.round_id)
        await until_erased(at, terms.round_id)
        assert envelope not in files_of(at, "shuffler-1")


async def test_a_round_that_is_being_forgotten_says_so_and_goes_on_when_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hop 1 has of a large round goes in pieces; here it is stopped behind the first."""
    monkeypatch.setattr("croupier.runtime.lane_sender.CHUNK_BYTES", 1000)
    monkeypatch.setattr("croupier.runtime.rows.chunks.SHREDDED_BYTES", 1000)
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        with reading(at, "ORDER BY chunk_index DESC") as envelope:
            pass
        store = at.inside.running["shuffler-1"].service.store
        run, stopped, names = store.run, asyncio.Event(), list[str]()

        async def stopping(name: str, work: Any) -> Any:
            if name == StoreStep.SHRED_PAGE and name in names:
                stopped.set()
                await asyncio.Event().wait()
            names.append(name)
            return await run(name, work)

        monkeypatch.setattr(store, "run", stopping)
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30
        await stopped.wait()
        assert "under way" in await problem_of(at, "shuffler-1", terms.round_id)
        assert envelope in files_of(at, "shuffler-1")
        await at.operator.open_round(settings(), RoundId("following"))  # the service goes on meanwhile
        await at.inside.restart("shuffler-1")
        await until_erased(at, terms.round_id)
        await until_gone(at, envelope)


async def until_gone(at: Table, envelope: bytes) -> None:
    for _ in range(600):
        if envelope not in files_of(at, "shuffler-1"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it is still there")
