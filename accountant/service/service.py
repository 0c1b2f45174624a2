"""The accountant's gRPC service: certify the round from its shuffled budgets, then release the reports or refuse.

    OPEN ──hand-over──▶ CLOSED ──certify──▶ CERTIFIED ──grant──▶ RELEASED
                                        └──▶ REFUSED   (release key destroyed in the same transaction)
    sequential:  CERTIFIED ──grant──▶ SEQUENTIAL ──asking ends: certify the answers──▶ RELEASED | REFUSED

What a round's certificate says is made in `round_certificate`; here is when, and the release key, without which no
report can be opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from croupier.accountant.certification import certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.service.ledger import Entry, Ledger, Limit
from croupier.accountant.service.round_certificate import (
    after_sequential,
    as_limit,
    certify_round,
    limit_of,
    refuse,
    reserved,
    withhold,
)
from croupier.accountant.service.tickets import TicketService
from croupier.protocol.batches import read_commitments
from croupier.protocol.codes import RefusalReason
from croupier.protocol.envelope import HOP_ACCOUNTANT
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Kind
from croupier.protocol.manifest import RoundTerms, canonical
from croupier.protocol.mechanisms import KaryResponse
from croupier.protocol.statements import messages_of, state
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service import RELEASE_KEY, SEQUENTIAL_REPORT, Stopwatch
from croupier.runtime.tls import Context
from croupier.runtime.transaction import RoundRow, Transaction

__all__ = ["AccountantService"]

T = TypeVar("T")
_CERTIFICATE = "certificate"
_LAST_CERTIFICATE = "last-certificate"
_REJECTED = "rejected"


class AccountantService(TicketService):
    """The only holder of the release key until it has granted the round."""

    passing = (_REJECTED,)
    lasting = (_CERTIFICATE, _LAST_CERTIFICATE)

    def hop(self, terms: RoundTerms) -> int:
        """Returns the accountant's place in the onion, behind the chain."""
        return HOP_ACCOUNTANT

    async def warm(self) -> None:
        """Loads the numeric libraries, which the bounds import when they are first needed."""
        await asyncio.to_thread(certify, [1.0] * 10, randomizer_of(KaryResponse(3)), delta=1e-3)

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Certifies, grants, or ends a sequential round; see `RoundDriver.advance`."""
        if row.state == pb.ROUND_STATE_CLOSED:
            return await self._certify(terms)
        if row.state == pb.ROUND_STATE_CERTIFIED:
            await self._grant(terms)
        elif row.state == pb.ROUND_STATE_SEQUENTIAL:
            return await self._end_sequential(terms)
        else:
            return False
        return True

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """See `RoundDriver.withdrawable`; a sequential round also until its answers are certified.

        The ledger has such a round as if there were no amplification (`reserved`), which a withdrawal does not change:
        how many answers the analyzer has seen by then is not known.
        """
        is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
        return super().withdrawable(tx, row) or (is_sequential and tx.document(row.round_id, _LAST_CERTIFICATE) is None)

    # ------------------------------------------------------------- certify

    async def _certify(self, terms: RoundTerms) -> bool:
        """Certifies the round once both lanes are here; returns False until then."""
        watch = Stopwatch()
        await self.open_all(terms, pb.LANE_PARAMETER)
        reports = await self.reports_with_tickets(terms)
        if reports is None:
            return False
        handover = await self.store.run(
            "read the commitments", lambda tx: tx.document(terms.round_id, "commitments-in")
        )
        signed = pb.HandOverRequest.FromString(handover or b"").commitments
        chain = read_commitments(signed, terms, self.deployment.pinned(terms.created_unix_s), terms.num_hops)
        budgets = await self.budgets_with_tickets(terms)
        num_tickets = await self.num_tickets(terms)
        certificate, entries = await self._search(certify_round, terms, chain, budgets, reports, num_tickets)
        if terms.question.sequential is not None and certificate.granted:
            entries = await self._search(reserved, terms, certificate)
        certificate.commitments.extend(signed)
        async with self._ledger_turn:  # between the check and the entry no other round is entered
            outcome = await self._enter(terms, certificate, entries, b"".join(reports.rejected), watch)
        self.metrics.certificate(outcome)
        self.metrics.invalid_budgets(certificate.invalid_budgets)
        self.metrics.drops(pb.LANE_TICKET, reports.dropped)
        self.metrics.drops(pb.LANE_PARAMETER, budgets.dropped)
        self.metrics.stage("certify", watch.read()[0])
        await self.store.erase()
        self.giving.pop(terms.round_id, None)
        self.admission.forget(terms.round_id)
        return True

    async def _search(self, work: Callable[..., T], *args: Any) -> T:
        """Returns what bounds and attacks come to, which may take seconds: on the cluster, or in a thread."""
        if self.cluster is None:
            return await asyncio.to_thread(work, *args)
        return (await self.cluster.run(work, *args))[0]

    async def _enter(
        self,
        terms: RoundTerms,
        certificate: pb.Certificate,
        entries: Sequence[Entry],
        rejected: bytes,
        watch: Stopwatch,
    ) -> str:
        """Refuses what the ledger cannot bear; else enters the round in the transaction that keeps its certificate.

        Returns the outcome, as `Metrics.certificate` names it.
        """
        limits = self._limits(terms)
        full = [limit for limit in limits if not await self._may_show(terms, limit)]
        may_show = not full
        if full:
            withhold(certificate, [state(RefusalReason.ROUNDS_SHOWN, rounds=full[0].max_rounds)])
        elif certificate.granted:
            # A sequential round asks for what it may come to, so that no later amendment can exceed the limit.
            refusals = [
                await self.store.run(
                    "ask the ledger",
                    lambda tx: Ledger(tx.connection).refusal(terms.round_id, entries, limit),  # noqa: B023
                )
                for limit in limits
            ]
            if any(refusals):
                refuse(certificate, terms, [limit for limit in limits if limit != limit_of(terms)])
        document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

        def keep(tx: Transaction) -> None:
            if may_show:  # a refusal tells something of the budgets, too
                Ledger(tx.connection).show(terms.round_id)
            if certificate.granted:
                Ledger(tx.connection).enter(
                    terms.round_id,
                    certificate.batch_digest,
                    entries,
                    one_record=randomizer_of(terms.question.mechanism).unit == "record",
                    merged=terms.manifest.merge_small_tiers,
                    unknown=certificate.unknown_budgets > 0,
                )
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            tx.add_cost(terms.round_id, "tickets", *self.giving.get(terms.round_id, (0.0, 0.0)))
            tx.add_cost(terms.round_id, "certify", *watch.read())
            if certificate.granted:
                tx.put_document(terms.round_id, _REJECTED, rejected)
            else:
                tx.destroy_keys(terms.round_id)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_CERTIFIED)

        await self.store.run("enter the certificate", keep)
        return "granted" if certificate.granted else "refused"

    def _limits(self, terms: RoundTerms) -> list[Limit]:
        """Returns the limit in the round's manifest, and that of the deployment if it is another one by now.

        The people of later rounds have been promised the latter, over all rounds.
        """
        limits = [limit_of(terms), *([as_limit(now)] if (now := self.deployment.privacy_limit) else [])]
        return [limit for limit in dict.fromkeys(limits) if limit is not None]

    async def _may_show(self, terms: RoundTerms, limit: Limit) -> bool:
        return await self.store.run(
            "count the rounds shown", lambda tx: Ledger(tx.connection).may_show(terms.round_id, limit)
        )

    @cached_property
    def _ledger_turn(self) -> asyncio.Lock:
        return asyncio.Lock()

    # ------------------------------------------------------------- release

    async def _grant(self, terms: RoundTerms) -> None:
        document, rejected = await self.store.run(
            "read the certificate to grant",
            lambda tx: (tx.document(terms.round_id, _CERTIFICATE), tx.document(terms.round_id, _REJECTED)),
        )
        signed = pb.Signed.FromString(document or b"")
        keys = await self.store.run("read the release key", lambda tx: tx.keys(terms.round_id))
        granted = pb.Certificate.FromString(signed.payload).granted
        request = pb.GrantRequest(
            round_id=terms.round_id,
            certificate=signed,
            release_private_key=keys[RELEASE_KEY].private if granted else b"",
            rejected=rejected or b"",
        )
        analyzer = terms.manifest.analyzer.service
        await self.persist(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)

        def finish(tx: Transaction) -> None:
            state = pb.ROUND_STATE_RELEASED if granted else pb.ROUND_STATE_REFUSED
            if granted and terms.question.sequential is not None:
                state = pb.ROUND_STATE_SEQUENTIAL
            tx.update_round(terms.round_id, state=state, bytes_sent=request.ByteSize())
            self.forget(tx, terms.round_id)

        await self.store.run("finish the grant", finish)

    # ------------------------------------------------------------- sequential rounds

    async def _end_sequential(self, terms: RoundTerms) -> bool:
        """Certifies the clients that answered, once the asking has ended; returns False until then."""
        kinds = (_CERTIFICATE, SEQUENTIAL_REPORT, _LAST_CERTIFICATE)
        read = await self.store.run(
            "read what the sequential part came to",
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
        analyzer = terms.manifest.analyzer.service
        request = pb.GrantRequest(round_id=terms.round_id, certificate=signed)
        await self.persist(terms.round_id, analyzer, lambda to: stubs.AnalyzerStub(to).Grant, request)
        await self.store.run("finish the last certificate", lambda tx: tx.update_round(terms.round_id, state=state))
        return True

    async def _certify_sequential(self, terms: RoundTerms, first: pb.Certificate, report: pb.SequentialReport) -> bytes:
        """Returns the signed last certificate, which is durable; the ledger has what it says then.

        Where clients were skipped, what was entered with the grant stays: that they were absent for reasons that do not
        depend on when they were asked is an assumption of the certificate, and the ledger does not build on it.
        """
        certificate, entries = await self._search(after_sequential, terms, first, report.num_answers)
        shown = entries
        amends = report.num_answers > 0 and report.num_skipped == 0
        async with self._ledger_turn:
            for limit in self._limits(terms) if amends else ():
                kept, refusal = await self.store.run(
                    "ask the ledger again",
                    lambda tx: Ledger(tx.connection).amendment(terms.round_id, shown, limit),  # noqa: B023
                )
                entries = kept if kept != shown else entries
                certificate.refusals.extend(messages_of([refusal] if refusal else []))
            certificate.granted = not certificate.refusals
            document = self.identity.signed(Kind.CERTIFICATE, canonical(certificate)).SerializeToString()

            def keep(tx: Transaction) -> None:
                if amends:
                    Ledger(tx.connection).amend(terms.round_id, entries)
                tx.put_document(terms.round_id, _LAST_CERTIFICATE, document)

            await self.store.run("amend the ledger", keep)
        return document

    async def GetCertificate(  # noqa: N802
        self, request: rpc.GetCertificateRequest, context: Context
    ) -> rpc.GetCertificateResponse:
        """Returns the round's newest signed certificate to any caller.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_READY (not certified yet).
        """

        def read(tx: Transaction) -> bytes | None:
            tx.round(request.round_id)
            return tx.document(request.round_id, _LAST_CERTIFICATE) or tx.document(request.round_id, _CERTIFICATE)

        document = await self.store.run("show the certificate", read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not certified yet")
        return rpc.GetCertificateResponse(certificate=pb.Signed.FromString(document))
