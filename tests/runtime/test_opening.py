"""Opening what arrives: each chunk once in effect, whatever fails meanwhile, in the order of arrival."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from protocol.errors import Code, Refusal
from protocol.v1 import messages_pb2 as pb
from runtime.opening import Opening
from shuffler.service import ShufflerService
from tests.attacks.arena import WAIT_S, arena
from tests.support import settings


async def opened(hop: Opening, round_id: str) -> list[int]:
    """Returns which of the joint envelopes' chunks are opened."""
    found = await hop.store.run("look", lambda tx: tx.opened(round_id, pb.LANE_JOINT, -1))
    return [index for index, _ in found]


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_what_the_background_could_not_open_is_opened_at_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = asyncio.Event()
    open_page = Opening._open_page

    async def fails(self: Opening, terms: object, lane: object, page: object) -> None:
        broken.set()
        raise Refusal(Code.STORE_FAILED)

    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        assert isinstance(hop, ShufflerService)
        monkeypatch.setattr(Opening, "_open_page", fails)
        await deployment.admit(terms, await deployment.seal(terms, 10))
        await broken.wait()
        monkeypatch.setattr(Opening, "_open_page", open_page)
        await deployment.admit(terms, await deployment.seal(terms, 10))
        found: list[int] = []
        async with asyncio.timeout(WAIT_S):
            while not found:
                await asyncio.sleep(0.02)
                found = await opened(hop, terms.round_id)
        await deployment.admit(terms, await deployment.seal(terms, 10))  # perhaps not opened when the round is closed
        publication, certificate = await deployment.finish(terms)
    assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (30, 30, 0)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_records_come_in_the_order_of_arrival_and_each_once(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop = deployment.service("shuffler-1")
        assert isinstance(hop, ShufflerService)
        sent: list[bytes] = []
        for _ in range(3):
            submissions = await deployment.seal(terms, 2)
            sent += [hashlib.sha256(one.envelope).digest() for one in submissions]
            await deployment.admit(terms, submissions)
            await hop.open_all(terms)
            await hop.open_all(terms)
        records = [one async for page in hop.records(terms, pb.LANE_JOINT) for one in page]
        assert [one.name for one in records] == sent
        assert await opened(hop, terms.round_id) == [0, 1, 2]
