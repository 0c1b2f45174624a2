"""The analyzer's gRPC service: hold the shuffled reports, and answer the question once they are released.

    OPEN ──hand-over──▶ CLOSED ──own layer──▶ MIXED ──tickets handed in, grant, analyze──▶ PUBLISHED | REFUSED
    sequential:                          MIXED ──grant──▶ SEQUENTIAL ──last grant──▶ PUBLISHED | REFUSED

Under the analyzer's own layer each report is sealed to the accountant's release key, beside its ticket. The accountant
is handed hashes and tickets; its grant brings the key together with the certificate, which is checked against the very
batch that is held here, and says which reports have no ticket. Without both, nothing here can open a report.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from croupier.analyzer.estimators import Merged, decoder, estimate
from croupier.protocol.batches import digest_of_hashes, drop_counts
from croupier.protocol.codes import Note
from croupier.protocol.collector import seal_result
from croupier.protocol.envelope import HOP_ANALYZER, HOP_RELEASE, KeyPair, open_many
from croupier.protocol.errors import Code, Refusal, SignatureError
from croupier.protocol.identity import Kind, read_answer, read_signed
from croupier.protocol.manifest import RoundTerms, canonical
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.onion import UNOPENED, onion_of, split_report, ticket_item
from croupier.protocol.questions import ANSWER_KEY_BYTES
from croupier.protocol.statements import messages_of, state
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service import ENVELOPE_KEY, RELEASE_KEY, RoundService, ServiceSetup, Stopwatch
from croupier.runtime.tasks import OPENED, LaneWork, open_layer
from croupier.runtime.tls import Context
from croupier.runtime.transaction import RoundRow, Transaction

__all__ = ["AnalyzerService"]

_CERTIFICATE = "certificate"
_LAST_CERTIFICATE = "last-certificate"
_MODEL = "model"
_ANSWER_KEYS = "model-keys"
_REJECTED = "rejected"
_PUBLICATION = "publication"


class AnalyzerService(RoundService, stubs.AnalyzerServicer):
    """Estimates from the shuffled multiset and the tier counts of the certificate, and from nothing else."""

    lanes_in = (pb.LANE_REPORT,)
    passing = (_MODEL, _REJECTED)
    lasting = (_PUBLICATION,)

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self._answer_keys: dict[str, frozenset[bytes]] = {}

    def hop(self, terms: RoundTerms) -> int:
        """Returns the analyzer's place in the onion, behind the chain."""
        return HOP_ANALYZER

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Opens its own layer and hands the tickets in; then publishes, or learns first, as the certificates come."""
        if row.state == pb.ROUND_STATE_CLOSED:
            await self._open_own_layer(terms)
            return True
        is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
        if row.state != pb.ROUND_STATE_MIXED and not is_sequential:
            return False
        document = await self._certificate(terms, is_last=is_sequential)
        if document is None and not is_sequential:
            await self.send_lane(terms, terms.manifest.accountant.service, pb.LANE_TICKET)
            document = await self._certificate(terms, is_last=False)
        if document is None:
            return False
        signed = pb.Signed.FromString(document)
        if terms.question.sequential is None or is_sequential or not pb.Certificate.FromString(signed.payload).granted:
            await self._publish(terms, signed, pb.Signed.FromString(row.manifest))
        else:
            await self._begin_sequential(terms, signed)
        return True

    async def _certificate(self, terms: RoundTerms, *, is_last: bool) -> bytes | None:
        kind = _LAST_CERTIFICATE if is_last else _CERTIFICATE
        return await self.store.run("read the certificate", lambda tx: tx.document(terms.round_id, kind))

    def lane_work(self, terms: RoundTerms, keys: Mapping[str, KeyPair], lane: pb.Lane.ValueType) -> LaneWork:
        """See `Opening.lane_work`: the analyzer takes its own layer off, and holds ticket and sealed report."""
        layer = onion_of(terms).layer(lane, HOP_ANALYZER)
        work = partial(open_layer, terms.suite, keys[ENVELOPE_KEY].private, layer.label, layer.plain_size)
        return LaneWork(layer.sealed_size, layer.plain_size, work)

    async def _open_own_layer(self, terms: RoundTerms) -> None:
        """Keeps the item with its ticket of every report for the accountant; reports stay where they were opened to."""
        watch = Stopwatch()
        await self.open_all(terms, pb.LANE_REPORT)
        items = [
            ticket_item(one.content) if one.status == OPENED else UNOPENED
            async for records in self.records(terms, pb.LANE_REPORT)
            for one in records
        ]
        items.sort()

        def keep(tx: Transaction) -> None:
            self.put_output(tx, terms.round_id, pb.LANE_TICKET, items)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_MIXED)
            tx.add_cost(terms.round_id, "analyze", *watch.read())

        await self.store.run("keep the opened batch", keep)

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        """See `RoundDriver.withdrawable`; a sequential round also until its last certificate is here."""
        is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
        last = _LAST_CERTIFICATE if is_sequential else _CERTIFICATE
        return (is_sequential or super().withdrawable(tx, row)) and tx.document(row.round_id, last) is None

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
        terms = await self.terms(request.round_id)
        accountant = terms.manifest.accountant
        self.require_caller(context, [accountant.service])
        certificate = self._read_certificate(terms, request.certificate)
        document = request.certificate.SerializeToString(deterministic=True)

        def keep(tx: Transaction) -> None:
            if certificate.HasField("num_answers"):
                tx.put_document(terms.round_id, _LAST_CERTIFICATE, document)
                return
            row, new = tx.round(terms.round_id), tx.document(terms.round_id, _CERTIFICATE) is None
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            if new and certificate.granted:
                if row.state == pb.ROUND_STATE_DISPOSED or row.problem:
                    raise Refusal(Code.WRONG_STATE, "the round has ended here")
                tx.put_document(terms.round_id, _REJECTED, request.rejected)
                pair = KeyPair(PublicKey(accountant.release_public_key), PrivateKey(request.release_private_key))
                tx.put_key(terms.round_id, RELEASE_KEY, pair)

        await self.store.run("keep the grant", keep)
        self.wake(terms.round_id)
        return pb.GrantResponse()

    async def GetResult(self, request: rpc.GetResultRequest, context: Context) -> rpc.GetResultResponse:  # noqa: N802
        """Returns the signed publication to any caller: the estimate, or the certificate's refusal.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_READY (not published yet).
        """

        def read(tx: Transaction) -> bytes | None:
            tx.round(request.round_id)
            return tx.document(request.round_id, _PUBLICATION)

        document = await self.store.run("show the result", read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not published yet")
        return rpc.GetResultResponse(publication=pb.Signed.FromString(document))

    # ------------------------------------------------------------- analysis

    def _read_certificate(self, terms: RoundTerms, signed: pb.Signed) -> pb.Certificate:
        accountant = terms.manifest.accountant.service
        certificate = read_signed(
            Kind.CERTIFICATE, pb.Certificate, signed, self.deployment.pinned(terms.created_unix_s), [accountant]
        )
        if [signature.signer for signature in signed.signatures] != [accountant]:
            raise Refusal(Code.BAD_SIGNATURE, "a certificate must be signed by the accountant alone")
        if (certificate.round_id, certificate.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the certificate is about another round or manifest")
        return certificate

    async def _publish(self, terms: RoundTerms, signed: pb.Signed, manifest: pb.Signed) -> None:
        watch = Stopwatch()
        certificate = pb.Certificate.FromString(signed.payload)
        publication = pb.Publication(
            round_id=terms.round_id, manifest_hash=terms.hash, certificate=signed, manifest=manifest
        )
        drops = Counter({drop.reason: drop.count for drop in certificate.report_drops})
        if certificate.granted and terms.question.sequential is not None:
            await self._answer_sequential(publication, terms, certificate)
        elif certificate.granted:
            await self._check_held(terms, certificate)
            reports, unreadable, cpu_s = await self._open(terms)
            watch.workers_cpu_s += cpu_s
            drops.update(unreadable)
            publication.drops.extend(drop_counts(drops))
            await asyncio.to_thread(_answer, publication, terms, reports, certificate)
        if certificate.granted:
            publication = await asyncio.to_thread(seal_result, publication, terms)
        document = self.identity.signed(Kind.PUBLICATION, canonical(publication)).SerializeToString()

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, _PUBLICATION, document)
            state = pb.ROUND_STATE_PUBLISHED if certificate.granted else pb.ROUND_STATE_REFUSED
            tx.update_round(terms.round_id, state=state)
            tx.add_cost(terms.round_id, "analyze", *watch.read())
            self.forget(tx, terms.round_id)

        await self.store.run("publish", keep)
        self._answer_keys.pop(terms.round_id, None)
        self.metrics.drops(pb.LANE_REPORT, drops)
        self.metrics.stage("analyze", watch.read()[0])

    async def _check_held(self, terms: RoundTerms, certificate: pb.Certificate) -> None:
        """Raises Refusal BAD_BATCH unless the certificate is about the batch and the reports that are held here."""
        arrived = [name async for page in self.pages(terms, pb.LANE_REPORT) for name in page.names()]
        if await asyncio.to_thread(_digest, arrived) != certificate.batch_digest:
            raise Refusal(Code.BAD_BATCH, "the certificate is for another batch than the one held here")
        del arrived
        accepted = [name async for page in self._accepted(terms) for name, _ in page]
        if await asyncio.to_thread(_digest, accepted) != certificate.reports_digest:
            raise Refusal(Code.BAD_BATCH, "the certificate is for other reports than those held here")

    async def _accepted(self, terms: RoundTerms) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yields (hash, sealed report) of every report that has a ticket, each once, so many at a time."""
        document = await self.store.run("read what has no ticket", lambda tx: tx.document(terms.round_id, _REJECTED))
        without = document or b""
        met = {without[start : start + 32] for start in range(0, len(without), 32)}
        async for records in self.records(terms, pb.LANE_REPORT):
            page = []
            for sealed in (split_report(one.content)[1] for one in records if one.status == OPENED):
                name = hashlib.sha256(sealed).digest()
                if name not in met:
                    met.add(name)
                    page.append((name, sealed))
            yield page

    async def _released(self, terms: RoundTerms) -> AsyncIterator[tuple[list[bytes | None], float]]:
        """Yields what is under the release key of the reports that have a ticket, and the workers' CPU seconds."""
        keys = await self.store.run("read the keys to open reports", lambda tx: tx.keys(terms.round_id))
        label = onion_of(terms).layer(pb.LANE_REPORT, HOP_RELEASE).label
        work = partial(open_many, terms.suite, keys[RELEASE_KEY].private, label)
        under_way: asyncio.Task[tuple[list[bytes | None], float]] | None = None
        async for page in self._accepted(terms):  # one is read while the one before it is opened
            before, job = under_way, (self.cluster or self.pool).map_chunks(work, [sealed for _, sealed in page])
            under_way = asyncio.create_task(job)
            if before is not None:
                yield await before
        if under_way is not None:
            yield await under_way

    # ------------------------------------------------------------- sequential rounds

    async def _begin_sequential(self, terms: RoundTerms, signed: pb.Signed) -> None:
        """Opens the keys that clients have submitted for their answers; from then on answers are learnt from."""
        await self._check_held(terms, pb.Certificate.FromString(signed.payload))
        opened = [key async for page, _ in self._released(terms) for key in page if key is not None]
        document = b"".join(sorted(opened))

        def begin(tx: Transaction) -> None:
            tx.put_document(terms.round_id, _ANSWER_KEYS, document)
            tx.update_round(terms.round_id, state=pb.ROUND_STATE_SEQUENTIAL)

        await self.store.run("begin the sequential part", begin)

    async def _may_answer(self, terms: RoundTerms, key: bytes) -> bool:
        """Returns whether an answer may be signed with this key: it was submitted with a ticket."""
        if terms.round_id not in self._answer_keys:
            kept = await self.store.run(
                "read the answer keys", lambda tx: tx.document(terms.round_id, _ANSWER_KEYS) or b""
            )
            self._answer_keys[terms.round_id] = frozenset(
                kept[start : start + ANSWER_KEY_BYTES] for start in range(0, len(kept), ANSWER_KEY_BYTES)
            )
        return key in self._answer_keys[terms.round_id]

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """Learns from one answer of each key, and returns the signed model as it stands; nothing else changes it.

        Raises:
            Refusal: NOT_YOUR_CALL (only the predecessor may), UNKNOWN_ROUND, WRONG_STATE (the round is not sequential,
                or its asking has ended), NOT_READY (the round is not granted yet).
        """
        terms = await self.terms(request.round_id)
        self.require_caller(context, [self.predecessor(terms)])
        row, keys = await self.store.run(
            "find the round of an answer", lambda tx: (tx.round(terms.round_id), tx.keys(terms.round_id))
        )
        if terms.question.sequential is None or not keys:
            raise Refusal(Code.WRONG_STATE, "the round is not sequential, or its asking has ended")
        if row.state != pb.ROUND_STATE_SEQUENTIAL:
            raise Refusal(Code.NOT_READY, "the round is not granted yet")
        key, report = _open_answer(terms, keys, request.ciphertext)
        may_answer = await self._may_answer(terms, key)
        name, content = f"{_MODEL}-answer-{key.hex()}", hashlib.sha256(report).digest()

        def learn(tx: Transaction) -> tuple[pb.Model, bool]:
            model = _model(tx, terms)
            known = tx.document(terms.round_id, name)
            if known is not None:  # the same: hop 1 has not heard that it was learnt from
                return model, known == content
            certificate = pb.Signed.FromString(tx.document(terms.round_id, _CERTIFICATE) or b"").payload
            if not may_answer or not _learn(model, terms, pb.Certificate.FromString(certificate), report):
                return model, False
            tx.put_document(terms.round_id, name, content)
            tx.replace_document(terms.round_id, _MODEL, canonical(model))
            return model, True

        model, learnt = await self.store.run("learn from an answer", learn)
        return pb.RelayResponse(learnt=learnt, model=self.identity.signed(Kind.MODEL, canonical(model)))

    async def _answer_sequential(
        self, publication: pb.Publication, terms: RoundTerms, certificate: pb.Certificate
    ) -> None:
        """Writes the parameters into the publication, if what is certified is what was learnt from."""
        model = await self.store.run("read the model", lambda tx: _model(tx, terms))
        if model.num_answers != certificate.num_answers:
            raise Refusal(
                Code.BAD_BATCH,
                f"{model.num_answers:,} answers were learnt from, but {certificate.num_answers:,} are certified",
            )
        publication.num_reports = model.num_answers
        publication.vector = model.parameters

    # ------------------------------------------------------------- opening

    async def _open(self, terms: RoundTerms) -> tuple[list[Any], dict[str, int], float]:
        """Returns the decoded reports, the drops by reason, and the workers' CPU seconds."""
        reports: list[Any] = []
        decode = decoder(terms.question, terms.budget_grid[0])
        drops, cpu_s = {"does-not-open": 0, "malformed": 0}, 0.0
        async for opened, seconds in self._released(terms):
            cpu_s += seconds
            for plaintext in opened:
                if plaintext is None:
                    drops["does-not-open"] += 1
                    continue
                try:
                    reports.append(decode(plaintext))
                except ValueError:
                    drops["malformed"] += 1
        return reports, drops, cpu_s


def _digest(hashes: Sequence[bytes]) -> bytes:
    return digest_of_hashes(sorted(hashes))


def _open_answer(terms: RoundTerms, keys: Mapping[str, KeyPair], sealed: bytes) -> tuple[bytes, bytes]:
    """Returns (answer key, report) of an answer that opens and that its key has signed; else two empty strings."""
    for purpose, hop in ((ENVELOPE_KEY, HOP_ANALYZER), (RELEASE_KEY, HOP_RELEASE)):
        layer = onion_of(terms).layer(pb.LANE_ANSWER, hop)
        if len(sealed) != layer.sealed_size:
            return b"", b""
        (opened,) = open_many(terms.suite, keys[purpose].private, layer.label, [sealed])
        sealed = opened or b""
    try:
        return read_answer(terms.hash, sealed)
    except SignatureError:
        return b"", b""


def _model(tx: Transaction, terms: RoundTerms) -> pb.Model:
    """Returns where the model of a sequential round stands."""
    document = tx.document(terms.round_id, _MODEL)
    if document is not None:
        return pb.Model.FromString(document)
    task = terms.question.mechanism.task
    parameters = b"" if task is None else task.parameters
    return pb.Model(round_id=terms.round_id, manifest_hash=terms.hash, parameters=parameters)


def _learn(model: pb.Model, terms: RoundTerms, certificate: pb.Certificate, plaintext: bytes) -> bool:
    """Takes one step with one client's report, and returns whether it was one that a client can have sent.

    Which budget it was made with is not known here: it counts as one of an average client of the round.
    """
    question = terms.question
    if question.sequential is None:
        return False
    try:
        report = decoder(question, terms.budget_grid[0])(plaintext)
    except ValueError:
        return False
    gradient = estimate(question, [report], [(tier.local_epsilon, tier.count) for tier in certificate.tiers]).mean
    parameters = np.frombuffer(model.parameters, dtype="<f4") - question.sequential.learning_rate * gradient
    model.parameters = parameters.astype("<f4").tobytes()
    model.num_answers += 1
    return True


def _answer(
    publication: pb.Publication, terms: RoundTerms, reports: Sequence[Any], certificate: pb.Certificate
) -> None:
    """Writes the estimate into the publication; there is none from fewer reports than may be mixed."""
    needed = terms.manifest.min_batch_size
    publication.num_reports = len(reports)
    if len(reports) < needed:
        note = state(Note.TOO_FEW_TO_ESTIMATE, reports=len(reports), least=needed)
        publication.notes.extend(messages_of([note]))
        return
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    merged = Merged(terms.budget_grid, terms.smallest_tier) if terms.manifest.merge_small_tiers else None
    found = estimate(terms.question, reports, tiers, least_epsilon=terms.budget_grid[0], merged=merged)
    found.publish(publication)
