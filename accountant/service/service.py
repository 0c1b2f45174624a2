"""The accountant's gRPC service: certify the round from its shuffled budgets, then release the reports or refuse.

    OPEN ──hand-over──▶ CLOSED ──certify──▶ CERTIFIED ──grant──▶ RELEASED
                                        └──▶ REFUSED   (release key destroyed in the same transaction)
    sequential:  CERTIFIED ──grant──▶ SEQUENTIAL ──asking ends: certify the answers──▶ RELEASED | REFUSED

`round_certificate` makes the contents of a round's certificate. This file handles the order of events, and the release
key, without which no report can be opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.refused_certificate import refuse, withhold
from croupier.accountant.rounds.round_certificate import after_sequential, certify_round, reserved
from croupier.accountant.rounds.round_entries import limit_of, survey_limit_of
from croupier.accountant.service.outlook import Outlook
from croupier.accountant.service.ticket_keys import make_keys, put_public_keys, ticket_lane_work
from croupier.accountant.service.tickets import TicketCheck, TicketDesk
from croupier.accountant.service.tier_counts import noised
from croupier.accountant.spending import Entry, Limit
from croupier.net.tls import Context
from croupier.protocol.batches import read_commitments
from croupier.protocol.codes import RefusalReason
from croupier.protocol.envelope import HOP_ACCOUNTANT
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.statements import Statement, messages_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.admission import Admission
from croupier.runtime.clock import Stopwatch
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.lane_receiver import LaneReceiver, LaneSource
from croupier.runtime.lane_sender import LaneSender
from croupier.runtime.ledger_start import LedgerStart
from croupier.runtime.peers import Peers
from croupier.runtime.position import BehindTheChain
from croupier.runtime.registration import AdmittingService
from croupier.runtime.retention import Retention
from croupier.runtime.round_control import RoundControl, is_before_certificate
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.rows.rounds import RoundRow
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction

EARLY_LANES = (pb.LANE_TICKET,)
"""No budget is opened before its batch has been handed over and found complete."""
_TAKING_TICKETS = (pb.ROUND_STATE_OPEN, pb.ROUND_STATE_CLOSED)
"""The analyzer hands tickets in until the certificate."""


class AccountantService(AdmittingService, stubs.AccountantServicer):
    """The only holder of the release key until it has granted the round.

    Attributes:
        desk: gives tickets.
        check: checks the tickets of both lanes.
        outlook: forecasts rounds, and states the rest of the ledger's limit.
        ledger_start: refuses a ledger that has been lost.
    """

    def __init__(self, setup: ServiceSetup) -> None:
        self.store = setup.store
        self.metrics = setup.metrics
        self.peers = Peers(setup)
        self.position = BehindTheChain(HOP_ACCOUNTANT, (pb.LANE_PARAMETER,))
        self.engine = RoundEngine(
            setup,
            self.peers.waiting,
            {
                pb.ROUND_STATE_CLOSED: self._certify,
                pb.ROUND_STATE_CERTIFIED: self._grant,
                pb.ROUND_STATE_SEQUENTIAL: self._end_sequential,
            },
            ephemeral_documents=(DocumentKind.REJECTED, DocumentKind.CLOSING, DocumentKind.TIER_COUNTS),
            on_end=self._stop_round,
        )
        self.opener = LaneOpener(setup, ticket_lane_work, early=EARLY_LANES)
        self.sender = LaneSender(setup, self.peers)
        tickets = LaneSource(lambda terms: terms.analyzer.service, _TAKING_TICKETS)
        self.receiver = LaneReceiver(
            setup, self.peers, self.engine, self.opener, self.position, {pb.LANE_TICKET: tickets}
        )
        self.ledger_start = LedgerStart(
            setup,
            self.peers,
            lambda tx: Ledger(tx.connection).disclosed_rounds(),
            "restore the newest backup with 'croupier ledger --restore FILE'",
        )
        self.control = RoundControl(
            setup,
            self.peers,
            self.engine,
            make_keys=make_keys,
            put_public_keys=put_public_keys,
            withdrawable=_withdrawable,
            ledger_may_begin=self.ledger_start.check_before_signing,
        )
        self.admission = Admission(setup.store, setup.pool, "tickets", now=setup.clock.now)
        self.retention = Retention(
            setup,
            self.engine,
            self.control,
            kept_documents=(DocumentKind.CERTIFICATE, DocumentKind.LAST_CERTIFICATE),
            on_deletion=self.admission.reload_roster,
        )
        self.desk = TicketDesk(setup, self.engine, self.admission)
        self._compute = setup.compute
        self.check = TicketCheck(setup, self.opener)
        self.outlook = Outlook(setup, self.peers, self.engine, self.desk)
        self._ledger_turn = asyncio.Lock()

    async def start(self) -> None:
        """Loads the numeric libraries, which the bounds import when they are first needed, and drives rounds on."""
        await asyncio.to_thread(certify, [1.0] * 10, randomizer_of(KaryResponse(3)), delta=1e-3)
        await self.ledger_start.check_at_start()
        await self.outlook.ledger_changed()
        await super().start()

    def _stop_round(self, round_id: RoundId) -> None:
        self.desk.stop_round(round_id)

    # ------------------------------------------------------------- certify

    async def _certify(self, terms: RoundTerms) -> bool:
        """Certifies the round and enters it in the ledger, once both lanes are here; returns False until then."""
        watch = Stopwatch()
        await self.opener.open_all(terms, pb.LANE_PARAMETER)
        reports = await self.check.reports_with_tickets(terms)
        if reports is None:
            return False
        handover = await self.store.run(
            StoreStep.READ_COMMITMENTS, lambda tx: tx.document(terms.round_id, DocumentKind.COMMITMENTS_IN)
        )
        signed = pb.HandOverRequest.FromString(handover or b"").commitments
        chain = read_commitments(signed, terms, self.peers.pinned_at(terms), terms.shared.num_hops)
        exact = await self.check.budgets_with_tickets(terms)
        # From here on nothing depends on the exact counts of a round with budget privacy.
        budgets = await self.store.run(StoreStep.DRAW_TIER_COUNTS, lambda tx: noised(tx, terms, exact))
        num_tickets = await self.desk.num_tickets(terms)
        fake_tickets = await self.desk.fake_tickets(terms)
        certificate, entries = await self._compute(
            certify_round, terms, chain, budgets, reports, num_tickets, fake_tickets
        )
        if terms.question.sequential is not None and certificate.granted:
            entries = await self._compute(reserved, terms, certificate)
        certificate.commitments.extend(signed)
        async with self._ledger_turn:  # between the check and the entry no other round is entered
            outcome = await self._enter(terms, certificate, entries, b"".join(reports.rejected), watch)
        self.metrics.certificate(outcome)
        self.metrics.invalid_budgets(certificate.invalid_budgets)
        self.metrics.drops(pb.LANE_TICKET, reports.dropped)
        self.metrics.drops(pb.LANE_PARAMETER, budgets.dropped)
        self.metrics.stage("certify", watch.read()[0])
        await self.store.shred()
        self.desk.stop_round(terms.round_id)
        await self.outlook.ledger_changed()
        return True

    async def _enter(
        self,
        terms: RoundTerms,
        certificate: pb.Certificate,
        entries: Sequence[Entry],
        rejected: bytes,
        watch: Stopwatch,
    ) -> str:
        """Refuses a round whose cost the ledger cannot bear; else enters it in the transaction of its certificate.

        Returns the outcome, as `Metrics.certificate` names it.
        """
        limits = self.outlook.limits(terms)
        full = [limit for limit in limits if not await self._may_disclose(terms, limit)]
        may_disclose = not full
        if full:
            withhold(certificate, [Statement.of(RefusalReason.ROUNDS_SHOWN, rounds=full[0].max_rounds)])
        elif certificate.granted:
            # A sequential round enters its largest possible cost, so that no later amendment can exceed the limit.
            refusals = [
                await self.store.run(
                    StoreStep.ASK_LEDGER,
                    lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),  # noqa: B023
                )
                for limit in (*limits, survey_limit_of(terms))
                if limit is not None
            ]
            if any(refusals):
                refuse(certificate, terms, [limit for limit in limits if limit != limit_of(terms)])
        document = self.peers.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

        def keep(tx: Transaction) -> None:
            if may_disclose:  # a refusal reveals information on the budgets, too
                Ledger(tx.connection).disclose(terms.round_id)
                if len(terms.budget_grid) == 1:
                    Ledger(tx.connection).tell_budgets(terms.round_id, 0.0, 0.0)
                elif (privacy := terms.counted_by.privacy) is not None:
                    Ledger(tx.connection).tell_budgets(terms.round_id, privacy.epsilon, privacy.delta)
            if certificate.granted:
                Ledger(tx.connection).enter(
                    terms.round_id,
                    Digest(certificate.batch_digest),
                    entries,
                    one_record=randomizer_of(terms.question.mechanism).unit == "record",
                    unknown=certificate.unknown_budgets > 0,
                )
            tx.put_document(terms.round_id, DocumentKind.CERTIFICATE, document)
            tx.add_cost(terms.round_id, "tickets", *self.desk.cost(terms.round_id))
            tx.add_cost(terms.round_id, "certify", *watch.read())
            if certificate.granted:
                tx.put_document(terms.round_id, DocumentKind.REJECTED, rejected)
            else:
                tx.shred_keys(terms.round_id)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_CERTIFIED)

        await self.store.run(StoreStep.ENTER_CERTIFICATE, keep)
        return "granted" if certificate.granted else "refused"

    async def _may_disclose(self, terms: RoundTerms, limit: Limit) -> bool:
        return await self.store.run(
            StoreStep.COUNT_ROUNDS_SHOWN, lambda tx: Ledger(tx.connection).may_disclose(terms.round_id, limit)
        )

    # ------------------------------------------------------------- release

    async def _grant(self, terms: RoundTerms) -> bool:
        """Sends the certificate, with the release key if it grants the round."""
        document, rejected = await self.store.run(
            StoreStep.READ_CERTIFICATE_TO_GRANT,
            lambda tx: (
                tx.document(terms.round_id, DocumentKind.CERTIFICATE),
                tx.document(terms.round_id, DocumentKind.REJECTED),
            ),
        )
        signed = pb.Signed.FromString(document or b"")
        keys = await self.store.run(StoreStep.READ_RELEASE_KEY, lambda tx: tx.keys(terms.round_id))
        granted = pb.Certificate.FromString(signed.payload).granted
        request = pb.GrantRequest(
            round_id=terms.round_id,
            certificate=signed,
            release_private_key=keys[KeyPurpose.RELEASE].private if granted else b"",
            rejected=rejected or b"",
        )
        analyzer = terms.analyzer.service
        await self.peers.call_until_answered(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_RELEASED if granted else pb.ROUND_STATE_REFUSED
            if granted and terms.question.sequential is not None:
                state = pb.ROUND_STATE_SEQUENTIAL
            tx.update_round(terms.round_id, state=state, bytes_sent=request.ByteSize())
            self.engine.shred_round(tx, terms.round_id)

        await self.store.run(StoreStep.FINISH_GRANT, finish)
        return True

    # ------------------------------------------------------------- sequential rounds

    async def _end_sequential(self, terms: RoundTerms) -> bool:
        """Certifies who answered and amends the ledger, once the asking has ended; returns False until then."""
        kinds = (DocumentKind.CERTIFICATE, DocumentKind.SEQUENTIAL_REPORT, DocumentKind.LAST_CERTIFICATE)
        read = await self.store.run(
            StoreStep.READ_SEQUENTIAL_OUTCOME,
            lambda tx: [tx.document(terms.round_id, kind) for kind in kinds],
        )
        first, ended, document = read
        if first is None or ended is None:
            return False
        if document is None:
            granted = pb.Certificate.FromString(pb.Signed.FromString(first).payload)
            report = pb.SequentialReport.FromString(pb.Signed.FromString(ended).payload)
            document = await self._certify_sequential(terms, granted, report)
        signed = pb.Signed.FromString(document)
        state = pb.ROUND_STATE_RELEASED if pb.Certificate.FromString(signed.payload).granted else pb.ROUND_STATE_REFUSED
        analyzer = terms.analyzer.service
        request = pb.GrantRequest(round_id=terms.round_id, certificate=signed)
        await self.peers.call_until_answered(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)
        await self.store.run(StoreStep.FINISH_LAST_CERTIFICATE, lambda tx: tx.update_round(terms.round_id, state=state))
        return True

    async def _certify_sequential(self, terms: RoundTerms, first: pb.Certificate, report: pb.SequentialReport) -> bytes:
        """Returns the signed last certificate, which is durable; its cost is then in the ledger.

        If clients were skipped, the entry of the grant stays: the certificate assumes that their absence does not
        depend on the time of the request, and the ledger does not build on that assumption.
        """
        certificate, entries = await self._compute(after_sequential, terms, first, report.num_answers)
        shown = entries
        amends = report.num_answers > 0 and report.num_skipped == 0
        async with self._ledger_turn:
            for limit in self.outlook.limits(terms) if amends else ():
                kept, refusal = await self.store.run(
                    StoreStep.ASK_LEDGER_AGAIN,
                    lambda tx: Ledger(tx.connection).amendment(terms.round_id, shown, limit),  # noqa: B023
                )
                entries = kept if kept != shown else entries
                certificate.refusals.extend(messages_of([refusal] if refusal else []))
            certificate.granted = not certificate.refusals
            document = self.peers.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

            def keep(tx: Transaction) -> None:
                if amends:
                    Ledger(tx.connection).amend(terms.round_id, entries)
                tx.put_document(terms.round_id, DocumentKind.LAST_CERTIFICATE, document)

            await self.store.run(StoreStep.AMEND_LEDGER, keep)
            await self.outlook.ledger_changed()
        return document

    # ------------------------------------------------------------- Accountant

    async def Forecast(self, request: rpc.ForecastRequest, context: Context) -> rpc.ForecastResponse:  # noqa: N802
        """See `Outlook.forecast`."""
        return await self.outlook.forecast(request, context)

    async def Status(self, request: rpc.StatusRequest, context: Context) -> rpc.StatusResponse:  # noqa: N802
        """See `RoundControl.status`; with the rest of the ledger's limit."""
        response = await super().Status(request, context)
        if (left := await self.outlook.ledger()) is not None:
            response.ledger.CopyFrom(left)
        return response

    async def GetTickets(self, request: pb.GetTicketsRequest, context: Context) -> pb.GetTicketsResponse:  # noqa: N802
        """See `TicketDesk.give`."""
        return await self.desk.give(request)

    async def GetFakeTickets(  # noqa: N802
        self, request: pb.GetFakeTicketsRequest, context: Context
    ) -> pb.GetFakeTicketsResponse:
        """Gives a hop of a round with hop noise tickets for its fake reports; see `TicketDesk.give_fakes`.

        Raises:
            Refusal: NOT_YOUR_CALL (not a hop of the round), UNKNOWN_ROUND, BAD_REQUEST (the round has no hop noise; not
                blinded messages, or more than the limit), WRONG_STATE (the batch has been handed over, or the round is
                over or not open yet).
        """
        terms = await self.engine.terms(RoundId(request.round_id))
        hops = [keys.service for keys in terms.hops]
        return await self.desk.give_fakes(terms, self.peers.require_caller(context, hops), request.blinded)

    async def GetCertificate(  # noqa: N802
        self, request: rpc.GetCertificateRequest, context: Context
    ) -> rpc.GetCertificateResponse:
        """Returns the round's newest signed certificate to any caller.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_READY (not certified yet).
        """

        def read(tx: Transaction) -> bytes | None:
            tx.round(RoundId(request.round_id))
            return tx.document(RoundId(request.round_id), DocumentKind.LAST_CERTIFICATE) or tx.document(
                RoundId(request.round_id), DocumentKind.CERTIFICATE
            )

        document = await self.store.run(StoreStep.SHOW_CERTIFICATE, read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not certified yet")
        return rpc.GetCertificateResponse(certificate=pb.Signed.FromString(document))

    # ------------------------------------------------------------- Delivery

    async def Deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:  # noqa: N802
        """See `LaneReceiver.deliver`; the round continues when both lanes are here."""
        response = await super().Deliver(request, context)
        if request.lane == pb.LANE_TICKET:
            self.engine.wake(RoundId(request.round_id))
        return response


def _withdrawable(tx: Transaction, row: RoundRow) -> bool:
    """Says whether the round is not certified yet, or, in a sequential round, its answers are not.

    The ledger has such a round without amplification (`reserved`), which a withdrawal does not change, because the
    number of answers that the analyzer has seen by then is unknown.
    """
    is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
    return is_before_certificate(tx, row) or (
        is_sequential and tx.document(row.round_id, DocumentKind.LAST_CERTIFICATE) is None
    )
