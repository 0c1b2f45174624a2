"""Turns that end otherwise than by everybody's answer, and clients who would have a round end so: each is performed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.accountant.rounds.ledger import Ledger
from croupier.client.submission import SealedSubmission, new_client_key
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.shuffler.sequential import SequentialHop
from tests.support.sequential import Table, gathered, laid, num_present, people, settings, signed_answer, task
from tests.support.statements import codes

pytestmark = pytest.mark.virtual_time


async def test_two_clients_with_the_same_answer_are_one_and_stop_no_round(tmp_path: Path) -> None:
    """Reproduction: hop 1 counted both, the analyzer had learnt from one, and nothing was published."""
    async with gathered(tmp_path, chosen=settings(task(), needed=6)) as (table, group, terms):
        copied = signed_answer(table, terms, "user 0", [0, 0, 1])
        for name in list(group)[:2]:
            table.outbox.keep(RoundId(f"answers/{terms.round_id}"), {name: SealedSubmission(copied, b"")})
        taken = await table.take(terms, group)
        assert (taken.report.num_answers, taken.report.num_skipped) == (7, 1)
        publication, certificate = await table.result(terms)
        assert publication.num_reports == certificate.num_answers == 7
        assert certificate.dishonest == 1


@pytest.mark.slow
async def test_an_answer_without_a_budget_adds_no_cover(tmp_path: Path) -> None:
    """Reproduction: two clients whose submissions do not open answered instead of two who had vanished."""
    async with laid(tmp_path) as table:
        group = people(14)
        terms = await table.operator.open_round(settings(task(), needed=8))
        junk = {name: os.urandom(Onion(terms).joint.sealed_size) for name in list(group)[:2]}
        signed = {
            name: sign_submission(terms.hash, request, PrivateKey(group[name].key)) for name, request in junk.items()
        }
        for name, submission in signed.items():
            sealed = SealedSubmission(
                submission.SerializeToString(), b"", group[name].max_local_epsilon, new_client_key()
            )
            table.outbox.keep(terms.round_id, {name: sealed})
        assert (await table.submit_budgets(terms, group)).accepted == 14
        await table.operator.close_round(terms.round_id)
        taken = await table.take(terms, dict(list(group.items())[:12]))
        _, certificate = await table.result(terms)
        # Without a ticket for their keys the two are not heard; of the twelve with a budget, ten have answered.
        assert (taken.report.num_answers, certificate.num_users, certificate.dishonest) == (10, 12, 2)


async def kept(table: Table, terms: RoundTerms, names: Iterable[str] = ()) -> list[str]:
    """Returns what these services (or all) still keep that must be gone when the round is over."""
    kinds, left = (DocumentKind.SEQUENTIAL_PROGRESS, DocumentKind.MODEL), list[str]()
    for name in names or table.inside.running:
        store = table.inside.running[name].service.store
        left += await store.run("look", lambda tx: list(tx.keys(terms.round_id)))
        left += await store.run("look", lambda tx: [kind for kind in kinds if tx.document(terms.round_id, kind)])
    return left


async def test_a_round_withdrawn_during_the_asking_leaves_nothing_and_is_paid(tmp_path: Path) -> None:
    """Reproduction: the analyzer kept the release key and the model, hop 1 an answer on its way, for ever.

    How many have answered by then is not certified: the ledger charges for no amplification.
    """
    async with gathered(tmp_path, 12) as (table, group, terms):
        answered = asyncio.Event()
        taking = asyncio.create_task(table.take(terms, group, progress=lambda _: answered.set()))
        await asyncio.wait_for(answered.wait(), 60)
        await asyncio.sleep(0.5)
        await table.inside.stop("analyzer")  # so that an answer is on its way
        await asyncio.sleep(0.5)
        await table.inside.start("analyzer")
        said = await table.operator.withdraw(terms.round_id)
        assert set(said.values()) == {"DISPOSED"}
        with pytest.raises(Refusal, match=Code.WRONG_STATE.message):
            await taking
        assert await kept(table, terms) == []
        assert await table.charged() == [2.0, 4.0]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "ended"), [(0.6, ""), (0.8, "by the operator"), (0.8, "by a withdrawal")])
async def test_no_end_of_a_sequential_round_exceeds_the_privacy_limit(tmp_path: Path, limit: float, ended: str) -> None:
    """Reproduction: with 0.6 a round was granted for many answers, ended after a few, and the ledger stood at 0.74."""
    more = f"[privacy_limit]\ntotal_epsilon = {limit}\ntotal_delta = 1e-3\n"
    async with laid(tmp_path, more=more) as table:

        async def spent() -> float:
            store = table.inside.running["accountant"].service.store
            worst = (await store.run("look", lambda tx: Ledger(tx.connection).spent(1e-3)))[-1].guarantee
            assert worst is not None
            return worst.epsilon

        group, chosen = people(40), replace(settings(task(), needed=30), budget_grid=(0.5,))
        terms = await table.gather(group, chosen)
        await table.take(terms, group)
        _, certificate = await table.result(terms)
        whole = await spent()
        assert whole <= certificate.epsilon < 0.25  # what it has really cost, now that it has ended

        terms = await table.gather(group, chosen)
        if not ended:
            _, certificate = await table.result(terms)
            assert not certificate.granted
            assert codes(certificate.refusals)[-1] == RefusalReason.SEQUENTIAL_LEDGER_LIMIT
            assert await spent() == whole
            return
        answered = asyncio.Event()
        taking = asyncio.create_task(table.take(terms, group, progress=lambda _: answered.set()))
        await asyncio.wait_for(answered.wait(), 60)
        assert max(whole, 0.5) < await spent() <= limit
        if ended == "by the operator":
            await table.operator.close_round(terms.round_id, end_sequential=True)
            await table.result(terms)
        else:
            await table.operator.withdraw(terms.round_id)
        with suppress(Refusal):
            await taking
        assert max(whole, 0.4) < await spent() <= limit


async def test_a_round_that_stops_during_the_asking_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reproduction: the answer on its way and the model stayed in hop 1's store."""
    async with gathered(tmp_path) as (table, group, terms):
        original, passed = SequentialHop.pass_on, 0

        async def broken(self: SequentialHop, terms_of_round: RoundTerms, answer: bytes) -> pb.RelayResponse:
            nonlocal passed
            passed += 1
            if passed == 3:
                raise Refusal(Code.WRONG_STATE, "for the test")
            return await original(self, terms_of_round, answer)

        monkeypatch.setattr(SequentialHop, "pass_on", broken)
        with pytest.raises(Refusal, match=Code.WRONG_STATE.message):
            await table.take(terms, group)
        assert await kept(table, terms, ["shuffler-1"]) == []
        assert set((await table.operator.withdraw(terms.round_id)).values()) == {"DISPOSED"}
        assert await kept(table, terms) == []


async def test_who_attends_a_round_that_never_begins_hears_of_it(tmp_path: Path) -> None:
    """Reproduction: a round that is disposed of for too few clients let those who were there wait."""
    async with laid(tmp_path) as table:
        group = people(3)
        terms = await table.operator.open_round(replace(settings(task()), short_batch_policy="dispose"))
        await table.submit_budgets(terms, group)
        taking = asyncio.create_task(table.take(terms, group))
        while num_present(table.first, terms.round_id) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (await table.operator.close_round(terms.round_id)).state == pb.ROUND_STATE_DISPOSED
        with pytest.raises(Refusal, match=Code.WRONG_STATE.message):
            await asyncio.wait_for(taking, 10)


async def test_turns_that_are_ended_before_they_begin_do_not_begin(tmp_path: Path) -> None:
    """Reproduction: asked for while the batch was mixed, the end was forgotten."""
    async with laid(tmp_path) as table:
        group = people(8)
        terms = await table.operator.open_round(settings(task()))
        await table.submit_budgets(terms, group)
        await table.inside.stop("shuffler-2")  # so that hop 1 cannot deliver
        closed = await table.operator.close_round(terms.round_id, end_sequential=True)
        assert closed.state == pb.ROUND_STATE_CLOSED
        await table.inside.start("shuffler-2")
        publication, certificate = await table.result(terms)
        assert certificate.num_answers == publication.num_reports == 0
