"""Sequential rounds in which services are killed and started again at random moments: each ends, with what is true.

A kill is a stop without any goodbye: no driver is awaited, the server is cut off, and what was not committed is lost.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from croupier.accountant.rounds.ledger import Ledger
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import InProcess
from tests.support.sequential import laid, people, settings, task

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def kill(inside: InProcess, name: str) -> None:
    running = inside.running.pop(name)
    running.service.engine.cancel()
    running._files.stop()
    await running._server.stop(0)
    await running.readiness.stop()
    await running.service.stop()
    running.pool.close()
    running.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_round_among_kills_ends_with_a_true_certificate(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with laid(tmp_path) as table:
        group = people(10)
        terms = await table.gather(group, settings(task(period_ms=100), needed=2))
        killed: list[str] = []
        taking = asyncio.create_task(table.take(terms, group, patience_s=120))
        while not taking.done():
            await asyncio.sleep(dice.uniform(0, 1.0))
            name = dice.choice(["shuffler-1", "shuffler-1", "shuffler-2", "analyzer", "accountant"])
            await kill(table.inside, name)
            await asyncio.sleep(dice.uniform(0, 0.5))
            await table.inside.start(name)
            killed.append(name)
        taken = await taking
        assert killed
        publication, certificate = await table.result(terms)
        assert certificate.num_answers == publication.num_reports == taken.report.num_answers
        assert taken.report.num_answers + taken.report.num_skipped <= 10
        assert max(len(person.asked) for person in group.values()) <= 1
        assert certificate.dishonest == 10 - certificate.num_answers
        entered = await table.inside.running["accountant"].service.store.run(
            "look", lambda tx: Ledger(tx.connection).entered()
        )
        assert [entry.epsilon for _, _, entries in entered for entry in entries] == [
            tier.epsilon for tier in certificate.tiers
        ]
        for name, running in table.inside.running.items():
            store = running.service.store
            while (await store.run("look", lambda tx: tx.round(terms.round_id))).state == pb.ROUND_STATE_SEQUENTIAL:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert await store.run("look", lambda tx: tx.keys(terms.round_id)) == {}, name
