"""The analyzer's gRPC service: hold the shuffled reports, and answer the question once they are released.

    OPEN ──hand-over──▶ CLOSED ──own layer──▶ MIXED ──tickets handed in, grant, analyze──▶ PUBLISHED | REFUSED
    sequential:                          MIXED ──grant──▶ SEQUENTIAL ──last grant──▶ PUBLISHED | REFUSED

Under the analyzer's own layer each report is sealed to the accountant's release key, beside its ticket. The accountant
is handed hashes and tickets; its grant brings the key together with the certificate, which is checked against the
stored batch, and names the reports without a ticket. Without both, nothing here can open a report.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from croupier.analyzer.descent import follow_rule
from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.estimators import estimate
from croupier.analyzer.held_reports import HeldReports
from croupier.analyzer.learning import Learning
from croupier.net.tls import Context
from croupier.protocol.batches import drop_counts
from croupier.protocol.codes import Note
from croupier.protocol.collector import seal_result
from croupier.protocol.envelope import HOP_ANALYZER, KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, canonical, read_signed
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey, PublicKey, RoundId
from croupier.protocol.onion import UNOPENED, ticket_item
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.lane_receiver import LaneReceiver
from croupier.runtime.lane_sender import LaneOutput, LaneSender
from croupier.runtime.peers import Peers
from croupier.runtime.position import BehindTheChain, own_layer
from croupier.runtime.retention import Retention
from croupier.runtime.round_control import RoundControl, is_before_certificate
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.service import RoundService
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import OPENED
from croupier.runtime.transaction import Transaction


class AnalyzerService(RoundService, stubs.AnalyzerServicer):
    """Estimates from the shuffled multiset and the tier counts of the certificate, and from nothing else.

    Attributes:
        held: the reports.
        learning: the models of sequential rounds.
    """

    def __init__(self, setup: ServiceSetup) -> None:
        self.store = setup.store
        self.metrics = setup.metrics
        self.peers = Peers(setup)
        self.position = BehindTheChain(HOP_ANALYZER, (pb.LANE_REPORT,))
        self.engine = RoundEngine(
            setup,
            self.peers.waiting,
            {
                pb.ROUND_STATE_CLOSED: self._open_own_layer,
                pb.ROUND_STATE_MIXED: self._hand_in_tickets_and_publish,
                pb.ROUND_STATE_SEQUENTIAL: self._publish_model,
            },
            ephemeral_documents=(DocumentKind.MODEL, DocumentKind.REJECTED),
            on_end=self._stop_round,
        )
        self.opener = LaneOpener(setup, partial(own_layer, self.position), early=self.position.lanes)
        self.sender = LaneSender(setup, self.peers)
        self.receiver = LaneReceiver(setup, self.peers, self.engine, self.opener, self.position)
        self.control = RoundControl(setup, self.peers, self.engine, withdrawable=_withdrawable)
        self.retention = Retention(setup, self.engine, self.control, kept_documents=(DocumentKind.PUBLICATION,))
        self.held = HeldReports(setup, self.opener)
        self.learning = Learning(setup, self.peers, self.engine, self.position, self.held)

    def _stop_round(self, round_id: RoundId) -> None:
        self.learning.stop_round(round_id)

    # ------------------------------------------------------------- the states of a round

    async def _open_own_layer(self, terms: RoundTerms) -> bool:
        """Opens its layer, and keeps the ticket and the hash of every sealed report for the accountant."""
        watch = Stopwatch()
        await self.opener.open_all(terms, pb.LANE_REPORT)
        items = [
            ticket_item(record.content) if record.status == OPENED else UNOPENED
            async for records in self.opener.records(terms, pb.LANE_REPORT)
            for record in records
        ]
        items.sort()

        def keep(tx: Transaction) -> None:
            self.sender.put_output(tx, terms.round_id, LaneOutput(pb.LANE_TICKET, items))
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_MIXED)
            tx.add_cost(terms.round_id, "analyze", *watch.read())

        await self.store.run(StoreStep.KEEP_OPENED_BATCH, keep)
        return True

    async def _hand_in_tickets_and_publish(self, terms: RoundTerms) -> bool:
        """Hands the tickets in; with the certificate publishes, or begins to learn."""
        signed = await self._certificate(terms, DocumentKind.CERTIFICATE)
        if signed is None:
            await self.sender.send_lane(terms, terms.accountant.service, pb.LANE_TICKET)
            signed = await self._certificate(terms, DocumentKind.CERTIFICATE)
        if signed is None:
            return False
        certificate = pb.Certificate.FromString(signed[0].payload)
        if terms.question.sequential is not None and certificate.granted:
            await self.learning.begin(terms, certificate)
        else:
            await self._publish(terms, *signed)
        return True

    async def _publish_model(self, terms: RoundTerms) -> bool:
        """Publishes the model of a sequential round once the last certificate is here."""
        signed = await self._certificate(terms, DocumentKind.LAST_CERTIFICATE)
        if signed is None:
            return False
        await self._publish(terms, *signed)
        return True

    async def _certificate(self, terms: RoundTerms, kind: DocumentKind) -> tuple[pb.Signed, pb.SignedRound] | None:
        """Returns a certificate and the round, both signed; None until the certificate is here."""
        document, row = await self.store.run(
            StoreStep.READ_CERTIFICATE, lambda tx: (tx.document(terms.round_id, kind), tx.round(terms.round_id))
        )
        return None if document is None else (pb.Signed.FromString(document), pb.SignedRound.FromString(row.manifest))

    async def _publish(self, terms: RoundTerms, signed: pb.Signed, signed_round: pb.SignedRound) -> None:
        """Publishes the result, or the refusal, and deletes the round."""
        watch = Stopwatch()
        certificate = pb.Certificate.FromString(signed.payload)
        publication = pb.Publication(
            round_id=terms.round_id, manifest_hash=terms.hash, certificate=signed, round=signed_round
        )
        drops = Counter({drop.reason: drop.count for drop in certificate.report_drops})
        if certificate.granted and terms.question.sequential is not None:
            await self.learning.publish(publication, terms, certificate)
            follow_rule(publication, terms, certificate)
        elif certificate.granted:
            await self.held.check(terms, certificate)
            reports, unreadable, cpu_s = await self.held.decoded(terms)
            watch.workers_cpu_s += cpu_s
            drops.update(unreadable)
            publication.drops.extend(drop_counts(drops))
            await asyncio.to_thread(_answer, publication, terms, reports, certificate)
        if certificate.granted:
            publication = await asyncio.to_thread(seal_result, publication, terms)
        document = self.peers.identity.signed(Kind.PUBLICATION, canonical(publication)).SerializeToString()

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, DocumentKind.PUBLICATION, document)
            state = pb.ROUND_STATE_PUBLISHED if certificate.granted else pb.ROUND_STATE_REFUSED
            tx.update_round(terms.round_id, state=state)
            tx.add_cost(terms.round_id, "analyze", *watch.read())
            self.engine.shred_round(tx, terms.round_id)

        await self.store.run(StoreStep.PUBLISH, keep)
        self.learning.stop_round(terms.round_id)
        self.metrics.drops(pb.LANE_REPORT, drops)
        self.metrics.stage("analyze", watch.read()[0])

    # ------------------------------------------------------------- Analyzer

    async def Grant(self, request: pb.GrantRequest, context: Context) -> pb.GrantResponse:  # noqa: N802
        """Takes a certificate and, if it grants the round, the release key; the same request again changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the accountant may), UNKNOWN_ROUND, BAD_SIGNATURE (signed by others as well),
                BAD_BATCH (the certificate is about another round or manifest), CONFLICT (another certificate or list
                of reports without a ticket was taken before), WRONG_STATE (the round is not open yet, or deleted, or
                has ended here without a result: no release key is taken then).
            SignatureError: the certificate is not signed by the accountant.
        """
        terms = await self.engine.terms(RoundId(request.round_id))
        accountant = terms.accountant
        self.peers.require_caller(context, [accountant.service])
        certificate = self.read_certificate(terms, request.certificate)
        document = request.certificate.SerializeToString(deterministic=True)

        def keep(tx: Transaction) -> None:
            if certificate.HasField("num_answers"):
                tx.put_document(terms.round_id, DocumentKind.LAST_CERTIFICATE, document)
                return
            row, new = tx.round(terms.round_id), tx.document(terms.round_id, DocumentKind.CERTIFICATE) is None
            tx.put_document(terms.round_id, DocumentKind.CERTIFICATE, document)
            if new and certificate.granted:
                if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                    raise Refusal(Code.WRONG_STATE, "the round has ended here")
                tx.put_document(terms.round_id, DocumentKind.REJECTED, request.rejected)
                pair = KeyPair(PublicKey(accountant.release_public_key), PrivateKey(request.release_private_key))
                tx.put_key(terms.round_id, KeyPurpose.RELEASE, pair)

        await self.store.run(StoreStep.KEEP_GRANT, keep)
        self.engine.wake(terms.round_id)
        return pb.GrantResponse()

    async def GetResult(self, request: rpc.GetResultRequest, context: Context) -> rpc.GetResultResponse:  # noqa: N802
        """Returns the signed publication to any caller: the estimate, or the certificate's refusal.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_READY (not published yet).
        """

        def read(tx: Transaction) -> bytes | None:
            tx.round(RoundId(request.round_id))
            return tx.document(RoundId(request.round_id), DocumentKind.PUBLICATION)

        document = await self.store.run(StoreStep.SHOW_RESULT, read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not published yet")
        return rpc.GetResultResponse(publication=pb.Signed.FromString(document))

    def read_certificate(self, terms: RoundTerms, signed: pb.Signed) -> pb.Certificate:
        """Returns the certificate of a grant; raises SignatureError or Refusal unless it is this round's."""
        accountant = terms.accountant.service
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self.peers.pinned_at(terms), [accountant])
        if [signature.signer for signature in signed.signatures] != [accountant]:
            raise Refusal(Code.BAD_SIGNATURE, "a certificate must be signed by the accountant alone")
        if (certificate.round_id, certificate.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the certificate is about another round or manifest")
        return certificate

    # ------------------------------------------------------------- Delivery

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """See `Learning.relay`."""
        return await self.learning.relay(request, context)


def _withdrawable(tx: Transaction, row: RoundRow) -> bool:
    """Until the certificate is here, in a sequential round until the last one is."""
    is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
    last = DocumentKind.LAST_CERTIFICATE if is_sequential else DocumentKind.CERTIFICATE
    return (is_sequential or is_before_certificate(tx, row)) and tx.document(row.round_id, last) is None


def _answer(
    publication: pb.Publication, terms: RoundTerms, reports: Sequence[Any], certificate: pb.Certificate
) -> None:
    """Writes the estimate into the publication; there is none from fewer reports than may be mixed."""
    needed, fakes = terms.shared.min_batch_size, Fakes.of(terms, certificate)
    num_reports = len(reports) - (0 if fakes is None else fakes.total)
    publication.num_reports = max(0, num_reports)
    if num_reports < needed:
        note = Statement.of(Note.TOO_FEW_TO_ESTIMATE, reports=publication.num_reports, least=needed)
        publication.notes.extend(messages_of([note]))
        return
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    estimated = estimate(
        terms.question,
        reports,
        tiers,
        least_epsilon=terms.budget_grid[0],
        fakes=fakes,
        noised=Noised.of(certificate),
    )
    estimated.publish(publication)
    follow_rule(publication, terms, certificate)
