"""Hops that replace clients' messages by their own, alone or together; tickets that fit nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from croupier.accountant.service.service import AccountantService
from croupier.client.submission import Participant, new_client_key, prepare_one, seal_one
from croupier.client.tickets import get_tickets
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import TicketError
from croupier.protocol.identity import key_pair_of, sign_submission
from croupier.protocol.onion import BudgetRecord, Onion
from croupier.protocol.statements import Statement
from croupier.protocol.tickets import TicketIssuer, TicketRequest
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.attacks import cheaters
from tests.support import settings
from tests.support.arena import Arena, arena
from tests.support.clients import crafted, submissions_of, tickets_of
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time


def counts(drops: object) -> dict[str, int]:
    return {drop.reason: drop.count for drop in drops}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("cheat", "why"),
    [
        (cheaters.ReplacesBudgets, Statement.of(RefusalReason.NO_BUDGET_ON_GRID)),
        (cheaters.ReplacesReports, Statement.of(RefusalReason.TOO_FEW_REPORTS, reports=1, least=20)),
    ],
)
async def test_a_last_hop_that_forges_everything_has_the_round_refused(
    tmp_path: Path, cheat: type[cheaters.CheatingShuffler], why: Statement[RefusalReason]
) -> None:
    async with arena(tmp_path, 2, {"shuffler-2": cheat}) as deployment:
        terms = await deployment.filled(settings(), 30)
        publication, certificate = await deployment.finish(terms)
    assert (certificate.granted, len(publication.values)) == (False, 0)
    assert why in refusals_of(certificate)


class MarksClients(AccountantService):
    """Gives tickets under another key than that of the manifest, by which it would know their owners again."""

    async def GetTickets(self, request: pb.GetTicketsRequest, context: cheaters.Context) -> pb.GetTicketsResponse:  # noqa: N802
        answer = await super().GetTickets(request, context)
        marked = TicketIssuer(bytes(32), pb.LANE_REPORT)
        answer.report_evaluations = marked.evaluate([request.envelope[:32] for request in request.requests])
        return answer


async def test_a_client_takes_no_ticket_that_was_made_for_it(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, {"accountant": MarksClients}) as deployment:
        terms = await deployment.operator.open_round(settings())
        with pytest.raises(TicketError, match=naming("tickets", "manifest's key")):
            await deployment.seal(terms, 1)


async def test_a_ticket_of_one_lane_or_message_is_none_of_another(tmp_path: Path) -> None:
    """Four dishonest clients: tickets exchanged, a second message with one's ticket, the message of another.

    The fourth asks for a ticket for a budget that is the hash of a second report. Lanes have different keys, and a
    ticket's message names its lane: each of the two by itself keeps that ticket from fitting the report.
    """
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        people = await deployment.seal(terms, 30)
        onion, three = Onion(terms), [crafted(terms, 1, 0.5) for _ in range(3)]
        more = crafted(terms, 0, 0.5)
        name = hashlib.sha256(more.sealed).digest()
        fourth = crafted(terms, 1, 0.5)._replace(record=BudgetRecord(name[:16], name[16:]))
        asking = [*three, fourth]
        (report, budget), second, third, (_, for_hash) = await tickets_of(deployment.operator, terms, asking)
        bad = [
            seal_one(terms, onion, three[0], (budget, report)),
            seal_one(terms, onion, crafted(terms, 0, 0.5, key=three[1].key[:32]), second),
            seal_one(terms, onion, three[0]._replace(key=three[2].key), (report, budget)),
            seal_one(terms, onion, three[0]._replace(key=key_pair_of(new_client_key())), (report, budget)),
            seal_one(terms, onion, more._replace(key=fourth.key), (for_hash, for_hash)),
        ]
        await deployment.admit(terms, [*people, *submissions_of(bad)])
        _, certificate = await deployment.finish(terms)
    assert len(third) == 2
    assert (certificate.num_tickets, certificate.num_reports, certificate.num_users) == (34, 31, 31)
    assert counts(certificate.report_drops) == {"no-ticket": 2, "repeated": 2}


async def asked(deployment: Arena, request: pb.GetTicketsRequest) -> pb.GetTicketsResponse:
    async with deployment.operator.client_channel("accountant") as accountant:
        return await stubs.AccountantStub(accountant).GetTickets(request)


async def test_a_client_gets_one_ticket_for_each_lane_however_often_it_asks(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        user = prepare_one(terms, Onion(terms), Participant(1, 1.0, new_client_key()))
        await deployment.operator.enrol([user.client_key])
        pairs = [[TicketRequest(message).blinded for message in user.messages(terms.hash)] for _ in range(2)]
        requests = [
            pb.GetTicketsRequest(
                round_id=terms.round_id,
                requests=[sign_submission(terms.hash, b"".join(pair), user.key, purpose="tickets")],
            )
            for pair in pairs
        ]
        first, again, other = [await asked(deployment, request) for request in (requests[0], requests[0], requests[1])]
        await deployment.inside.restart("accountant")
        restarted = [await asked(deployment, request) for request in requests]
        assert [list(reply.codes) for reply in (first, again, other, *restarted)] == [
            [pb.SUBMISSION_CODE_ACCEPTED],
            [pb.SUBMISSION_CODE_ACCEPTED],
            [pb.SUBMISSION_CODE_TICKETS_GIVEN],
            [pb.SUBMISSION_CODE_ACCEPTED],
            [pb.SUBMISSION_CODE_TICKETS_GIVEN],
        ]
        # The proof is random, the evaluation is not.
        assert len({reply.report_evaluations[64:] for reply in (first, again, restarted[0])}) == 1
        assert not other.report_evaluations
        async with deployment.operator.client_channel("accountant") as accountant:
            died = await get_tickets(accountant, terms, {"died and came again": user})
        assert died.refused == {"died and came again": pb.SUBMISSION_CODE_TICKETS_GIVEN}
