"""Everybody but the victim and one honest hop colludes: what they see of a running deployment, and what they can do.

Hop 1 passes on the victim's report alone, and fakes that it knows; the accountant gives up its release key and never
certifies; the analyzer hands over what it holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import beta

from croupier import certify
from croupier.analyzer.service import AnalyzerService
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.envelope import HOP_RELEASE, open_many
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, PublicKey
from croupier.protocol.onion import BudgetRecord, Onion, encode_budget, onion_of
from croupier.protocol.tickets import (
    TICKET_BYTES,
    TicketIssuer,
    TicketRequest,
    collect_tickets,
    ticket_message,
)
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.service_directory import SETTINGS_FILE
from croupier.runtime.setup import ServiceSetup
from croupier.shuffler.fake_reports import seal_values, wrap_fakes
from croupier.shuffler.noise_ledger import NoiseLedger
from tests.attacks.cheaters import (
    CheatingShuffler,
    HesitantAccountant,
    Lanes,
    MarksHops,
    instead,
    none_early,
    own_report,
)
from tests.attacks.reading import held_reports, keys_of
from tests.support import BIT, encode_report
from tests.support.arena import WAIT_S, Arena, arena
from tests.support.lanes import lane_in

pytestmark = pytest.mark.virtual_time
CLIENTS = 2
LOCAL = 8.0
NOISE = (0.5, 1e-3)
ISOLATED = RoundSettings(BIT, (LOCAL,), min_batch_size=CLIENTS, delta=NOISE[1], epsilon_max=LOCAL, hop_noise=NOISE[0])


class IsolatesOne(CheatingShuffler):
    """A hop 1 that passes on one client's report; all other reports, and its fakes, are 0 and its own."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.own: list[bytes] = []
        instead(self.fakes, make=self.make, make_early=none_early)

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        self.own = [own_report(terms, self.position.hop(terms), 0) for _ in range(terms.fakes.law.most)]
        return self.own

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        of_clients = [report for report in lanes[pb.LANE_REPORT] if report not in self.own]
        others = [own_report(terms, self.position.hop(terms), 0) for _ in of_clients[1:]]
        lanes[pb.LANE_REPORT][:] = [of_clients[0], *others, *self.own]


COLLUDING = {"shuffler-1": IsolatesOne, "accountant": HesitantAccountant}


async def ones_seen(at: Arena, value: int) -> int:
    """Returns how many ones are in a round in which the victim has this value; hop 1 has put in none."""
    terms = await at.filled(ISOLATED, CLIENTS, value=value, max_local_epsilon=LOCAL)
    await at.operator.close_round(terms.round_id)
    await at.reached("shuffler-2", terms, pb.ROUND_STATE_DELIVERED)
    await at.reached("analyzer", terms, pb.ROUND_STATE_MIXED)
    sealed = await held_reports(at.service("analyzer"), terms)
    release = (await keys_of(at.service("accountant"), terms))[KeyPurpose.RELEASE].private
    label = onion_of(terms).layer(pb.LANE_REPORT, HOP_RELEASE).label
    opened = open_many(terms.shared.hpke_suite, release, label, sealed)
    assert terms.fakes is not None
    assert len(opened) == CLIENTS + 2 * terms.fakes.law.most
    await at.operator.withdraw(terms.round_id)
    return opened.count(encode_report(1))


async def attacked(directory: Path, rounds: int, level: float) -> float:
    """Returns the epsilon that an observer of this many rounds for each value has shown, by Clopper-Pearson bounds.

    The observer says "the answer is 1" where more than half of the honest hop's fakes would have to be ones otherwise.
    Each of the two bounds is wrong with a probability of at most `level`.
    """
    says_one = [0, 0]
    law = HopNoise(*NOISE).law(2)
    async with arena(directory, 2, COLLUDING) as deployment:
        for _ in range(rounds):
            for value in (0, 1):
                says_one[value] += await ones_seen(deployment, value) > law.radius
    least = float(beta.ppf(level, says_one[1], rounds - says_one[1] + 1)) if says_one[1] else 0.0
    most = float(beta.ppf(1 - level, says_one[0] + 1, rounds - says_one[0])) if says_one[0] < rounds else 1.0
    return math.log(max(least - NOISE[1], 1e-9) / most)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "level"), [(13, 3e-3), (250, 1e-6)])
async def test_all_but_one_hop_see_no_more_than_the_certificate_says(tmp_path: Path, rounds: int, level: float) -> None:
    """Few rounds refute the certificate only if every guess is right, as they are where fakes are known: see below."""
    certificate = certify({LOCAL: 1}, "rr", delta=NOISE[1], hop_noise=NOISE, attack=False)
    assert await attacked(tmp_path, rounds, level) <= certificate.epsilon


@pytest.mark.slow
async def test_all_but_one_hop_read_an_answer_among_fakes_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With numbers of fakes that the attacker knows, the attack refutes the certificate in as few rounds."""
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius, law.radius])
    certificate = certify({LOCAL: 1}, "rr", delta=NOISE[1], hop_noise=NOISE, attack=False)
    assert await attacked(tmp_path, 13, 3e-3) > certificate.epsilon


class DeniesIt(AnalyzerService):
    """An analyzer that has the whole batch of the last hop, and never says so."""

    async def HandOver(self, request: pb.HandOverRequest, context: Any) -> pb.HandOverResponse:  # noqa: N802
        raise Refusal(Code.NOT_READY)


LIMIT = "[noise_limit]\nepsilon = 2.0\ndelta = 1e-2\n"


async def limit_hop_2(at: Arena, limit: str) -> None:
    """Starts hop 2 again with these settings."""
    await at.inside.stop("shuffler-2")
    (at.inside.directory / "shuffler-2" / SETTINGS_FILE).write_text(limit)
    await at.inside.start("shuffler-2")


async def ask_and_withdraw(at: Arena, settings: RoundSettings) -> None:
    """The last hop mixes a round and sends its batch; then the operator withdraws the round."""
    terms = await at.filled(settings, CLIENTS)
    await at.operator.close_round(terms.round_id)
    await at.reached("shuffler-2", terms, pb.ROUND_STATE_MIXED)
    async with asyncio.timeout(WAIT_S):
        while True:
            if await lane_in(at.service("analyzer"), terms, pb.LANE_REPORT):
                break
            await asyncio.sleep(0.02)
    assert (await at.operator.withdraw(terms.round_id))["shuffler-2"] == "DISPOSED"


@pytest.mark.slow
async def test_a_round_that_is_withdrawn_once_it_has_left_is_not_asked_for_free(tmp_path: Path) -> None:
    """The analyzer denies that it has a batch, the operator withdraws the round, and asks the same people again."""
    again = RoundSettings(BIT, (1.0,), min_batch_size=CLIENTS, delta=1e-3, epsilon_max=4.0, hop_noise=1.0)
    async with arena(tmp_path / "kept", 2, {"analyzer": DeniesIt}) as deployment:
        await limit_hop_2(deployment, LIMIT)
        for _ in range(2):
            await ask_and_withdraw(deployment, again)
        with pytest.raises(Refusal, match="requested 1, spent 2 in 2 rounds"):
            await deployment.operator.open_round(again)
    with pytest.MonkeyPatch.context() as patch:  # a ledger that forgets withdrawn rounds: the same question for ever
        patch.setattr(NoiseLedger, "leave", lambda ledger, round_id: None)
        async with arena(tmp_path / "forgetful", 2, {"analyzer": DeniesIt}) as deployment:
            await limit_hop_2(deployment, LIMIT)
            for _ in range(3):
                await ask_and_withdraw(deployment, again)


class Tickets(CheatingShuffler):
    """A hop that asks for tickets for fakes itself."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        instead(self.fakes, make=self.make, make_early=none_early)

    async def tickets(self, terms: RoundTerms, messages: Sequence[bytes]) -> list[bytes]:
        """Returns tickets that the accountant gives this hop for messages of its choice, in one call."""
        requests = [TicketRequest(message) for message in messages]
        answer = await self.peers.call_until_answered(
            terms.round_id,
            terms.accountant.service,
            lambda to: stubs.AccountantStub(to).GetFakeTickets,
            pb.GetFakeTicketsRequest(
                round_id=terms.round_id, blinded=b"".join(request.blinded for request in requests)
            ),
        )
        return collect_tickets(requests, answer.evaluations, PublicKey(terms.accountant.report_ticket_key))

    def fakes_with(self, terms: RoundTerms, sealed: Sequence[bytes], tickets: Sequence[bytes]) -> list[bytes]:
        return wrap_fakes(terms.unsigned, self.position.hop(terms), list(zip(sealed, tickets, strict=True)))

    async def make(self, terms: RoundTerms) -> list[bytes]:
        raise NotImplementedError


FORGED = 5


class SpendsThemOnBudgets(Tickets):
    """Some of its tickets are for budgets of its own, which replace those of clients."""

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        sealed = seal_values(terms.unsigned, [1] * terms.fakes.law.most)
        messages = [
            ticket_message(terms.hash, pb.LANE_REPORT, hashlib.sha256(report).digest()) for report in sealed[FORGED:]
        ]
        records = [BudgetRecord(encode_budget(terms.budget_grid[0], 0.0), os.urandom(16)) for _ in range(FORGED)]
        tickets = await self.tickets(
            terms,
            [
                *(ticket_message(terms.hash, pb.LANE_PARAMETER, record.budget + record.salt) for record in records),
                *messages,
            ],
        )
        self.budgets = [ticket + record.budget + record.salt for ticket, record in zip(tickets, records, strict=False)]
        return self.fakes_with(terms, sealed, [*(os.urandom(TICKET_BYTES) for _ in records), *tickets[FORGED:]])

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        onion, hop = Onion(terms), self.position.hop(terms)
        layers = [layer for layer in onion.budget_layers if layer.label.hop > hop]
        lanes[pb.LANE_PARAMETER][:FORGED] = [onion.seal_layers(layers, content)[0] for content in self.budgets]


class SpendsThemInAnotherRound(Tickets):
    """Its fakes of the second round have tickets that the first round gave."""

    first: RoundTerms | None = None

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        assert self.first is not None
        sealed = seal_values(terms.unsigned, [1] * terms.fakes.law.most)
        messages = [ticket_message(terms.hash, pb.LANE_REPORT, hashlib.sha256(report).digest()) for report in sealed]
        return self.fakes_with(terms, sealed, await self.tickets(self.first, messages))


def any_ticket_is_good(patch: pytest.MonkeyPatch) -> None:
    """Takes away the defence: the accountant's keys for each round and lane."""
    patch.setattr(TicketIssuer, "is_valid", lambda issuer, message, ticket: True)


CROWD = 30
NOISY = RoundSettings(BIT, (0.5, 2.0), min_batch_size=20, delta=1e-4, epsilon_max=4.0, hop_noise=1.0)


@pytest.mark.parametrize("is_defended", [True, False])
async def test_a_hops_tickets_are_no_tickets_for_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_defended: bool
) -> None:
    if not is_defended:
        any_ticket_is_good(monkeypatch)
    async with arena(tmp_path, 2, {"shuffler-2": SpendsThemOnBudgets}) as deployment:
        terms = await deployment.filled(NOISY, CROWD, max_local_epsilon=2.0)
        _, certificate = await deployment.finish(terms)
    dropped = {drop.reason: drop.count for drop in certificate.budget_drops}
    budgets = {tier.local_epsilon: tier.count for tier in certificate.tiers}
    if is_defended:
        assert dropped == {"no-ticket": FORGED}
        assert certificate.unknown_budgets == FORGED
        assert 0.5 not in budgets
    else:
        assert dropped == {}
        assert budgets == {0.5: FORGED, 2.0: CROWD - FORGED}


@pytest.mark.slow
@pytest.mark.parametrize("is_defended", [True, False])
async def test_a_hops_tickets_of_one_round_are_no_tickets_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_defended: bool
) -> None:
    if not is_defended:
        any_ticket_is_good(monkeypatch)
    monkeypatch.setattr("croupier.accountant.rounds.round_certificate.check_stated_fakes", lambda *_: None)
    async with arena(tmp_path, 2, {"shuffler-2": SpendsThemInAnotherRound}) as deployment:
        hop = deployment.service_as("shuffler-2", SpendsThemInAnotherRound)
        hop.first = await deployment.operator.open_round(NOISY)
        second = await deployment.filled(NOISY, CROWD, max_local_epsilon=2.0)
        if not is_defended:  # the accountant still counts the tickets that it has given for this round
            await deployment.operator.close_round(second.round_id)
            told = "more messages have a ticket than tickets were given"
            assert told in await deployment.problem("accountant", second)
            return
        _, certificate = await deployment.finish(second)
    assert second.fakes is not None
    law = second.fakes.law
    # Its fakes were dropped, and count as lost reports of clients.
    assert {drop.reason: drop.count for drop in certificate.report_drops} == {"no-ticket": law.most}
    assert certificate.num_reports == CROWD - law.most


class MarksHopsAndWaits(HesitantAccountant, MarksHops):
    """The reports stay at the analyzer, where it looks which of them have a ticket of its own."""


async def test_a_hop_that_checks_no_key_has_its_fakes_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `test_an_accountant_cannot_mark_fakes_by_another_key` prevents: the victim's report alone is not marked."""
    async with arena(tmp_path, 2, {"accountant": MarksHopsAndWaits}) as deployment:
        accountant = deployment.service_as("accountant", MarksHopsAndWaits)

        def trusting(requests: Sequence[TicketRequest], evaluated: bytes, key: bytes) -> list[bytes]:
            return collect_tickets(requests, evaluated, accountant.issuer.public_key)

        monkeypatch.setattr("croupier.shuffler.fake_reports.collect_tickets", trusting)
        terms = await deployment.filled(ISOLATED, CLIENTS, max_local_epsilon=LOCAL)
        await deployment.operator.close_round(terms.round_id)
        analyzer = deployment.service_as("analyzer", AnalyzerService)
        await deployment.reached("analyzer", terms, pb.ROUND_STATE_MIXED)
        reports = [record.content async for page in analyzer.opener.records(terms, pb.LANE_REPORT) for record in page]
        assert terms.fakes is not None
        assert len(reports) == CLIENTS + 2 * terms.fakes.law.most
        assert sum(not accountant.is_fake(terms, report) for report in reports) == CLIENTS
