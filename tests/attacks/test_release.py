"""Reading reports before or without a certificate, and later with every disk and every storage key in hand."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa

from accountant.service.service import AccountantService
from analyzer.service import AnalyzerService
from deploy.operator.rounds import RoundSettings
from protocol.batches import digest
from protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, KeyPair, Label, open_many
from protocol.errors import Code, Refusal
from protocol.identity import Kind
from protocol.manifest import RoundTerms, canonical
from protocol.mechanisms import Laplace
from protocol.onion import Onion, split_report
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.opening import Opening
from runtime.service import ENVELOPE_KEY, RELEASE_KEY, RoundService, ServiceSetup
from runtime.service_directory import load_secrets
from runtime.store import Store
from runtime.tasks import OPENED
from runtime.transaction import RoundRow, Transaction
from shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.attacks.arena import WAIT_S, Arena, arena
from tests.support import settings
from tests.support.lanes import lane_in

FINE = Question("fine", Laplace(low=0.0, high=1.0, lattice=1 << 31))
"""Reports of 31 bits and more: what is found somewhere is not there by chance."""
POLICY_NOBODY_MEETS = 0.001


def fine_settings(**changes: float) -> RoundSettings:
    return RoundSettings(FINE, (0.5, 1.0, 2.0), min_batch_size=10, delta=1e-4, epsilon_max=changes.get("epsilon", 4.0))


def labels(terms: RoundTerms) -> list[Label]:
    """Every place of the round that anything can be sealed for."""
    onion = Onion(terms)
    hops = range(2, terms.num_hops + 1)
    report = [onion.layer(pb.LANE_REPORT, hop) for hop in [*hops, HOP_ANALYZER, HOP_RELEASE]]
    parameter = [onion.layer(pb.LANE_PARAMETER, hop) for hop in [*hops, HOP_ACCOUNTANT]]
    return [layer.label for layer in [onion.joint, *report, *parameter]]


def open_all(terms: RoundTerms, ciphertexts: Iterable[bytes], keys: Iterable[bytes]) -> set[bytes]:
    """Returns everything that comes out, layer after layer, when every key is tried on everything in every place."""
    onion = Onion(terms)
    found: set[bytes] = set()
    fresh = set(ciphertexts)
    tries = [(key, label) for key in set(keys) for label in labels(terms)]
    while fresh:
        opened = {out for key, label in tries for out in open_many(terms.suite, key, label, fresh) if out is not None}
        joint = {plain for plain in opened if len(plain) == onion.joint.plain_size}
        held = {plain for plain in opened if len(plain) == onion.layer(pb.LANE_REPORT, HOP_ANALYZER).plain_size}
        fresh = opened | {lane for plain in joint for lane in onion.split(plain)}
        fresh = (fresh | {split_report(plain)[1] for plain in held}) - found
        found |= fresh
    return found


async def keys_of(service: RoundService, terms: RoundTerms) -> dict[str, KeyPair]:
    return await service.store.run("look", lambda tx: tx.keys(terms.round_id))


async def document_of(service: RoundService, terms: RoundTerms, kind: str) -> bytes:
    return await service.store.run("look", lambda tx: tx.document(terms.round_id, kind)) or b""


async def held_reports(analyzer: RoundService, terms: RoundTerms) -> list[bytes]:
    """Returns the reports as the analyzer holds them: under the release key."""
    assert isinstance(analyzer, AnalyzerService)
    records = [one async for page in analyzer.records(terms, pb.LANE_REPORT) for one in page]
    return [split_report(one.content)[1] for one in records if one.status == OPENED]


async def all_keys(deployment: Arena, terms: RoundTerms) -> dict[tuple[str, str], bytes]:
    """Returns every private round key that stands in a store now, by service and purpose."""
    found = {}
    for name in deployment.deployment.chain:
        for purpose, pair in (await keys_of(deployment.service(name), terms)).items():
            found[name, purpose] = pair.private
    return found


def reports_in(opened: Iterable[bytes]) -> set[bytes]:
    """Returns what is a report, of everything that was opened."""
    return {plain for plain in opened if len(plain) == FINE.mechanism.report_bytes}


class GreedyAnalyzer(AnalyzerService):
    """Keeps every report batch, and reads what it can with all that it has, as soon as it has something."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.sealed: list[bytes] = []
        self.read: set[bytes] = set()

    async def HandOver(self, request: pb.HandOverRequest, context: grpc.aio.ServicerContext) -> pb.HandOverResponse:  # type: ignore[type-arg]  # noqa: N802
        answer = await super().HandOver(request, context)
        terms = await self.terms(request.round_id)
        self.sealed = await lane_in(self, terms, pb.LANE_REPORT)
        own = [pair.private for pair in (await keys_of(self, terms)).values()]
        keys = [*own, self._secrets.storage_key, self._secrets.identity_key]
        self.read |= reports_in(open_all(terms, self.sealed, keys))
        return answer


class HesitantAccountant(AccountantService):
    """Takes what it is given and says nothing yet."""

    hesitates = True

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        return not self.hesitates and await super().advance(row, terms)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_an_analyzer_reads_nothing_before_the_grant(tmp_path: Path) -> None:
    """The accountant takes its time, so the analyzer has the reports for as long as it likes, and no release key."""
    async with arena(tmp_path, 2, {"analyzer": GreedyAnalyzer, "accountant": HesitantAccountant}) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        release = (await keys_of(deployment.service("accountant"), terms))[RELEASE_KEY].private
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("shuffler-2", terms, pb.ROUND_STATE_DELIVERED)
        analyzer = deployment.service("analyzer")
        assert isinstance(analyzer, GreedyAnalyzer)
        assert len(analyzer.sealed) == 12
        assert analyzer.read == set()
        assert await deployment.nothing_is_published(terms)
        own = [pair.private for pair in (await keys_of(analyzer, terms)).values()]
        with_the_key = open_all(terms, analyzer.sealed, [*own, release])  # what the release key holds back
        assert len(reports_in(with_the_key)) == 12
        accountant = deployment.service("accountant")
        assert isinstance(accountant, HesitantAccountant)
        accountant.hesitates = False
        accountant.wake(terms.round_id)
        publication, _ = await deployment.operator.result(terms.round_id, WAIT_S)
        assert publication.num_reports == 12


class DeliversReportsOnly(cheaters.CheatingShuffler):
    """A last hop that gives the analyzer its lane and the accountant nothing."""

    async def _deliver(self, terms: RoundTerms) -> None:
        document = await document_of(self, terms, "commitments-out")
        analyzer = terms.manifest.analyzer.service
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
    signed = signer.identity.signed(Kind.CERTIFICATE, canonical(certificate))
    return pb.GrantRequest(round_id=terms.round_id, certificate=signed, release_private_key=bytes(range(32)))


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("waits", [True, False])
async def test_before_the_hand_over_no_budget_is_opened_and_no_report_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The last hop delivers everything and never says that it is complete."""
    delivered = asyncio.Event()

    async def never(*_: object) -> None:
        delivered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(ShufflerService, "hand_over", never)
    if not waits:
        monkeypatch.setattr(AccountantService, "open_soon", Opening.open_soon)
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        await deployment.operator.close_round(terms.round_id)
        await delivered.wait()
        accountant, analyzer = deployment.service("accountant"), deployment.service("analyzer")
        await asyncio.gather(*accountant._opening.values(), *analyzer._opening.values())
        budgets = await accountant.store.run("look", lambda tx: tx.opened(terms.round_id, pb.LANE_PARAMETER, -1))
        assert (budgets == []) == waits
        held = await held_reports(analyzer, terms)
        assert len(held) == 12
        own = [pair.private for pair in (await keys_of(analyzer, terms)).values()]
        assert open_all(terms, held, own) == set()
        release = (await keys_of(accountant, terms))[RELEASE_KEY].private
        assert len(reports_in(open_all(terms, held, [release]))) == 12


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_an_early_delivery_with_a_forged_grant_releases_nothing(tmp_path: Path) -> None:
    cast = {"shuffler-2": DeliversReportsOnly, "analyzer": GreedyAnalyzer}
    async with arena(tmp_path, 2, cast) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        await deployment.operator.close_round(terms.round_id)
        await deployment.problem("shuffler-2", terms)
        hop, analyzer = deployment.service("shuffler-2"), deployment.service("analyzer")
        assert isinstance(hop, DeliversReportsOnly)
        assert isinstance(analyzer, GreedyAnalyzer)
        grant = forged_grant(terms, hop, bytes(32))
        answer = await cheaters.refused(stubs.AnalyzerStub(hop.channel_to("analyzer")).Grant(grant))
        assert answer is not None
        assert answer.code is Code.NOT_YOUR_CALL
        # Even over the accountant's own channel: the signature is not the accountant's.
        accountant = deployment.service("accountant")
        answer = await cheaters.refused(stubs.AnalyzerStub(accountant.channel_to("analyzer")).Grant(grant))
        assert answer is not None
        assert answer.code is Code.BAD_SIGNATURE
        grant.certificate.signatures[0].signer = "accountant"
        answer = await cheaters.refused(stubs.AnalyzerStub(accountant.channel_to("analyzer")).Grant(grant))
        assert answer is not None
        assert answer.code is Code.BAD_SIGNATURE
        assert (len(analyzer.sealed), analyzer.read) == (12, set())
        assert await deployment.nothing_is_published(terms)


class BelievingAnalyzer(GreedyAnalyzer):
    """Takes any certificate from any caller: it wants to open the reports as much as the last hop does."""

    def require_caller(self, context: grpc.aio.ServicerContext, allowed: Iterable[str]) -> None:  # type: ignore[type-arg]
        return

    def _read_certificate(self, terms: RoundTerms, signed: pb.Signed) -> pb.Certificate:
        return pb.Certificate.FromString(signed.payload)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_last_hop_and_an_analyzer_open_nothing_with_a_forgery(tmp_path: Path) -> None:
    """No check stops them, but the missing release key does."""
    cast = {"shuffler-2": DeliversReportsOnly, "analyzer": BelievingAnalyzer}
    async with arena(tmp_path, 2, cast) as deployment:
        for with_the_key in (False, True):
            terms = await deployment.operator.open_round(fine_settings())
            await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
            await deployment.operator.close_round(terms.round_id)
            await deployment.problem("shuffler-2", terms)
            hop, analyzer = deployment.service("shuffler-2"), deployment.service("analyzer")
            assert isinstance(hop, DeliversReportsOnly)
            document = await document_of(hop, terms, "commitments-out")
            commitments = pb.HandOverRequest.FromString(document).commitments
            batch = pb.Commitment.FromString(commitments[-2].payload).digest_out
            await deployment.reached("analyzer", terms, pb.ROUND_STATE_MIXED)
            grant = forged_grant(terms, hop, batch, digest(await held_reports(analyzer, terms)))
            if with_the_key:  # an accountant that gives its key away is the one who could
                grant.release_private_key = (await keys_of(deployment.service("accountant"), terms))[
                    RELEASE_KEY
                ].private
            await stubs.AnalyzerStub(hop.channel_to("analyzer")).Grant(grant)
            await deployment.reached("analyzer", terms, pb.ROUND_STATE_PUBLISHED)
            published = pb.Signed.FromString(await document_of(analyzer, terms, "publication"))
            publication = pb.Publication.FromString(published.payload)
            assert publication.num_reports == (12 if with_the_key else 0)
            assert bool(publication.values) is with_the_key


def live_secrets(digests: set[bytes]) -> int:
    """Returns how many living objects are 32 bytes with one of these SHA-256 digests; the search keeps no key alive."""
    gc.collect()
    gc.unfreeze()  # what the first test found may hold what a later one has put there
    seen: set[int] = set()
    found = 0
    holders: list[object] = gc.get_objects()
    while holders:  # then those of them that the collector does not track, such as tuples of bytes
        untracked: list[object] = []
        for start in range(0, len(holders), 1000):
            for one in gc.get_referents(*holders[start : start + 1000]):
                kind = type(one)  # not isinstance: some modules' objects answer for their class with a warning
                if kind is str or kind is int or gc.is_tracked(one) or id(one) in seen:
                    continue
                seen.add(id(one))
                if kind is bytes:
                    content = cast(bytes, one)
                    found += len(content) == 32 and hashlib.sha256(content).digest() in digests
                else:
                    untracked.append(one)
        holders = untracked
    gc.freeze()
    return found


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_refused_round_leaves_no_release_key_and_only_sealed_reports(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"analyzer": GreedyAnalyzer}) as deployment:
        terms = await deployment.operator.open_round(fine_settings(epsilon=POLICY_NOBODY_MEETS))
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        held = (await keys_of(deployment.service("accountant"), terms))[RELEASE_KEY]
        release_key = {hashlib.sha256(held.private).digest()}
        assert live_secrets(release_key) == 1  # the search finds what is there
        del held
        before = await all_keys(deployment, terms)
        release_private = before.pop(("accountant", RELEASE_KEY))
        publication, certificate = await deployment.finish(terms)
        assert not certificate.granted
        assert not publication.values
        await deployment.reached("accountant", terms, pb.ROUND_STATE_REFUSED)
        analyzer = deployment.service("analyzer")
        assert isinstance(analyzer, GreedyAnalyzer)
        # All keys that any service ever had, but for the release key, read no report of the batch that was kept.
        assert not reports_in(open_all(terms, analyzer.sealed, before.values()))
        assert len(reports_in(open_all(terms, analyzer.sealed, [*before.values(), release_private]))) == 12
        del release_private
        assert await all_keys(deployment, terms) == {}
        assert live_secrets(release_key) == 0


class WillNotHear(AnalyzerService):
    """Refuses to take note of a refusal, so that the accountant has to try again and again."""

    async def Grant(self, request: pb.GrantRequest, context: cheaters.Context) -> pb.GrantResponse:  # noqa: N802
        raise Refusal(Code.STORE_FAILED)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_release_key_is_destroyed_before_the_analyzer_hears_of_it(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, {"analyzer": WillNotHear}) as deployment:
        terms = await deployment.operator.open_round(settings(epsilon_max=POLICY_NOBODY_MEETS))
        await deployment.admit(terms, await deployment.seal(terms, 30))
        wrapped = {"wrapped": wrapped_keys(deployment.inside.directory, ["accountant"])}
        accountant = deployment.inside.directory / "accountant"
        assert occurrences(accountant, wrapped) == {"wrapped": 4}
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("accountant", terms, pb.ROUND_STATE_CERTIFIED)
        assert await keys_of(deployment.service("accountant"), terms) == {}
        await deployment.until(lambda: occurrences(accountant, wrapped) == {"wrapped": 0})


@dataclass
class Tap:
    """An adversary on every wire, inside TLS: it has every submission, every chunk, and every grant of a round."""

    ciphertexts: set[bytes] = field(default_factory=set)
    grants: list[pb.GrantRequest] = field(default_factory=list)

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        submit, deliver, grant = ShufflerService.Submit, RoundService.Deliver, AnalyzerService.Grant

        async def heard_submit(service: ShufflerService, request: pb.SubmitRequest, context: object) -> object:
            self.ciphertexts.update(one.envelope for one in request.submissions)
            return await submit(service, request, context)  # type: ignore[arg-type]

        async def heard_deliver(service: RoundService, request: pb.DeliverRequest, context: object) -> object:
            terms = await service.terms(request.round_id)
            size = Onion(terms).arriving_size(request.lane, service.hop(terms))
            packed = b"" if request.lane == pb.LANE_TICKET else request.ciphertexts
            self.ciphertexts.update(packed[start : start + size] for start in range(0, len(packed), size))
            return await deliver(service, request, context)  # type: ignore[arg-type]

        async def heard_grant(service: AnalyzerService, request: pb.GrantRequest, context: object) -> object:
            self.grants.append(request)
            return await grant(service, request, context)  # type: ignore[arg-type]

        patch.setattr(ShufflerService, "Submit", heard_submit)
        patch.setattr(RoundService, "Deliver", heard_deliver)
        patch.setattr(AnalyzerService, "Grant", heard_grant)


def seize(directory: Path, copy: Path, round_id: str, names: Sequence[str]) -> list[bytes]:
    """Returns every private key on the disks of all services: round keys, identities, TLS, storage keys."""
    shutil.copytree(directory, copy)
    found: list[bytes] = []
    for name in names:
        secrets = load_secrets(copy / name)
        found += [secrets.identity_key, secrets.storage_key]
        store = Store(f"sqlite:///{copy / name / 'rounds.db'}", secrets.storage_key)
        with store._database.engine.connect() as connection:
            pairs = Transaction(connection, secrets.storage_key).keys(round_id)
        found += [pair.private for pair in pairs.values()]
        store.close()
    return found


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("forgetting", [True, False])
async def test_recorded_traffic_stays_sealed_when_all_disks_are_seized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgetting: bool
) -> None:
    tap = Tap()
    tap.listen(monkeypatch)
    if not forgetting:
        monkeypatch.setattr(Transaction, "forget", lambda self, round_id: None)
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        await deployment.finish(terms)
        for name in ("shuffler-1", "shuffler-2"):
            await deployment.reached(name, terms, pb.ROUND_STATE_DELIVERED)
        await deployment.reached("accountant", terms, pb.ROUND_STATE_RELEASED)
        assert len(tap.ciphertexts) == 12 * 5  # submissions, two lanes to hop 2, one to each of the two sinks
        keys = seize(deployment.inside.directory, tmp_path / "seized", terms.round_id, deployment.deployment.chain)
    assert len(reports_in(open_all(terms, tap.ciphertexts, keys))) == (0 if forgetting else 12)
    if forgetting:
        heard = [grant.release_private_key for grant in tap.grants]
        assert len(heard) == 1
        assert open_all(terms, tap.ciphertexts, [*keys, *heard]) == set()


def occurrences(directory: Path, needles: Mapping[str, Iterable[bytes]]) -> dict[str, int]:
    """Returns of how many needles the first or the last 32 bytes stand in a file (a page may cut through the rest)."""
    contents = [file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()]
    return {
        kind: sum(
            any(needle[:32] in content or needle[-32:] in content for content in contents) for needle in set(some)
        )
        for kind, some in needles.items()
    }


def opened_by(directory: Path, name: str) -> list[bytes]:
    """Returns what a service keeps of the messages that it has opened."""
    engine = sa.create_engine(f"sqlite:///{directory / name / 'rounds.db'}")
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT content FROM opened")).scalars().all()
    engine.dispose()
    return list(found)


def wrapped_keys(directory: Path, names: Sequence[str]) -> list[bytes]:
    found: list[bytes] = []
    for name in names:
        engine = sa.create_engine(f"sqlite:///{directory / name / 'rounds.db'}")
        with engine.connect() as connection:
            found += connection.execute(sa.text("SELECT wrapped_private FROM round_keys")).scalars().all()
        engine.dispose()
    return found


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("epsilon", [4.0, POLICY_NOBODY_MEETS])
async def test_after_the_round_no_file_holds_a_ciphertext_report_or_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epsilon: float
) -> None:
    """Greps databases, their write-ahead logs and everything else; before the end the same grep finds all of it."""
    tap = Tap()
    tap.listen(monkeypatch)
    async with arena(tmp_path, 2) as deployment:
        directory, chain = deployment.inside.directory, deployment.deployment.chain
        terms = await deployment.operator.open_round(fine_settings(epsilon=epsilon))
        submissions = await deployment.seal(terms, 12, value=0.5)
        await deployment.admit(terms, submissions)
        envelopes = [one.envelope for one in submissions]
        keys, wrapped = await all_keys(deployment, terms), wrapped_keys(directory, chain)
        assert (len(keys), len(wrapped)) == (7, 7)
        identities = [load_secrets(directory / name).identity_key for name in chain]
        kept = opened_by(directory, "shuffler-1")  # of all envelopes together, which are not kept themselves
        before = {"envelopes": envelopes, "kept": kept, "wrapped": wrapped}
        assert occurrences(directory, before) == {"envelopes": 0, "kept": 1, "wrapped": 7}
        await deployment.inside.stop("accountant")
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("shuffler-2", terms, pb.ROUND_STATE_MIXED)
        delivered = tap.ciphertexts - set(envelopes)
        assert occurrences(directory, {"delivered": delivered})["delivered"] >= 24  # hop 2 has all that it was given
        await deployment.inside.start("accountant")
        _, certificate = await deployment.operator.result(terms.round_id, WAIT_S)
        assert certificate.granted is (epsilon == 4.0)
        end = pb.ROUND_STATE_RELEASED if certificate.granted else pb.ROUND_STATE_REFUSED
        for name in ("shuffler-1", "shuffler-2"):
            await deployment.reached(name, terms, pb.ROUND_STATE_DELIVERED)
        await deployment.reached("accountant", terms, end)
        opened = open_all(terms, tap.ciphertexts, keys.values())
        reports = reports_in(opened)
        assert len(reports) == 12
        needles = {
            "ciphertexts": tap.ciphertexts | opened - reports,
            "reports": reports,
            "keys": keys.values(),
            "kept": kept,
            "wrapped": wrapped,
            "identities": identities,
        }
        await deployment.until(lambda: occurrences(directory, needles) == dict.fromkeys(needles, 0))


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_round_that_is_disposed_of_leaves_nothing_behind_either(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(
            RoundSettings(FINE, (1.0,), min_batch_size=20, short_batch_policy="dispose")
        )
        submissions = await deployment.seal(terms, 19, value=0.5)
        await deployment.admit(terms, submissions)
        first = deployment.inside.directory / "shuffler-1"
        needles = {
            "kept": opened_by(deployment.inside.directory, "shuffler-1"),
            "wrapped": wrapped_keys(deployment.inside.directory, ["shuffler-1"]),
        }
        assert occurrences(first, needles) == {"kept": 1, "wrapped": 1}
        answer = await deployment.operator.close_round(terms.round_id)
        assert answer.state == pb.ROUND_STATE_DISPOSED
        await deployment.until(lambda: occurrences(first, needles) == {"kept": 0, "wrapped": 0})


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_an_accountant_that_is_restarted_after_a_refusal_cannot_grant(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings(epsilon_max=POLICY_NOBODY_MEETS))
        await deployment.admit(terms, await deployment.seal(terms, 30))
        await deployment.finish(terms)
        await deployment.inside.stop("accountant")
        await deployment.inside.start("accountant")
        assert await all_keys(deployment, terms) == {}
        secrets = load_secrets(deployment.inside.directory / "accountant")
        async with deployment.inside.transport.peer_channel(deployment.deployment.analyzer, secrets) as channel:
            accountant = deployment.service("accountant")
            certificate = pb.Certificate(round_id=terms.round_id, manifest_hash=terms.hash, granted=True)
            signed = accountant.identity.signed(Kind.CERTIFICATE, canonical(certificate))
            changed = pb.GrantRequest(round_id=terms.round_id, certificate=signed, release_private_key=bytes(32))
            answer = await cheaters.refused(stubs.AnalyzerStub(channel).Grant(changed))
        assert answer is not None
        assert answer.code is Code.CONFLICT  # what the accountant has once said of a round stays


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_an_analyzer_does_not_keep_the_key_of_a_round_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last hop tells two stories: the analyzer holds release key and reports that were not certified."""
    tap = Tap()
    tap.listen(monkeypatch)
    async with arena(tmp_path, 2, {"shuffler-2": cheaters.Equivocates}) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        needles = {"wrapped": wrapped_keys(deployment.inside.directory, ["analyzer"])}
        analyzer = deployment.inside.directory / "analyzer"
        assert occurrences(analyzer, needles) == {"wrapped": 1}
        await deployment.operator.close_round(terms.round_id)
        assert "for another batch" in await deployment.problem("analyzer", terms)
        assert tap.grants
        await deployment.until(
            lambda: occurrences(analyzer, {**needles, "reports": tap.ciphertexts}) == {"wrapped": 0, "reports": 0}
        )
        keys = seize(deployment.inside.directory, tmp_path / "seized", terms.round_id, ["analyzer"])
        assert not reports_in(open_all(terms, tap.ciphertexts, keys))


class HardOfHearing(AnalyzerService):
    """Hears of a certificate when it likes: until then the accountant holds it, and asks again."""

    listens = False

    async def Grant(self, request: pb.GrantRequest, context: cheaters.Context) -> pb.GrantResponse:  # noqa: N802
        if not self.listens:
            raise Refusal(Code.NOT_READY)
        return await super().Grant(request, context)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_withdrawn_round_takes_no_release_key(tmp_path: Path) -> None:
    """It was kept for `keep_days`, when the accountant's grant came after the analyzer had destroyed all of its own."""
    async with arena(tmp_path, 1, {"analyzer": HardOfHearing}) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        await deployment.admit(terms, await deployment.seal(terms, 12, value=0.5))
        await deployment.operator.close_round(terms.round_id)
        await deployment.reached("accountant", terms, pb.ROUND_STATE_CERTIFIED)
        assert (await deployment.operator.withdraw(terms.round_id))["analyzer"] == "DISPOSED"
        analyzer = deployment.service("analyzer")
        assert isinstance(analyzer, HardOfHearing)
        analyzer.listens = True
        assert "has ended here" in await deployment.problem("accountant", terms)
        assert await all_keys(deployment, terms) == {}


class ShowsAnotherRound(AnalyzerService):
    """Answers with the well-signed result of the one round that it likes best."""

    async def GetResult(self, request: rpc.GetResultRequest, context: cheaters.Context) -> rpc.GetResultResponse:  # noqa: N802
        await super().GetResult(request, context)
        return await super().GetResult(rpc.GetResultRequest(round_id="liked"), context)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_one_rounds_result_and_certificate_do_not_pass_for_anothers(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, {"analyzer": ShowsAnotherRound}) as deployment:
        liked = await deployment.operator.open_round(settings(), "liked")
        await deployment.admit(liked, await deployment.seal(liked, 60))
        publication, certificate = await deployment.finish(liked)
        assert (publication.round_id, certificate.granted) == ("liked", True)
        strict = await deployment.operator.open_round(settings(epsilon_max=POLICY_NOBODY_MEETS), "strict")
        await deployment.admit(strict, await deployment.seal(strict, 30))
        with pytest.raises(Refusal, match="asked for the result of 'strict', got that of 'liked'") as answer:
            await deployment.finish(strict)
        assert answer.value.code is Code.BAD_BATCH


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("sealed", [True, False])
async def test_what_is_opened_before_the_close_is_not_to_be_read_from_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """Hop 1's files would tell which client sent which ciphertext of the lanes, in the order of arrival."""
    if not sealed:
        monkeypatch.setattr("runtime.opening._Shelf.put", lambda self, index, records: records)
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        submissions = await deployment.seal(terms, 30, value=0.5)
        await deployment.admit(terms, submissions)
        hop = deployment.service("shuffler-1")
        found: list[tuple[int, bytes]] = []
        async with asyncio.timeout(WAIT_S):
            while not found:  # the round is open
                await asyncio.sleep(0.02)
                found = await hop.store.run("look", lambda tx: tx.opened(terms.round_id, pb.LANE_JOINT, -1))
        private = (await keys_of(hop, terms))[ENVELOPE_KEY].private
        label = Onion(terms).joint.label
        inside = open_many(terms.suite, private, label, [one.envelope for one in submissions])
        needles = {"inside": [plain for plain in inside if plain is not None]}
        assert len(needles["inside"]) == 30
        assert occurrences(deployment.inside.directory / "shuffler-1", needles) == {"inside": 0 if sealed else 30}
