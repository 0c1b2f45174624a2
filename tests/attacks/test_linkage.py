"""Linkage: everybody but one hop joins to find whose report is whose, or which report had which budget."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc.aio
import pytest

from croupier.analyzer.estimators import decoder
from croupier.client.submission import Participant
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, open_many
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import Lane, PrivateKey, RoundId
from croupier.protocol.onion import BudgetRecord, Onion, decode_budget, split_report
from croupier.protocol.questions import Question
from croupier.protocol.randomness import SystemRandom, uniform_permutation
from croupier.protocol.tickets import TICKET_BYTES
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import KeyPurpose
from croupier.shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.support import encode_report, settings
from tests.support.arena import Arena, arena
from tests.support.clients import crafted, seal_all_of, seal_prepared, submissions_of
from tests.support.lanes import lane_in

pytestmark = pytest.mark.virtual_time
GRID = (0.5, 1.0, 2.0)
LETTERS = Question("letters", KaryResponse(k=3))
CLIENTS = 90
CHANCE = 60
"""Guessing by position is right for 30 of 90 on average, and for 60 or more with a probability below 1e-10."""
ROUND = RoundSettings(LETTERS, GRID, min_batch_size=20, epsilon_max=4.0, delta=1e-4)
Keys = Mapping[tuple[str, KeyPurpose], bytes]


async def keys_of_all(deployment: Arena, terms: RoundTerms) -> Keys:
    private_keys = {}
    for name in deployment.deployment.chain:
        pairs = await deployment.look(name, lambda tx: tx.keys(terms.round_id))
        private_keys.update({(name, purpose): pair.private for purpose, pair in pairs.items()})
    return private_keys


def letters_of(terms: RoundTerms, reports: Sequence[bytes], keys: Keys, from_hop: int) -> list[int]:
    """Returns the reports in their order, opened with the keys of hop `from_hop` and of everybody behind it."""
    places = [(f"shuffler-{hop}", KeyPurpose.ENVELOPE, hop) for hop in range(from_hop, terms.shared.num_hops + 1)]
    places += [("analyzer", KeyPurpose.ENVELOPE, HOP_ANALYZER), ("accountant", KeyPurpose.RELEASE, HOP_RELEASE)]
    opened = list(reports)
    for name, purpose, hop in places:
        label = Onion(terms).layer(pb.LANE_REPORT, hop).label
        opened = [
            plain or b"" for plain in open_many(terms.shared.hpke_suite, PrivateKey(keys[name, purpose]), label, opened)
        ]
        if hop == HOP_ANALYZER:
            opened = [split_report(plain)[1] for plain in opened]
    decode = decoder(terms.question, terms.budget_grid[0])
    return [decode(plain) for plain in opened]


def budgets_of(terms: RoundTerms, parameters: Sequence[bytes], keys: Keys, from_hop: int) -> list[float]:
    places = [(f"shuffler-{hop}", hop) for hop in range(from_hop, terms.shared.num_hops + 1)]
    opened = list(parameters)
    for name, hop in [*places, ("accountant", HOP_ACCOUNTANT)]:
        label = Onion(terms).layer(pb.LANE_PARAMETER, hop).label
        opened = [
            plain or b""
            for plain in open_many(terms.shared.hpke_suite, PrivateKey(keys[name, KeyPurpose.ENVELOPE]), label, opened)
        ]
    return [decode_budget(BudgetRecord.split(plain)[1].budget)[0] for plain in opened]


class CuriousHop(ShufflerService):
    """Works as it should and keeps both lanes in the order in which they came."""

    async def HandOver(  # noqa: N802
        self, request: pb.HandOverRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> pb.HandOverResponse:
        terms = await self.engine.terms(RoundId(request.round_id))
        self.seen = {lane: await lane_in(self, terms, lane) for lane in self.position.lanes}
        return await super().HandOver(request, context)


def one_order_for_both(counts: dict[Lane, int]) -> dict[Lane, list[int]]:
    return dict.fromkeys(counts, uniform_permutation(CLIENTS, SystemRandom()))


@pytest.mark.slow
@pytest.mark.parametrize("separately", [True, False])
async def test_roles_behind_an_honest_first_hop_cannot_pair_the_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separately: bool
) -> None:
    """Every client's letter is the number of its tier, so the attacker can count how often its pairing is right."""
    if not separately:
        monkeypatch.setattr("croupier.shuffler.batch_mixer.draw_orders", one_order_for_both)
    async with arena(tmp_path, 2, {"shuffler-2": CuriousHop}) as deployment:
        terms = await deployment.operator.open_round(ROUND)
        keys = await keys_of_all(deployment, terms)
        people = [crafted(terms, index % 3, GRID[index % 3]) for index in range(CLIENTS)]
        await deployment.admit(terms, submissions_of(await seal_prepared(deployment.operator, terms, people)))
        await deployment.finish(terms)
        hop = deployment.service_as("shuffler-2", CuriousHop)
        letters = letters_of(terms, hop.seen[pb.LANE_REPORT], keys, 2)
        budgets = budgets_of(terms, hop.seen[pb.LANE_PARAMETER], keys, 2)
    right = sum(GRID[letter] == budget for letter, budget in zip(letters, budgets, strict=True))
    assert sorted(letters) == sorted(index % 3 for index in range(CLIENTS))
    assert right == CLIENTS if not separately else right < CHANCE


class RemembersWhoIsWho(cheaters.CheatingShuffler):
    """A first hop that notes in which order it passes on whose report."""

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        self.passed_on = list(lanes[pb.LANE_REPORT])


class CuriousAnalyzer(cheaters.TrustingAnalyzer):
    """Keeps the reports in the order in which they came."""

    async def check_batch(self, terms: RoundTerms, request: pb.HandOverRequest) -> None:
        self.seen = await lane_in(self, terms, pb.LANE_REPORT)


@pytest.mark.slow
@pytest.mark.parametrize("honest", [True, False])
async def test_no_client_can_be_followed_through_one_honest_hop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: bool
) -> None:
    if not honest:
        monkeypatch.setattr("croupier.shuffler.batch_mixer.draw_orders", cheaters.no_orders)
    cast = {"shuffler-1": RemembersWhoIsWho, "analyzer": CuriousAnalyzer}
    async with arena(tmp_path, 2, cast) as deployment:
        terms = await deployment.operator.open_round(ROUND)
        keys = await keys_of_all(deployment, terms)
        people = [crafted(terms, index % 3, 1.0) for index in range(CLIENTS)]
        await deployment.admit(terms, submissions_of(await seal_prepared(deployment.operator, terms, people)))
        await deployment.finish(terms)
        hop, analyzer = deployment.service("shuffler-1"), deployment.service("analyzer")
        assert isinstance(hop, RemembersWhoIsWho)
        assert isinstance(analyzer, CuriousAnalyzer)
    truth = letters_of(terms, hop.passed_on, keys, 2)
    guess = letters_of(terms, analyzer.seen, keys, 3)
    right = sum(linked == other for linked, other in zip(truth, guess, strict=True))
    assert right == CLIENTS if not honest else right < CHANCE
    inside = {record[start : start + 16] for record in analyzer.seen for start in range(0, len(record), 16)}
    outside = {sealed[start : start + 16] for sealed in hop.passed_on for start in range(0, len(sealed), 16)}
    assert not inside & outside  # a layer less, nothing looks as it did


class ReplacesAllOthers(cheaters.CheatingShuffler):
    """A first hop that passes on one report, and for every other one a report that it has made itself."""

    victim: bytes

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        onion, batch = Onion(terms), lanes[pb.LANE_REPORT]
        behind = [layer for layer in onion.report_layers if layer.label.hop > 1]
        self.made = {onion.seal_report(encode_report(0)) for _ in batch[1:]}
        batch[:] = [
            *(sealed for sealed in batch if hashlib.sha256(sealed).digest() == self.victim),
            *(onion.seal_layers(behind, os.urandom(TICKET_BYTES) + sealed)[0] for sealed in self.made),
        ]


async def test_a_hop_1_that_replaces_all_others_knows_the_victims_report(tmp_path: Path) -> None:
    """An honest hop 2 hides a report among those of honest clients that reach it: here there are none but the victim's.

    Hop 1 and the analyzer then know which report is the victim's. An honest accountant keeps them from opening it; with
    one that works with them they read the report, which the victim's device has randomized.
    """
    async with arena(tmp_path, 2, {"shuffler-1": ReplacesAllOthers, "analyzer": CuriousAnalyzer}) as deployment:
        terms = await deployment.operator.open_round(ROUND)
        keys = await keys_of_all(deployment, terms)  # of the release key only an accountant that colludes keeps a copy
        people = [crafted(terms, 2, 1.0), *(crafted(terms, index % 3, 1.0) for index in range(30))]
        sealed = await seal_prepared(deployment.operator, terms, people)
        hop, analyzer = deployment.service("shuffler-1"), deployment.service("analyzer")
        assert isinstance(hop, ReplacesAllOthers)
        hop.victim = sealed[0].inclusion_hashes[:32]
        await deployment.admit(terms, submissions_of(sealed))
        publication, certificate = await deployment.finish(terms)
        assert isinstance(analyzer, CuriousAnalyzer)
        left = await deployment.look("accountant", lambda tx: tx.keys(terms.round_id))
    assert (certificate.granted, certificate.num_reports, len(publication.values), left) == (False, 1, 0, {})
    label = Onion(terms).layer(pb.LANE_REPORT, HOP_ANALYZER).label
    opened = open_many(terms.shared.hpke_suite, PrivateKey(keys["analyzer", KeyPurpose.ENVELOPE]), label, analyzer.seen)
    (theirs,) = {split_report(plain or b"")[1] for plain in opened} - hop.made
    assert theirs == people[0].sealed
    label = Onion(terms).layer(pb.LANE_REPORT, HOP_RELEASE).label
    (report,) = open_many(terms.shared.hpke_suite, PrivateKey(keys["accountant", KeyPurpose.RELEASE]), label, [theirs])
    assert decoder(terms.question, terms.budget_grid[0])(report or b"") == 2


async def test_a_clients_maximum_does_not_travel_only_grid_budgets_do(tmp_path: Path) -> None:
    """Thirty people with thirty maxima: the accountant sees one tier."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        maxima = [0.5 + index / 100 for index in range(30)]
        sealed = await seal_all_of(deployment.operator, terms, [Participant(1, maximum) for maximum in maxima])
        await deployment.admit(terms, submissions_of(sealed))
        await deployment.admit(terms, await deployment.craft(terms, 1, 0.7319))
        _, certificate = await deployment.finish(terms)
        assert [(tier.local_epsilon, tier.count) for tier in certificate.tiers] == [(0.5, 30)]
        assert certificate.invalid_budgets == 1
        assert b"0.7319" not in certificate.SerializeToString()
