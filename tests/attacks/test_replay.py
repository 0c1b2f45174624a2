"""Tagging, malleability, and replay: in the same round, in another round, in the other lane, at another hop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from croupier.client.submission import new_client_key
from croupier.protocol.batches import unpack
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import public_key_of, sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import Direction
from croupier.runtime.lane_sender import LaneOutput
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.transaction import Transaction
from tests.attacks import cheaters
from tests.support import settings
from tests.support.arena import arena
from tests.support.lanes import chunks

pytestmark = pytest.mark.virtual_time
Drops = dict[Lane, dict[str, int]]


async def test_the_same_bytes_again_count_once_and_in_another_round_not_at_all(tmp_path: Path) -> None:
    """The network replays a submission: to the same round, to another one, and there under a name of its own."""
    async with arena(tmp_path, 1) as deployment:
        first = await deployment.operator.open_round(settings(), RoundId("first"))
        second = await deployment.operator.open_round(settings(), RoundId("second"))
        submissions = await deployment.seal(first, 30)
        for _ in range(2):
            await deployment.admit(first, submissions)
        await deployment.admit(second, await deployment.seal(second, 30))
        replayed = await deployment.submit(second, submissions[:1])
        assert replayed == [pb.SUBMISSION_CODE_BAD_SIGNATURE]
        stolen = sign_submission(second.hash, submissions[0].envelope, new_client_key())
        await deployment.admit(second, [stolen])
        for terms in (first, second):
            publication, certificate = await deployment.finish(terms)
            assert (publication.num_reports, certificate.num_users) == (30, 30)


async def test_what_is_signed_in_another_deployment_uses_up_nothing(tmp_path: Path) -> None:
    """A dishonest one has a round of the same name, and clients that use one key for both."""
    async with arena(tmp_path / "honest", 1) as honest, arena(tmp_path / "dishonest", 1) as dishonest:
        here, there = [
            await attacked.operator.open_round(settings(), RoundId("poll")) for attacked in (honest, dishonest)
        ]
        theirs = await dishonest.craft(there, 0, 1.0, count=30)
        assert set(await honest.submit(here, theirs)) == {pb.SUBMISSION_CODE_BAD_SIGNATURE}
        key = new_client_key()
        await honest.operator.enrol([public_key_of(key)])
        elsewhere = sign_submission(there.hash, os.urandom(64), key, purpose="tickets")
        async with honest.operator.client_channel("accountant") as channel:
            asked = stubs.AccountantStub(channel).GetTickets
            answer = await asked(pb.GetTicketsRequest(round_id=here.round_id, requests=[elsewhere]))
        assert list(answer.codes) == [pb.SUBMISSION_CODE_BAD_SIGNATURE]


@pytest.mark.parametrize("dropping", [True, False])
async def test_a_stolen_envelope_in_the_same_round_is_dropped_as_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropping: bool
) -> None:
    """A registered attacker sends the victim's bytes as its own, nine times. Were hops not to look, the sinks would."""
    if not dropping:
        monkeypatch.setattr("croupier.shuffler.mixing.BatchSurvey.is_new", lambda self, name: True)
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        submissions = await deployment.seal(terms, 30)
        copies = [sign_submission(terms.hash, submissions[0].envelope, new_client_key()) for _ in range(9)]
        await deployment.admit(terms, [*submissions, *copies])
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.num_users) == (30, 30)
        repeated = [drop.count for drop in publication.drops if drop.reason == "repeated"]
        assert repeated == ([] if dropping else [9])  # nine more of the victim would have been published
        reasons = {
            drop.reason: drop.count
            for signed in certificate.commitments[:2]
            for drop in pb.Commitment.FromString(signed.payload).drops
        }
        assert reasons == ({"repeated": 9} if dropping else {})


class Replays(cheaters.CheatingShuffler):
    """Keeps one client's ciphertexts of the first round and puts them into the place of another's in the second."""

    kept: Mapping[Lane, bytes] | None = None

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: Drops) -> None:
        if self.kept is None:
            self.kept = {lane: batch[0] for lane, batch in lanes.items()}
            return
        for lane, batch in lanes.items():
            batch[0] = self.kept[lane]


@pytest.mark.slow
@pytest.mark.parametrize("bound", [True, False])
async def test_what_was_sealed_for_one_round_opens_in_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: bool
) -> None:
    cheaters.same_keys_every_round(monkeypatch)
    if not bound:
        monkeypatch.setattr("croupier.protocol.onion.Label", cheaters.UnboundLabel)
    async with arena(tmp_path, 2, {"shuffler-1": Replays}) as deployment:
        for number in (1, 2):
            terms = await deployment.filled(settings(), 30, round_id=RoundId(f"round-{number}"))
            publication, certificate = await deployment.finish(terms)
            if number == 1:
                assert (publication.num_reports, certificate.dishonest) == (30, 0)
        assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (29, 29, 1)
        late = [(drop.reason, drop.count) for drop in (*certificate.report_drops, *certificate.budget_drops)]
        assert late == ([] if bound else [("no-ticket", 1)] * 2)  # the tickets of another round


class FlipsABit(cheaters.CheatingShuffler):
    """Marks the victim's report so as to recognise it later."""

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: Drops) -> None:
        marked = bytearray(lanes[pb.LANE_REPORT][0])
        marked[-1] ^= 1
        lanes[pb.LANE_REPORT][0] = bytes(marked)


@pytest.mark.parametrize("at", ["shuffler-1", "shuffler-2"])
async def test_a_marked_report_does_not_open_and_its_drop_is_shown(tmp_path: Path, at: str) -> None:
    """The mark leaves no trace but the count of drops; what the analyzer finds spoilt is in the publication."""
    async with arena(tmp_path, 2, {at: FlipsABit}) as deployment:
        terms = await deployment.filled(settings(), 30)
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (29, 30, 1)
        spoilt = [(drop.reason, drop.count) for drop in publication.drops]
        assert spoilt == ([] if at == "shuffler-1" else [("does-not-open", 1)])


class CrossesLanes(cheaters.CheatingShuffler):
    """Sends budgets in the report lane: the analyzer would learn them beside each other."""

    def put_output(self, tx: Transaction, round_id: str, output: LaneOutput) -> None:
        other = pb.LANE_PARAMETER if output.lane == pb.LANE_REPORT else pb.LANE_REPORT
        super().put_output(tx, round_id, LaneOutput(other, output.ciphertexts))


class PassesOnUnopened(cheaters.CheatingShuffler):
    """Sends what was sealed for itself to the next hop."""

    def put_output(self, tx: Transaction, round_id: str, output: LaneOutput) -> None:
        if output.lane == pb.LANE_PARAMETER:
            size = Onion(self.engine.kept_terms[round_id]).arriving_size(output.lane, 2)
            unopened = unpack(b"".join(chunks(tx, round_id, Direction.IN, output.lane) or []), size)
            output = LaneOutput(output.lane, unopened)
        super().put_output(tx, round_id, output)


@pytest.mark.parametrize(("cheat", "at"), [(CrossesLanes, "shuffler-1"), (PassesOnUnopened, "shuffler-2")])
async def test_ciphertexts_of_another_lane_or_hop_have_not_the_size_of_this_one(
    tmp_path: Path, cheat: type[cheaters.CheatingShuffler], at: str
) -> None:
    """A receiver compares sizes when a chunk arrives and when the lane is complete; each by itself is enough."""
    async with arena(tmp_path, 3, {at: cheat}) as deployment:
        terms = await deployment.filled(settings(), 30)
        assert "every ciphertext" in await deployment.stops(at, terms)


class SubstitutesItsOwnLane(cheaters.CheatingShuffler):
    """Puts something of the right size, but sealed for the other lane under the same key, into the report lane."""

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: Drops) -> None:
        onion = Onion(terms)
        hop_2 = onion.layer(pb.LANE_PARAMETER, 2)
        as_report = dataclasses.replace(hop_2, plain_size=onion.layer(pb.LANE_REPORT, 2).plain_size)
        inner = cheaters.own_report(terms, 2)
        lanes[pb.LANE_REPORT][0] = onion.seal_layers([as_report], inner)[0]


@pytest.mark.parametrize("bound", [True, False])
async def test_the_lane_is_part_of_what_a_layer_is_sealed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: bool
) -> None:
    if not bound:
        monkeypatch.setattr("croupier.protocol.onion.Label", cheaters.UnboundLabel)
    async with arena(tmp_path, 2, {"shuffler-1": SubstitutesItsOwnLane}) as deployment:
        terms = await deployment.filled(settings(), 30)
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.dishonest) == (29, 1)
        late = [(drop.reason, drop.count) for drop in certificate.report_drops]
        assert late == ([] if bound else [("no-ticket", 1)])


class DeliversTwice(cheaters.CheatingShuffler):
    """After the hand-over it tries again, with other reports."""

    answer: Refusal | None = None

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.deliver_first = cheaters.step_instead(self, pb.ROUND_STATE_MIXED, self.deliver_again)

    async def deliver_again(self, terms: RoundTerms) -> bool:
        await self.deliver_first(terms)
        other = b"".join(cheaters.own_report(terms, 1) for _ in range(30))
        stub = stubs.DeliveryStub(self.peers.channel_to("shuffler-2"))
        request = pb.DeliverRequest(round_id=terms.round_id, lane=pb.LANE_REPORT, chunk_count=1, ciphertexts=other)
        self.answer = await cheaters.refused(stub.Deliver(request))
        return True


async def test_a_hop_cannot_deliver_another_batch_after_the_first(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-1": DeliversTwice}) as deployment:
        terms = await deployment.filled(settings(), 30)
        publication, _ = await deployment.finish(terms)
        assert publication.num_reports == 30
        hop = deployment.service_as("shuffler-1", DeliversTwice)
        await deployment.until(lambda: hop.answer is not None)
        assert hop.answer is not None
        assert hop.answer.code is Code.CONFLICT
