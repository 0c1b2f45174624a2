"""Selective drop, duplication and substitution by a hop: who notices, with which code, and that no value comes out."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa

from croupier import BinaryRandomizedResponse, Budgets, certify
from croupier.analyzer.service import AnalyzerService
from croupier.client.submission import Participant, new_client_key
from croupier.client.verification import certified_chain, missing_at_hop
from croupier.operator import canaries
from croupier.operator.canaries import check_canaries, enrol_with_canaries, keep_keys, send_canaries, take_keys
from croupier.operator.roster import Enrolment
from croupier.protocol.batches import ciphertext_hashes
from croupier.protocol.codes import RefusalReason
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import public_key_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest, Lane, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.service import RoundService
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.transaction import Transaction
from croupier.shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.support import settings
from tests.support.arena import arena
from tests.support.clients import seal_all_of, submissions_of
from tests.support.messages import naming, refuses
from tests.support.statements import parameters

pytestmark = pytest.mark.virtual_time
Cheat = Callable[[ServiceSetup], RoundService]

AT_EITHER_HOP: list[tuple[Cheat, Code]] = [
    (cheaters.SubstitutesAfterCommitting, Code.BAD_BATCH),
    (cheaters.DropsAfterCommitting, Code.BAD_BATCH),
    (cheaters.DuplicatesAfterCommitting, Code.BAD_BATCH),
    (cheaters.DropsWithoutSaying, Code.BAD_BATCH),
    (cheaters.AddsItsOwn, Code.BAD_BATCH),
    (cheaters.CommitsToOtherNumbers, Code.BAD_BATCH),
]
AT_THE_LAST_HOP: list[tuple[Cheat, Code]] = [
    (cheaters.AltersAnothersCommitment, Code.BAD_SIGNATURE),
    (cheaters.SpeaksForAnother, Code.BAD_SIGNATURE),
    (cheaters.SwapsWhatItReceived, Code.BAD_BATCH),
    (cheaters.LeavesOutCommitments, Code.BAD_BATCH),
]


@pytest.mark.parametrize(
    ("cheat", "at", "catcher", "code"),
    [(cheat, "shuffler-1", "shuffler-2", code) for cheat, code in AT_EITHER_HOP]
    + [(cheat, "shuffler-2", "analyzer", code) for cheat, code in AT_EITHER_HOP + AT_THE_LAST_HOP]
    + [(cheaters.DropsReportsAndKeepsTheirBudgets, "shuffler-1", "shuffler-2", Code.BAD_BATCH)],
)
async def test_the_next_role_catches_a_hop_whose_batch_and_commitments_disagree(
    tmp_path: Path, cheat: Cheat, at: str, catcher: str, code: Code
) -> None:
    """Numbers of the last hop that are wrong are caught twice: by the batch that arrived, and by what hop 1 signed."""
    async with arena(tmp_path, 2, {at: cheat}) as deployment:
        terms = await deployment.filled(settings(), 30)
        await deployment.operator.close_round(terms.round_id)
        assert await deployment.problem(at, terms)
        cheater = deployment.service_as(at, cheaters.CheatingShuffler)
        assert {name: refusal.code for name, refusal in cheater.caught.items()} == {catcher: code}
        assert await deployment.nothing_is_published(terms)


async def test_budgets_without_their_reports_do_not_shrink_the_certificate(tmp_path: Path) -> None:
    """Hop 1 has to pass on both lanes or neither. Were that not checked, 100 tickets without a report would show it."""
    true = certify(Budgets.from_tiers([(1.0, 20)]), BinaryRandomizedResponse(), delta=1e-4).epsilon
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("croupier.protocol.batches.check_joint", lambda report, parameter: None)
        async with arena(tmp_path, 2, {"shuffler-1": cheaters.DropsReportsAndKeepsTheirBudgets}) as deployment:
            terms = await deployment.filled(settings(), 120)
            publication, certificate = await deployment.finish(terms)
            assert (publication.num_reports, certificate.num_users, certificate.granted) == (20, 120, True)
            assert (certificate.num_tickets, certificate.dishonest) == (120, 100)
            assert certificate.epsilon >= true


async def test_a_trusting_analyzer_publishes_no_forged_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ForgesAll(cheaters.AfterCommitting):
        def change(self, terms: RoundTerms, reports: list[bytes]) -> list[bytes]:
            return [cheaters.own_report(terms, self.position.hop(terms), 0) for _ in reports]

    for trusting in (False, True):
        analyzer = cheaters.TrustingAnalyzer if trusting else AnalyzerService
        if trusting:
            monkeypatch.setattr("croupier.analyzer.held_reports.batch_digest", lambda hashes: cheaters.AnyBatch())
        directory = tmp_path / str(trusting)
        async with arena(directory, 2, {"shuffler-2": ForgesAll, "analyzer": analyzer}) as deployment:
            terms = await deployment.filled(settings(), 30, max_local_epsilon=2.0)
            if trusting:
                publication, certificate = await deployment.finish(terms)
                assert (certificate.granted, certificate.num_reports, len(publication.values)) == (False, 0, 0)
                assert parameters(certificate.refusals, RefusalReason.TOO_FEW_REPORTS)["reports"] == 0
            else:
                assert "not what hop 2 committed to" in await deployment.stops("shuffler-2", terms)


async def test_a_last_hop_that_tells_two_stories_gets_no_publication(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-2": cheaters.Equivocates}) as deployment:
        terms = await deployment.filled(settings(), 30)
        assert "another batch" in await deployment.stops("analyzer", terms)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["shuffler-1", "shuffler-2"])
async def test_a_false_claim_that_a_report_did_not_open_is_shown_and_charged(tmp_path: Path, at: str) -> None:
    async with arena(tmp_path, 2, {at: cheaters.DropsAndSaysItDidNotOpen}) as deployment:
        terms = await deployment.operator.open_round(settings())
        sealed = await seal_all_of(deployment.operator, terms, [Participant(1, 1.0)] * 30)
        await deployment.admit(terms, submissions_of(sealed))
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.num_users, certificate.num_tickets) == (29, 29, 30)
        assert (certificate.dishonest, certificate.unknown_budgets) == (1, 1)  # the lanes may have lost two people
        known, any_budget = (
            certify(Budgets.from_tiers(tiers), BinaryRandomizedResponse(), delta=1e-4, dishonest=1)
            for tiers in ([(1.0, 29)], [(1.0, 29), (2.0, 1)])
        )
        assert certificate.tiers[0].epsilon == known.epsilon
        assert certificate.epsilon == certificate.unknown_budget_epsilon == any_budget.epsilon
        chain = certified_chain(certificate, terms, deployment.deployment)
        hop = 1 if at == "shuffler-1" else 2
        assert [drop.reason for drop in chain[pb.LANE_REPORT][hop - 1].drops] == ["does-not-open"]
        hashes_of = {str(user): submission.inclusion_hashes for user, submission in enumerate(sealed)}
        assert await missing_at_hop(
            deployment.operator.channel_to(at), terms, chain, hop, hashes_of
        )  # the victim knows


@pytest.mark.parametrize("at", ["shuffler-1", "shuffler-2"])
async def test_a_duplicated_report_counts_once_and_so_does_a_crowd(tmp_path: Path, at: str) -> None:
    """Half of the batch is thrown away and the other half is passed on twice, so that all counts agree."""
    async with arena(tmp_path, 2, {at: cheaters.Duplicates}) as deployment:
        few = await deployment.filled(settings(), 30, round_id=RoundId("few"))
        await deployment.operator.close_round(RoundId("few"))
        assert "the round needs 20" in await deployment.problem(at, few)
        assert await deployment.nothing_is_published(few)
        many = await deployment.filled(settings(), 40, round_id=RoundId("many"))
        publication, certificate = await deployment.finish(many)
        assert (publication.num_reports, certificate.num_users) == (20, 20)
        assert certificate.dishonest >= 20
        assert certificate.epsilon == many.budget_grid[-1]


class ShowsAnotherList(cheaters.ReplacesReports):
    """Replaces reports and shows the list of those that it should have passed on."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.mix_first = cheaters.step_instead(self, pb.ROUND_STATE_CLOSED, self.mix_and_swap)

    async def mix_and_swap(self, terms: RoundTerms) -> bool:
        await self.mix_first(terms)
        truth = b"".join(sorted(self.honest_hashes))
        part = f"{pb.LANE_REPORT}-0"
        name = f"{DocumentKind.PASSED_ON}-{part}"

        def swap(tx: Transaction) -> None:
            tx.connection.execute(sa.text("DELETE FROM documents WHERE kind = :name"), {"name": name})
            tx.put_document(terms.round_id, DocumentKind.PASSED_ON, truth, part)

        await self.store.run("swap", swap)
        return True

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        self.honest_hashes = ciphertext_hashes(lanes[pb.LANE_REPORT])
        super().tamper(terms, lanes, drops)


async def test_a_first_hop_cannot_show_a_list_of_what_it_has_not_passed_on(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"shuffler-1": ShowsAnotherList}) as deployment:
        terms = await deployment.operator.open_round(settings())
        (sealed,) = await seal_all_of(deployment.operator, terms, [Participant(1, 2.0)])
        await deployment.admit(terms, [*await deployment.seal(terms, 30), *submissions_of([sealed])])
        _, certificate = await deployment.finish(terms)
        chain = certified_chain(certificate, terms, deployment.deployment)
        with refuses(Code.BAD_BATCH, naming("hop 1", "LANE_REPORT")):
            await missing_at_hop(deployment.channel, terms, chain, 1, {"victim": sealed.inclusion_hashes})


@pytest.mark.parametrize("at", ["shuffler-1", "shuffler-2"])
async def test_the_operators_canaries_find_the_hop_that_replaces_reports(tmp_path: Path, at: str) -> None:
    async with arena(tmp_path, 2, {at: cheaters.ReplacesReports}) as deployment:
        terms = await deployment.filled(dataclasses.replace(settings(), dishonest=3), 30)
        await send_canaries(deployment.inside.directory, terms.round_id, 3, deployment.inside.transport)
        await deployment.finish(terms)
        report = await check_canaries(deployment.inside.directory, terms.round_id, deployment.inside.transport)
        assert report.sent == 3
        assert report.missing[at] >= 2  # one report of the batch is not changed
        assert at == "shuffler-1" or report.missing["shuffler-1"] == 0


def new_clients() -> list[Enrolment]:
    return [Enrolment(public_key_of(new_client_key()).hex()) for _ in range(20)]


@pytest.mark.parametrize("reserved", [False, True])
async def test_canaries_come_like_any_other_client(
    tmp_path: Path, reserved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came at once, in one call, after their keys had been enrolled together: hop 1 could leave them alone."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(dataclasses.replace(settings(), dishonest=5))
        directory = deployment.inside.directory
        hop_1, seen, enrolled = deployment.service("shuffler-1"), list[tuple[float, int]](), list[int]()
        transport = deployment.inside.transport
        assert isinstance(hop_1, ShufflerService)
        submit, register = hop_1.admission.submit, hop_1.admission.register

        async def seen_submit(terms: RoundTerms, size: int, submissions: Sequence[pb.Submission], *how: Any) -> Any:
            seen.append((asyncio.get_running_loop().time(), len(submissions)))
            return await submit(terms, size, submissions, *how)

        async def seen_register(keys: Sequence[PublicKey], scope: tuple[Digest, int] | None = None) -> int:
            enrolled.append(len(keys))
            return await register(keys, scope)

        monkeypatch.setattr(hop_1.admission, "submit", seen_submit)
        monkeypatch.setattr(hop_1.admission, "register", seen_register)
        if reserved:
            await enrol_with_canaries(directory, new_clients(), 5, transport)
            assert enrolled == [25]  # all of them together
            enrolled.clear()
        assert await send_canaries(directory, terms.round_id, 5, transport, over_s=600.0) == 5
        times = sorted(time for time, _ in seen)
        assert [count for _, count in seen] == [1] * 5
        assert len(set(times)) == 5
        assert times[-1] - times[0] > 10.0  # all of five within a sixtieth of the time: once in 300,000 runs
        assert enrolled == ([] if reserved else [1] * 5)


@pytest.mark.parametrize("second", [2, 3])
async def test_canaries_of_two_processes_at_once_are_no_more_than_allowed(tmp_path: Path, second: int) -> None:
    """They had the same names, so that one process ended with a traceback, or no one saw that they were too many."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(dataclasses.replace(settings(), dishonest=5))
        directory, transport = deployment.inside.directory, deployment.inside.transport
        processes = (send_canaries(directory, terms.round_id, count, transport, over_s=60.0) for count in (3, second))
        ended = await asyncio.gather(*processes, return_exceptions=True)
        refused = [str(error) for error in ended if isinstance(error, Exception)]
        limit = "has 5 answers from here; there may be 5 at most"
        assert [limit in error for error in refused] == [True] * (second - 2)
        status = await deployment.operator.status(terms.round_id)
        assert isinstance(status[0], rpc.StatusResponse)
        assert status[0].rounds[0].num_items == 5


async def test_canaries_that_did_not_arrive_come_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They counted among the round's canaries, so that the same call again was refused, and they never came."""

    async def fail(*_: object) -> dict[str, pb.SubmissionCode.ValueType]:
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(dataclasses.replace(settings(), dishonest=3))
        call = partial(send_canaries, deployment.inside.directory, terms.round_id)
        transport = deployment.inside.transport
        with monkeypatch.context() as broken:
            broken.setattr(canaries, "send", fail)
            with pytest.raises(grpc.aio.AioRpcError):
                await call(2, transport)
        assert await call(2, transport) == 2
        assert await call(1, transport) == 3
        with pytest.raises(ValueError, match=naming("count", 1, 3, 3)):
            await call(1, transport)
        with pytest.raises(ValueError, match="count is 0; "):
            await call(0, transport)


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("point", [("seal_prepared", True), ("seal_prepared", False), ("send", False)])
async def test_canaries_of_a_process_that_dies_around_their_tickets_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: tuple[str, bool], reserved: bool
) -> None:
    """Their tickets were lost with the process, and the round's certificate was worse for it."""
    (name, first), function = point, getattr(canaries, point[0])

    async def die(*arguments: Any) -> None:
        if not first:
            await function(*arguments)
        raise RuntimeError("killed")

    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(dataclasses.replace(settings(), dishonest=3))
        directory, transport = deployment.inside.directory, deployment.inside.transport
        await deployment.admit(terms, await deployment.seal(terms, 30))
        if reserved:
            await enrol_with_canaries(directory, new_clients(), 3, transport)
        with monkeypatch.context() as broken:
            broken.setattr(canaries, name, die)
            with pytest.raises(RuntimeError, match="killed"):
                await send_canaries(directory, terms.round_id, 3, transport)
        assert await send_canaries(directory, terms.round_id, 3, transport) == 3
        publication, certificate = await deployment.finish(terms)
    assert certificate.num_tickets == publication.num_reports == 33


async def test_canaries_that_come_too_late_are_not_counted_in_silence(tmp_path: Path) -> None:
    """The command ended as if all was well; into a round that had ended it even took their reserved keys."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(dataclasses.replace(settings(), dishonest=5), 30)
        directory, transport = deployment.inside.directory, deployment.inside.transport
        assert await send_canaries(directory, terms.round_id, 1, transport) == 1
        late = asyncio.create_task(send_canaries(directory, terms.round_id, 4, transport, over_s=1000.0))
        await asyncio.sleep(0.001)  # one comes in that time once in 250,000 runs
        await deployment.finish(terms)
        with pytest.raises(Refusal, match=naming(Code.ROUND_CLOSED.message, "4 of 4 canaries")):
            await late
        keep_keys(directory, [key := new_client_key()])
        with pytest.raises(Refusal, match=naming(Code.ROUND_CLOSED.message, "DELIVERED")):
            await send_canaries(directory, terms.round_id, 1, transport)
        assert take_keys(directory, 1) == [key]


@pytest.mark.parametrize(
    ("cheat", "at", "replaced"),
    [
        (cheaters.ReplacesReports, "shuffler-1", 29),  # one report of the batch is not changed
        (cheaters.ReplacesBudgets, "shuffler-1", 30),
        (cheaters.ReplacesReports, "shuffler-2", 29),
    ],
)
async def test_a_client_finds_the_hop_that_replaced_its_message(
    tmp_path: Path, cheat: Cheat, at: str, replaced: int
) -> None:
    """No other party can: both lanes and all commitments agree. A client that verifies gets a proof signed by the hop.

    Reproduction: clients could see hop 1's list only, and a hop behind it was the operator's to find.
    """
    async with arena(tmp_path, 2, {at: cheat}) as deployment:
        terms = await deployment.operator.open_round(settings())
        sealed = await seal_all_of(deployment.operator, terms, [Participant(1, 2.0)] * 30)
        await deployment.admit(terms, submissions_of(sealed))
        _, certificate = await deployment.finish(terms)
        chain = certified_chain(certificate, terms, deployment.deployment)
        hashes_of = {str(number): submission.inclusion_hashes for number, submission in enumerate(sealed)}
        lost = {
            name: len(await missing_at_hop(deployment.channel, terms, chain, hop, hashes_of))
            for hop, name in enumerate(("shuffler-1", "shuffler-2"), start=1)
        }
        assert lost[at] == replaced
        assert at == "shuffler-1" or lost["shuffler-1"] == 0
        with pytest.raises(ValueError, match=naming("1..2")):
            await missing_at_hop(deployment.channel, terms, chain, 3, hashes_of)


async def test_few_readable_reports_do_not_get_the_certificate_of_many(tmp_path: Path) -> None:
    """Hop 1 spoils all reports but one so that only the analyzer notices, which tells the accountant beforehand."""
    async with arena(tmp_path, 2, {"shuffler-1": cheaters.SpoilsReports}) as deployment:
        terms = await deployment.filled(settings(), 30)
        publication, certificate = await deployment.finish(terms)
        assert (certificate.num_reports, certificate.num_tickets, certificate.granted) == (1, 30, False)
        assert [(drop.reason, drop.count) for drop in certificate.report_drops] == [("does-not-open", 29)]
        assert not publication.values
        stated = parameters(certificate.refusals, RefusalReason.TOO_FEW_REPORTS)
        assert stated == {"reports": 1, "least": 20}
