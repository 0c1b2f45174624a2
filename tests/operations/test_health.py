"""Health, reflection and metrics of real services: what an operator, a load balancer and Prometheus see."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import ValidationError

from croupier.client.submission import send
from croupier.deploy.local.processes import LocalDeployment
from croupier.net.channels import public_channel
from croupier.operator.keys import free_addresses
from croupier.operator.operator import Operator
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import sign_submission
from croupier.protocol.names import PrivateKey, PublicKey, RoundId, StorageKey
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.health import Readiness, make_admin_server
from croupier.runtime.metrics import Metrics
from croupier.runtime.service_directory import ServiceSettings
from croupier.runtime.store import Store
from tests.operations.support import (
    PATIENCE_S,
    admin_health,
    deployed,
    full_disk,
    grown,
    health,
    leaks,
    scrape,
    scrape_all,
    scrape_text,
    seal,
    settings_of,
    status_of,
    submit,
    until,
)
from tests.support import settings
from tests.support.clients import crafted, seal_prepared, stranger, submissions_of
from tests.support.postgresql import Server

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]


@pytest.mark.slow
async def test_readiness_follows_the_store_and_the_round_survives_a_full_disk(
    local: LocalDeployment, operator: Operator
) -> None:
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 150)
    assert await operator.readiness() == ["SERVING"] * 4
    before = scrape(local.directory, "shuffler-1")
    with full_disk(local.pids()["shuffler-1"]):
        with pytest.raises(Refusal, match=Code.STORE_FAILED.message):
            await submit(operator, terms.round_id, people)
        await until(lambda: admin_health(local.directory, "shuffler-1"), "NOT_SERVING")
        assert await operator.readiness() == ["NOT_SERVING", "SERVING", "SERVING", "SERVING"]
        assert await admin_health(local.directory, "shuffler-1", "live") == "SERVING"
        numbers = scrape(local.directory, "shuffler-1")
        assert numbers["croupier_ready",] == 0
        numbers = grown(numbers, before)
        assert numbers["croupier_store_failures_total",] >= 1
        assert numbers["croupier_refusals_total", "STORE_FAILED"] == 1
    await until(lambda: admin_health(local.directory, "shuffler-1"), "SERVING")
    assert await submit(operator, terms.round_id, people) == {pb.SUBMISSION_CODE_ACCEPTED}
    await operator.close_round(terms.round_id)
    publication, _ = await operator.result(terms.round_id, PATIENCE_S)
    assert publication.num_reports == 150
    log = (local.directory / "shuffler-1" / "service.log").read_bytes()
    assert b"STORE_FAILED" in log
    assert leaks(log, [PublicKey(person.client_key) for person in people.values()]) == []
    assert leaks(log, [person.envelope for person in people.values()]) == []


@pytest.mark.slow
async def test_readiness_follows_a_database_that_goes_away_and_comes_back(postgresql: Server) -> None:
    url = postgresql.new_database()
    database = sa.make_url(url).database
    store, (address,) = Store(url, StorageKey(bytes(32))), free_addresses(1)
    readiness = Readiness(store, Metrics(), every_s=0.1)
    admin = make_admin_server(readiness, address, [])
    async with grpc.aio.insecure_channel(address) as channel:
        await readiness.begin()
        await admin.start()
        try:
            assert await health(channel) == "NOT_SERVING"
            await readiness.start()
            assert await health(channel) == "SERVING"
            for allowed, expected in (("false", "NOT_SERVING"), ("true", "SERVING")):
                postgresql.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS {allowed}')
                postgresql.disconnect(url)
                await until(lambda: health(channel), expected)
            assert await health(channel, "live") == "SERVING"
        finally:
            await readiness.stop()
            assert await health(channel) == "NOT_SERVING"
            await admin.stop(0)
            store.close()


@pytest.mark.slow
async def test_every_dropped_or_refused_item_is_counted_with_its_reason(
    local: LocalDeployment, operator: Operator
) -> None:
    before = scrape_all(operator, local.directory)
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 30)
    people["noise"] = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), PrivateKey(bytes(32)))
    bad = await seal_prepared(operator, terms, [crafted(terms, 1, 0.123), crafted(terms, 77, 1.0)])
    people["liar"], people["wild"] = submissions_of(bad)
    people["forger"] = stranger(terms)  # whose tickets are made up
    await operator.enrol([PublicKey(people["noise"].client_key), PublicKey(people["forger"].client_key)])
    somebody = stranger(terms)
    short = pb.Submission(client_key=somebody.client_key, envelope=b"short")
    forged = pb.Submission.FromString(people["0"].SerializeToString())
    forged.signature = bytes(64)
    await submit(operator, terms.round_id, people | {"stranger": somebody, "short": short})
    await submit(operator, terms.round_id, {"forged": forged})
    async with public_channel(operator.deployment.shufflers[0]) as channel:
        with pytest.raises(Refusal, match=Code.UNKNOWN_ROUND.message):
            await send(channel, RoundId("nowhere"), {"forged": forged.SerializeToString()})
    await operator.close_round(terms.round_id)
    publication, certificate = await operator.result(terms.round_id, PATIENCE_S)
    assert (publication.num_reports, certificate.num_users, certificate.invalid_budgets) == (31, 31, 1)

    strict = await operator.open_round(settings(min_batch_size=20, epsilon_max=0.001))
    others = await seal(operator, strict, 20)
    assert await submit(operator, strict.round_id, others) == {pb.SUBMISSION_CODE_ACCEPTED}
    await operator.close_round(strict.round_id)
    assert not (await operator.result(strict.round_id, PATIENCE_S))[1].granted
    refused = "croupier_rounds", "REFUSED"
    await until(lambda: grown(scrape(local.directory, "accountant"), before[2])[refused], 1)
    first, second, accountant, analyzer = map(grown, scrape_all(operator, local.directory), before)
    assert {key[1]: value for key, value in first.items() if key[0] == "croupier_submissions_total" and value} == {
        "ACCEPTED": 34 + 20,
        "UNKNOWN_CLIENT": 1,
        "WRONG_SIZE": 1,
        "BAD_SIGNATURE": 1,
    }
    assert first["croupier_refusals_total", "UNKNOWN_ROUND"] == 1
    assert first["croupier_drops_total", "joint", "does-not-open"] == 1
    assert first["croupier_drops_total", "joint", "repeated"] == 0
    assert second["croupier_drops_total", "report", "does-not-open"] == 0
    assert analyzer["croupier_drops_total", "report", "malformed"] == 1
    assert analyzer["croupier_drops_total", "report", "no-ticket"] == 1
    assert accountant["croupier_drops_total", "parameter", "no-ticket"] == 1
    assert accountant["croupier_invalid_budgets_total",] == 1
    assert accountant["croupier_certificates_total", "granted"] == 1
    assert accountant["croupier_certificates_total", "refused"] == 1
    stages = {
        key[1]
        for sample in (first, accountant, analyzer)
        for key, value in sample.items()
        if key[0] == "croupier_stage_seconds_count" and value
    }
    assert stages == {"admit", "mix", "deliver", "tickets", "open", "certify", "analyze"}
    assert all(sample["croupier_sent_bytes_total",] > 1000 for sample in (first, second))
    assert first["croupier_submissions_waiting",] == first["croupier_rounds_stuck", "waiting"] == 0

    secrets = [person.client_key for person in [*people.values(), *others.values(), somebody]]
    secrets += [hashlib.sha256(person.envelope).digest() for person in [*people.values(), *others.values()]]
    for name in operator.deployment.chain:
        text = scrape_text(local.directory, name)
        assert leaks(text.encode(), secrets) == []
        assert terms.round_id not in text


@pytest.mark.slow
async def test_a_round_that_waits_for_a_peer_is_stuck_and_names_the_peer(
    local: LocalDeployment, operator: Operator
) -> None:
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 20)
    await submit(operator, terms.round_id, people)
    await asyncio.to_thread(local.down, ["shuffler-2"])
    await operator.close_round(terms.round_id)
    await until(lambda: scrape(local.directory, "shuffler-1")["croupier_rounds_stuck", "waiting"], 1)
    waiting = await status_of(operator, "shuffler-1", terms.round_id)
    assert waiting.problem == "shuffler-2 does not answer: UNAVAILABLE"
    assert await operator.readiness() == ["SERVING", "UNREACHABLE", "SERVING", "SERVING"]
    await asyncio.to_thread(local.up, ["shuffler-2"], 1)
    publication, _ = await operator.result(terms.round_id, PATIENCE_S)
    assert publication.num_reports == 20
    assert (await status_of(operator, "shuffler-1", terms.round_id)).problem == ""
    assert scrape(local.directory, "shuffler-1")["croupier_rounds_stuck", "waiting"] == 0


@pytest.mark.slow
async def test_a_round_that_cannot_go_on_is_counted_as_stopped(local: LocalDeployment, operator: Operator) -> None:
    """25 submissions, of which hop 1 can open 5."""
    before = scrape(local.directory, "shuffler-1")
    terms = await operator.open_round(settings(min_batch_size=20))
    people, size = await seal(operator, terms, 5), Onion(terms).joint.sealed_size
    for number in range(20):
        people[f"noise-{number}"] = sign_submission(
            terms.hash, bytes([number]) * size, PrivateKey(bytes([number + 1]) * 32)
        )
    await operator.enrol([PublicKey(person.client_key) for person in people.values()])
    assert await submit(operator, terms.round_id, people) == {pb.SUBMISSION_CODE_ACCEPTED}
    await operator.close_round(terms.round_id)

    def stopped() -> tuple[float, float]:
        numbers = grown(scrape(local.directory, "shuffler-1"), before)
        return numbers["croupier_rounds_stuck", "stopped"], numbers["croupier_rounds_stopped_total",]

    await until(stopped, (1, 1))
    lines = (local.directory / "shuffler-1" / "service.log").read_text().splitlines()
    (line,) = [
        record
        for record in map(json.loads, lines)
        if (record["level"], record.get("round_id")) == ("ERROR", terms.round_id)
    ]
    assert line["code"] == "SHORT_BATCH"


async def reflect(channel: grpc.aio.Channel) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(cast(grpc.Channel, channel))
    call: Any = cast(Any, stub).ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    answer: reflection_pb2.ServerReflectionResponse = await call.read()
    return answer


@pytest.mark.slow
async def test_admin_ports_describe_and_offer_nothing_else(tmp_path: Path) -> None:
    async with deployed(tmp_path, names=["shuffler-1"]) as (local, operator):
        address = settings_of(local.directory, "shuffler-1").admin_listen or ""
        async with grpc.aio.insecure_channel(address) as admin:
            answer = await reflect(admin)
            names = {service.name.rpartition(".")[2] for service in answer.list_services_response.service}
            assert names == {"RoundControl", "Delivery", "Shuffler", "Health", "ServerReflection"}
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stubs.RoundControlStub(admin).Status(rpc.StatusRequest())
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        async with public_channel(operator.deployment.shufflers[0]) as public:
            assert await health(public) == "SERVING"
            details = "Internal error from Core"
            while details == "Internal error from Core":  # gRPC's own word where the refusal is faster than the request
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await reflect(public)
                details = refused.value.details() or ""
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.slow
async def test_watching_health_holds_no_call_open(tmp_path: Path) -> None:
    """More watchers than the service has calls would lock everybody else out."""
    async with deployed(tmp_path, names=["shuffler-1"]) as (local, operator):
        allowed = settings_of(local.directory, "shuffler-1").max_concurrent_calls
        async with public_channel(operator.deployment.shufflers[0]) as public:
            stub: Any = health_pb2_grpc.HealthStub(public)
            watchers = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(allowed + 50)]
            codes = {await watcher.code() for watcher in watchers}
            # UNAVAILABLE: a stream beyond those that a connection may have.
            ended = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
            assert codes <= ended
            assert await health(public) == "SERVING"


def test_plaintext_ports_stay_on_loopback_unless_told_insecure() -> None:
    for name in ("admin_listen", "metrics_listen"):
        for address in ("127.0.0.1:7000", "localhost:7000"):
            assert getattr(ServiceSettings.model_validate({name: address}), name) == address
        for address in ("0.0.0.0:7000", "10.0.0.1:7000", "example.org:7000"):
            with pytest.raises(ValidationError, match="needs insecure_admin_anywhere"):
                ServiceSettings.model_validate({name: address})
            ServiceSettings.model_validate({name: address, "insecure_admin_anywhere": True})


def test_the_scanner_finds_a_secret_in_every_spelling() -> None:
    secret = bytes(range(200, 232))
    texts = [secret, secret.hex().encode(), repr(secret).encode(), json.dumps({"event": repr(secret)}).encode()]
    texts += [base64.b64encode(b"x" * shift + secret + b"yz") for shift in range(3)]
    texts += [json.dumps(secret.decode("latin-1")).encode()]
    for text in texts:
        assert leaks(b'{"event": "before ' + text + b' after"}', [secret])
    assert leaks(b'{"event": "nothing of the kind"}', [secret]) == []
