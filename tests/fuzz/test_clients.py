"""A client against services that say anything: it ends with an answer, or with an error of the library's own.

What is signed is signed with the right keys: the services are dishonest. An answer that cannot be read is None, as it
is where gRPC reads it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
import hypothesis
import hypothesis.strategies as st
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from croupier.client.outbox import Outbox
from croupier.client.round_checks import fetch_round
from croupier.client.round_result import RoundResult
from croupier.client.sequential import Attendee, answer_sequentially
from croupier.client.submission import Participant, SealedSubmission, new_client_key, send
from croupier.client.verification import missing_at_hop
from croupier.net.http_channel import HttpAnswer, failure_of
from croupier.operator.keys import make_deployment
from croupier.protocol.codes import Method
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import CroupierError, ProtocolError
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms, parse_terms, state_name
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from croupier.show.published import publication_json
from tests.fuzz.hostile import Vocabulary, drawn, effort, hostile, noted
from tests.support import BIT, make_kit
from tests.support.clients import seal_participants
from tests.support.messages import naming
from tests.support.sequential import task

CODES = [pb.SUBMISSION_CODE_ACCEPTED, pb.SUBMISSION_CODE_TICKETS_GIVEN, 0, 99, -1]


class Says:
    """A channel on which a service answers every call with the same bytes, and one stream with several."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.streams = 0

    def unary_unary(self, _: str, __: Any = None, response_deserializer: Any = None, **more: Any) -> Any:
        read = response_deserializer or more["response_deserializer"]

        async def call(*_: Any, **__: Any) -> Any:
            noted()
            return as_read(read, self.answers[0])

        return call

    def stream_stream(self, _: str, __: Any = None, response_deserializer: Any = None, **more: Any) -> Any:
        read = response_deserializer or more["response_deserializer"]

        def call() -> Stream:
            if self.streams:
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "it has ended"
                )
            self.streams += 1
            return Stream(read, self.answers)

        return call

    def __getattr__(self, _: str) -> Any:
        return self.unary_unary


class Stream:
    def __init__(self, read: Any, answers: tuple[bytes, ...]) -> None:
        self.read, self.answers = read, answers

    async def write(self, _: Any) -> None:
        """What a client says is not listened to."""

    def cancel(self) -> None:
        """The answers end by themselves."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for raw in self.answers:
            noted()
            yield as_read(self.read, raw)


def as_read(read: Any, raw: bytes) -> Any:
    try:
        return read(raw)
    except DecodeError:
        return None


def outcome(work: Coroutine[Any, Any, Any]) -> Any:
    """Returns what comes of it, or None where it ends with an error that callers are told of."""
    try:
        return asyncio.run(work)
    except (CroupierError, grpc.aio.AioRpcError):
        return None


class World:
    """A deployment whose services sign whatever a test wants."""

    def __init__(self, place: Path, question: Question = BIT) -> None:
        self.deployment: Deployment = make_deployment(place, "local", 2)
        chain = self.deployment.chain
        self.signers = {name: Identity(name, load_secrets(place / name).identity_key) for name in chain}
        self.round = make_kit(question=question).round
        self.terms: RoundTerms = parse_terms(self.round)
        signatures = [self.signers[name].sign(Kind.MANIFEST, self.terms.payload) for name in chain]
        self.round.manifest.signatures.extend(signatures)
        self.words = Vocabulary((self.terms.round_id, *chain), (self.terms.hash, self.terms.payload))

    def hostile(self, seed: int, message: Descriptor, *seeds: Any) -> bytes:
        return hostile(Random(seed), message, [seed.SerializeToString() for seed in seeds], self.words)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


SEEDS = st.integers(0, 2**63)


@effort(4000)
@hypothesis.given(SEEDS)
def test_what_hop_1_says_of_a_round(world: World, seed: int) -> None:
    good = [rpc.GetRoundResponse(round=world.round, state=state) for state in (2, 99)]  # type: ignore[arg-type]
    raw = world.hostile(seed, rpc.GetRoundResponse.DESCRIPTOR, *good)
    fetched = outcome(fetch_round(Says(raw), world.deployment, patience_s=0))  # type: ignore[arg-type]
    if fetched is not None:
        assert fetched[0].payload == world.terms.payload
        assert state_name(fetched[1]) in ("UNKNOWN", *(name[12:] for name in pb.RoundState.keys()))  # noqa: SIM118


@effort(4000)
@hypothesis.given(SEEDS, st.lists(st.sampled_from(CODES), max_size=3))
def test_codes_for_submissions(world: World, seed: int, codes: list[Any]) -> None:
    raw = world.hostile(seed, pb.SubmitResponse.DESCRIPTOR, pb.SubmitResponse(codes=codes))
    answered = outcome(send(Says(raw), "round", {"a": b"", "b": b""}, 0))  # type: ignore[arg-type]
    if answered is not None:
        assert set(answered) == {"a", "b"}
        assert all(pb.SubmissionCode.Name(code) for code in answered.values())


@effort(2000)
@hypothesis.given(SEEDS, st.lists(st.sampled_from(CODES), max_size=2))
def test_tickets(world: World, seed: int, codes: list[Any]) -> None:
    good = pb.GetTicketsResponse(codes=codes, report_evaluations=bytes(96), parameter_evaluations=bytes(96))
    raw = world.hostile(seed, pb.GetTicketsResponse.DESCRIPTOR, good)
    user = {"user": Participant(1, 1.0)}
    sealing = outcome(seal_participants(Says(raw), world.terms, user, 0))  # type: ignore[arg-type]
    if sealing is not None:
        assert not sealing.sealed  # nobody here has the keys that tickets are made with
        assert pb.SubmissionCode.Name(sealing.refused["user"])


@effort(4000)
@hypothesis.given(SEEDS, st.integers(0, 5))
def test_lists_of_a_hop(world: World, seed: int, num_out: int) -> None:
    own = pb.Commitment(num_out=num_out, digest_out=bytes(32))
    chain = {pb.LANE_REPORT: [own], pb.LANE_PARAMETER: [own]}
    raw = world.hostile(
        seed, rpc.GetInclusionResponse.DESCRIPTOR, rpc.GetInclusionResponse(hashes=bytes(32), total=2**63)
    )
    missing = missing_at_hop(Says(raw), world.terms, chain, 1, {"user": bytes(64)})  # type: ignore[arg-type]
    assert outcome(missing) is None


@effort(4000)
@hypothesis.given(SEEDS, st.sampled_from(["CERTIFIED", "", "PROVED"]))
def test_results(world: World, seed: int, grade: str) -> None:
    accountant, analyzer = world.signers["accountant"], world.signers["analyzer"]
    named: dict[str, Any] = {"round_id": world.terms.round_id, "manifest_hash": world.terms.hash}
    certificate = pb.Certificate(
        schema=1, granted=True, grade=grade, method=messages_of([Statement.of(Method.WORST_CASE)]), **named
    )
    signed = accountant.signed(Kind.CERTIFICATE, world.hostile(seed, pb.Certificate.DESCRIPTOR, certificate))
    result = pb.Publication(values=[pb.EstimatedValue()] * (seed % 3), certificate=signed, **named)
    raw = world.hostile(seed // 7, pb.Publication.DESCRIPTOR, result)
    document = analyzer.signed(Kind.PUBLICATION, raw)
    noted()
    try:
        publication = read_publication(document, world.deployment)
        json.dumps(publication_json(*publication))
        RoundResult.read(*publication)
    except CroupierError:
        return


@pytest.fixture(scope="module")
def attended(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Attendee], Outbox]:
    place = tmp_path_factory.mktemp("attended")
    world, outbox = World(place / "deployment", task()), Outbox(place / "outbox.db")
    key = new_client_key()
    outbox.keep(world.terms.round_id, {"user": SealedSubmission(b"sealed", b"", 2.0, new_client_key())})
    return world, {"user": Attendee(key, lambda _: [0.0, 0.0, 1.0])}, outbox


@effort(2000)
@hypothesis.given(SEEDS)
def test_streams_of_hop_1(attended: tuple[World, dict[str, Attendee], Outbox], seed: int) -> None:
    world, users, outbox = attended
    dice = Random(seed)
    named: dict[str, Any] = {"round_id": world.terms.round_id, "manifest_hash": world.terms.hash}
    certificate = world.signers["accountant"].signed(
        Kind.CERTIFICATE, canonical(pb.Certificate(granted=dice.random() < 0.9, **named))
    )
    key = Participant(None, 1.0, users["user"].private_key).public_key
    good = [
        pb.AttendResponse(challenge=bytes(32)),
        pb.AttendResponse(admitted=pb.Admitted(codes=[dice.choice(CODES)])),  # type: ignore[list-item]
        pb.AttendResponse(certificate=certificate),
        pb.AttendResponse(ask=pb.Ask(client_key=key)),
        pb.AttendResponse(finished=pb.SequentialReport()),
    ]
    raws = [message.SerializeToString() for message in good]
    raws[dice.randrange(5)] = world.hostile(seed, pb.AttendResponse.DESCRIPTOR, *good)
    outcome(answer_sequentially(Says(*raws), world.terms, world.deployment, users, outbox=outbox, patience_s=0))  # type: ignore[arg-type]


@effort(4000)
@hypothesis.given(st.integers(100, 999), st.binary(max_size=60) | drawn(pb.Signed.DESCRIPTOR))
def test_failures_of_a_gateway(status: int, body: bytes) -> None:
    noted()
    assert isinstance(failure_of(HttpAnswer(status, {}, body)), grpc.aio.AioRpcError)


def test_what_a_client_is_told_that_the_protocol_does_not_have(world: World) -> None:
    """Each ended with a ValueError, a KeyError, an AttributeError or a RecursionError."""
    unknown = pb.SubmitResponse(codes=[99]).SerializeToString()  # type: ignore[list-item]
    with pytest.raises(ProtocolError, match=naming("code 99")):
        asyncio.run(send(Says(unknown), "round", {"a": b""}))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=naming("0 codes", 1)):
        asyncio.run(send(Says(b""), "round", {"a": b""}))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=naming("answer")):
        asyncio.run(send(Says(b"\xff"), "round", {"a": b""}))  # type: ignore[arg-type]
    for body in (b"[" * 100_000, b'{"code": [], "message": ""}', b'{"code": "none"}'):
        assert failure_of(HttpAnswer(500, {}, body)).code() is grpc.StatusCode.UNKNOWN
    certificate = pb.Certificate(granted=True, grade="\x1bPROVED")
    with pytest.raises(ProtocolError, match=naming("certificate", r"'\x1bPROVED'")):
        RoundResult.read(pb.Publication(), certificate)
    assert state_name(99) == "UNKNOWN"  # type: ignore[arg-type]
