"""A service's retired identity in the hands of a thief: what it can still sign, and what it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from croupier.client.round_checks import accept_manifest
from croupier.operator.operator import Operator
from croupier.operator.rotation import activate, mark_compromised, rotate
from croupier.protocol.deployment import CLOCKS_DIFFER_S, Deployment
from croupier.protocol.errors import Code, Refusal, RetiredIdentityError, SignatureError
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import load_secrets
from tests.support import BIT, settings
from tests.support.messages import naming
from tests.support.rounds import Table, people, table

pytestmark = pytest.mark.virtual_time
LATER_S = 2.0 * CLOCKS_DIFFER_S


def identity_of(at: Table, name: str) -> Identity:
    return Identity(name, load_secrets(at.inside.directory / name).identity_key)


async def all_have(at: Table, deployment: Deployment) -> None:
    """Waits until every service has noticed the new file."""
    for _ in range(200):
        if all(running.service.peers.deployment == deployment for running in at.inside.running.values()):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("a service has not noticed the new deployment file")


async def change_keys(at: Table, names: Sequence[str]) -> tuple[dict[str, Identity], Deployment]:
    """Rotates the keys of these services; returns the identities of before, and the newest deployment."""
    stolen = {name: identity_of(at, name) for name in names}
    deployment = at.deployment
    for name in names:
        await all_have(at, rotate(at.inside.directory, name))
        now = datetime.fromtimestamp(at.inside.clock.now(), UTC)
        deployment = activate(at.inside.directory, name, now)
        await all_have(at, deployment)
    return stolen, deployment


@dataclass(frozen=True)
class Played:
    """A round that is over, with the documents that clients see of it."""

    terms: RoundTerms
    round: pb.SignedRound
    result: pb.Signed


async def play(at: Table) -> Played:
    """Plays a round with the keys that the services have now."""
    async with (
        at.inside.operator() as operator,
        operator.client_channel() as channel,
        operator.client_channel("accountant") as accountant,
        operator.client_channel("analyzer") as analyzer,
    ):
        now = replace(at, operator=operator, channel=channel, accountant=accountant)
        terms = await operator.open_round(settings())
        await now.submit(terms, people(BIT, 30, seed=1))
        await now.finish(terms)
        shown = await stubs.ShufflerStub(channel).GetRound(rpc.GetRoundRequest(round_id=terms.round_id))
        result = await stubs.AnalyzerStub(analyzer).GetResult(rpc.GetResultRequest(round_id=terms.round_id))
    return Played(terms, shown.round, result.publication)


def changed(result: pb.Signed, stolen: Identity, share: float) -> pb.Signed:
    """A result with another number in it, signed by a thief as the analyzer."""
    publication = pb.Publication.FromString(result.payload)
    publication.values[0].estimate = share
    return stolen.signed(Kind.PUBLICATION, canonical(publication))


async def test_a_stolen_retired_identity_is_not_believed_in_a_later_round(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        before = await play(at)
        stolen, deployment = await change_keys(at, ["analyzer"])
        await asyncio.sleep(LATER_S)
        after = await play(at)
        read_publication(before.result, deployment)
        read_publication(after.result, deployment)
        forged = changed(after.result, stolen["analyzer"], 0.5)
        with pytest.raises(RetiredIdentityError, match=naming("publication", "before")):
            read_publication(forged, deployment)
        # What the thief can do is said in the threat model: another result for a round of the key's own time.
        _, certificate = read_publication(changed(before.result, stolen["analyzer"], 0.5), deployment)
        assert certificate.granted
        compromised = mark_compromised(at.inside.directory, "analyzer")
        for document in (forged, changed(before.result, stolen["analyzer"], 0.5), before.result):
            with pytest.raises(RetiredIdentityError, match=naming("compromised")):
                read_publication(document, compromised)
        read_publication(after.result, compromised)


async def test_a_later_round_gets_an_earlier_time_by_all_services_only(tmp_path: Path) -> None:
    """A thief of all retired identities but one writes terms of before with them; the one that lacks is enough."""
    async with table(tmp_path, 1) as at:
        before = await play(at)
        stolen, deployment = await change_keys(at, at.deployment.chain)
        await asyncio.sleep(LATER_S)
        after = await play(at)
        manifest = pb.Manifest.FromString(after.round.manifest.payload)
        for keys in (*manifest.hops, manifest.accountant, manifest.analyzer):
            keys.created_unix_s = before.terms.created_unix_s or 0
        payload = canonical(manifest)

        def signed(payload: bytes, signatures: list[pb.Signature]) -> pb.SignedRound:
            of_manifest = pb.Signed(payload=payload, signatures=signatures)
            return pb.SignedRound(manifest=of_manifest, survey=after.round.survey)

        for honest in deployment.chain:
            signatures = [thief.sign(Kind.MANIFEST, payload) for thief in stolen.values() if thief.name != honest]
            for missing in ([], [pb.Signature(signer=honest, signature=after.round.manifest.signatures[0].signature)]):
                with pytest.raises(SignatureError, match=honest):
                    accept_manifest(signed(payload, [*signatures, *missing]), deployment)
        # With all of them it is believed: what the promise rests on.
        everyone = [thief.sign(Kind.MANIFEST, payload) for thief in stolen.values()]
        accept_manifest(signed(payload, everyone), deployment)
        # Their own, of later, they are not believed on.
        late = [thief.sign(Kind.MANIFEST, after.round.manifest.payload) for thief in stolen.values()]
        with pytest.raises(RetiredIdentityError, match=naming("manifest", "before")):
            accept_manifest(signed(after.round.manifest.payload, late), deployment)


@pytest.mark.slow
async def test_a_result_of_now_is_not_dated_back_by_terms_of_before(tmp_path: Path) -> None:
    """A thief of two identities puts the manifest of an older round beside a new result, or leaves it out."""
    async with table(tmp_path, 1) as at:
        before = await play(at)
        stolen, deployment = await change_keys(at, ["accountant", "analyzer"])
        await asyncio.sleep(LATER_S)
        after = await play(at)
        publication = pb.Publication.FromString(after.result.payload)
        certificate = stolen["accountant"].signed(Kind.CERTIFICATE, publication.certificate.payload)
        publication.certificate.CopyFrom(certificate)
        for shown, why in ((before.round, "another manifest"), (pb.SignedRound(), "another manifest")):
            publication.round.CopyFrom(shown)
            forged = stolen["analyzer"].signed(Kind.PUBLICATION, canonical(publication))
            with pytest.raises(SignatureError, match=why):
                read_publication(forged, deployment)


async def test_a_service_signs_no_time_of_its_keys_but_its_own(tmp_path: Path) -> None:
    earlier = ""

    class DatesBack(Operator):
        """Writes an earlier time beside the keys of one service."""

        async def prepare(self, name: str, round_id: str, suite: str) -> pb.RoundKeys:
            keys = await super().prepare(name, RoundId(round_id), suite)
            keys.created_unix_s -= 3600 if name == earlier else 0
            return keys

    async with table(tmp_path, 1) as at:
        operator = DatesBack(at.inside.directory, at.inside.transport)
        async with operator:
            for name in at.deployment.chain:
                earlier = name
                with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, f"{name!r}")):
                    await operator.open_round(settings())
            earlier = ""
            await operator.open_round(settings())


async def test_no_service_signs_terms_from_the_future(tmp_path: Path) -> None:
    """Nobody would believe the identities that retire before that time, and the round's result would be lost."""
    async with table(tmp_path, 1) as at:
        at.inside.ahead_s["analyzer"] = 3600.0
        with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, "3600 s", "'croupier doctor'")):
            await at.operator.open_round(settings())
