"""Attacks on hop noise: hops that cheat with their fakes, an accountant that marks them, a victim that is isolated."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest
from scipy.stats import beta

from croupier import certify
from croupier.accountant.rounds.found import BudgetsFound, ReportsFound
from croupier.accountant.rounds.round_certificate import certify_round
from croupier.accountant.service.service import AccountantService
from croupier.accountant.service.tickets import TicketCheck
from croupier.analyzer.held_reports import HeldReports
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import Digest, Lane
from croupier.protocol.onion import split_report
from croupier.protocol.questions import Question
from croupier.protocol.tickets import BLINDED_BYTES, TICKET_BYTES, TicketIssuer, TicketRequest, collect_tickets
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.voprf import random_scalar
from croupier.runtime.service_directory import load_secrets
from croupier.runtime.setup import ServiceSetup
from croupier.shuffler.fake_reports import FakeReports, seal_values, wrap_fakes
from croupier.shuffler.service import ShufflerService
from tests.attacks.cheaters import CheatingShuffler, Lanes, MarksHops, code_of, instead, none_early, own_report
from tests.support import make_kit, settings
from tests.support.arena import Arena, Cast, arena
from tests.support.messages import naming, refuses

pytestmark = pytest.mark.virtual_time
PEOPLE = 30
NOISY = replace(settings(), hop_noise=1.0)
MORE = 5
"""How many fakes a hop adds beyond those that it has tickets for."""
LAW_MOST = 18
"""2c for epsilon 1 and delta 1e-4."""


class OwnFakes(ShufflerService):
    """A hop that makes other fakes than it should."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.honest = FakeReports(setup, self.peers, self.position)
        instead(self.fakes, make=self.make, make_early=none_early)

    async def make(self, terms: RoundTerms) -> list[bytes]:
        return await self.honest.make(terms)

    async def with_tickets(self, terms: RoundTerms, values: Sequence[int]) -> list[tuple[bytes, bytes]]:
        sealed = seal_values(terms.unsigned, values)
        drawn = [(report, random_scalar()) for report in sealed]
        return list(zip(sealed, await self.honest.tickets(terms, drawn), strict=True))


class AddsNone(OwnFakes):
    async def make(self, terms: RoundTerms) -> list[bytes]:
        return []


class AllOnes(OwnFakes):
    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        made = await self.with_tickets(terms, [1] * terms.fakes.law.most)
        return wrap_fakes(terms.unsigned, self.position.hop(terms), made)


class ReplacesReports(CheatingShuffler):
    """A hop that states no fakes, and has replaced clients' reports by fakes of value 1, with tickets."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.honest = FakeReports(setup, self.peers, self.position)
        self.made: list[bytes] = []
        instead(self.fakes, make=self.make, make_early=none_early)

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        sealed = seal_values(terms.unsigned, [1] * terms.fakes.law.most)
        drawn = [(report, random_scalar()) for report in sealed]
        with_tickets = list(zip(sealed, await self.honest.tickets(terms, drawn), strict=True))
        self.made = wrap_fakes(terms.unsigned, self.position.hop(terms), with_tickets)
        return []

    def tamper(self, terms: RoundTerms, lanes: Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        lanes[pb.LANE_REPORT][: len(self.made)] = self.made


class UsesEachTicketTwice(OwnFakes):
    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        made = await self.with_tickets(terms, [1] * (terms.fakes.law.most // 2))
        return wrap_fakes(terms.unsigned, self.position.hop(terms), [*made, *made])


class AddsMoreThanItsTickets(OwnFakes):
    async def make(self, terms: RoundTerms) -> list[bytes]:
        hop = self.position.hop(terms)
        return [*await self.honest.make(terms), *(own_report(terms, hop) for _ in range(5))]


class AddsOnesWithoutTickets(AllOnes):
    """All of its fakes are 1, and it adds five more."""

    async def make(self, terms: RoundTerms) -> list[bytes]:
        return [*await super().make(terms), *(own_report(terms, self.position.hop(terms)) for _ in range(MORE))]


class UsesAllTicketsTwice(AllOnes):
    """All of its fakes are 1, and each of them goes out twice, in two envelopes."""

    async def make(self, terms: RoundTerms) -> list[bytes]:
        assert terms.fakes is not None
        made = await self.with_tickets(terms, [1] * terms.fakes.law.most)
        return wrap_fakes(terms.unsigned, self.position.hop(terms), [*made, *made])


class CountsNoTickets(AccountantService):
    """An accountant that does not compare the reports that have a ticket with the tickets that it gave."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        instead(self.desk, num_tickets=self.num_tickets)

    async def num_tickets(self, terms: RoundTerms) -> int:
        return PEOPLE + LAW_MOST


class CountsRepeats(CountsNoTickets):
    """The same, also without its defence against repeated reports."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.honest = TicketCheck(setup, self.opener)
        instead(self.check, reports_with_tickets=self.reports_with_tickets)

    async def reports_with_tickets(self, terms: RoundTerms) -> ReportsFound | None:
        batch = await self.honest.reports_with_tickets(terms)
        return batch and replace(batch, number=batch.number + batch.dropped["repeated"], dropped={})


async def filled(at: Arena, budget: float = 2.0) -> RoundTerms:
    """Returns a round with hop noise in which everybody has answered 1, with this budget."""
    terms = await at.operator.open_round(replace(NOISY, budget_grid=(budget,)))
    assert terms.fakes is not None
    assert terms.fakes.law.most == LAW_MOST
    await at.admit(terms, await at.seal(terms, PEOPLE, max_local_epsilon=budget))
    return terms


def stated(certificate: pb.Certificate) -> list[int]:
    read = [pb.Commitment.FromString(commitment.payload) for commitment in certificate.commitments]
    return [commitment.num_fakes for commitment in read if commitment.lane == pb.LANE_REPORT]


@pytest.mark.parametrize(
    ("cheat", "at", "told"),
    [
        (AddsNone, "shuffler-1", "0 fake reports; there must be 18"),
        (AddsNone, "shuffler-2", "0 fake reports; there must be 18"),
        (AddsMoreThanItsTickets, "shuffler-1", "23 fake reports; there must be 18"),
    ],
)
async def test_a_hop_that_adds_another_number_of_fakes_is_caught(
    tmp_path: Path, cheat: type[OwnFakes], at: str, told: str
) -> None:
    async with arena(tmp_path / "caught", 2, {at: cheat}) as deployment:
        terms = await filled(deployment)
        assert told in await deployment.stops(at, terms)
    if cheat is not AddsNone:
        return
    with pytest.MonkeyPatch.context() as patch:  # without the check only the noise of the honest hop counts
        patch.setattr("croupier.protocol.fake_law.FakeLaw.check_total", lambda law, total: None)
        async with arena(tmp_path / "trusting", 2, {at: cheat}) as deployment:
            _, certificate = await deployment.finish(await filled(deployment))
            assert sorted(stated(certificate)) == [0, LAW_MOST]


async def test_fakes_of_one_value_move_a_result_by_the_stated_influence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The honest hop draws Z = 0, and a device reports another value once in 3,000 times, so only the cheat shows."""
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius, law.radius])
    async with arena(tmp_path, 2, {"shuffler-1": AllOnes}) as deployment:
        publication, certificate = await deployment.finish(await filled(deployment, budget=8.0))
        assert certificate.granted
        (value,) = publication.values
        moved = value.estimate - 1.0
        assert publication.hop_influence == pytest.approx(9 / (PEOPLE * math.tanh(4.0)))
        assert abs(moved - publication.hop_influence) < publication.hop_influence / 2


@pytest.mark.parametrize("cheat", [AllOnes, ReplacesReports])
async def test_no_hop_moves_a_histogram_by_more_than_the_stated_influence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheat: type[ShufflerService]
) -> None:
    """Everybody answers 0, and one hop's fakes have the value 1; of those that it does not state none is subtracted.

    The honest hop draws Z = 0, and a device reports another value once in 1,500 times.
    """
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius] * law.num_values)
    letter = Question("letter", KaryResponse(k=3))
    settings = RoundSettings(letter, (8.0,), hop_noise=8.0, min_batch_size=20, epsilon_max=8.0, delta=1e-3)
    async with arena(tmp_path, 2, {"shuffler-1": cheat}) as deployment:
        terms = await deployment.operator.open_round(settings)
        assert terms.fakes is not None
        law = terms.fakes.law
        assert law.most < PEOPLE
        await deployment.admit(terms, await deployment.seal(terms, PEOPLE, value=0, max_local_epsilon=8.0))
        publication, certificate = await deployment.finish(terms)
        assert certificate.granted
        assert stated(certificate) == [0 if cheat is ReplacesReports else law.most, law.mean_total]
        assert (certificate.num_reports, list(certificate.report_drops)) == (PEOPLE, [])
        moved = publication.values[1].estimate
        one_report = 1 / (PEOPLE * -math.expm1(-8.0))
        assert publication.hop_influence == pytest.approx(law.most * one_report, rel=1e-2)
        assert moved <= publication.hop_influence + one_report
        if cheat is ReplacesReports:  # the bound is reached, but for the victims' noise
            assert moved > publication.hop_influence - 2 * one_report


async def test_a_ticket_of_a_fake_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hop adds beyond its tickets counts as lost reports of clients, and the certificate allows for them."""
    monkeypatch.setattr("croupier.accountant.rounds.round_certificate.check_stated_fakes", lambda *_: None)
    async with arena(tmp_path, 2, {"shuffler-2": UsesEachTicketTwice}) as deployment:
        publication, certificate = await deployment.finish(await filled(deployment))
        assert {drop.reason: drop.count for drop in certificate.report_drops} == {"repeated": LAW_MOST // 2}
        assert list(certificate.fake_tickets) == [LAW_MOST, LAW_MOST // 2]
        assert (certificate.num_reports, certificate.dishonest) == (PEOPLE - LAW_MOST // 2, 0)
        assert certificate.granted
        assert publication.num_reports == PEOPLE - LAW_MOST // 2


async def moved_by(directory: Path, cast: Cast) -> tuple[float, float, pb.Certificate]:
    """Returns by how much a round of 30 ones comes out too high, its stated hop influence, and its certificate."""
    async with arena(directory, 2, cast) as deployment:
        publication, certificate = await deployment.finish(await filled(deployment, budget=8.0))
    moved = publication.values[0].estimate - 1.0 if certificate.granted else 0.0
    return moved, publication.hop_influence, certificate


@pytest.mark.slow
async def test_fakes_without_a_ticket_count_only_where_nobody_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers check the number of fakes; the accountant their tickets, and how many it gave. All have to go."""
    monkeypatch.setattr("croupier.accountant.rounds.round_certificate.check_stated_fakes", lambda *_: None)
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius, law.radius])
    monkeypatch.setattr("croupier.protocol.fake_law.FakeLaw.check_total", lambda law, total: None)
    cast = {"shuffler-1": AddsOnesWithoutTickets}
    _, _, certificate = await moved_by(tmp_path / "tickets", cast)
    assert {drop.reason: drop.count for drop in certificate.report_drops} == {"no-ticket": MORE}
    assert certificate.num_reports == PEOPLE - MORE
    monkeypatch.setattr(TicketIssuer, "is_valid", lambda issuer, message, ticket: True)
    moved, influence, certificate = await moved_by(tmp_path / "nothing", {**cast, "accountant": CountsNoTickets})
    assert (certificate.num_reports, list(certificate.report_drops)) == (PEOPLE, [])
    assert moved > influence + 1 / PEOPLE


@pytest.mark.slow
async def test_a_fake_counts_twice_only_where_nobody_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accountant and analyzer both leave out what they have met; without that a hop doubles its influence."""
    monkeypatch.setattr("croupier.accountant.rounds.round_certificate.check_stated_fakes", lambda *_: None)
    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", lambda law: [law.radius, law.radius])
    monkeypatch.setattr("croupier.protocol.fake_law.FakeLaw.check_total", lambda law, total: None)
    cheat = {"shuffler-1": UsesAllTicketsTwice}

    async def all_of_them(held: HeldReports, terms: RoundTerms) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        async for records in held.opener.records(terms, pb.LANE_REPORT):
            sealed = [split_report(record.content)[1] for record in records]
            yield [(hashlib.sha256(report).digest(), report) for report in sealed]

    async def no_check(held: HeldReports, terms: RoundTerms, certificate: pb.Certificate) -> None:
        return

    monkeypatch.setattr(HeldReports, "accepted", all_of_them)
    monkeypatch.setattr(HeldReports, "check", no_check)
    moved, influence, certificate = await moved_by(tmp_path / "nothing", cheat | {"accountant": CountsRepeats})
    assert certificate.num_reports == PEOPLE
    assert moved > 1.5 * influence


async def test_hops_alone_get_tickets_for_fakes_and_no_more_than_a_limit(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-1": OwnFakes, "shuffler-2": OwnFakes}) as deployment:
        terms = await filled(deployment)

        async def ask(caller: str, count: int, round_id: str = terms.round_id) -> Code | None:
            blinded = b"".join(TicketRequest(os.urandom(8)).blinded for _ in range(count))
            return await ask_for(caller, blinded, round_id)

        async def ask_for(caller: str, blinded: bytes, round_id: str = terms.round_id) -> Code | None:
            entry = deployment.deployment.accountant
            channel: grpc.aio.Channel
            if caller:
                secrets = load_secrets(deployment.inside.directory / caller)
                channel = deployment.inside.transport.peer_channel(entry, secrets)
            else:
                channel = deployment.operator.client_channel(entry.name)
            async with channel:
                request = pb.GetFakeTicketsRequest(round_id=round_id, blinded=blinded)
                return await code_of(stubs.AccountantStub(channel).GetFakeTickets(request))

        for stranger in ("", "analyzer", "operator"):
            assert await ask(stranger, 1) is Code.NOT_YOUR_CALL
        same = b"".join(TicketRequest(os.urandom(8)).blinded for _ in range(LAW_MOST))
        assert await ask("shuffler-1", LAW_MOST + 1) is Code.BAD_REQUEST
        for _ in range(10):
            assert await ask_for("shuffler-1", same) is None  # the same again counts once
        assert await ask("shuffler-1", 1) is Code.BAD_REQUEST
        assert await ask_for("shuffler-1", same) is None  # also at the limit: a hop whose answer was lost goes on
        assert await ask("shuffler-2", LAW_MOST) is None  # each hop has its own
        for wrong in (bytes(BLINDED_BYTES), same[:-1], same[:BLINDED_BYTES] * 2, b""):
            assert await ask_for("shuffler-2", wrong) is Code.BAD_REQUEST
        quiet = await deployment.operator.open_round(settings())
        assert await ask("shuffler-1", 1, quiet.round_id) is Code.BAD_REQUEST


async def test_an_accountant_cannot_mark_fakes_by_another_key(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"accountant": MarksHops}) as deployment:
        terms = await filled(deployment)
        assert "manifest" in await deployment.stops("shuffler-1", terms)


def test_a_fake_ticket_is_good_for_one_report_of_one_round_alone() -> None:
    issuer = TicketIssuer(bytes(32), pb.LANE_REPORT)
    other_lane, other_round = TicketIssuer(bytes(32), pb.LANE_PARAMETER), TicketIssuer(b"1" * 32, pb.LANE_REPORT)
    message = os.urandom(32)
    request = TicketRequest(message)
    (ticket,) = collect_tickets([request], issuer.evaluate([request.blinded]), issuer.public_key)
    assert len(ticket) == TICKET_BYTES
    assert issuer.is_valid(message, ticket)
    assert not issuer.is_valid(os.urandom(32), ticket)
    assert not other_lane.is_valid(message, ticket)
    assert not other_round.is_valid(message, ticket)


DRAWS = 100_000


def isolated_batches(
    k: int, law: FakeLaw, local: float, value: int, source: np.random.Generator, scale: float | None = None
) -> np.ndarray:
    """Returns the numbers of reports 0 and 1 in batches of one victim and one hop's fakes, less c; shape (DRAWS, 2)."""
    grid = np.arange(-law.radius, law.radius + 1)
    weights = np.exp(-np.abs(grid) / (scale or law.scale))
    shifts = source.choice(grid, size=(DRAWS, 2), p=weights / weights.sum())
    if k == 2:
        shifts[:, 0] = -shifts[:, 1]
    kept = math.exp(local) / (math.exp(local) + k - 1)
    others = source.integers(1, k, DRAWS)
    reports = np.where(source.random(DRAWS) < kept, value, (value + others) % k)
    counts: np.ndarray = shifts + (reports[:, None] == np.array([0, 1]))
    return counts


def log_ratio(k: int, law: FakeLaw, local: float, counts: np.ndarray) -> np.ndarray:
    """Returns the privacy loss of each batch, ln Pr[batch | value 1] / Pr[batch | value 0], from the definition."""
    inside = np.where(np.abs(counts) <= law.radius, np.exp(-np.abs(counts) / law.scale), 0.0)
    less = np.where(np.abs(counts - 1) <= law.radius, np.exp(-np.abs(counts - 1) / law.scale), 0.0)
    if k == 2:  # the count of ones says all
        zero, under_one, neither = inside[:, 1], less[:, 1], np.zeros(len(counts))
    else:
        zero, under_one, neither = less[:, 0] * inside[:, 1], inside[:, 0] * less[:, 1], inside[:, 0] * inside[:, 1]
    kept, other = math.exp(local), 1.0
    rest = (k - 2) * neither
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(kept * under_one + other * zero + rest) - np.log(kept * zero + other * under_one + rest)
    return np.asarray(ratio)


def sticks(batches: Sequence[np.ndarray], losses: Sequence[np.ndarray], epsilon: float) -> tuple[float, float]:
    """Returns bounds of Pr[A | 1] - e^epsilon Pr[A | 0] for A: a loss above epsilon; each fails once in 10^6."""
    first, second = (int((loss > epsilon).sum()) for loss in losses)

    def ends(count: int) -> tuple[float, float]:
        low = float(beta.ppf(1e-6, count, DRAWS - count + 1)) if count else 0.0
        return low, float(beta.ppf(1 - 1e-6, count + 1, DRAWS - count)) if count < DRAWS else 1.0

    (least, most), (low, high) = ends(first), ends(second)
    return least - math.exp(epsilon) * high, most - math.exp(epsilon) * low


@pytest.mark.parametrize(("k", "local"), [(2, 3.0), (2, 8.0), (3, 3.0), (3, 8.0), (16, 8.0)])
def test_the_whole_profile_of_an_isolated_victim_keeps_the_bound(k: int, local: float) -> None:
    """Hop 1 drops all but the victim in 100,000 batches of each value; every event of the likelihood ratio is tried.

    With three quarters of the noise the same observer refutes the bound, and without noise by far.
    """
    noise, source = (1.0, 1e-3), np.random.default_rng(35)
    law = HopNoise(*noise).law(k)
    kind = "rr" if k == 2 else f"krr(k={k})"
    epsilons = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]
    bounds = [certify({local: 1}, kind, epsilon=at, hop_noise=noise, attack=False).delta for at in epsilons]
    refuted = []
    for scale in (law.scale, 0.75 * law.scale):
        batches = [isolated_batches(k, law, local, value, source, scale) for value in (1, 0)]
        losses = [log_ratio(k, law, local, counts) for counts in batches]
        bars = [sticks(batches, losses, epsilon) for epsilon in epsilons]
        refuted.append([least > bound for (least, _), bound in zip(bars, bounds, strict=True)])
        if scale == law.scale:  # and the bound is no more than the truth, for a report that is nearly the value
            assert local < 8 or all(most > 0.9 * bound for (_, most), bound in zip(bars, bounds, strict=True))
    assert refuted[0] == [False] * len(epsilons)
    assert any(refuted[1])
    kept = math.exp(local) / (math.exp(local) + k - 1)
    assert kept - math.exp(epsilons[-1]) * (1 - kept) / (k - 1) > 2 * bounds[-1]


def released_with(
    hop_1: pb.Commitment, reports: int, fake_tickets: Sequence[int], epsilon_max: float
) -> pb.Certificate:
    """The certificate of 300 people with three budgets, whose reports hop 1 has counted as this commitment says."""
    policy: dict[str, Any] = {
        "hop_noise": pb.HopNoise(epsilon=1.0, delta=1e-6),
        "min_batch_size": 100,
        "epsilon_max": epsilon_max,
    }
    terms = make_kit(question=Question("q", KaryResponse(3)), **policy).terms
    honest = pb.Commitment(num_in=hop_1.num_out, num_out=reports, num_fakes=reports - hop_1.num_out)
    chain = {pb.LANE_REPORT: [hop_1, honest], pb.LANE_PARAMETER: []}
    budgets = BudgetsFound(Counter({0.5: 100, 1.0: 100, 2.0: 100}), 0, {})
    reports_found = ReportsFound(reports, Digest(bytes(32)), [], reports, {})
    return certify_round(terms, chain, budgets, reports_found, 300, fake_tickets)[0]


def test_a_hop_states_no_more_fakes_than_it_has_tickets_for() -> None:
    """Hop 1 alone could: it says how many it received. The analyzer would subtract fakes that are not there."""
    stated = pb.Commitment(num_in=300 - 162, num_out=300, num_fakes=162)
    with refuses(Code.BAD_BATCH, naming("fake reports", "tickets")):
        released_with(stated, 381, [0, 81], 9.0)
    assert released_with(pb.Commitment(num_in=300, num_out=300), 381, [0, 81], 9.0).granted


@pytest.mark.parametrize("epsilon_max", [0.0001, 9.0])
def test_more_reports_than_tickets_say_nothing_of_the_budgets(epsilon_max: float) -> None:
    """A hop that states none of its fakes: the refusal failed, and the grant did not, which showed the budgets."""
    unstated = pb.Commitment(num_in=381, num_out=381)
    with pytest.raises(Refusal, match=naming(Code.BAD_BATCH.message, "messages", "tickets")):
        released_with(unstated, 462, [81, 81], epsilon_max)
