"""Sequential rounds and what breaks: a first hop that stops with streams open, clients that reconnect or do not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import DocumentKind
from croupier.shuffler.sequential import SequentialHop
from tests.support.sequential import DIMENSION, Table, gathered, laid, num_present, people, settings, task
from tests.support.virtual_time import virtual_loop

pytestmark = pytest.mark.virtual_time


async def progress_of(table: Table, terms: RoundTerms) -> pb.SequentialProgress:
    service = table.inside.running["shuffler-1"].service
    document = await service.store.run("look", lambda tx: tx.document(terms.round_id, DocumentKind.SEQUENTIAL_PROGRESS))
    return pb.SequentialProgress.FromString(document or b"")


async def test_no_client_is_skipped_while_the_first_hop_stops(tmp_path: Path) -> None:
    """Reproduction: a call held up the stop, and those who had been sent away were asked meanwhile."""
    async with gathered(tmp_path, 12, chosen=settings(task(period_ms=200), needed=2)) as (table, group, terms):
        answered = asyncio.Event()
        taking = asyncio.create_task(table.take(terms, group, progress=lambda _: answered.set()))
        await asyncio.wait_for(answered.wait(), 60)
        first = table.inside.running["shuffler-1"].service
        held = asyncio.Event()

        async def lasts(*_: Any) -> pb.SubmitResponse:
            held.set()
            await asyncio.sleep(3.0)
            return pb.SubmitResponse()

        first.admission.submit = lasts  # type: ignore[attr-defined]
        call = stubs.ShufflerStub(table.channel).Submit(
            pb.SubmitRequest(round_id=terms.round_id, submissions=[pb.Submission()]), timeout=20
        )
        waiting = asyncio.ensure_future(asyncio.wait_for(held.wait(), 20))
        await waiting
        stopping = asyncio.create_task(table.inside.stop("shuffler-1"))
        await stopping
        call.cancel()
        await table.inside.start("shuffler-1")
        taken = await taking
        assert taken.report.num_answers >= 9


async def test_the_last_answer_counts_although_its_clients_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: a first hop that restarted waited for clients that had answered already."""
    async with gathered(tmp_path, chosen=settings(task(), needed=6)) as (table, group, terms):
        original, stuck = SequentialHop.pass_on, asyncio.Event()

        async def seven_times(self: SequentialHop, terms_of_round: RoundTerms, answer: bytes) -> pb.RelayResponse:
            if (await progress_of(table, terms)).position == 7:
                stuck.set()
                await asyncio.Event().wait()
            return await original(self, terms_of_round, answer)

        with monkeypatch.context() as patch:
            patch.setattr(SequentialHop, "pass_on", seven_times)
            taking = asyncio.create_task(table.take(terms, group))
            await asyncio.wait_for(stuck.wait(), 60)
            taking.cancel()
            await table.inside.stop("shuffler-1")
        await table.inside.start("shuffler-1")
        publication, certificate = await table.operator.result(terms.round_id, 20)
        assert publication.num_reports == certificate.num_answers == 8


async def test_a_user_asked_on_two_streams_at_once_answers_once(tmp_path: Path) -> None:
    """Reproduction: a second attendance while the first computed failed for everybody on it."""
    async with gathered(tmp_path, chosen=settings(task(period_ms=1500), needed=2)) as (table, group, terms):
        asked = asyncio.Event()
        loop = virtual_loop()

        def slow(parameters: bytes) -> NDArray[np.float64]:
            loop.call_soon_threadsafe(asked.set)
            loop.sleep_in_thread(0.7)
            return np.ones(DIMENSION)

        for person in group.values():
            person.gradient = slow
        first = asyncio.create_task(table.take(terms, group))
        await asyncio.wait_for(asked.wait(), 60)
        second = asyncio.create_task(table.take(terms, group))
        await asyncio.sleep(2.5)
        await table.operator.close_round(terms.round_id, end_sequential=True)
        reports = [taken.report for taken in await asyncio.gather(first, second)]
        assert reports[0] == reports[1]
        assert 1 <= reports[0].num_answers < 8
        assert len(table.outbox.users(RoundId(f"answers/{terms.round_id}"))) <= reports[0].num_answers + 1


async def test_streams_that_break_now_and_then_exhaust_no_patience(tmp_path: Path) -> None:
    """Reproduction: connections end every half an hour, and after some of them every client had given up."""
    async with gathered(tmp_path) as (table, group, terms):
        taking = asyncio.create_task(table.take(terms, dict(list(group.items())[:6]), patience_s=2.0))
        for _ in range(8):
            while num_present(table.first, terms.round_id) < 6:
                await asyncio.sleep(0.05)
                assert not taking.done(), taking.exception()
            await asyncio.sleep(0.1)  # the clients have heard of it, too
            table.first.sequential.attendance.close_all()
            while num_present(table.first, terms.round_id) == 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await table.operator.close_round(terms.round_id, end_sequential=True)
        assert (await taking).report.num_answers == 0


async def test_silent_strangers_keep_no_client_out(tmp_path: Path) -> None:
    """Reproduction: callers that opened streams and said nothing kept their slots for half an hour."""
    async with laid(tmp_path, settings_of=lambda _: "max_concurrent_calls = 16\n") as table:
        group = people(8)
        terms = await table.gather(group, settings(task()))
        async with table.operator.client_channel() as channel:
            calls: list[Any] = [stubs.ShufflerStub(channel).Attend(timeout=300) for _ in range(3)]
            for call in calls[1:]:
                await call.write(pb.AttendRequest(round_id=terms.round_id))
                assert (await call.read()).challenge
            await asyncio.sleep(0.2)
            taken = await table.take(terms, group, patience_s=60)
        assert taken.report.num_answers == 8
