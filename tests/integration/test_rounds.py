"""Whole rounds with all roles in this process: in memory, and once over TLS with worker processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from croupier import BinaryRandomizedResponse, Budgets, certify
from croupier.accountant.rounds.ledger import Ledger
from croupier.client.round_checks import fetch_terms
from croupier.client.submission import Participant, new_client_key, prepare_one, send
from croupier.client.verification import certified_chain, missing_at_hop
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import canonical, sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.publications import read_publication
from croupier.protocol.questions import Question
from croupier.protocol.surveys import read_survey
from croupier.protocol.tickets import BLINDED_BYTES, TicketRequest
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from tests.support import BIT, settings
from tests.support.clients import crafted, seal_participants, seal_prepared, submissions_of, without_tickets
from tests.support.messages import naming, refuses
from tests.support.rounds import QUESTIONS, WAIT_S, Table, people, table
from tests.support.statements import codes, parameters


def truth_of(question: Question, users: Sequence[Participant]) -> list[float]:
    values = [user.value for user in users]
    if question.mechanism.kind in ("krr", "pgr"):
        return [values.count(letter) / len(values) for letter in range(len(question.mechanism.categories))]
    if isinstance(question.mechanism, MultipleChoice):
        return [sum(value >> option & 1 for value in values) / len(values) for option in range(question.mechanism.k)]
    return [sum(values) / len(values)]


@pytest.mark.virtual_time
async def test_every_kind_of_question_is_answered(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        await are_answered(at, QUESTIONS, seed=1)


@pytest.mark.slow
async def test_two_kinds_of_question_are_answered_over_tls(tmp_path: Path) -> None:
    """The shortest reports and the longest, with three hops and replaced parts: gRPC, TLS, processes, real time."""
    async with table(tmp_path, 3, over_tls=True) as at:
        await are_answered(at, [QUESTIONS[0], QUESTIONS[-1]], seed=3)


async def are_answered(at: Table, questions: Sequence[Question], seed: int) -> None:
    """An estimate fails to be within 6 standard errors by chance with probability below 1e-7 in all."""
    for question in questions:
        terms = await at.operator.open_round(settings(question))
        users = people(question, 100, seed=seed)
        report = await at.submit(terms, users)
        assert report.accepted == 100
        publication, certificate = await at.finish(terms)
        assert certificate.granted
        assert certificate.grade == "CERTIFIED"
        assert [tier.local_epsilon for tier in certificate.tiers] == [0.5, 1.0, 2.0]
        assert sum(tier.count for tier in certificate.tiers) == 100 == publication.num_reports
        assert certificate.epsilon <= 2.0
        assert 0 < certificate.lower_bound_epsilon <= certificate.epsilon
        assert {tier.local_delta for tier in certificate.tiers} == {question.mechanism.budget_delta}
        assert not publication.drops
        for value, truth in zip(publication.values, truth_of(question, users), strict=True):
            assert abs(value.estimate - truth) < 6 * value.standard_error
    for answer in await at.operator.status():
        assert isinstance(answer, rpc.StatusResponse)
        assert {round_.problem for round_ in answer.rounds} == {""}


@pytest.mark.virtual_time
@pytest.mark.parametrize("held", [0, 40_000, 10**9])
async def test_a_batch_is_the_same_where_it_does_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr("croupier.shuffler.batch_mixer.HELD_BYTES", held)
    monkeypatch.setattr("croupier.shuffler.batch_mixer.WINDOW_BYTES", 10_000)
    monkeypatch.setattr("croupier.runtime.lane_sender.CHUNK_BYTES", 2_000)
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, [Participant(1, 2.0)] * 30 + [Participant(0, 1.0)] * 20)
        publication, certificate = await at.finish(terms)
        assert [(tier.local_epsilon, tier.count) for tier in certificate.tiers] == [(1.0, 20), (2.0, 30)]
        assert publication.num_reports == 50


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_the_certificate_is_the_accountants_and_the_answer_never_changes(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        users = people(BIT, 120, seed=5)
        await at.submit(terms, users)
        publication, certificate = await at.finish(terms)
        tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
        expected = certify(Budgets.from_tiers(tiers), BinaryRandomizedResponse(), delta=1e-4)
        assert certificate.epsilon == expected.epsilon
        assert certificate.comparison[0].name == "GSPA Thm 2"
        assert certificate.comparison[0].grade == "ASYMPTOTIC"
        async with at.operator.client_channel(at.deployment.analyzer.name) as channel:
            stub = stubs.AnalyzerStub(channel)
            again = [await stub.GetResult(rpc.GetResultRequest(round_id=terms.round_id)) for _ in range(2)]
        assert again[0].publication == again[1].publication
        assert read_publication(again[0].publication, at.deployment)[0] == publication
        forged = pb.Signed.FromString(again[0].publication.SerializeToString())
        forged.payload = forged.payload.replace(terms.round_id.encode(), b"x" * len(terms.round_id))
        with pytest.raises(SignatureError):
            read_publication(forged, at.deployment)


@pytest.mark.virtual_time
async def test_a_round_above_the_policy_is_refused_and_stays_unreadable(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings(epsilon_max=0.001))
        await at.submit(terms, people(BIT, 40, seed=1))
        publication, certificate = await at.finish(terms)
        assert not certificate.granted
        assert parameters(certificate.refusals, RefusalReason.EPSILON_LIMIT) == {"most": 0.001}
        assert not certificate.tiers
        assert not publication.values
        assert await at.inside.running["accountant"].service.store.run("look", lambda tx: tx.keys(terms.round_id)) == {}


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_the_ledger_refuses_the_round_that_would_exceed_the_limit(tmp_path: Path) -> None:
    limit = "\n[privacy_limit]\ntotal_epsilon = 0.8\ntotal_delta = 3e-4\n"
    async with table(tmp_path, 1, limit) as at:
        granted = []
        for number in range(4):
            terms = await at.operator.open_round(settings(), RoundId(f"round-{number}"))
            await at.submit(terms, people(BIT, 150, seed=number))
            _, certificate = await at.finish(terms)
            granted.append(certificate.granted)
            if number == 0:
                await at.inside.restart("accountant")
        refusal = certificate.refusals[-1]
        assert granted[:2] == [True, True]
        assert granted[3] is False
        assert parameters([refusal], RefusalReason.LEDGER_LIMIT) == {"epsilon": 0.8, "delta": 3e-4}
        accountant = at.inside.running["accountant"].service.store
        spent = await accountant.run("look", lambda tx: Ledger(tx.connection).spent(3e-4))
        assert spent[-1].rounds == sum(granted)
        assert spent[-1].guarantee is not None
        assert 0.3 < spent[-1].guarantee.epsilon <= 0.8
        assert await accountant.run("look", lambda tx: tx.keys(RoundId("round-3"))) == {}


@pytest.mark.virtual_time
async def test_too_few_clients_are_held_or_disposed_of_but_never_mixed(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        held = await at.operator.open_round(settings())
        await at.submit(held, people(BIT, 19, seed=1))
        assert (await at.operator.close_round(held.round_id)).state == pb.ROUND_STATE_OPEN
        disposed = await at.operator.open_round(replace(settings(min_batch_size=20), short_batch_policy="dispose"))
        await at.submit(disposed, people(BIT, 19, seed=1))
        for _ in range(2):
            answer = await at.operator.close_round(disposed.round_id)
            assert (answer.state, answer.num_clients) == (pb.ROUND_STATE_DISPOSED, 19)
        code = await seal_and_send(at, held, Participant(1, 1.0))
        assert code == pb.SUBMISSION_CODE_ACCEPTED
        publication, _ = await at.finish(held)
        assert publication.num_reports == 20


async def seal_and_send(at: Table, terms: RoundTerms, user: Participant) -> int:
    """Returns what an enrolled client is told, by the accountant or by hop 1."""
    key = user.private_key or new_client_key()
    await at.operator.enrol([PublicKey(Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw())])
    sealed, refused = await seal_participants(at.accountant, terms, {"one": replace(user, private_key=key)})
    if refused:
        return refused["one"]
    return (await send(at.channel, terms.round_id, {"one": sealed["one"].submission}))["one"]


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_round_is_withdrawn_everywhere_until_it_is_certified(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        await at.inside.stop("accountant")
        await at.operator.close_round(terms.round_id)
        for _ in range(600):  # the analyzer has the batch, the accountant does not answer
            held = at.inside.running["analyzer"].service.store
            if (await held.run("look", lambda tx: tx.round(terms.round_id))).state == pb.ROUND_STATE_MIXED:
                break
            await asyncio.sleep(0.05)
        states = await at.operator.withdraw(terms.round_id)
        assert [states[name] for name in ("shuffler-2", "analyzer", "accountant")] == ["DISPOSED"] * 2 + ["UNAVAILABLE"]
        assert re.search(naming("DELIVERED"), states["shuffler-1"])
        await at.inside.start("accountant")
        assert (await at.operator.withdraw(terms.round_id))["accountant"] == "DISPOSED"
        for running in at.inside.running.values():
            assert await running.service.store.run("look", lambda tx: tx.keys(terms.round_id)) == {}
        with pytest.raises(Refusal, match=Code.NOT_READY.message):
            await at.operator.result(terms.round_id, 0.0)

        second = await at.operator.open_round(settings())
        await at.submit(second, people(BIT, 30, seed=2))
        assert set((await at.operator.withdraw(second.round_id)).values()) == {"DISPOSED"}
        assert await seal_and_send(at, second, Participant(1, 1.0)) == pb.SUBMISSION_CODE_ROUND_CLOSED

        third = await at.operator.open_round(settings())
        await at.submit(third, people(BIT, 30, seed=3))
        await at.finish(third)
        states = await at.operator.withdraw(third.round_id)
        assert all("its certificate" in state for state in states.values())
        assert (await at.operator.result(third.round_id, WAIT_S))[0].num_reports == 30


@pytest.mark.virtual_time
async def test_a_round_that_is_withdrawn_while_it_is_opened_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was open again, without its keys: what hop 1 acknowledged then could never be mixed."""
    async with table(tmp_path, 1) as at:
        hop = at.inside.running["shuffler-1"].service
        honest = hop.store.run

        async def with_a_second_operator(name: str, work: Callable[[Transaction], Any]) -> Any:
            if name == StoreStep.OPEN_ROUND:
                assert (await at.operator.withdraw(RoundId("twice")))["shuffler-1"] == "DISPOSED"
            return await honest(name, work)

        monkeypatch.setattr(hop.store, "run", with_a_second_operator)
        with pytest.raises(Refusal, match=naming(Code.WRONG_STATE.message, "'twice'")):
            await at.operator.open_round(settings(), RoundId("twice"))
        assert (await honest("look", lambda tx: tx.round(RoundId("twice")))).state == pb.ROUND_STATE_DISPOSED


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_one_client_with_the_largest_budget_does_not_have_a_round_refused(tmp_path: Path) -> None:
    """Reproduction: with 100 clients at 0.5, one at 4 raised the ε that the policy is about from 0.20 to 0.95."""
    async with table(tmp_path, 1) as at:
        chosen = replace(settings(), budget_grid=(0.5, 4.0), epsilon_max=0.3)
        users = [Participant(1, 0.5)] * 100 + [Participant(0, 4.0)]
        granted = {}
        for name, limits in (("one for all", {}), ("per budget", {4.0: 4.0}), ("too strict", {0.5: 0.01, 4.0: 4.0})):
            terms = await at.operator.open_round(replace(chosen, epsilon_max_of=limits))
            await at.submit(terms, users)
            _, certificate = await at.finish(terms)
            granted[name] = certificate.granted
            if certificate.granted:
                small, large = certificate.tiers
                assert small.epsilon < 0.3 < large.epsilon == certificate.epsilon
            else:
                several = {"least": 0.01, "most": 4.0}
                if name == "too strict":
                    assert parameters(certificate.refusals, RefusalReason.EPSILON_LIMITS) == several
                else:
                    assert RefusalReason.EPSILON_LIMITS not in codes(certificate.refusals)
        assert granted == {"one for all": False, "per budget": True, "too strict": False}
        with pytest.raises(ValueError, match="a budget's epsilon_max is 21"):
            await at.operator.open_round(replace(chosen, epsilon_max_of={4.0: 21.0}))


@pytest.mark.virtual_time
async def test_what_is_not_blinded_gets_its_own_answer_and_no_entry(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        users = [prepare_one(terms, Onion(terms), Participant(1, 1.0)) for _ in range(3)]
        await at.operator.enrol([user.client_key for user in users])
        good = [b"".join(TicketRequest(part).blinded for part in user.messages(terms.hash)) for user in users]
        bad = good[1][:BLINDED_BYTES] + bytes(BLINDED_BYTES)

        async def asked(*blinded: bytes) -> pb.GetTicketsResponse:
            signed = [
                sign_submission(terms.hash, request, user.key, purpose="tickets")
                for request, user in zip(blinded, users, strict=True)
            ]
            request = pb.GetTicketsRequest(round_id=terms.round_id, requests=signed)
            return await stubs.AccountantStub(at.accountant).GetTickets(request)

        first = await asked(good[0], bad, good[2])
        granted, other = pb.SUBMISSION_CODE_ACCEPTED, pb.SUBMISSION_CODE_NOT_BLINDED
        assert list(first.codes) == [granted, other, granted]
        again = await asked(*good)
        assert list(again.codes) == [granted] * 3
        evaluations = again.report_evaluations[64:]
        assert first.report_evaluations[64:] == evaluations[:BLINDED_BYTES] + evaluations[2 * BLINDED_BYTES :]


@pytest.mark.virtual_time
async def test_bad_submissions_get_their_own_answer_and_disturb_no_others(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        key = new_client_key()
        _, refused = await seal_participants(at.accountant, terms, {"one": Participant(1, 1.0)})
        assert refused == {"one": pb.SUBMISSION_CODE_UNKNOWN_CLIENT}
        stranger = without_tickets(terms, Participant(1, 1.0)).submission
        answer = await send(at.channel, terms.round_id, {"one": stranger})
        assert answer["one"] == pb.SUBMISSION_CODE_UNKNOWN_CLIENT
        assert await seal_and_send(at, terms, Participant(1, 1.0, key)) == pb.SUBMISSION_CODE_ACCEPTED
        assert await seal_and_send(at, terms, Participant(0, 1.0, key)) == pb.SUBMISSION_CODE_TICKETS_GIVEN
        another = without_tickets(terms, Participant(0, 1.0, key)).submission
        answer = await send(at.channel, terms.round_id, {"one": another})
        assert answer["one"] == pb.SUBMISSION_CODE_ALREADY_EXISTS
        truncated = pb.Submission.FromString(stranger)
        truncated.envelope = truncated.envelope[:-1]
        answer = await send(at.channel, terms.round_id, {"one": truncated.SerializeToString()})
        assert answer["one"] == pb.SUBMISSION_CODE_WRONG_SIZE
        for value, epsilon, message in ((2, 1.0, "value is 2"), (1, 0.1, "at least 0.5")):
            with pytest.raises(ValueError, match=message):
                prepare_one(terms, Onion(terms), Participant(value, epsilon))
        with refuses(Code.UNKNOWN_ROUND):
            await send(at.channel, RoundId("another"), {"one": truncated.SerializeToString()})
        publication, certificate = await at.finish(terms)
        assert (publication.num_reports, certificate.num_users) == (31, 31)
        assert await seal_and_send(at, terms, Participant(1, 1.0)) == pb.SUBMISSION_CODE_ROUND_CLOSED


@pytest.mark.virtual_time
async def test_garbage_inside_a_good_submission_is_dropped_counted_and_charged(tmp_path: Path) -> None:
    """One envelope that hop 1 cannot open, one whose budget is off the grid, and one whose report is not a bit."""
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        noise = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), new_client_key())
        await at.operator.enrol([PublicKey(noise.client_key)])
        liars = [crafted(terms, 1, 0.123), crafted(terms, 77, 1.0)]
        liar, wild = submissions_of(await seal_prepared(at.operator, terms, liars))
        bad = {"noise": noise, "liar": liar, "wild": wild}
        codes = await send(
            at.channel, terms.round_id, {name: submission.SerializeToString() for name, submission in bad.items()}
        )
        assert set(codes.values()) == {pb.SUBMISSION_CODE_ACCEPTED}
        publication, certificate = await at.finish(terms)
        assert (certificate.num_users, certificate.invalid_budgets, certificate.dishonest) == (31, 1, 0)
        assert (certificate.num_tickets, certificate.num_reports, certificate.unknown_budgets) == (32, 32, 0)
        assert publication.num_reports == 31
        assert [(drop.reason, drop.count) for drop in publication.drops] == [("malformed", 1)]


@pytest.mark.virtual_time
async def test_the_fleet_resumes_with_the_same_bytes(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings())
        users = people(BIT, 30, seed=1)
        await at.submit(terms, users[:25])
        before = at.outbox.acknowledged(terms.round_id)
        report = await at.submit(terms, users)
        assert (report.accepted, len(before)) == (5, 25)
        after = at.outbox.acknowledged(terms.round_id)
        assert {user: after[user] for user in before} == before


@pytest.mark.virtual_time
async def test_a_client_finds_its_own_ciphertexts_and_only_those(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        _, certificate = await at.finish(terms)
        chain = certified_chain(certificate, terms, at.deployment)
        hashes_of = at.outbox.inclusion_hashes(terms.round_id)
        assert len(hashes_of) == 30
        assert await missing_at_hop(at.channel, terms, chain, 1, hashes_of) == []
        stranger = without_tickets(terms, Participant(1, 1.0)).inclusion_hashes
        half = hashes_of["0"][:32] + stranger[32:]
        assert await missing_at_hop(at.channel, terms, chain, 1, hashes_of | {"s": stranger, "h": half}) == ["s", "h"]
        async with at.peer_channel("shuffler-2", OPERATOR) as second:
            assert await missing_at_hop(second, terms, chain, 2, hashes_of | {"s": stranger}) == ["s"]
        async with at.peer_channel("shuffler-2", "analyzer") as second:
            with pytest.raises(Refusal, match=Code.NOT_YOUR_CALL.message):
                await missing_at_hop(second, terms, chain, 2, hashes_of)
        chain[pb.LANE_PARAMETER][0].digest_out = bytes(32)
        with pytest.raises(Refusal, match=naming(Code.BAD_BATCH.message, "hop 1", "LANE_PARAMETER")):
            await missing_at_hop(at.channel, terms, chain, 1, hashes_of)


@pytest.mark.virtual_time
async def test_strangers_cannot_call_what_is_not_theirs(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        deliver = pb.DeliverRequest(round_id=terms.round_id, lane=pb.LANE_REPORT, chunk_count=1, ciphertexts=b"x")
        grant = pb.GrantRequest(round_id=terms.round_id)
        register = pb.RegisterClientsRequest(client_keys=[bytes(32)])
        async with at.operator.client_channel(at.deployment.analyzer.name) as analyzer:
            for call in (
                lambda: stubs.RoundControlStub(at.channel).Close(rpc.CloseRequest(round_id=terms.round_id)),
                lambda: stubs.RoundControlStub(at.channel).Prepare(rpc.PrepareRequest(round_id="x")),
                lambda: stubs.ShufflerStub(at.channel).RegisterClients(register),
                lambda: stubs.DeliveryStub(at.channel).Deliver(deliver),
                lambda: stubs.DeliveryStub(analyzer).Deliver(deliver),
                lambda: stubs.DeliveryStub(at.operator.channel_to("shuffler-2")).Deliver(deliver),
                lambda: stubs.DeliveryStub(at.operator.channel_to("analyzer")).Deliver(deliver),
                lambda: stubs.AnalyzerStub(analyzer).Grant(grant),
                lambda: stubs.AnalyzerStub(at.operator.channel_to("analyzer")).Grant(grant),
                lambda: stubs.RoundControlStub(at.operator.channel_to("analyzer")).Close(rpc.CloseRequest()),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call()
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, refused.value.details()


@pytest.mark.virtual_time
async def test_one_manifest_a_round_and_only_with_all_signatures(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings(), RoundId("once"))
        with pytest.raises(Refusal, match=Code.CONFLICT.message):
            await at.operator.open_round(settings(), RoundId("once"))
        assert (await fetch_terms(at.channel, at.deployment)).round_id == "once"
        with pytest.raises(Refusal, match=Code.UNKNOWN_ROUND.message):
            await fetch_terms(at.channel, at.deployment, RoundId("never"))
        row = await at.inside.running["shuffler-1"].service.store.run("look", lambda tx: tx.round(RoundId("once")))
        document = pb.SignedRound.FromString(row.manifest)
        del document.manifest.signatures[2]
        with pytest.raises(grpc.aio.AioRpcError, match=naming("accountant")):
            await stubs.RoundControlStub(at.operator.channel_to("analyzer")).Open(rpc.OpenRequest(round=document))
        altered = pb.Survey.FromString(terms.survey.payload)
        altered.epsilon_max = 10.0
        manifest = pb.Manifest.FromString(terms.payload)
        manifest.survey_hash = (survey := read_survey(canonical(altered))).hash
        sign = rpc.SignRequest(manifest=canonical(manifest), survey=survey.payload)
        with pytest.raises(grpc.aio.AioRpcError, match=f"{Code.BAD_MANIFEST.message}|{Code.CONFLICT.message}"):
            await stubs.RoundControlStub(at.operator.channel_to("accountant")).Sign(sign)
        with pytest.raises(ValueError, match=r"delta is 0.9"):
            await at.operator.open_round(replace(settings(), delta=0.9))


@pytest.mark.virtual_time
async def test_a_deadline_closes_the_round_by_itself(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        due = int(at.inside.clock.now()) + 30
        terms = await at.operator.open_round(
            replace(settings(min_batch_size=20, epsilon_max=4.0), close_deadline_unix_s=due)
        )
        assert (await at.submit(terms, people(BIT, 25, seed=1))).accepted == 25
        publication, _ = await at.operator.result(terms.round_id, WAIT_S)
        assert publication.num_reports == 25
        assert await seal_and_send(at, terms, Participant(1, 1.0)) == pb.SUBMISSION_CODE_ROUND_CLOSED


@pytest.mark.virtual_time
async def test_who_was_refused_is_not_taken_for_acknowledged(tmp_path: Path) -> None:
    """Reproduction: the outbox noted every answer as an acknowledgement, so that those users were never sent again."""
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(replace(settings(min_batch_size=2), max_batch_size=3))
        users = people(BIT, 5, seed=4)
        for codes in ({"ACCEPTED": 3, "ROUND_FULL": 2}, {"ROUND_FULL": 2}):
            report = await at.submit(terms, users)
            assert report.codes == {f"SUBMISSION_CODE_{name}": count for name, count in codes.items()}
            assert len(at.outbox.acknowledged(terms.round_id)) == 3
            assert len(at.outbox.users(terms.round_id)) == 3  # the others have got no tickets
