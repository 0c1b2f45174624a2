"""Tagging a victim with a manifest, or keys, of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.client.round_checks import accept_manifest, fetch_terms
from croupier.client.submission import Participant
from croupier.protocol.envelope import KeyPair, Label, generate_key_pair, open_sealed
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Kind
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import Digest, Lane, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.setup import ServiceSetup
from tests.attacks import cheaters
from tests.support import RoundKit, altered, settings
from tests.support.arena import arena
from tests.support.clients import without_tickets
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time


class TagsAVictim(cheaters.CheatingShuffler):
    """Shows one victim terms of its own: hop 1 under a key of the victim's own, and a budget that hides nothing.

    A client that believes it is mixed among the others; it replaces one of them.
    """

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.tag: KeyPair | None = None
        self.victim: tuple[RoundTerms, bytes] | None = None

    def altered(self, terms: RoundTerms) -> pb.SignedRound:
        tag = self.tag = self.tag or generate_key_pair(terms.shared.hpke_suite)

        def change(kit: RoundKit) -> None:
            kit.manifest.hops[0].public_key = tag.public
            kit.survey.questions[0].budget_grid.append(pb.LocalBudget(epsilon=20.0))

        return altered(terms, change)

    async def GetRound(self, request: rpc.GetRoundRequest, context: cheaters.Context) -> rpc.GetRoundResponse:  # noqa: N802
        answer = await super().GetRound(request, context)
        kept = [signature for signature in answer.round.manifest.signatures if signature.signer != self.peers.name]
        answer.round.CopyFrom(self.altered(await self.engine.terms(RoundId(request.round_id))))
        own = self.peers.identity.sign(Kind.MANIFEST, answer.round.manifest.payload)
        answer.round.manifest.signatures.extend([own, *kept])
        return answer

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        if self.victim and self.tag:
            onion = Onion(self.victim[0])
            opened = open_sealed(terms.shared.hpke_suite, self.tag.private, onion.joint.label, self.victim[1])
            lanes[pb.LANE_REPORT][0], lanes[pb.LANE_PARAMETER][0] = onion.split(opened)


async def test_a_client_refuses_terms_that_were_made_for_it(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-1": TagsAVictim}) as deployment:
        terms = await deployment.operator.open_round(settings())
        with pytest.raises(SignatureError, match=naming("'shuffler-2'", "manifest")):
            await fetch_terms(deployment.channel, deployment.deployment, terms.round_id)
        hop = deployment.service_as("shuffler-1", TagsAVictim)
        alone = hop.altered(terms)
        alone.manifest.signatures.append(hop.peers.identity.sign(Kind.MANIFEST, alone.manifest.payload))
        with pytest.raises(SignatureError, match=naming("accountant, analyzer, shuffler-2")):
            accept_manifest(alone, deployment.deployment)


@pytest.mark.parametrize("bound", [True, False])
async def test_an_honest_hop_stops_a_client_that_verified_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: bool
) -> None:
    """Its layers name the other manifest. Without that name in them, its tickets would still be for the other one."""
    if not bound:
        monkeypatch.setattr("croupier.protocol.onion.Label", cheaters.UnboundLabel)
    async with arena(tmp_path, 2, {"shuffler-1": TagsAVictim}) as deployment:
        terms = await deployment.filled(settings(), 30)
        hop = deployment.service_as("shuffler-1", TagsAVictim)
        believed = parse_terms(hop.altered(terms))
        sealed = without_tickets(believed, Participant(1, 20.0))
        hop.victim = believed, pb.Submission.FromString(sealed.submission).envelope
        publication, certificate = await deployment.finish(terms)
    assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (29, 29, 1)
    late = [(drop.reason, drop.count) for drop in (*certificate.report_drops, *certificate.budget_drops)]
    assert late == ([] if bound else [("no-ticket", 1)] * 2)


async def test_no_service_signs_a_second_manifest_for_a_round(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        for alter in ("epsilon_max", "dishonest", "min_batch_size"):
            second = altered(terms, lambda kit: setattr(kit.survey, alter, 3))  # noqa: B023
            payload, survey = second.manifest.payload, second.survey
            for name in deployment.deployment.chain:
                said = await cheaters.said_to_signing(deployment.operator, name, payload, survey)
                assert said is Code.CONFLICT


async def test_a_client_asks_for_a_round_and_takes_no_other(tmp_path: Path) -> None:
    """A hop that sends its victim to a round of its own: well signed, but not the one that everybody is in."""

    class Misleads(cheaters.CheatingShuffler):
        async def GetRound(  # noqa: N802
            self, request: rpc.GetRoundRequest, context: cheaters.Context
        ) -> rpc.GetRoundResponse:
            return await super().GetRound(rpc.GetRoundRequest(round_id="lonely"), context)

    async with arena(tmp_path, 1, {"shuffler-1": Misleads}) as deployment:
        await deployment.operator.open_round(settings(), RoundId("lonely"))
        await deployment.operator.open_round(settings(), RoundId("everybody"))
        with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, "'everybody'", "'lonely'")):
            await fetch_terms(deployment.channel, deployment.deployment, RoundId("everybody"))


def test_an_unbound_label_is_what_the_real_one_is_not() -> None:
    label, other = (
        Label(RoundId("round"), Digest(bytes([number]) * 32), pb.LANE_JOINT, 1, b"key") for number in (1, 2)
    )
    assert label.info() != other.info()
    unbound = cheaters.UnboundLabel(RoundId("round"), Digest(bytes(32)), pb.LANE_JOINT, 1, b"key")
    assert (
        unbound.info() == cheaters.UnboundLabel(RoundId("other"), Digest(bytes(32)), pb.LANE_REPORT, 2, b"yek").info()
    )
