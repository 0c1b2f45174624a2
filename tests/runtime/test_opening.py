"""Opening what arrives: each chunk once in effect, whatever fails meanwhile, in the order of arrival."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.rows import chunks
from croupier.runtime.service import RoundService
from croupier.shuffler.service import ShufflerService
from tests.support import settings
from tests.support.arena import WAIT_S, arena

pytestmark = pytest.mark.virtual_time


async def opened(hop: RoundService, round_id: str) -> list[int]:
    """Returns which of the joint envelopes' chunks are opened."""
    records = await hop.store.run("look", lambda tx: tx.opened(RoundId(round_id), pb.LANE_JOINT, -1))
    return [index for index, _ in records]


async def test_what_the_background_could_not_open_is_opened_at_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = asyncio.Event()
    open_page = LaneOpener.open_page

    async def fails(self: LaneOpener, terms: object, lane: object, page: object) -> None:
        broken.set()
        raise Refusal(Code.STORE_FAILED)

    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        assert isinstance(hop, ShufflerService)
        monkeypatch.setattr(
            hop.opener, "cluster", deployment.inside.running["shuffler-1"].pool
        )  # what a cluster opens is kept as it came until then
        monkeypatch.setattr(LaneOpener, "open_page", fails)
        await deployment.admit(terms, await deployment.seal(terms, 10))
        await broken.wait()
        monkeypatch.setattr(LaneOpener, "open_page", open_page)
        await deployment.admit(terms, await deployment.seal(terms, 10))
        indices: list[int] = []
        async with asyncio.timeout(WAIT_S):
            while not indices:
                await asyncio.sleep(0.02)
                indices = await opened(hop, terms.round_id)
        await deployment.admit(terms, await deployment.seal(terms, 10))  # perhaps not opened when the round is closed
        publication, certificate = await deployment.finish(terms)
    assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (30, 30, 0)


async def test_records_come_in_the_order_of_arrival_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether envelopes are opened when they are admitted, or are kept for a cluster, or first this and then that."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        assert isinstance(hop, ShufflerService)
        sent: list[bytes] = []
        for has_cluster in (False, True, True, False):
            monkeypatch.setattr(
                hop.opener, "cluster", deployment.inside.running["shuffler-1"].pool if has_cluster else None
            )
            submissions = await deployment.seal(terms, 2)
            sent += [hashlib.sha256(submission.envelope).digest() for submission in submissions]
            before = await opened(hop, terms.round_id)
            await deployment.admit(terms, submissions)
            assert has_cluster or len(await opened(hop, terms.round_id)) == len(before) + 1
            await hop.opener.open_all(terms, pb.LANE_JOINT)
            await hop.opener.open_all(terms, pb.LANE_JOINT)
        records = [record async for page in hop.opener.records(terms, pb.LANE_JOINT) for record in page]
        assert [record.name for record in records] == sent
        assert await opened(hop, terms.round_id) == [0, 1, 2, 3]


async def test_a_service_stops_while_it_opens_and_waits_for_no_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a kill at a commit point: of two pages under way one was cancelled, and the other waited for."""
    begun = asyncio.Event()

    async def never_ends(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(chunks, "PAGE_BYTES", 1)
    monkeypatch.setattr(LaneOpener, "open_page", never_ends)
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        for envelope in (b"1", b"2"):
            await hop.store.run("look", lambda tx: tx.append_chunk(terms.round_id, pb.LANE_JOINT, envelope))  # noqa: B023
        hop.opener.open_soon(terms, pb.LANE_JOINT)
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            await asyncio.sleep(1.0)
            await hop.stop()


async def test_a_batch_that_is_not_what_was_admitted_is_not_mixed(tmp_path: Path) -> None:
    """Nothing does this but damage to the database; what was acknowledged must not be left out in silence."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        for _ in range(2):
            await deployment.admit(terms, await deployment.seal(terms, 10))
        await hop.opener.open_all(terms, pb.LANE_JOINT)
        lost = "DELETE FROM {} WHERE chunk_index = 1"
        for table in ("chunks", "opened"):
            await hop.store.run("damage", lambda tx: tx.connection.exec_driver_sql(lost.format(table)))  # noqa: B023
        await deployment.operator.close_round(terms.round_id)
        assert "10 of 20" in await deployment.problem("shuffler-1", terms)
