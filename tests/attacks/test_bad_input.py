"""Bad input that is meant to cost a service work, memory or its life: the size is checked before anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.errors import Code
from croupier.protocol.names import PublicKey
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import Direction
from tests.attacks import cheaters
from tests.support import settings
from tests.support.arena import arena
from tests.support.clients import stranger
from tests.support.lanes import chunks


@pytest.mark.virtual_time
async def test_an_envelope_of_a_wrong_size_is_neither_checked_nor_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        pool, store = deployment.inside.running["shuffler-1"].pool, deployment.service("shuffler-1").store
        jobs: list[str] = []
        really = pool.run

        async def counted(work: Callable[..., Any], *arguments: Any) -> Any:
            jobs.append(getattr(work, "__name__", "opens"))
            return await really(work, *arguments)

        monkeypatch.setattr(pool, "run", counted)
        size = Onion(terms).joint.sealed_size
        for wrong in (0, size - 1, size + 1, size + 1000):
            bad = pb.Submission(client_key=bytes(32), envelope=bytes(wrong), signature=bytes(64))
            assert set(await deployment.submit(terms, [bad] * 300, enrol=False)) == {pb.SUBMISSION_CODE_WRONG_SIZE}
        assert jobs == []
        assert await deployment.submit(terms, [stranger(terms)], enrol=False) == [pb.SUBMISSION_CODE_UNKNOWN_CLIENT]
        assert jobs == ["verify_and_open"]  # what has the right size is worth a check
        assert await store.run("look", lambda tx: tx.num_submissions(terms.round_id)) == 0
        await deployment.admit(terms, await deployment.seal(terms, 20))
        publication, _ = await deployment.finish(terms)
        assert publication.num_reports == 20


@pytest.mark.virtual_time
async def test_without_its_key_nothing_is_learned_of_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad signature told whether the key is registered: by its code, and by whether it was checked at all."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        pool, checked = deployment.inside.running["shuffler-1"].pool, list[int]()
        really = pool.run

        async def counted(work: Callable[..., Any], *arguments: Any) -> Any:
            checked.append(len(arguments[-1]))
            return await really(work, *arguments)

        monkeypatch.setattr(pool, "run", counted)
        registered, unknown, taken = (stranger(terms) for _ in range(3))
        await deployment.admit(terms, [taken])
        await deployment.operator.enrol([PublicKey(registered.client_key)])
        checked.clear()
        for forged in (registered, unknown, taken):
            forged.signature = bytes(64)
            assert await deployment.submit(terms, [forged], enrol=False) == [pb.SUBMISSION_CODE_BAD_SIGNATURE]
        assert checked == [1, 1, 1]


async def test_messages_and_calls_above_the_caps_are_refused_and_others_go_on(tmp_path: Path) -> None:
    """Over TLS: it is gRPC that refuses the first of them."""
    async with arena(tmp_path, 1, over_tls=True) as deployment:
        terms = await deployment.operator.open_round(settings())
        entry = deployment.deployment.shufflers[0]
        credentials = grpc.ssl_channel_credentials(entry.tls_certificate.encode())
        options = [("grpc.ssl_target_name_override", entry.name), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.secure_channel(entry.public_address or "", credentials, options=options) as channel:
            stub = stubs.ShufflerStub(channel)
            huge = pb.SubmitRequest(round_id=terms.round_id, submissions=[pb.Submission(envelope=bytes(MESSAGE_BYTES))])
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Submit(huge)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for count in (0, 2001):
                many = pb.SubmitRequest(round_id=terms.round_id, submissions=[pb.Submission()] * count)
                assert await cheaters.code_of(stub.Submit(many)) is Code.BAD_REQUEST
            raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            raw = channel.unary_unary("/croupier.protocol.v1.Shuffler/Submit")
            with pytest.raises(grpc.aio.AioRpcError):
                await raw(b"\xff" * 1000)
        await deployment.admit(terms, await deployment.seal(terms, 20))
        publication, _ = await deployment.finish(terms)
        assert publication.num_reports == 20


@pytest.mark.virtual_time
async def test_deliveries_of_a_wrong_size_or_place_are_refused_unstored(tmp_path: Path) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        stub = stubs.DeliveryStub(deployment.service("shuffler-1").peers.channel_to("shuffler-2"))
        size = Onion(terms).arriving_size(pb.LANE_REPORT, 2)
        for change in (
            {"ciphertexts": b""},
            {"ciphertexts": bytes(size - 1)},
            {"ciphertexts": bytes(3 * size + 1)},
            {"chunk_index": 7},
            {"chunk_count": 0},
            {"lane": pb.LANE_JOINT},
            {"lane": 99},
        ):
            request = pb.DeliverRequest(
                round_id=terms.round_id, lane=pb.LANE_REPORT, chunk_count=1, ciphertexts=bytes(size)
            )
            for field, value in change.items():
                setattr(request, field, value)
            assert await cheaters.code_of(stub.Deliver(request)) is Code.BAD_REQUEST, change
        request = pb.DeliverRequest(round_id=terms.round_id, lane=pb.LANE_REPORT, ciphertexts=bytes(size))
        request.chunk_count = 4_000_000_000
        assert await cheaters.code_of(stub.Deliver(request)) is Code.BAD_BATCH
        store = deployment.service("shuffler-2").store
        assert await store.run("look", lambda tx: chunks(tx, terms.round_id, Direction.IN, pb.LANE_REPORT)) is None
        await deployment.admit(terms, await deployment.seal(terms, 20))
        publication, _ = await deployment.finish(terms)
        assert publication.num_reports == 20


@pytest.mark.virtual_time
async def test_a_hop_cannot_deliver_more_than_the_round_admits(tmp_path: Path) -> None:
    """The cap held at hop 1 only; behind it a predecessor could fill the disk."""
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(replace(settings(), max_batch_size=20))
        stub = stubs.DeliveryStub(deployment.service("shuffler-1").peers.channel_to("shuffler-2"))
        size = Onion(terms).arriving_size(pb.LANE_REPORT, 2)

        def chunk(index: int, count: int, items: int) -> pb.DeliverRequest:
            return pb.DeliverRequest(
                round_id=terms.round_id,
                lane=pb.LANE_REPORT,
                chunk_index=index,
                chunk_count=count,
                ciphertexts=bytes([index]) * size * items,
            )

        assert await cheaters.refused(stub.Deliver(chunk(0, 3, 15))) is None
        for request in (chunk(1, 3, 6), chunk(0, 21, 1)):
            assert await cheaters.code_of(stub.Deliver(request)) is Code.BAD_BATCH
        assert await cheaters.refused(stub.Deliver(chunk(1, 3, 5))) is None


@pytest.mark.virtual_time
async def test_a_round_that_has_stopped_takes_no_more_chunks(tmp_path: Path) -> None:
    """They would have stayed: what a round leaves is deleted when it stops, and then never again."""
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(settings())
        hop_2 = deployment.service("shuffler-2")
        stub = stubs.DeliveryStub(deployment.service("shuffler-1").peers.channel_to("shuffler-2"))
        size = Onion(terms).arriving_size(pb.LANE_REPORT, 2)
        request = pb.DeliverRequest(
            round_id=terms.round_id, lane=pb.LANE_REPORT, chunk_count=1, ciphertexts=bytes(size)
        )
        await hop_2.engine.record_problem(terms.round_id, "a test says so")
        assert await cheaters.code_of(stub.Deliver(request)) is Code.WRONG_STATE
        assert await cheaters.code_of(stub.HandOver(pb.HandOverRequest(round_id=terms.round_id))) is Code.WRONG_STATE
        chunks = await hop_2.store.run("look", lambda tx: tx.num_bytes(terms.round_id, Direction.IN, pb.LANE_REPORT))
        assert chunks == 0
