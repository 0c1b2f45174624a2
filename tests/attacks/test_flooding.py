"""Flooding: filling a batch around one victim, with clients that do not exist, exist twice, or are the attacker's."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from croupier.client.submission import new_client_key
from croupier.client.tickets import get_tickets
from croupier.protocol.errors import Code
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.setup import ServiceSetup
from tests.attacks import cheaters
from tests.support import settings
from tests.support.arena import Arena, arena
from tests.support.clients import crafted, stranger

pytestmark = pytest.mark.virtual_time
FAKES = 19


async def surround(
    deployment: Arena, terms: RoundTerms, victims_report: int, fakes: int = FAKES, *, enrol: bool
) -> list[pb.SubmissionCode.ValueType]:
    """One victim, and as many fakes as the minimum batch needs, whose reports the attacker knows."""
    await deployment.admit(terms, await deployment.craft(terms, victims_report, 1.0))
    if enrol:
        return await deployment.submit(terms, await deployment.craft(terms, 0, 1.0, count=fakes))
    return await deployment.submit(terms, [stranger(terms) for _ in range(fakes)], enrol=False)


async def test_fakes_that_are_not_registered_do_not_fill_a_batch(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        codes = await surround(deployment, terms, 1, enrol=False)
        assert codes == [pb.SUBMISSION_CODE_UNKNOWN_CLIENT] * FAKES
        answer = await deployment.operator.close_round(terms.round_id)
        assert (answer.state, answer.num_clients) == (pb.ROUND_STATE_OPEN, 1)
        assert await deployment.nothing_is_published(terms)


@pytest.mark.slow
async def test_registered_fakes_uncover_a_report_unless_f_counts_them(
    tmp_path: Path,
) -> None:
    """Where anyone may enrol, subtraction reads the victim's report. With f = 99 the round is refused."""
    naive = settings(min_batch_size=100, epsilon_max=0.9)
    async with arena(tmp_path, 2) as deployment:
        estimates = []
        for report in (0, 1):
            terms = await deployment.operator.open_round(naive)
            await surround(deployment, terms, report, 99, enrol=True)
            publication, certificate = await deployment.finish(terms)
            assert certificate.granted
            estimates.append(publication.values[0].estimate)
        assert estimates[1] - estimates[0] > 0.01  # one report of a hundred: the attacker reads it off
        terms = await deployment.operator.open_round(dataclasses.replace(naive, dishonest=99))
        await surround(deployment, terms, 1, 99, enrol=True)
        publication, certificate = await deployment.finish(terms)
        assert math.isinf(certificate.epsilon)  # a refused certificate tells nothing about budgets
        assert not certificate.granted
        assert not publication.values


async def test_copies_of_one_envelope_from_several_clients_count_once(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        (victim,) = await deployment.seal(terms, 1)
        copies = [sign_submission(terms.hash, victim.envelope, new_client_key()) for _ in range(FAKES)]
        await deployment.admit(terms, [victim, *copies])
        answer = await deployment.operator.close_round(terms.round_id)
        assert (answer.state, answer.num_clients) == (pb.ROUND_STATE_CLOSED, FAKES + 1)
        assert "1 of them open; the round needs 20" in await deployment.problem("shuffler-1", terms)
        assert await deployment.nothing_is_published(terms)


class MixesTooFew(cheaters.CheatingShuffler):
    """A first hop that closes and mixes a batch below the minimum."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        cheaters.instead(self.submissions, close=self.close)
        cheaters.instead(self.mixer, check_enough=lambda terms, counts, num_fakes: None)

    async def close(self, terms: RoundTerms) -> tuple[pb.RoundState.ValueType, int]:
        await self.store.run("look", lambda tx: tx.update_round(terms.round_id, state=pb.ROUND_STATE_CLOSED))
        return pb.ROUND_STATE_CLOSED, 0


async def test_the_next_hop_stops_a_batch_below_the_minimum(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-1": MixesTooFew}) as deployment:
        terms = await deployment.filled(settings(), 19)
        await deployment.operator.close_round(terms.round_id)
        await deployment.problem("shuffler-1", terms)
        cheater = deployment.service_as("shuffler-1", MixesTooFew)
        assert {name: refusal.code for name, refusal in cheater.caught.items()} == {"shuffler-2": Code.SHORT_BATCH}
        assert await deployment.nothing_is_published(terms)


async def test_a_flood_of_registered_clients_ends_at_the_cap_of_the_round(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(dataclasses.replace(settings(), max_batch_size=25), 20)
        flood = {str(number): crafted(terms, 0, 1.0) for number in range(50)}
        await deployment.operator.enrol([submission.client_key for submission in flood.values()])
        async with deployment.operator.client_channel("accountant") as accountant:
            tickets = await get_tickets(accountant, terms, flood)
        assert len(tickets.granted) == 5
        assert set(tickets.refused.values()) == {pb.SUBMISSION_CODE_ROUND_FULL}
        codes = await deployment.submit(terms, [stranger(terms) for _ in range(50)])  # with tickets made up
        assert sorted(codes) == [pb.SUBMISSION_CODE_ACCEPTED] * 5 + [pb.SUBMISSION_CODE_ROUND_FULL] * 45
        _, certificate = await deployment.finish(terms)
        assert (certificate.num_tickets, certificate.num_reports, certificate.num_users) == (25, 20, 20)
