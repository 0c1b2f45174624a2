"""Reading reports before a certificate or without one, and passing one round's result off as another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.accountant.service.service import AccountantService
from croupier.analyzer.held_reports import HeldReports
from croupier.analyzer.service import AnalyzerService
from croupier.protocol.batches import digest
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.lane_sender import LaneSender
from croupier.runtime.service_directory import load_secrets
from croupier.runtime.setup import ServiceSetup
from croupier.shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.attacks.reading import (
    POLICY_NOBODY_MEETS,
    GreedyAnalyzer,
    all_keys,
    document_of,
    fine_settings,
    held_reports,
    keys_of,
    open_all,
    reports_in,
)
from tests.support import settings
from tests.support.arena import WAIT_S, arena
from tests.support.messages import naming, refuses

pytestmark = pytest.mark.virtual_time


async def test_an_analyzer_reads_nothing_before_the_grant(tmp_path: Path) -> None:
    """The accountant takes its time, so the analyzer has the reports for as long as it likes, and no release key."""
    async with arena(
        tmp_path, 2, {"analyzer": GreedyAnalyzer, "accountant": cheaters.HesitantAccountant}
    ) as deployment:
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
        release = (await keys_of(deployment.service("accountant"), terms))[KeyPurpose.RELEASE].private
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("shuffler-2", terms, pb.ROUND_STATE_DELIVERED)
        analyzer = deployment.service_as("analyzer", GreedyAnalyzer)
        assert len(analyzer.sealed) == 12
        assert analyzer.read == set()
        assert await deployment.nothing_is_published(terms)
        own = [pair.private for pair in (await keys_of(analyzer, terms)).values()]
        with_the_key = open_all(terms, analyzer.sealed, [*own, release])  # what the release key holds back
        assert len(reports_in(with_the_key)) == 12
        accountant = deployment.service_as("accountant", cheaters.HesitantAccountant)
        accountant.hesitates = False
        accountant.engine.wake(terms.round_id)
        publication, _ = await deployment.operator.result(terms.round_id, WAIT_S)
        assert publication.num_reports == 12


class DeliversReportsOnly(cheaters.CheatingShuffler):
    """A last hop that gives the analyzer its lane and the accountant nothing."""

    async def _deliver(self, terms: RoundTerms) -> bool:
        document = await document_of(self, terms, DocumentKind.COMMITMENTS_OUT)
        analyzer = terms.analyzer.service
        await self.send_lane(terms, analyzer, pb.LANE_REPORT)
        await self.hand_over(terms, analyzer, pb.HandOverRequest.FromString(document).commitments)
        raise Refusal(Code.WRONG_STATE, "has done what it wanted")


def forged_grant(
    terms: RoundTerms, signer: ShufflerService, batch_digest: bytes, reports_digest: bytes = b""
) -> pb.GrantRequest:
    certificate = pb.Certificate(
        round_id=terms.round_id,
        manifest_hash=terms.hash,
        batch_digest=batch_digest,
        reports_digest=reports_digest,
        granted=True,
        epsilon=0.1,
        num_users=12,
    )
    certificate.tiers.add(local_epsilon=1.0, count=12)
    signed = signer.peers.identity.signed(Kind.CERTIFICATE, canonical(certificate))
    return pb.GrantRequest(round_id=terms.round_id, certificate=signed, release_private_key=bytes(range(32)))


@pytest.mark.parametrize("waits", [True, False])
async def test_before_the_hand_over_no_budget_is_opened_and_no_report_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The last hop delivers everything and never says that it is complete."""
    delivered = asyncio.Event()

    async def never(*_: object) -> None:
        delivered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LaneSender, "hand_over", never)
    if not waits:
        both = (pb.LANE_PARAMETER, pb.LANE_TICKET)
        monkeypatch.setattr("croupier.accountant.service.service.EARLY_LANES", both)
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
        await deployment.operator.close_round(terms.round_id)
        await delivered.wait()
        accountant, analyzer = deployment.service("accountant"), deployment.service("analyzer")
        await asyncio.gather(*accountant.opener.opening.values(), *analyzer.opener.opening.values())
        budgets = await accountant.store.run("look", lambda tx: tx.opened(terms.round_id, pb.LANE_PARAMETER, -1))
        assert (budgets == []) == waits
        held = await held_reports(analyzer, terms)
        assert len(held) == 12
        own = [pair.private for pair in (await keys_of(analyzer, terms)).values()]
        assert open_all(terms, held, own) == set()
        release = (await keys_of(accountant, terms))[KeyPurpose.RELEASE].private
        assert len(reports_in(open_all(terms, held, [release]))) == 12


async def test_an_early_delivery_with_a_forged_grant_releases_nothing(tmp_path: Path) -> None:
    cast = {"shuffler-2": DeliversReportsOnly, "analyzer": GreedyAnalyzer}
    async with arena(tmp_path, 2, cast) as deployment:
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
        await deployment.operator.close_round(terms.round_id)
        await deployment.problem("shuffler-2", terms)
        hop, analyzer = deployment.service("shuffler-2"), deployment.service("analyzer")
        assert isinstance(hop, DeliversReportsOnly)
        assert isinstance(analyzer, GreedyAnalyzer)
        grant = forged_grant(terms, hop, bytes(32))
        by_hop = stubs.AnalyzerStub(hop.peers.channel_to("analyzer"))
        assert await cheaters.code_of(by_hop.Grant(grant)) is Code.NOT_YOUR_CALL
        # Even over the accountant's own channel: the signature is not the accountant's.
        by_accountant = stubs.AnalyzerStub(deployment.service("accountant").peers.channel_to("analyzer"))
        assert await cheaters.code_of(by_accountant.Grant(grant)) is Code.BAD_SIGNATURE
        grant.certificate.signatures[0].signer = "accountant"
        assert await cheaters.code_of(by_accountant.Grant(grant)) is Code.BAD_SIGNATURE
        assert (len(analyzer.sealed), analyzer.read) == (12, set())
        assert await deployment.nothing_is_published(terms)


class BelievingAnalyzer(GreedyAnalyzer):
    """Takes any certificate from any caller: it wants to open the reports as much as the last hop does."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        cheaters.instead(self.peers, require_caller=self.require_caller)

    def require_caller(self, context: grpc.aio.ServicerContext, allowed: Iterable[str]) -> None:  # type: ignore[type-arg]
        return

    def read_certificate(self, terms: RoundTerms, signed: pb.Signed) -> pb.Certificate:
        return pb.Certificate.FromString(signed.payload)


async def test_a_last_hop_and_an_analyzer_open_nothing_with_a_forgery(tmp_path: Path) -> None:
    """No check stops them, but the missing release key does."""
    cast = {"shuffler-2": DeliversReportsOnly, "analyzer": BelievingAnalyzer}
    async with arena(tmp_path, 2, cast) as deployment:
        for with_the_key in (False, True):
            terms = await deployment.filled(fine_settings(), 12, value=0.5)
            await deployment.operator.close_round(terms.round_id)
            await deployment.problem("shuffler-2", terms)
            hop, analyzer = deployment.service("shuffler-2"), deployment.service("analyzer")
            assert isinstance(hop, DeliversReportsOnly)
            document = await document_of(hop, terms, DocumentKind.COMMITMENTS_OUT)
            commitments = pb.HandOverRequest.FromString(document).commitments
            batch = pb.Commitment.FromString(commitments[-2].payload).digest_out
            await deployment.reached("analyzer", terms, pb.ROUND_STATE_MIXED)
            grant = forged_grant(terms, hop, batch, digest(await held_reports(analyzer, terms)))
            if with_the_key:  # an accountant that gives its key away is the one who could
                grant.release_private_key = (await keys_of(deployment.service("accountant"), terms))[
                    KeyPurpose.RELEASE
                ].private
            await stubs.AnalyzerStub(hop.peers.channel_to("analyzer")).Grant(grant)
            await deployment.reached("analyzer", terms, pb.ROUND_STATE_PUBLISHED)
            published = pb.Signed.FromString(await document_of(analyzer, terms, DocumentKind.PUBLICATION))
            publication = pb.Publication.FromString(published.payload)
            assert publication.num_reports == (12 if with_the_key else 0)
            assert bool(publication.values) is with_the_key


async def test_an_accountant_that_is_restarted_after_a_refusal_cannot_grant(tmp_path: Path) -> None:
    """The release key is destroyed twice: with the refusal, and with everything else when the analyzer has taken it.

    Either one leaves no key here; `test_a_release_key_is_destroyed_before_the_analyzer_hears_of_it` needs the first.
    """
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.filled(settings(epsilon_max=POLICY_NOBODY_MEETS), 30)
        await deployment.finish(terms)
        await deployment.inside.restart("accountant")
        assert await all_keys(deployment, terms) == {}
        secrets = load_secrets(deployment.inside.directory / "accountant")
        async with deployment.inside.transport.peer_channel(deployment.deployment.analyzer, secrets) as channel:
            accountant = deployment.service("accountant")
            certificate = pb.Certificate(round_id=terms.round_id, manifest_hash=terms.hash, granted=True)
            signed = accountant.peers.identity.signed(Kind.CERTIFICATE, canonical(certificate))
            changed = pb.GrantRequest(round_id=terms.round_id, certificate=signed, release_private_key=bytes(32))
            answer = await cheaters.refused(stubs.AnalyzerStub(channel).Grant(changed))
        assert answer is not None
        assert answer.code is Code.CONFLICT  # what the accountant has once said of a round stays


class ReplacesOneReport(cheaters.CheatingShuffler):
    """One report is the hop's own, without a ticket."""

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        lanes[pb.LANE_REPORT][0] = cheaters.own_report(terms, self.position.hop(terms))


class LetsEveryReportIn(AccountantService):
    """Certifies the reports that have a ticket, and does not tell the analyzer which ones have none."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.call = self.peers.call_until_answered
        cheaters.instead(self.peers, call_until_answered=self.grants_all)

    async def grants_all(self, round_id: RoundId, receiver: str, method: Any, request: pb.GrantRequest) -> Any:
        request.ClearField("rejected")
        return await self.call(round_id, receiver, method, request)


@pytest.mark.parametrize("compares", [True, False])
async def test_no_report_is_opened_that_the_certificate_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """The certificate names the batch that is held here, and fewer reports of it than the grant would have opened."""
    if not compares:

        async def believes(*_: object) -> None:
            return

        monkeypatch.setattr(HeldReports, "check", believes)
    cast = {"shuffler-1": ReplacesOneReport, "accountant": LetsEveryReportIn}
    async with arena(tmp_path, 1, cast) as deployment:
        terms = await deployment.filled(settings(), 30)
        await deployment.operator.close_round(terms.round_id)
        if compares:
            assert "other reports" in await deployment.problem("analyzer", terms)
            assert await deployment.nothing_is_published(terms)
            return
        publication, certificate = await deployment.operator.result(terms.round_id, WAIT_S)
        assert (publication.num_reports, certificate.num_reports) == (30, 29)


async def test_a_withdrawn_round_takes_no_release_key(tmp_path: Path) -> None:
    """It was kept for `keep_days`, when the accountant's grant came after the analyzer had destroyed all of its own."""
    async with arena(tmp_path, 1, {"analyzer": cheaters.HardOfHearing}) as deployment:
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("accountant", terms, pb.ROUND_STATE_CERTIFIED)
        assert (await deployment.operator.withdraw(terms.round_id))["analyzer"] == "DISPOSED"
        analyzer = deployment.service_as("analyzer", cheaters.HardOfHearing)
        analyzer.listens = True
        assert "has ended here" in await deployment.problem("accountant", terms)
        assert await all_keys(deployment, terms) == {}


class ShowsAnotherRound(AnalyzerService):
    """Answers with the well-signed result of the one round that it likes best."""

    async def GetResult(self, request: rpc.GetResultRequest, context: cheaters.Context) -> rpc.GetResultResponse:  # noqa: N802
        await super().GetResult(request, context)
        return await super().GetResult(rpc.GetResultRequest(round_id="liked"), context)


async def test_one_rounds_result_and_certificate_do_not_pass_for_anothers(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, {"analyzer": ShowsAnotherRound}) as deployment:
        liked = await deployment.filled(settings(), 60, round_id=RoundId("liked"))
        publication, certificate = await deployment.finish(liked)
        assert (publication.round_id, certificate.granted) == ("liked", True)
        strict = await deployment.filled(settings(epsilon_max=POLICY_NOBODY_MEETS), 30, round_id=RoundId("strict"))
        with refuses(Code.BAD_BATCH, naming("'strict'", "'liked'")):
            await deployment.finish(strict)
