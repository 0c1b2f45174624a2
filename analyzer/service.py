"""The analyzer's gRPC service: hold the shuffled reports, and answer the question once they are released.

    OPEN ──hand-over and grant──▶ CLOSED ──analyze──▶ PUBLISHED | REFUSED
    sequential:                        CLOSED ──grant──▶ SEQUENTIAL ──last grant──▶ PUBLISHED | REFUSED

Reports arrive sealed to the accountant's release key. The grant brings it together with the certificate, which is
checked against the very batch that is held here; without both, nothing here can open a report.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import grpc.aio
import numpy as np

from analyzer.estimators import decoder, estimate
from protocol.batches import digest, drop_counts
from protocol.envelope import HOP_ANALYZER, HOP_RELEASE, KeyPair, Label, open_many
from protocol.errors import Code, Refusal
from protocol.identity import Kind, read_signed
from protocol.manifest import RoundTerms, canonical
from protocol.onion import Onion
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs
from runtime.service import ENVELOPE_KEY, RELEASE_KEY, RoundService, Stopwatch
from runtime.store import RoundRow, Transaction

__all__ = ["AnalyzerService"]

Context = grpc.aio.ServicerContext[Any, Any]
_CERTIFICATE = "certificate"
_LAST_CERTIFICATE = "last-certificate"
_MODEL = "model"
_PUBLICATION = "publication"


class AnalyzerService(RoundService, stubs.AnalyzerServicer):
    """Estimates from the shuffled multiset and the tier counts of the certificate, and from nothing else."""

    lanes_in = (pb.LANE_REPORT,)
    passing = (_MODEL,)
    lasting = (_PUBLICATION,)

    def hop(self, terms: RoundTerms) -> int:
        """Returns the analyzer's place in the onion, behind the chain."""
        return HOP_ANALYZER

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        """Starts learning once a sequential round is granted; publishes once the last certificate is here."""
        is_sequential = row.state == pb.ROUND_STATE_SEQUENTIAL
        if row.state != pb.ROUND_STATE_CLOSED and not is_sequential:
            return False
        kind = _LAST_CERTIFICATE if is_sequential else _CERTIFICATE
        document = await self.store.run("read the certificate", lambda tx: tx.document(terms.round_id, kind))
        if document is None:
            return False
        signed = pb.Signed.FromString(document)
        if terms.question.sequential is None or is_sequential or not pb.Certificate.FromString(signed.payload).granted:
            await self._publish(terms, signed)
        else:
            await self._checked_batch(terms, signed)
            await self.store.run(
                "begin the sequential part", lambda tx: tx.update_round(terms.round_id, state=pb.ROUND_STATE_SEQUENTIAL)
            )
        return True

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
                BAD_BATCH (the certificate is about another round or manifest), CONFLICT (another certificate was taken
                before).
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
            new = tx.document(terms.round_id, _CERTIFICATE) is None
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            if new and certificate.granted:
                pair = KeyPair(accountant.release_public_key, request.release_private_key)
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
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self.deployment.identities, [accountant])
        if [signature.signer for signature in signed.signatures] != [accountant]:
            raise Refusal(Code.BAD_SIGNATURE, "a certificate must be signed by the accountant alone")
        if (certificate.round_id, certificate.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the certificate is about another round or manifest")
        return certificate

    async def _publish(self, terms: RoundTerms, signed: pb.Signed) -> None:
        watch = Stopwatch()
        certificate = pb.Certificate.FromString(signed.payload)
        publication = pb.Publication(round_id=terms.round_id, manifest_hash=terms.hash, certificate=signed)
        drops: dict[str, int] = {}
        if certificate.granted and terms.question.sequential is not None:
            await self._answer_sequential(publication, terms, certificate)
        elif certificate.granted:
            sealed = await self._checked_batch(terms, signed)
            reports, drops, cpu_s = await self._open(terms, sealed)
            watch.workers_cpu_s += cpu_s
            publication.drops.extend(drop_counts(drops))
            await asyncio.to_thread(_answer, publication, terms, reports, certificate)
        document = self.identity.signed(Kind.PUBLICATION, canonical(publication)).SerializeToString()

        def keep(tx: Transaction) -> None:
            tx.put_document(terms.round_id, _PUBLICATION, document)
            state = pb.ROUND_STATE_PUBLISHED if certificate.granted else pb.ROUND_STATE_REFUSED
            tx.update_round(terms.round_id, state=state)
            tx.add_cost(terms.round_id, "analyze", *watch.read())
            self.forget(tx, terms.round_id)

        await self.store.run("publish", keep)
        self.metrics.drops(pb.LANE_REPORT, drops)
        self.metrics.stage("analyze", watch.read()[0])

    async def _checked_batch(self, terms: RoundTerms, certificate: pb.Signed) -> list[bytes]:
        """Returns the batch that is held here, if the certificate is about it."""
        sealed = await self.lane_in(terms, pb.LANE_REPORT)
        if await asyncio.to_thread(digest, sealed) != pb.Certificate.FromString(certificate.payload).batch_digest:
            raise Refusal(Code.BAD_BATCH, "the certificate is for another batch than the one held here")
        return sealed

    # ------------------------------------------------------------- sequential rounds

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """Learns from one answer, once, and returns the signed model as it stands; anything else changes nothing.

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
        sealed, report = request.ciphertext, None
        if len(sealed) == Onion(terms).arriving_size(pb.LANE_ANSWER, HOP_ANALYZER):
            (report,) = _open_both(terms.suite, _places(terms, keys, pb.LANE_ANSWER), [sealed])
        name = f"{_MODEL}-answer-{hashlib.sha256(sealed).hexdigest()}"

        def learn(tx: Transaction) -> tuple[pb.Model, bool]:
            model = _model(tx, terms)
            if tx.document(terms.round_id, name) is not None:  # hop 1 has not heard that it was learnt from
                return model, True
            certificate = pb.Signed.FromString(tx.document(terms.round_id, _CERTIFICATE) or b"").payload
            if report is None or not _learn(model, terms, pb.Certificate.FromString(certificate), report):
                return model, False
            tx.put_document(terms.round_id, name, b"learnt")
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
                f"{model.num_answers} answers were learnt from, but {certificate.num_answers} are certified",
            )
        publication.num_reports = model.num_answers
        publication.vector = model.parameters

    # ------------------------------------------------------------- opening

    async def _open(self, terms: RoundTerms, sealed: Sequence[bytes]) -> tuple[list[Any], dict[str, int], float]:
        """Returns the decoded reports, the drops by reason, and the workers' CPU seconds."""
        keys = await self.store.run("read the keys to open reports", lambda tx: tx.keys(terms.round_id))
        places = _places(terms, keys, pb.LANE_REPORT)
        distinct = list(dict.fromkeys(sealed))
        opened, cpu_s = await self.pool.map_chunks(partial(_open_both, terms.suite, places), distinct)
        reports: list[Any] = []
        decode = decoder(terms.question, terms.budget_grid[0])
        drops = {"does-not-open": 0, "malformed": 0, "repeated": len(sealed) - len(distinct)}
        for plaintext in opened:
            if plaintext is None:
                drops["does-not-open"] += 1
                continue
            try:
                reports.append(decode(plaintext))
            except ValueError:
                drops["malformed"] += 1
        return reports, drops, cpu_s


def _places(terms: RoundTerms, keys: Mapping[str, KeyPair], lane: pb.Lane.ValueType) -> list[tuple[bytes, Label]]:
    """Returns the labels of the release layer and of the analyzer's own, each with the key that opens it."""
    onion = Onion(terms)
    return [
        (keys[RELEASE_KEY].private, onion.layer(lane, HOP_RELEASE).label),
        (keys[ENVELOPE_KEY].private, onion.layer(lane, HOP_ANALYZER).label),
    ]


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


def _open_both(suite: str, places: list[tuple[bytes, Label]], sealed: list[bytes]) -> list[bytes | None]:
    """Opens the release layer and then the analyzer's own; None where either does not open."""
    (release_key, release_label), (own_key, own_label) = places
    inner = open_many(suite, release_key, release_label, sealed)
    return open_many(suite, own_key, own_label, [ciphertext or b"" for ciphertext in inner])


def _answer(
    publication: pb.Publication, terms: RoundTerms, reports: Sequence[Any], certificate: pb.Certificate
) -> None:
    """Writes the estimate into the publication; there is none from fewer reports than may be mixed."""
    needed = terms.manifest.min_batch_size
    publication.num_reports = len(reports)
    if len(reports) < needed:
        publication.notes.append(f"{len(reports)} reports could be read; the round needs {needed} for an estimate")
        return
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    estimate(terms.question, reports, tiers, least_epsilon=terms.budget_grid[0]).publish(publication)
