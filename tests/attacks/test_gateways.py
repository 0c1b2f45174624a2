"""A dishonest gateway between a client and the services: whatever it replaces is found out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import croupier
from croupier.client.submission import new_client_key
from croupier.deploy.gateway.app import make_app
from croupier.protocol.envelope import generate_key_pair
from croupier.protocol.errors import Code
from croupier.protocol.identity import Identity, Kind, canonical, sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.tickets import TicketRequest
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from tests.support import settings
from tests.support.arena import Arena, arena
from tests.support.gateways import PassOn, Tampering, own_tickets, reached_at
from tests.support.messages import naming, refuses

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def behind(
    tmp_path: Path, hops: int = 1
) -> AsyncIterator[tuple[Arena, Tampering, RoundTerms, Callable[..., Awaitable[croupier.AsyncClient]]]]:
    """A deployment with an open round, a gateway that can cheat, and what makes enrolled clients of it."""
    made: list[croupier.AsyncClient] = []
    async with arena(tmp_path, hops) as at:
        gateway = Tampering(at.inside.transport)

        async def make(name: str = "victim") -> croupier.AsyncClient:
            client = croupier.AsyncClient(
                at.inside.directory, directory=tmp_path / name, gateway=url, patience_s=1, transport=at.inside.transport
            )
            await at.operator.enrol([PublicKey(bytes.fromhex(client.public_key))])
            made.append(client)
            return client

        with reached_at(make_app(at.inside.directory, gateway.transport)) as url:
            yield at, gateway, await at.operator.open_round(settings()), make
        for client in made:
            await client.close()


async def test_keys_that_a_gateway_has_swapped_are_refused(tmp_path: Path) -> None:
    """The gateway swaps a hop's keys in a manifest that it signs under everyone's name, and the keys of tickets."""
    async with behind(tmp_path) as (_, gateway, terms, make):
        client = await make()

        async def own_manifest(raw: bytes, pass_on: PassOn) -> bytes:
            answer = rpc.GetRoundResponse.FromString(await pass_on(raw))
            manifest = pb.Manifest.FromString(answer.round.manifest.payload)
            manifest.hops[0].public_key = generate_key_pair(terms.shared.hpke_suite).public
            answer.round.manifest.payload = canonical(manifest)
            for signature in answer.round.manifest.signatures:
                forger = Identity(signature.signer, PrivateKey(os.urandom(32)))
                signature.CopyFrom(forger.sign(Kind.MANIFEST, answer.round.manifest.payload))
            return answer.SerializeToString()

        gateway.instead = {"GetRound": own_manifest}
        with pytest.raises(croupier.SignatureError, match=naming("'shuffler-1'", "manifest")):
            await client.round()
        gateway.instead = {"GetTickets": own_tickets}
        asked = await client.round()
        with pytest.raises(croupier.TicketError, match=naming("tickets", "manifest's key")):
            await asked.submit(1, 1.0)
        calls = [method for method, _ in gateway.seen if method != "GetVersions"]
        assert calls == ["GetRound", "GetRound", "GetTickets"]  # no answer was sent


async def test_a_gateway_cannot_put_another_envelope_in_the_place_of_one(tmp_path: Path) -> None:
    """Neither under the victim's key, nor under its own; and the victim's own bytes still count afterwards."""
    async with behind(tmp_path) as (_, gateway, terms, make):
        client, own_key = await make(), new_client_key()

        async def other_messages(raw: bytes, pass_on: PassOn) -> bytes:
            request = pb.GetTicketsRequest.FromString(raw)
            own = b"".join(TicketRequest(os.urandom(32)).blinded for _ in range(2))
            request.requests[0].envelope = own
            return await pass_on(request.SerializeToString())

        async def other_envelope(raw: bytes, pass_on: PassOn) -> bytes:
            request = pb.SubmitRequest.FromString(raw)
            request.submissions[0].envelope = os.urandom(len(request.submissions[0].envelope))
            return await pass_on(request.SerializeToString())

        async def under_its_own_key(raw: bytes, pass_on: PassOn) -> bytes:
            request = pb.SubmitRequest.FromString(raw)
            own = sign_submission(terms.hash, request.submissions[0].envelope, own_key)
            request.submissions[0].CopyFrom(own)
            return await pass_on(request.SerializeToString())

        asked = await client.round()
        for method, change, code in (
            ("GetTickets", other_messages, Code.BAD_SIGNATURE),
            ("Submit", other_envelope, Code.BAD_SIGNATURE),
            ("Submit", under_its_own_key, Code.UNKNOWN_CLIENT),
        ):
            gateway.instead = {method: change}
            with pytest.raises(croupier.Refusal) as refused:
                await asked.submit(1, 1.0)
            assert refused.value.code is code
        gateway.instead = {}
        assert (await asked.submit(0, 2.0)).sealed_before
        sent = [raw for method, raw in gateway.seen if method == "Submit"]
        assert len(sent) == 3
        assert len(set(sent)) == 1


async def test_a_receipt_that_a_gateway_has_forged_is_found(tmp_path: Path) -> None:
    """The client believes it until the round is over; no list and no certificate can be made up for it then."""
    async with behind(tmp_path) as (at, gateway, terms, make):
        await at.admit(terms, await at.seal(terms, 30))
        honest, victim = await make("honest"), await make()
        await (await honest.round()).submit(1, 1.0)

        async def accept(_: bytes, __: PassOn) -> bytes:
            return pb.SubmitResponse(codes=[pb.SUBMISSION_CODE_ACCEPTED]).SerializeToString()

        async def list_with_the_victim(raw: bytes, pass_on: PassOn) -> bytes:
            page = rpc.GetInclusionResponse.FromString(await pass_on(raw))
            lane = rpc.GetInclusionRequest.FromString(raw).lane
            kept = victim.outbox.inclusion_hashes(terms.round_id)[victim.public_key]
            hashes = [page.hashes[start : start + 32] for start in range(0, len(page.hashes), 32)]
            hashes[0] = kept[:32] if lane == pb.LANE_REPORT else kept[32:]
            page.hashes = b"".join(sorted(hashes))
            return page.SerializeToString()

        async def certificate_for_that_list(raw: bytes, pass_on: PassOn) -> bytes:
            answer = rpc.GetResultResponse.FromString(await pass_on(raw))
            publication = pb.Publication.FromString(answer.publication.payload)
            certificate = pb.Certificate.FromString(publication.certificate.payload)
            certificate.batch_digest = hashlib.sha256(b"").digest()
            publication.certificate.payload = canonical(certificate)
            answer.publication.payload = canonical(publication)
            return answer.SerializeToString()

        gateway.instead = {"Submit": accept}
        asked = await victim.round()
        assert (await asked.submit(1, 1.0)).local_epsilon == 1.0
        gateway.instead = {}
        await at.finish(terms)
        assert await (await honest.round(terms.round_id)).verify() == croupier.Inclusion(
            terms.round_id, 1, ("shuffler-1",)
        )
        with pytest.raises(croupier.NotIncludedError) as lost:
            await asked.verify()
        assert lost.value.missing == {"shuffler-1": [victim.public_key]}
        gateway.instead = {"GetInclusion": list_with_the_victim}
        with pytest.raises(croupier.Refusal, match=naming(Code.BAD_BATCH.message, "LANE_REPORT")):
            await asked.verify()
        gateway.instead = {"GetResult": certificate_for_that_list}
        for check in (asked.verify, asked.result):
            with pytest.raises(croupier.SignatureError):
                await check()


@pytest.mark.parametrize("hashes", [1000, 7])
async def test_a_list_is_read_no_further_than_its_signed_number(tmp_path: Path, hashes: int) -> None:
    """It was read for as long as its length was said to be greater: 2.2 GB in 5 s."""
    async with behind(tmp_path) as (at, gateway, terms, make):
        client = await make()
        asked = await client.round()
        await asked.submit(1, 1.0)
        await at.admit(terms, await at.seal(terms, 24))
        await at.finish(terms)
        pages = []

        async def endless(_: bytes, __: PassOn) -> bytes:
            pages.append(hashes)
            total = 2**40 if len(pages) < 100 else 0
            return rpc.GetInclusionResponse(hashes=os.urandom(32 * hashes), total=total).SerializeToString()

        gateway.instead = {"GetInclusion": endless}
        with refuses(Code.BAD_BATCH):
            await asked.verify()
        assert len(pages) == {1000: 1, 7: 4}[hashes]  # of 25 hashes


async def test_no_value_and_no_budget_shows_in_what_a_gateway_sees(tmp_path: Path) -> None:
    async with behind(tmp_path, hops=2) as (_, gateway, _, make):
        sizes = []
        for name, value, most in (("one", 0, 0.5), ("two", 1, 2.0)):
            asked = await (await make(name)).round()
            gateway.seen.clear()
            await asked.submit(value, most)
            sizes.append([(method, len(raw)) for method, raw in gateway.seen])
        assert sizes[0] == sizes[1]
        assert [method for method, _ in sizes[0]] == ["GetTickets", "Submit"]
