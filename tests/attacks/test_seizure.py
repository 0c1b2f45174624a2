"""Reading reports later, with recorded traffic, and every disk and every storage key in hand."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.analyzer.service import AnalyzerService
from croupier.deploy.node.serve import RunningService
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.envelope import open_many
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.service import RoundService
from croupier.runtime.service_directory import load_secrets
from croupier.runtime.transaction import Transaction
from croupier.shuffler.fake_reports import FakeReports
from croupier.shuffler.service import ShufflerService
from tests.attacks import cheaters
from tests.attacks.reading import (
    FINE,
    POLICY_NOBODY_MEETS,
    GreedyAnalyzer,
    all_keys,
    fine_settings,
    keys_of,
    open_all,
    reports_in,
)
from tests.support import settings
from tests.support.arena import WAIT_S, arena

pytestmark = pytest.mark.virtual_time


def live_secrets(digests: set[bytes]) -> int:
    """Returns how many living objects are 32 bytes with one of these SHA-256 digests; the search keeps no key alive."""
    gc.collect()
    gc.unfreeze()  # what the first test found may hold what a later one has put there
    seen: set[int] = set()
    count = 0
    holders: list[object] = gc.get_objects()
    while holders:  # then those of them that the collector does not track, such as tuples of bytes
        untracked: list[object] = []
        for start in range(0, len(holders), 1000):
            for referent in gc.get_referents(*holders[start : start + 1000]):
                kind = type(referent)  # not isinstance: some modules' objects answer for their class with a warning
                if kind is str or kind is int or gc.is_tracked(referent) or id(referent) in seen:
                    continue
                seen.add(id(referent))
                if kind is bytes:
                    content = cast(bytes, referent)
                    count += len(content) == 32 and hashlib.sha256(content).digest() in digests
                else:
                    untracked.append(referent)
        holders = untracked
    gc.freeze()
    return count


@pytest.mark.slow
async def test_a_refused_round_leaves_no_release_key_and_only_sealed_reports(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"analyzer": GreedyAnalyzer}) as deployment:
        terms = await deployment.filled(fine_settings(epsilon=POLICY_NOBODY_MEETS), 12, value=0.5)
        held = (await keys_of(deployment.service("accountant"), terms))[KeyPurpose.RELEASE]
        release_key = {hashlib.sha256(held.private).digest()}
        assert live_secrets(release_key) == 1  # the search finds what is there
        del held
        before = await all_keys(deployment, terms)
        release_private = before.pop(("accountant", KeyPurpose.RELEASE))
        publication, certificate = await deployment.finish(terms)
        assert not certificate.granted
        assert not publication.values
        await deployment.reached("accountant", terms, pb.ROUND_STATE_REFUSED)
        analyzer = deployment.service_as("analyzer", GreedyAnalyzer)
        # All keys that any service ever had, but for the release key, read no report of the batch that was kept.
        assert not reports_in(open_all(terms, analyzer.sealed, before.values()))
        assert len(reports_in(open_all(terms, analyzer.sealed, [*before.values(), release_private]))) == 12
        del release_private
        assert await all_keys(deployment, terms) == {}
        assert live_secrets(release_key) == 0


async def test_a_release_key_is_destroyed_before_the_analyzer_hears_of_it(tmp_path: Path) -> None:
    async with arena(tmp_path, 1, {"analyzer": cheaters.HardOfHearing}) as deployment:
        terms = await deployment.filled(settings(epsilon_max=POLICY_NOBODY_MEETS), 30)
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
            self.ciphertexts.update(submission.envelope for submission in request.submissions)
            return await submit(service, request, context)  # type: ignore[arg-type]

        async def heard_deliver(service: RoundService, request: pb.DeliverRequest, context: object) -> object:
            terms = await service.engine.terms(RoundId(request.round_id))
            size = Onion(terms).arriving_size(request.lane, service.position.hop(terms))
            packed = b"" if request.lane == pb.LANE_TICKET else request.ciphertexts
            self.ciphertexts.update(packed[start : start + size] for start in range(0, len(packed), size))
            return await deliver(service, request, context)  # type: ignore[arg-type]

        async def heard_grant(service: AnalyzerService, request: pb.GrantRequest, context: object) -> object:
            self.grants.append(request)
            return await grant(service, request, context)  # type: ignore[arg-type]

        patch.setattr(ShufflerService, "Submit", heard_submit)
        patch.setattr(RoundService, "Deliver", heard_deliver)
        patch.setattr(AnalyzerService, "Grant", heard_grant)


_PUBLIC, _WRAPPED = 32, 12 + 32 + 16


def carved(directory: Path, round_id: str, storage_key: bytes) -> list[bytes]:
    """Returns the round's private keys from the bytes of files, rows among them that are deleted in every table.

    SQLite writes the columns of a row one behind the other: round, purpose, public key, wrapped private key.
    """
    cipher = ChaCha20Poly1305(storage_key)
    private_keys: list[bytes] = []
    for file in (path for path in directory.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for purpose in (KeyPurpose.ENVELOPE, KeyPurpose.RELEASE):
            for row in re.finditer(re.escape(round_id + purpose).encode(), content):
                wrapped = content[row.end() + _PUBLIC :][:_WRAPPED]
                with suppress(InvalidTag, ValueError):
                    private_keys.append(cipher.decrypt(wrapped[:12], wrapped[12:], f"{round_id}\0{purpose}".encode()))
    return private_keys


def seize(directory: Path, copy: Path, round_id: str, names: Sequence[str]) -> list[bytes]:
    """Returns every private key on the disks of all services: round keys, identities, TLS, storage keys."""
    shutil.copytree(directory, copy, dirs_exist_ok=True)
    secrets_held: list[bytes] = []
    for name in names:
        secrets = load_secrets(copy / name)
        secrets_held += [secrets.identity_key, secrets.storage_key, *carved(copy / name, round_id, secrets.storage_key)]
    return secrets_held


NOTHING, FORGETTING, SECURE_DELETE, CUT_LOG = "nothing", "forgetting", "secure_delete", "the log's overwriting"


def without(defence: str, patch: pytest.MonkeyPatch) -> None:
    """Takes a defence away from all services."""
    if defence == FORGETTING:
        patch.setattr(Transaction, "shred_round", lambda self, round_id: None)
    elif defence == CUT_LOG:
        patch.setattr("croupier.runtime.database.overwrite_log", lambda *_: True)
    elif defence == SECURE_DELETE:
        make = RunningService.__init__

        def insecure(running: RunningService, *arguments: Any, **how: Any) -> None:
            make(running, *arguments, **how)
            with running.store.database.engine.connect() as connection:  # the pool's only one
                connection.exec_driver_sql("PRAGMA secure_delete=OFF")

        patch.setattr(RunningService, "__init__", insecure)


@pytest.mark.slow
@pytest.mark.parametrize("taken_away", [NOTHING, FORGETTING, SECURE_DELETE, CUT_LOG])
async def test_recorded_traffic_stays_sealed_when_all_disks_are_seized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_away: str
) -> None:
    """Without any one of the three defences the same attack reads every report."""
    tap = Tap()
    tap.listen(monkeypatch)
    without(taken_away, monkeypatch)
    async with arena(tmp_path, 2) as deployment:
        directory, chain = deployment.inside.directory, deployment.deployment.chain
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
        keys_before = seize(directory, tmp_path / "seized-before", terms.round_id, chain)
        assert len(reports_in(open_all(terms, tap.ciphertexts, keys_before))) == 12  # the attack works
        await deployment.finish(terms)
        for name in ("shuffler-1", "shuffler-2"):
            await deployment.reached(name, terms, pb.ROUND_STATE_DELIVERED)
        await deployment.reached("accountant", terms, pb.ROUND_STATE_RELEASED)
        assert len(tap.ciphertexts) == 12 * 5  # submissions, two lanes to hop 2, one to each of the two sinks

        def seized_keys() -> list[bytes]:
            return seize(directory, tmp_path / "seized", terms.round_id, chain)

        await deployment.reached("analyzer", terms, pb.ROUND_STATE_PUBLISHED)
        if taken_away == NOTHING:
            await deployment.until(lambda: len(seized_keys()) == 2 * len(chain))
        else:
            for name in chain:
                await deployment.service(name).store.shred()
        keys = seized_keys()
    assert len(reports_in(open_all(terms, tap.ciphertexts, keys))) == (0 if taken_away == NOTHING else 12)
    if taken_away == NOTHING:
        heard = [grant.release_private_key for grant in tap.grants]
        assert len(heard) == 1
        assert open_all(terms, tap.ciphertexts, [*keys, *heard]) == set()


def occurrences(directory: Path, needles: Mapping[str, Iterable[bytes]]) -> dict[str, int]:
    """Returns of how many needles the first or the last 32 bytes stand in a file (a page may cut through the rest)."""
    contents = [file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()]
    return {
        kind: sum(
            any(needle[:32] in content or needle[-32:] in content for content in contents)
            for needle in set(needles_of_kind)
        )
        for kind, needles_of_kind in needles.items()
    }


@pytest.mark.parametrize("taken_away", [NOTHING, SECURE_DELETE])
async def test_fakes_leave_no_trace_on_disk_once_their_batch_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_away: str
) -> None:
    """Neither the fakes as a hop passes them on nor the document that keeps them: with both, their noise is known."""
    needles: dict[str, list[bytes]] = {"documents": [], "fakes": []}
    make, put = FakeReports.make, Transaction.put_document

    async def noted_make(fakes: FakeReports, terms: RoundTerms) -> list[bytes]:
        needles["fakes"] += (made := await make(fakes, terms))
        return made

    def noted_put(tx: Transaction, round_id: RoundId, kind: DocumentKind, content: bytes, *part: Any) -> None:
        if kind is DocumentKind.FAKES:
            needles["documents"].append(content)
        put(tx, round_id, kind, content, *part)

    monkeypatch.setattr(FakeReports, "make", noted_make)
    monkeypatch.setattr(Transaction, "put_document", noted_put)
    without(taken_away, monkeypatch)
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.filled(replace(settings(), hop_noise=1.0), 20)
        await deployment.finish(terms)
        for name in ("shuffler-1", "shuffler-2"):
            await deployment.reached(name, terms, pb.ROUND_STATE_DELIVERED)
        assert terms.fakes is not None
        assert len(needles["fakes"]) == 2 * terms.fakes.law.most
        assert len(needles["documents"]) == 2
        directory = deployment.inside.directory
        if taken_away == NOTHING:
            await deployment.until(lambda: occurrences(directory, needles) == {"documents": 0, "fakes": 0})
        else:
            for name in deployment.deployment.chain:
                await deployment.service(name).store.shred()
            counts = occurrences(directory, needles)
            assert counts["documents"] + counts["fakes"] > 0


def opened_by(directory: Path, name: str) -> list[bytes]:
    """Returns what a service keeps of the messages that it has opened."""
    engine = sa.create_engine(f"sqlite:///{directory / name / 'rounds.db'}")
    with engine.connect() as connection:
        contents = connection.execute(sa.text("SELECT content FROM opened")).scalars().all()
    engine.dispose()
    return list(contents)


def wrapped_keys(directory: Path, names: Sequence[str]) -> list[bytes]:
    wrapped: list[bytes] = []
    for name in names:
        engine = sa.create_engine(f"sqlite:///{directory / name / 'rounds.db'}")
        with engine.connect() as connection:
            wrapped += connection.execute(sa.text("SELECT wrapped_private FROM round_keys")).scalars().all()
        engine.dispose()
    return wrapped


@pytest.mark.slow
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
        envelopes = [submission.envelope for submission in submissions]
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


async def test_an_analyzer_does_not_keep_the_key_of_a_round_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last hop tells two stories: the analyzer holds release key and reports that were not certified."""
    tap = Tap()
    tap.listen(monkeypatch)
    async with arena(tmp_path, 2, {"shuffler-2": cheaters.Equivocates}) as deployment:
        terms = await deployment.filled(fine_settings(), 12, value=0.5)
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


@pytest.mark.parametrize("sealed", [True, False])
async def test_what_is_opened_before_the_close_is_not_to_be_read_from_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """Hop 1's files would tell which client sent which ciphertext of the lanes, in the order of arrival."""
    if not sealed:
        monkeypatch.setattr("croupier.runtime.lane_opener._RecordCipher.encrypt", lambda self, index, records: records)
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(fine_settings())
        submissions = await deployment.seal(terms, 30, value=0.5)
        await deployment.admit(terms, submissions)
        hop = deployment.service("shuffler-1")
        records: list[tuple[int, bytes]] = []
        async with asyncio.timeout(WAIT_S):
            while not records:  # the round is open
                await asyncio.sleep(0.02)
                records = await hop.store.run("look", lambda tx: tx.opened(terms.round_id, pb.LANE_JOINT, -1))
        private = (await keys_of(hop, terms))[KeyPurpose.ENVELOPE].private
        label = Onion(terms).joint.label
        inside = open_many(terms.shared.hpke_suite, private, label, [submission.envelope for submission in submissions])
        needles = {"inside": [plain for plain in inside if plain is not None]}
        assert len(needles["inside"]) == 30
        assert occurrences(deployment.inside.directory / "shuffler-1", needles) == {"inside": 0 if sealed else 30}
