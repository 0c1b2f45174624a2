"""What somebody reads who tries every key that they have on everything that they have."""

from __future__ import annotations

from collections.abc import Iterable

import grpc.aio

from croupier.analyzer.service import AnalyzerService
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.envelope import HOP_ACCOUNTANT, HOP_ANALYZER, HOP_RELEASE, KeyPair, Label, open_many
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.names import PrivateKey, RoundId
from croupier.protocol.onion import Onion, split_report
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.service import RoundService
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.tasks import OPENED
from tests.support.arena import Arena
from tests.support.lanes import lane_in

FINE = Question("fine", Laplace(low=0.0, high=1.0, lattice=1 << 31))
"""Reports of 31 bits and more: what is found somewhere is not there by chance."""
POLICY_NOBODY_MEETS = 0.001


def fine_settings(**changes: float) -> RoundSettings:
    return RoundSettings(FINE, (0.5, 1.0, 2.0), min_batch_size=10, delta=1e-4, epsilon_max=changes.get("epsilon", 4.0))


def _labels(terms: RoundTerms) -> list[Label]:
    """Every place of the round that anything can be sealed for."""
    onion = Onion(terms)
    hops = range(2, terms.shared.num_hops + 1)
    report = [onion.layer(pb.LANE_REPORT, hop) for hop in [*hops, HOP_ANALYZER, HOP_RELEASE]]
    parameter = [onion.layer(pb.LANE_PARAMETER, hop) for hop in [*hops, HOP_ACCOUNTANT]]
    return [layer.label for layer in [onion.joint, *report, *parameter]]


def open_all(terms: RoundTerms, ciphertexts: Iterable[bytes], keys: Iterable[bytes]) -> set[bytes]:
    """Returns everything that comes out, layer after layer, when every key is tried on everything in every place."""
    onion = Onion(terms)
    tickets: set[bytes] = set()
    fresh = set(ciphertexts)
    tries = [(key, label) for key in set(keys) for label in _labels(terms)]
    while fresh:
        opened = {
            out
            for key, label in tries
            for out in open_many(terms.shared.hpke_suite, PrivateKey(key), label, fresh)
            if out is not None
        }
        joint = {plain for plain in opened if len(plain) == onion.joint.plain_size}
        held = {plain for plain in opened if len(plain) == onion.layer(pb.LANE_REPORT, HOP_ANALYZER).plain_size}
        fresh = opened | {lane for plain in joint for lane in onion.split(plain)}
        fresh = (fresh | {split_report(plain)[1] for plain in held}) - tickets
        tickets |= fresh
    return tickets


async def keys_of(service: RoundService, terms: RoundTerms) -> dict[KeyPurpose, KeyPair]:
    return await service.store.run("look", lambda tx: tx.keys(terms.round_id))


async def document_of(service: RoundService, terms: RoundTerms, kind: DocumentKind) -> bytes:
    return await service.store.run("look", lambda tx: tx.document(terms.round_id, kind)) or b""


async def held_reports(analyzer: RoundService, terms: RoundTerms) -> list[bytes]:
    """Returns the reports as the analyzer holds them: under the release key."""
    assert isinstance(analyzer, AnalyzerService)
    records = [record async for page in analyzer.opener.records(terms, pb.LANE_REPORT) for record in page]
    return [split_report(record.content)[1] for record in records if record.status == OPENED]


async def all_keys(deployment: Arena, terms: RoundTerms) -> dict[tuple[str, str], bytes]:
    """Returns every private round key that a store holds now, by service and purpose."""
    keys: dict[tuple[str, str], bytes] = {}
    for name in deployment.deployment.chain:
        for purpose, pair in (await keys_of(deployment.service(name), terms)).items():
            keys[name, purpose] = pair.private
    return keys


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
        terms = await self.engine.terms(RoundId(request.round_id))
        self.sealed = await lane_in(self, terms, pb.LANE_REPORT)
        own = [pair.private for pair in (await keys_of(self, terms)).values()]
        keys = [*own, self.peers.secrets.storage_key, self.peers.secrets.identity_key]
        self.read |= reports_in(open_all(terms, self.sealed, keys))
        return answer
