"""Rounds that some choice of budgets would have refused: held open until the risk has ended or the operator decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier.operator.forecasts import forecast_now, forecast_opening
from croupier.operator.published_result import published_result
from croupier.operator.round_settings import RoundSettings, survey_of
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.surveys import QuestionTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.support import settings
from tests.support.arena import Arena, arena
from tests.support.messages import naming, refuses

pytestmark = pytest.mark.virtual_time
LIMIT = "[privacy_limit]\ntotal_epsilon = 0.5\ntotal_delta = 1e-3\n"


def at_risk(deployment: Arena, *, due_s: float = 0.0, **changes: Any) -> RoundSettings:
    """Returns settings with which twenty people with 2 have no more than their own noise, and eighty meet the limit."""
    due = int(deployment.inside.clock.now() + due_s) if due_s else 0
    return replace(settings(epsilon_max=1.6), close_deadline_unix_s=due, **changes)


def is_granted(forecast: rpc.ForecastResponse) -> bool:
    return not any(outcome.refusals for outcome in forecast.outcomes)


def planned(deployment: Arena, plan: RoundSettings, questions: int = 1) -> QuestionTerms:
    """Returns the first question of a survey that asks this number of alike ones."""
    return survey_of([plan] * questions, "s", deployment.deployment).questions[0]


async def stage(deployment: Arena, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, str]:
    """Returns the state of a round at hop 1, and what is said of it there."""
    first, *_ = await deployment.operator.status(terms.round_id)
    assert isinstance(first, rpc.StatusResponse)
    return first.rounds[0].state, first.rounds[0].problem


async def waits(deployment: Arena, terms: RoundTerms, why: str) -> None:
    """Waits until hop 1 says why a round does not move."""
    async with asyncio.timeout(60):  # in virtual time
        while True:
            if why in (await stage(deployment, terms))[1]:
                return
            await asyncio.sleep(0.1)


async def test_an_operator_closes_a_round_at_risk_only_on_purpose(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.filled(at_risk(deployment), 20)
        closing = await deployment.operator.close_round(terms.round_id, hold_at_risk=True)
        assert (closing.state, closing.num_clients) == (pb.ROUND_STATE_OPEN, 20)
        assert not is_granted(closing.forecast)
        assert closing.forecast == await forecast_now(deployment.operator, terms.round_id)
        # Reproduction: "fewer than 20 have answered", where 20 had.
        with refuses(Code.NOT_READY, naming("20", "budgets")):
            await published_result(deployment.inside.directory, terms.round_id, 0.0, deployment.inside.transport)
        # Nothing was destroyed: more people end the risk.
        await deployment.admit(terms, await deployment.seal(terms, 60))
        closing = await deployment.operator.close_round(terms.round_id, hold_at_risk=True)
        assert closing.state == pb.ROUND_STATE_CLOSED
        assert is_granted(closing.forecast)
        publication, certificate = await deployment.operator.result(terms.round_id, 60.0)
        assert (publication.num_reports, certificate.granted) == (80, True)


async def test_at_its_deadline_a_round_at_risk_is_held_and_not_mixed(tmp_path: Path) -> None:
    """Reproduction: one person of twenty chose 2, the deadline came, and every answer was destroyed."""
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.filled(at_risk(deployment, due_s=5), 19)
        await deployment.admit(terms, await deployment.seal(terms, 1, max_local_epsilon=2.0))
        await waits(deployment, terms, "held")
        assert (await stage(deployment, terms))[0] == pb.ROUND_STATE_OPEN
        assert await deployment.nothing_is_published(terms)
        # The operator may decide to try, with the same budgets: this round is then refused.
        assert (await deployment.operator.close_round(terms.round_id)).state == pb.ROUND_STATE_CLOSED
        _, certificate = await deployment.operator.result(terms.round_id, 60.0)
        assert not certificate.granted


async def test_late_reports_of_clients_with_tickets_end_the_risk(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(at_risk(deployment, due_s=5))
        crowd = await deployment.seal(terms, 80)
        await deployment.admit(terms, crowd[:40])
        await waits(deployment, terms, "held")
        now = await forecast_now(deployment.operator, terms.round_id)
        assert (now.num_reports, now.num_tickets) == (40, 80)
        least, most = (max(outcome.epsilon for outcome in part) for part in (now.without_stragglers, now.outcomes))
        assert least < most
        await deployment.admit(terms, crowd[40:])
        publication, certificate = await deployment.operator.result(terms.round_id, 60.0)
        assert (publication.num_reports, certificate.granted) == (80, True)


@pytest.mark.slow
async def test_a_held_round_survives_restarts_with_every_report(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(at_risk(deployment, due_s=5))
        crowd = await deployment.seal(terms, 80)
        await deployment.admit(terms, crowd[:30])
        await waits(deployment, terms, "held")
        for name in deployment.deployment.chain:
            await deployment.inside.restart(name)
        await waits(deployment, terms, "held")
        await deployment.admit(terms, crowd[30:])
        publication, _ = await deployment.operator.result(terms.round_id, 60.0)
        assert publication.num_reports == 80


async def test_without_the_accountant_a_deadline_waits_for_it(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(at_risk(deployment, due_s=5), 80)
        await deployment.inside.stop("accountant")
        await waits(deployment, terms, "accountant does not answer")
        assert (await stage(deployment, terms))[0] == pb.ROUND_STATE_OPEN
        with refuses(Code.NOT_READY):
            await deployment.operator.close_round(terms.round_id, hold_at_risk=True)
        await deployment.inside.start("accountant")
        publication, _ = await deployment.operator.result(terms.round_id, 60.0)
        assert publication.num_reports == 80


async def test_a_held_round_is_withdrawn_in_the_end(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(at_risk(deployment, due_s=5), 20)
        await waits(deployment, terms, "held")
        for name, running in deployment.inside.running.items():
            deployment.inside.ahead_s[name] += 30 * 86400
            await running.service.retention.delete_expired()
        assert (await stage(deployment, terms))[0] == pb.ROUND_STATE_DISPOSED


async def test_only_operator_and_hop_1_are_told_a_forecast(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(at_risk(deployment))
        request = rpc.ForecastRequest(round_id=terms.round_id, num_reports=20)
        peers = {name: running.service.peers for name, running in deployment.inside.running.items()}
        for name, allowed in (("shuffler-1", True), ("shuffler-2", False), ("analyzer", False)):
            call = stubs.AccountantStub(peers[name].channel_to("accountant")).Forecast(request)
            if allowed:
                assert (await call).num_reports == 20
                continue
            with pytest.raises(grpc.aio.AioRpcError, match="NOT_YOUR_CALL"):
                await call
        wrong = stubs.AccountantStub(peers["shuffler-1"].channel_to("accountant"))
        with pytest.raises(grpc.aio.AioRpcError, match=naming("BAD_REQUEST", "num_reports", 0, "1..2147483647")):
            await wrong.Forecast(rpc.ForecastRequest(round_id=terms.round_id))
        with pytest.raises(Refusal, match=Code.NOT_READY.message):
            await forecast_now(deployment.operator, terms.round_id)


@pytest.mark.slow
async def test_a_forecast_asks_the_ledger(tmp_path: Path) -> None:
    """A third round does not fit into what two have left, and nobody has to answer to learn it."""
    async with arena(tmp_path, 1, more=LIMIT) as deployment:
        plan = replace(settings(epsilon_max=1.0), budget_grid=(0.5,))
        before = await forecast_opening(deployment.operator, planned(deployment, plan), 20)
        assert is_granted(before)
        assert (before.ledger.num_rounds, before.ledger.spent_epsilon) == (0, 0.0)
        assert 0 < before.outcomes[0].remaining_epsilon < 0.5
        for _ in range(2):
            terms = await deployment.filled(plan, 20, max_local_epsilon=0.5)
            _, certificate = await deployment.finish(terms)
            assert certificate.granted
        after = await forecast_opening(deployment.operator, planned(deployment, plan), 20)
        (outcome,) = after.outcomes
        assert [refusal.code for refusal in outcome.refusals] == [str(RefusalReason.LEDGER_EXCEEDED)]
        assert (after.ledger.num_rounds, after.ledger.num_shown) == (2, 2)
        assert before.outcomes[0].epsilon < after.ledger.spent_epsilon < 0.5
        assert is_granted(
            await forecast_opening(deployment.operator, planned(deployment, replace(plan, budget_grid=(0.05,))), 20)
        )
        _, accountant, _ = await deployment.operator.status()
        assert isinstance(accountant, rpc.StatusResponse)
        assert accountant.ledger == after.ledger


async def test_a_sequential_round_is_forecast_as_it_is_granted(tmp_path: Path) -> None:
    """The ledger has to bear every local budget, because the asking may be cut short."""
    from tests.support.sequential import task

    async with arena(tmp_path, 1, more=LIMIT) as deployment:
        plan = replace(settings(task()), budget_grid=(0.5, 2.0))
        forecast = await forecast_opening(deployment.operator, planned(deployment, plan), 40)
        assert not is_granted(forecast)
        assert {refusal.code for outcome in forecast.outcomes for refusal in outcome.refusals} == {
            str(RefusalReason.LEDGER_EXCEEDED)
        }


async def test_participants_change_nothing_in_what_is_held(tmp_path: Path) -> None:
    """A client that submits to a held round again is answered as before, and others without tickets are refused."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(at_risk(deployment, due_s=5))
        crowd = await deployment.seal(terms, 20)
        await deployment.admit(terms, crowd)
        await waits(deployment, terms, "held")
        assert await deployment.submit(terms, crowd[:1]) == [pb.SUBMISSION_CODE_ACCEPTED]
        with pytest.raises(AssertionError, match=f"'0': {pb.SUBMISSION_CODE_ROUND_CLOSED}"):
            await deployment.seal(terms, 1)
        assert (await forecast_now(deployment.operator, terms.round_id)).num_reports == 20


@pytest.mark.slow
async def test_rounds_that_fit_only_alone_are_not_all_closed_at_one_deadline(tmp_path: Path) -> None:
    """Reproduction: each of three rounds fits the ledger alone; all closed, and the later ones were destroyed."""
    async with arena(tmp_path, 1, more=LIMIT) as deployment:
        plan = replace(settings(epsilon_max=1.0), budget_grid=(0.5,))
        due = int(deployment.inside.clock.now() + 5)
        rounds = [
            await deployment.operator.open_round(replace(plan, close_deadline_unix_s=due), RoundId(f"one-{number}"))
            for number in range(3)
        ]
        for terms in rounds:
            await deployment.admit(terms, await deployment.seal(terms, 20, max_local_epsilon=0.5))
        looked = [asyncio.create_task(waits(deployment, terms, "held")) for terms in rounds]
        await asyncio.wait(looked, return_when=asyncio.FIRST_COMPLETED)
        (held,) = [terms for terms, look in zip(rounds, looked, strict=True) if look.done()]
        for look in looked:
            look.cancel()
        for terms in rounds:
            if terms is not held:
                publication, certificate = await deployment.operator.result(terms.round_id, 60.0)
                assert (publication.num_reports, certificate.granted) == (20, True)
        assert (await stage(deployment, held))[0] == pb.ROUND_STATE_OPEN
        now = await forecast_now(deployment.operator, held.round_id)
        assert (now.num_reports, now.ledger.num_rounds, now.ledger.num_pending) == (20, 2, 0)
        (refusal,) = now.outcomes[0].refusals
        assert refusal.code == str(RefusalReason.LEDGER_EXCEEDED)


@pytest.mark.slow
async def test_a_round_that_is_closing_counts_until_it_is_withdrawn(tmp_path: Path) -> None:
    """Two rounds are closed and stuck before hop 2 when the third is due; one is withdrawn, and the third closes."""
    async with arena(tmp_path, 2, more=LIMIT) as deployment:
        plan = replace(settings(epsilon_max=1.0), budget_grid=(0.5,))
        others = [await deployment.operator.open_round(plan, RoundId(f"other-{number}")) for number in range(2)]
        refused = await forecast_opening(deployment.operator, planned(deployment, plan), 20)
        assert (is_granted(refused), refused.ledger.num_rounds, refused.ledger.num_pending) == (False, 0, 2)
        assert 0 < refused.ledger.committed_epsilon < 0.5
        due = int(deployment.inside.clock.now() + 5)
        terms = await deployment.operator.open_round(replace(plan, close_deadline_unix_s=due), RoundId("third"))
        for round_terms in (*others, terms):
            await deployment.admit(round_terms, await deployment.seal(round_terms, 20, max_local_epsilon=0.5))
        assert is_granted(await forecast_now(deployment.operator, terms.round_id))  # nothing closes before it yet
        await deployment.inside.stop("shuffler-2")
        for round_terms, hold in zip(others, (True, False), strict=True):  # one by the forecast, one whatever it is
            closing = await deployment.operator.close_round(round_terms.round_id, hold_at_risk=hold)
            assert closing.state == pb.ROUND_STATE_CLOSED
        await waits(deployment, terms, "held")
        await deployment.inside.restart("accountant")
        assert not is_granted(await forecast_now(deployment.operator, terms.round_id))
        await deployment.operator.withdraw(others[0].round_id)
        await deployment.inside.start("shuffler-2")
        publication, certificate = await deployment.operator.result(terms.round_id, 120.0)
        assert (publication.num_reports, certificate.granted) == (20, True)


async def test_a_forecast_counts_the_other_questions_of_its_survey(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, more=LIMIT) as deployment:
        operator, plan = deployment.operator, replace(settings(epsilon_max=1.0), budget_grid=(0.5,))
        asks_one, asks_two, asks_three = (planned(deployment, plan, questions) for questions in (1, 2, 3))
        alone = await forecast_opening(operator, asks_one, 20)
        with_one = await forecast_opening(operator, asks_two, 20)
        assert is_granted(alone)
        assert is_granted(with_one)
        assert 0 < with_one.outcomes[0].remaining_epsilon < alone.outcomes[0].remaining_epsilon
        all_of_them = await forecast_opening(operator, asks_three, 20)
        assert [refusal.code for refusal in all_of_them.outcomes[0].refusals] == [str(RefusalReason.LEDGER_EXCEEDED)]
        await operator.open_signed(await operator.sign_round(asks_two.survey, 1))  # it is not counted twice then
        again = await forecast_opening(operator, asks_two, 20)
        assert again.outcomes == with_one.outcomes
        with pytest.raises(Refusal, match=naming(Code.BAD_REQUEST.message, "question is 2", "there are 2")):
            await forecast_opening(operator, replace(asks_two, place=2), 20)
