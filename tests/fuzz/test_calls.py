"""Every call of every service, from every caller, with hostile requests, over TLS to a running deployment.

What may come back is listed in `ALLOWED`; never that something went wrong inside, or nothing at all. Requests of a peer
are signed with that peer's keys, so that they reach what is behind the signature.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from croupier.client.submission import new_client_key
from croupier.net.channels import public_channel
from croupier.net.sizes import MESSAGE_BYTES
from croupier.net.transport import peer_channel
from croupier.protocol.batches import digest
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code
from croupier.protocol.identity import Identity, Kind, canonical, sign_attendance, sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.fuzz.hostile import SHARE, Vocabulary, hostile, noted
from tests.support import BIT, SUITE, settings
from tests.support.clients import stranger
from tests.support.rounds import Table, people, table
from tests.support.sequential import settings as turns_settings
from tests.support.sequential import task as turns_task

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fuzz calls")]  # one deployment for all of them
CLIENT = "client"
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in rpc.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
_OF_THE_OPERATOR = "Prepare Sign Open Close Withdraw RegisterClients RevokeClients CountAnswered"
# The callers that each call may answer with OK; all others must be refused.
ALLOWED_CALLERS = {
    **{name: {OPERATOR} for name in _OF_THE_OPERATOR.split()},
    **{name: {"shuffler-1", "shuffler-2"} for name in ("HandOver", "Relay", "EndSequential")},
    "Deliver": {"shuffler-1", "shuffler-2", "analyzer"},  # the analyzer delivers tickets to the accountant
    "Status": {OPERATOR, "shuffler-1", "shuffler-2", "accountant", "analyzer"},
    "GetFakeTickets": {"shuffler-1", "shuffler-2"},
    "Grant": {"accountant"},
    "Forecast": {OPERATOR, "shuffler-1"},
}
S = grpc.StatusCode
ALLOWED = {S.OK, S.UNIMPLEMENTED, *(code.status for code in Code if code is not Code.INTERNAL)}
PATIENCE_S = 60.0


@dataclass
class Target:
    """A deployment with an open round and a published one, and a channel for each caller to each service."""

    at: Table
    channels: dict[tuple[str, str], grpc.aio.Channel]
    open: RoundTerms
    done: RoundTerms
    sequential: RoundTerms
    seeds: dict[str, list[bytes]]
    words: Vocabulary

    async def call(self, caller: str, service: str, method: str, raw: bytes) -> grpc.StatusCode:
        """Sends bytes as they are and returns the status."""
        noted()
        channel = self.channels[caller, service]
        try:
            if METHODS[method].client_streaming:
                return await self._stream(channel.stream_stream(method), raw)
            multicallable: Any = channel.unary_unary(method)
            await multicallable(raw, timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return S.OK

    async def _stream(self, multicallable: Any, raw: bytes) -> grpc.StatusCode:
        """Sends the bytes as the first message of a stream, or as the second behind a good one."""
        named = pb.AttendRequest(round_id=self.sequential.round_id).SerializeToString()

        async def requests() -> AsyncIterator[bytes]:
            if len(raw) % 2:
                yield named
            yield raw

        while True:
            try:
                async for _ in multicallable(requests(), timeout=PATIENCE_S):
                    pass
                return S.OK
            except grpc.aio.AioRpcError as error:
                # gRPC's own word, here, for a message that was not yet sent when the answer came: it tells no answer.
                if error.details() != "Internal error from Core":
                    return error.code()


def identity(at: Table, name: str) -> Identity:
    return Identity(name, load_secrets(at.inside.directory / name).identity_key)


def seeds_of(at: Table, terms: RoundTerms, document: pb.SignedRound) -> dict[str, list[bytes]]:
    """Good requests for every method, some of them for the wrong moment."""
    hop = identity(at, "shuffler-1")
    lanes = (pb.LANE_REPORT, pb.LANE_PARAMETER)
    sealed = {lane: bytes(Onion(terms).arriving_size(lane, 2)) * 3 for lane in lanes}
    commitments = [
        hop.signed(
            Kind.COMMITMENT,
            canonical(
                pb.Commitment(
                    round_id=terms.round_id,
                    manifest_hash=terms.hash,
                    hop=1,
                    lane=lane,
                    num_in=3,
                    num_out=3,
                    digest_in=bytes(32),
                    digest_out=digest([sealed[lane]]),
                )
            ),
        )
        for lane in lanes
    ]
    certificate = pb.Certificate(round_id=terms.round_id, manifest_hash=terms.hash, granted=True)
    grants = [
        identity(at, "accountant").signed(Kind.CERTIFICATE, raw) for raw in (canonical(certificate), b"\xff", b"")
    ]
    submission = stranger(terms)
    here = terms.round_id
    attendance = sign_attendance(terms.hash, bytes(32), new_client_key())
    signed_end = hop.signed(
        Kind.SEQUENTIAL, canonical(pb.SequentialReport(round_id=here, manifest_hash=terms.hash, num_answers=3))
    )
    requests: dict[str, list[Any]] = {
        "Prepare": [rpc.PrepareRequest(round_id="fuzz", hpke_suite=SUITE)],
        "Sign": [rpc.SignRequest(manifest=terms.payload, survey=terms.survey.payload)],
        "Open": [rpc.OpenRequest(round=document)],
        "Close": [rpc.CloseRequest(round_id=here)],
        "Withdraw": [rpc.WithdrawRequest(round_id="fuzz")],
        "Status": [rpc.StatusRequest(), rpc.StatusRequest(round_id=here)],
        "Deliver": [
            pb.DeliverRequest(round_id=here, lane=lane, chunk_index=0, chunk_count=2, ciphertexts=sealed[lane])
            for lane in lanes
        ]
        + [pb.DeliverRequest(round_id=here, lane=pb.LANE_TICKET, chunk_index=0, chunk_count=1, ciphertexts=bytes(96))],
        "HandOver": [
            pb.HandOverRequest(round_id=here, commitments=commitments),
            pb.HandOverRequest(round_id=here, commitments=[hop.signed(Kind.COMMITMENT, b"\xff")] * 2),
        ],
        "GetRound": [rpc.GetRoundRequest(), rpc.GetRoundRequest(round_id=here)],
        "Submit": [pb.SubmitRequest(round_id=here, submissions=[submission] * count) for count in (1, 3)],
        "GetInclusion": [rpc.GetInclusionRequest(round_id=here, offset=1)],
        "RegisterClients": [pb.RegisterClientsRequest(client_keys=[bytes(32), submission.client_key])],
        "CountAnswered": [pb.CountAnsweredRequest(round_ids=["r"], client_keys=[b"\1" * 32])],
        "RevokeClients": [pb.RevokeClientsRequest(client_keys=[b"\1" * 32])],
        "GetTickets": [
            pb.GetTicketsRequest(round_id=here, requests=[asked] * count)
            for asked in (submission, sign_submission(terms.hash, bytes(64), new_client_key(), purpose="tickets"))
            for count in (1, 3)
        ],
        "GetVersions": [rpc.GetVersionsRequest(after=0)],
        "GetFakeTickets": [pb.GetFakeTicketsRequest(round_id=here, blinded=submission.envelope[:32])],
        "Forecast": [
            rpc.ForecastRequest(round_id=here, num_reports=3),
            rpc.ForecastRequest(survey=terms.survey.payload, num_reports=3),
        ],
        "GetCertificate": [rpc.GetCertificateRequest(round_id=here)],
        "Grant": [pb.GrantRequest(round_id=here, certificate=grant, release_private_key=bytes(32)) for grant in grants],
        "GetResult": [rpc.GetResultRequest(round_id=here)],
        "Attend": [
            pb.AttendRequest(round_id=here),
            pb.AttendRequest(attendances=[attendance] * 3),
            pb.AttendRequest(answer=pb.Answer(client_key=attendance.client_key, envelope=sealed[pb.LANE_REPORT])),
        ],
        "Relay": [pb.RelayRequest(round_id=here, ciphertext=bytes(300))],
        "EndSequential": [pb.EndSequentialRequest(round_id=here, report=signed_end)],
    }
    return {
        name: [request.SerializeToString() for request in requests_of_call]
        for name, requests_of_call in requests.items()
    }


async def prepare(at: Table, stack: AsyncExitStack) -> Target:
    done = await at.operator.open_round(settings(), RoundId("done"))
    await at.submit(done, people(BIT, 30, seed=1))
    await at.finish(done)
    open_round = await at.operator.open_round(settings(min_batch_size=1000), RoundId("open"))
    await at.submit(open_round, people(BIT, 10, seed=2))
    turns = await at.operator.open_round(turns_settings(turns_task()), RoundId("sequential"))
    channels = {}
    for entry in at.deployment.services:
        for caller in (OPERATOR, *at.deployment.chain):
            if caller != entry.name:
                secrets = load_secrets(at.inside.directory / caller)
                channels[caller, entry.name] = await stack.enter_async_context(peer_channel(entry, secrets))
        if entry.public_address:
            channels[CLIENT, entry.name] = await stack.enter_async_context(public_channel(entry))
    shuffler = at.inside.running["shuffler-1"].service.store
    seeds: dict[str, list[bytes]] = {}
    for terms in (open_round, done, turns):
        row = await shuffler.run("look", lambda tx: tx.round(terms.round_id))  # noqa: B023
        for name, requests_of_call in seeds_of(at, terms, pb.SignedRound.FromString(row.manifest)).items():
            seeds.setdefault(name, []).extend(requests_of_call)
    keys = open_round.accountant
    words = Vocabulary(
        ("open", "done", "sequential", "fuzz", *at.deployment.chain, SUITE), (open_round.payload, keys.public_key)
    )
    return Target(at, channels, open_round, done, turns, seeds, words)


@dataclass
class Stage:
    """The target, and the event loop in which it lives; it moves only while a test runs something in it."""

    target: Target
    runner: asyncio.Runner


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stack = AsyncExitStack()

    async def begin() -> Target:
        at = await stack.enter_async_context(table(tmp_path_factory.mktemp("fuzz"), 2, over_tls=True))
        return await prepare(at, stack)

    with asyncio.Runner() as runner:
        yield Stage(runner.run(begin()), runner)
        runner.run(stack.aclose())


@pytest.fixture(autouse=True)
def nothing_fails_inside(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def is_message(method: str, raw: bytes) -> bool:
    try:
        GetMessageClass(METHODS[method].input_type).FromString(raw)
    except DecodeError:
        return False
    return True


def judge(caller: str, service: str, method: str, raw: bytes, status: grpc.StatusCode) -> None:
    shown = f"{caller} → {service} {method}: {status} for {raw[:200]!r}"
    assert status in ALLOWED, shown
    name = method.rpartition("/")[2]
    if caller not in ALLOWED_CALLERS.get(name, {caller}):
        assert status is not S.OK, shown
    if not is_message(method, raw):
        assert status in (S.INVALID_ARGUMENT, S.PERMISSION_DENIED, S.UNIMPLEMENTED), shown


BATCH = 16


def test_every_call_has_a_proper_answer(stage: Stage) -> None:
    """Services remember what they were sent, so nothing is replayed: what is wrong is shown whole, with its seed."""
    target, wrong = stage.target, []
    ways, methods = sorted(target.channels), sorted(METHODS)
    # 'make test' sends the same every time; 'make fuzz' looks elsewhere.
    first = int(os.environ.get("CROUPIER_FUZZ_SEED", 0 if SHARE < 1 else secrets.randbelow(1 << 32)))
    for seed in range(first, first + max(10, round(25_000 * SHARE / BATCH))):
        dice, calls = Random(seed), []
        for _ in range(BATCH):
            method = dice.choice(methods)
            name = method.rpartition("/")[2]
            # The open round has to stay open for all other calls.
            words = replace(target.words, texts=("fuzz",)) if name == "Withdraw" else target.words
            raw = hostile(dice, METHODS[method].input_type, target.seeds[name], words)
            calls.append((*dice.choice(ways), method, raw))

        async def play(calls: list[tuple[str, str, str, bytes]]) -> list[grpc.StatusCode]:
            return list(await asyncio.gather(*(target.call(*call) for call in calls)))

        for call, status in zip(calls, stage.runner.run(play(calls)), strict=True):
            try:
                judge(*call, status)
            except AssertionError as error:
                what = str(error).partition("\n")[0]
                wrong.append(f"CROUPIER_FUZZ_SEED={seed}: {what}; the whole message in hex: {call[-1].hex()}")
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


LARGEST = MESSAGE_BYTES - 16
LARGE = {
    "noise": b"\xff" * LARGEST,
    "one text": b"\x0a\xf0\xff\xff\x01" + b"x" * (LARGEST & ~15),
    "empty messages": b"\x12\x00" * (LARGEST // 2),
    "too large": bytes(MESSAGE_BYTES + 1),
}


@pytest.mark.parametrize("kind", LARGE)
def test_the_largest_requests_are_refused_or_answered(stage: Stage, kind: str) -> None:
    for method in METHODS:
        for caller, service in ((CLIENT, "shuffler-1"), (OPERATOR, "shuffler-1"), ("accountant", "analyzer")):
            if method.rpartition("/")[2] in ALLOWED_CALLERS and caller == CLIENT:
                continue
            status = stage.runner.run(stage.target.call(caller, service, method, LARGE[kind]))
            if kind == "too large":
                assert status in (S.RESOURCE_EXHAUSTED, S.UNIMPLEMENTED), (caller, method)
            else:
                judge(caller, service, method, LARGE[kind], status)


def test_many_empty_messages_cost_a_client_more_than_the_service(stage: Stage) -> None:
    """They have 2 bytes on the wire and 90 in memory: 180 MiB a call, were they read."""
    process = psutil.Process()
    for name in ("Submit", "HandOver", "Open"):
        before = process.memory_info().rss

        async def flood(name: str) -> list[grpc.StatusCode]:
            call = (CLIENT, "shuffler-1", method_of(name), LARGE["empty messages"])
            return list(await asyncio.gather(*(stage.target.call(*call) for _ in range(8))))

        assert set(stage.runner.run(flood(name))) <= {S.INVALID_ARGUMENT, S.PERMISSION_DENIED}
        gc.collect()
        assert process.memory_info().rss - before < 150 * 2**20
    status = stage.runner.run(stage.target.call(CLIENT, "shuffler-1", method_of("Submit"), b"\x12\x00" * 4000))
    assert status is S.INVALID_ARGUMENT  # more submissions than a call may have


def method_of(name: str) -> str:
    return next(method for method in METHODS if method.endswith(f"/{name}"))


def test_after_all_of_it_a_good_round_is_played(stage: Stage) -> None:
    at = stage.target.at

    async def play() -> tuple[pb.Publication, pb.Certificate]:
        terms = await at.operator.open_round(settings())
        assert (await at.submit(terms, people(BIT, 40, seed=3))).accepted == 40
        return await at.finish(terms)

    publication, certificate = stage.runner.run(play())
    assert (publication.num_reports, certificate.num_users, certificate.granted) == (40, 40, True)
