"""Turns under attack: by strangers, by dishonest clients, by a dishonest first hop. Each test performs the attack."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from croupier.client.submission import SealedSubmission, new_client_key
from croupier.operator.canaries import check_canaries, send_canaries
from croupier.protocol.codes import Assumption
from croupier.protocol.envelope import HOP_ANALYZER, HOP_RELEASE, open_many
from croupier.protocol.errors import Code, Refusal, SignatureError, refusal_of
from croupier.protocol.identity import Identity, Kind, canonical, sign_answer, sign_attendance
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.names import Digest, PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.service_directory import load_secrets
from croupier.shuffler.attendance import MAX_ATTENDANCES, Attendance, Stream
from croupier.shuffler.sequential import SequentialHop
from tests.support import BIT
from tests.support import settings as bit_settings
from tests.support.messages import naming
from tests.support.sequential import DIMENSION, Person, Table, gathered, laid, people, settings, signed_answer, task
from tests.support.statements import codes

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def attending(table: Table, round_id: str) -> AsyncIterator[tuple[Any, bytes]]:
    """A stream as a client has it, and its challenge."""
    call: Any = stubs.ShufflerStub(table.channel).Attend(timeout=60)
    await call.write(pb.AttendRequest(round_id=round_id))
    try:
        yield call, (await call.read()).challenge
    finally:
        call.cancel()


async def refusal_to(call: Awaitable[Any]) -> Refusal | None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value)


def code_of(refusal: Refusal | None) -> Code | None:
    return refusal.code if refusal else None


async def test_only_submitters_that_hold_their_key_are_let_in(tmp_path: Path) -> None:
    async with gathered(tmp_path) as (table, group, terms):
        stranger = Person(np.zeros(DIMENSION), 2.0)
        with pytest.raises(Refusal, match=naming(1, "outbox")):
            await table.take(terms, {"stranger": stranger})
        victim = group["user 0"]
        async with attending(table, terms.round_id) as (call, challenge):
            good = sign_attendance(terms.hash, challenge, PrivateKey(victim.key))
            theirs = sign_attendance(terms.hash, challenge, new_client_key())
            forged = pb.Attendance(client_key=good.client_key, signature=theirs.signature)
            stale = sign_attendance(terms.hash, os.urandom(32), PrivateKey(victim.key))
            elsewhere = sign_attendance(Digest(bytes(32)), challenge, PrivateKey(victim.key))
            await call.write(pb.AttendRequest(attendances=[forged, stale, elsewhere, theirs, good]))
            codes = (await call.read()).admitted.codes
        bad, accepted = pb.SUBMISSION_CODE_BAD_SIGNATURE, pb.SUBMISSION_CODE_ACCEPTED
        assert codes == [bad, bad, bad, pb.SUBMISSION_CODE_UNKNOWN_CLIENT, accepted]


async def test_a_user_without_a_submission_keeps_no_other_out(tmp_path: Path) -> None:
    async with gathered(tmp_path, hops=1) as (table, group, terms):
        taken = await table.take(terms, {"stranger": Person(np.zeros(DIMENSION), 2.0)} | group)
        assert taken.refused == {"stranger": "its submission is not in the outbox"}
        assert taken.answered == set(group)
        await table.result(terms)


async def test_strangers_and_many_streams_of_one_client_keep_no_other_out(tmp_path: Path) -> None:
    """48 streams of one address filled its share: strangers kept a place for 20 s each, and one client any number."""
    async with laid(tmp_path, 1) as table, AsyncExitStack() as streams:
        group = people(8)
        terms = await table.gather(group, settings(task()))
        for _ in range(60):
            await streams.enter_async_context(attending(table, terms.round_id))
        for _ in range(60):
            call, challenge = await streams.enter_async_context(attending(table, terms.round_id))
            mine = sign_attendance(terms.hash, challenge, PrivateKey(group["user 0"].key))
            await call.write(pb.AttendRequest(attendances=[mine]))
            assert (await call.read()).admitted.codes == [pb.SUBMISSION_CODE_ACCEPTED]
        taken = await table.take(terms, group)
        assert taken.answered == set(group)
        await table.result(terms)


async def test_the_traffic_shows_who_is_asked_and_the_certificate_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observer sees how much goes to which client when, encrypted or not: what is large is a question."""
    seen, computed, really = list[tuple[int, set[PublicKey]]](), list[bytes](), Stream.push

    def watched(self: Stream, *responses: pb.AttendResponse) -> None:
        seen.extend((response.ByteSize(), self.clients) for response in responses)
        really(self, *responses)

    def person(key: bytes) -> Person:
        def gradient(_: bytes) -> NDArray[np.float64]:
            computed.append(key)
            return np.ones(DIMENSION)

        return Person(np.zeros(DIMENSION), 2.0, key, gradient)

    monkeypatch.setattr(Stream, "push", watched)
    async with laid(tmp_path) as table:
        group = {str(number): person(new_client_key()) for number in range(8)}
        terms = await table.gather(group, settings(task()))
        await asyncio.gather(*(table.take(terms, {name: member}) for name, member in group.items()))
        _, certificate = await table.result(terms)
    public = {
        Ed25519PrivateKey.from_private_bytes(member.key).public_key().public_bytes_raw(): member.key
        for member in group.values()
    }
    largest = max(size for size, _ in seen)
    asked = [public[client] for size, clients in seen if size == largest for client in clients]
    assert asked == computed
    assert Assumption.UNWATCHED in codes(certificate.assumptions)


async def test_no_client_answers_for_another(tmp_path: Path) -> None:
    """The attacker attends as itself, guesses that another is asked, and sends all the time."""
    async with gathered(tmp_path, chosen=settings(task(), needed=7)) as (table, group, terms):
        attacker, *others = list(group)
        junk = signed_answer(table, terms, attacker, [0, 0, -1])
        keys = [sign_attendance(Digest(b""), b"", PrivateKey(group[name].key)).client_key for name in others]
        async with attending(table, terms.round_id) as (call, challenge):
            await call.write(
                pb.AttendRequest(attendances=[sign_attendance(terms.hash, challenge, PrivateKey(group[attacker].key))])
            )

            async def flood() -> None:
                while True:
                    for key in keys:
                        await call.write(pb.AttendRequest(answer=pb.Answer(client_key=key, envelope=junk)))
                    await asyncio.sleep(0.05)

            flooding = asyncio.create_task(flood())
            taken = await table.take(terms, {name: group[name] for name in others})
            flooding.cancel()
        assert (taken.report.num_answers, taken.report.num_skipped) == (7, 1)
        assert taken.answered == set(others)
        publication, _ = await table.result(terms)
        # With the junk, every answer would have gone the same way.
        assert np.frombuffer(publication.vector, dtype="<f4")[0] != 0


async def test_a_report_that_no_honest_client_sends_changes_nothing(tmp_path: Path) -> None:
    async with gathered(tmp_path, chosen=settings(task(), needed=6)) as (table, group, terms):
        bad = [
            signed_answer(table, terms, "user 0", [1e6, 0, 0]),
            signed_answer(table, terms, "user 1", [np.nan, 0, 1]),
        ]
        for name, envelope in zip(list(group)[:2], bad, strict=True):
            table.outbox.keep(RoundId(f"answers/{terms.round_id}"), {name: SealedSubmission(envelope, b"")})
        taken = await table.take(terms, group)
        assert (taken.report.num_answers, taken.report.num_skipped) == (6, 2)
        publication, certificate = await table.result(terms)
        assert np.isfinite(np.frombuffer(publication.vector, dtype="<f4")).all()
        assert certificate.dishonest == 2


async def test_a_hop_cannot_answer_in_the_place_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second answer that hop 2 passes on is its own, well sealed and signed: with a key that has no ticket."""
    async with gathered(tmp_path, chosen=settings(task(), needed=4)) as (table, group, terms):
        onion, original, count = Onion(terms), open_many, 0
        junk = sign_answer(terms.hash, np.array([0, 0, -1], dtype="<f4").tobytes(), new_client_key())
        behind = [onion.layer(pb.LANE_ANSWER, sink) for sink in (HOP_ANALYZER, HOP_RELEASE)]

        def forging(*arguments: Any) -> list[bytes | None]:
            nonlocal count
            count += 1
            return original(*arguments) if count % 2 else [onion.seal_layers(behind, junk)[0]]

        monkeypatch.setattr("croupier.shuffler.sequential.open_many", forging)
        taken = await table.take(terms, group)
        assert (taken.report.num_answers, taken.report.num_skipped) == (4, 4)
        publication, certificate = await table.result(terms)
        assert publication.num_reports == certificate.num_answers == 4
        assert (certificate.num_tickets, certificate.dishonest) == (8, 4)


@pytest.mark.slow
async def test_answers_come_from_the_predecessor_alone_and_are_learnt_from_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gathered(tmp_path) as (table, group, terms):
        passed_on: asyncio.Queue[bytes] = asyncio.Queue()
        original = SequentialHop.pass_on

        async def watched(self: SequentialHop, terms_of_round: RoundTerms, answer: bytes) -> pb.RelayResponse:
            response = await original(self, terms_of_round, answer)
            passed_on.put_nowait(answer)
            return response

        monkeypatch.setattr(SequentialHop, "pass_on", watched)
        taking = asyncio.create_task(table.take(terms, group))
        sealed = await asyncio.wait_for(passed_on.get(), 60)
        second = table.inside.running["shuffler-2"].service
        keys = await second.store.run("look", lambda tx: tx.keys(terms.round_id))
        layer = Onion(terms).layer(pb.LANE_ANSWER, 2)
        (answer,) = open_many(terms.shared.hpke_suite, keys[KeyPurpose.ENVELOPE].private, layer.label, [sealed])
        request = pb.RelayRequest(round_id=terms.round_id, ciphertext=answer or b"")

        async def relay(caller: str) -> pb.RelayResponse:
            secrets = load_secrets(table.inside.directory / caller)
            async with table.inside.transport.peer_channel(table.operator.deployment.analyzer, secrets) as channel:
                return await stubs.DeliveryStub(channel).Relay(request, timeout=20)

        for caller in ("shuffler-1", "operator"):
            assert code_of(await refusal_to(relay(caller))) is Code.NOT_YOUR_CALL
        again = await relay("shuffler-2")
        assert again.learnt
        assert pb.Model.FromString(again.model.payload).num_answers <= 1 + passed_on.qsize() + 1
        taken = await taking
        publication, certificate = await table.result(terms)
        assert taken.report.num_answers == publication.num_reports == certificate.num_answers == 8


async def test_no_client_answers_about_a_model_not_signed_by_the_analyzer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gathered(tmp_path) as (table, group, terms):
        hop_1 = Identity("shuffler-1", load_secrets(table.inside.directory / "shuffler-1").identity_key)
        original = Attendance.ask

        async def lie(self: Attendance, round_id: str, client: bytes, model: Any, *more: Any) -> bytes | None:
            forged = pb.Model(round_id=round_id, manifest_hash=terms.hash, parameters=b"\0" * 12)
            return await original(
                self, RoundId(round_id), PublicKey(client), hop_1.signed(Kind.MODEL, canonical(forged)), *more
            )

        monkeypatch.setattr(Attendance, "ask", lie)
        with pytest.raises(SignatureError, match=r"analyzer|signed by"):
            await table.take(terms, group)
        assert [person.asked for person in group.values()] == [[]] * 8
        assert not table.outbox.users(RoundId(f"answers/{terms.round_id}"))


async def test_no_client_answers_without_the_accountants_grant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gathered(tmp_path) as (table, group, terms):
        original = Attendance.ask
        refused = pb.Certificate(round_id=terms.round_id, manifest_hash=terms.hash, granted=False)
        accountant = Identity("accountant", load_secrets(table.inside.directory / "accountant").identity_key)

        async def lie(self: Attendance, *arguments: Any) -> bytes | None:
            forged = accountant.signed(Kind.CERTIFICATE, canonical(refused))
            round_id, client, model, _, seconds = arguments
            return await original(self, round_id, client, model, forged, seconds)

        monkeypatch.setattr(Attendance, "ask", lie)
        with pytest.raises(Refusal, match=Code.WRONG_STATE.message):
            await table.take(terms, group)
        assert [person.asked for person in group.values()] == [[]] * 8


async def test_who_is_asked_twice_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first hop that asks again about another model, for a second sample of the same data."""
    async with gathered(tmp_path, chosen=settings(task(period_ms=600))) as (table, group, terms):
        original = Attendance.ask
        answers: list[bytes | None] = []

        async def lie(
            self: Attendance, round_id: str, client: bytes, model: Any, certificate: Any, seconds: float
        ) -> bytes | None:
            first = await original(self, RoundId(round_id), PublicKey(client), model, certificate, seconds / 2)
            answers.extend(
                (first, await original(self, RoundId(round_id), PublicKey(client), None, certificate, seconds / 2))
            )
            return first

        monkeypatch.setattr(Attendance, "ask", lie)
        await table.take(terms, group)
        assert answers[0::2] == answers[1::2]
        assert len(set(answers)) == 8
        assert [len(person.asked) for person in group.values()] == [1] * 8


async def test_a_bad_attendance_is_refused(tmp_path: Path) -> None:
    async with laid(tmp_path) as table:
        stub: Any = stubs.ShufflerStub(table.channel)
        bit = await table.operator.open_round(bit_settings(BIT))
        turns = await table.operator.open_round(settings(task()))

        async def say(*requests: pb.AttendRequest) -> Code | None:
            call = stub.Attend(timeout=20)
            for request in requests:
                await call.write(request)

            async def to_the_end() -> None:
                async for _ in call:
                    pass

            return code_of(await refusal_to(to_the_end()))

        many = [pb.Attendance(client_key=b"k" * 32)] * (MAX_ATTENDANCES + 1)
        named = pb.AttendRequest(round_id=turns.round_id)
        assert await say(pb.AttendRequest()) is Code.BAD_REQUEST
        assert await say(pb.AttendRequest(round_id="nowhere")) is Code.UNKNOWN_ROUND
        assert await say(pb.AttendRequest(round_id=bit.round_id)) is Code.BAD_REQUEST
        assert await say(named, pb.AttendRequest(attendances=many)) is Code.BAD_REQUEST
        assert await say(named, named) is Code.BAD_REQUEST
        await table.operator.withdraw(turns.round_id)


@pytest.mark.parametrize(
    "mechanism", [pytest.param("hemisphere", marks=pytest.mark.slow), "gaussian_vector", "sequential"]
)
async def test_canaries_can_be_played_where_vectors_are_asked_for(tmp_path: Path, mechanism: str) -> None:
    """Reproduction: they have no interval to draw a value from."""
    question = task()
    if mechanism != "sequential":
        assert question.mechanism.task
        at_once = replace(question.mechanism.task, sequential=None)
        kinds = {"hemisphere": Hemisphere(at_once), "gaussian_vector": GaussianVector(at_once, 5, 1e-5)}
        question = Question("at-once", kinds[mechanism])
    async with laid(tmp_path) as table:
        terms = await table.operator.open_round(replace(settings(question, needed=2), dishonest=3))
        assert await send_canaries(table.inside.directory, terms.round_id, 3, table.inside.transport) == 3
        await table.operator.close_round(terms.round_id)
        if mechanism == "sequential":
            first = table.inside.running["shuffler-1"].service
            while (  # noqa: ASYNC110
                await first.store.run("look", lambda tx: tx.round(terms.round_id))
            ).state != pb.ROUND_STATE_SEQUENTIAL:
                await asyncio.sleep(0.05)
            await table.operator.close_round(terms.round_id, end_sequential=True)
        await table.result(terms)
        report = await check_canaries(table.inside.directory, terms.round_id, table.inside.transport)
        assert report.missing == {"shuffler-1": 0, "shuffler-2": 0}
