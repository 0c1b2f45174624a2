"""The analyzer's gRPC service: hold the shuffled reports, and answer the question once they are released.

    OPEN ──hand-over and grant──▶ CLOSED ──analyze──▶ PUBLISHED | REFUSED

Reports arrive sealed to the accountant's release key. The grant brings it together with the certificate, which is
checked against the very batch that is held here; without both, nothing here can open a report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc.aio
import numpy as np

from analyzer.estimators import estimate, tiers_of_reports
from analyzer.vectors import (
    decode_gaussian_vector,
    decode_unit_vector,
    gaussian_mean,
    hemisphere_mean,
    longest_gaussian_report,
)
from protocol.batches import digest, drop_counts
from protocol.calibration import vector_sigma
from protocol.envelope import HOP_ANALYZER, HOP_RELEASE, KeyPair, Label, open_many
from protocol.errors import Code, Refusal
from protocol.identity import Kind, read_signed
from protocol.manifest import RoundTerms, canonical
from protocol.onion import Onion
from protocol.service import ENVELOPE_KEY, RELEASE_KEY, RoundService, Stopwatch
from protocol.store import RoundRow, Transaction
from protocol.v1 import messages_pb2 as pb
from protocol.v1 import services_pb2 as rpc
from protocol.v1 import services_pb2_grpc as stubs

__all__ = ["AnalyzerService"]

Context = grpc.aio.ServicerContext[Any, Any]
_CERTIFICATE = "certificate"
_PUBLICATION = "publication"


class AnalyzerService(RoundService, stubs.AnalyzerServicer):
    """Estimates from the shuffled multiset and the tier counts of the certificate, and from nothing else."""

    lanes_in = (pb.LANE_REPORT,)

    def hop(self, terms: RoundTerms) -> int:
        return HOP_ANALYZER

    async def advance(self, row: RoundRow, terms: RoundTerms) -> bool:
        if row.state != pb.ROUND_STATE_CLOSED:
            return False
        document = await self.store.run(lambda tx: tx.document(terms.round_id, _CERTIFICATE))
        if document is None:
            return False
        await self._publish(terms, pb.Signed.FromString(document))
        return True

    def withdrawable(self, tx: Transaction, row: RoundRow) -> bool:
        return super().withdrawable(tx, row) and tx.document(row.round_id, _CERTIFICATE) is None

    # ------------------------------------------------------------- Analyzer

    async def Grant(self, request: pb.GrantRequest, context: Context) -> pb.GrantResponse:  # noqa: N802
        terms = await self.terms(request.round_id)
        accountant = terms.manifest.accountant
        self.require_caller(context, [accountant.service])
        certificate = self._read_certificate(terms, request.certificate)
        document = request.certificate.SerializeToString(deterministic=True)

        def keep(tx: Transaction) -> None:
            new = tx.document(terms.round_id, _CERTIFICATE) is None
            tx.put_document(terms.round_id, _CERTIFICATE, document)
            if new and certificate.granted:
                pair = KeyPair(accountant.release_public_key, request.release_private_key)
                tx.put_key(terms.round_id, RELEASE_KEY, pair)

        await self.store.run(keep)
        self.wake(terms.round_id)
        return pb.GrantResponse()

    async def GetResult(self, request: rpc.GetResultRequest, context: Context) -> rpc.GetResultResponse:  # noqa: N802
        def read(tx: Transaction) -> bytes | None:
            tx.round(request.round_id)
            return tx.document(request.round_id, _PUBLICATION)

        document = await self.store.run(read)
        if document is None:
            raise Refusal(Code.NOT_READY, f"round {request.round_id!r} is not published yet")
        return rpc.GetResultResponse(publication=pb.Signed.FromString(document))

    # ------------------------------------------------------------- analysis

    def _read_certificate(self, terms: RoundTerms, signed: pb.Signed) -> pb.Certificate:
        accountant = terms.manifest.accountant.service
        certificate = read_signed(Kind.CERTIFICATE, pb.Certificate, signed, self.deployment.identities, [accountant])
        if [signature.signer for signature in signed.signatures] != [accountant]:
            raise Refusal(Code.BAD_SIGNATURE, "a certificate is signed by the accountant and nobody else")
        if (certificate.round_id, certificate.manifest_hash) != (terms.round_id, terms.hash):
            raise Refusal(Code.BAD_BATCH, "the certificate is about another round or manifest")
        return certificate

    async def _publish(self, terms: RoundTerms, signed: pb.Signed) -> None:
        watch = Stopwatch()
        certificate = pb.Certificate.FromString(signed.payload)
        publication = pb.Publication(round_id=terms.round_id, manifest_hash=terms.hash, certificate=signed)
        drops: dict[str, int] = {}
        if certificate.granted:
            sealed = await self.lane_in(terms, pb.LANE_REPORT)
            if await asyncio.to_thread(digest, sealed) != certificate.batch_digest:
                raise Refusal(Code.BAD_BATCH, "the certificate is for another batch than the one held here")
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
            tx.forget(terms.round_id)

        await self.store.run(keep)
        self.metrics.drops(pb.LANE_REPORT, drops)
        self.metrics.stage("analyze", watch.read()[0])

    async def _open(self, terms: RoundTerms, sealed: Sequence[bytes]) -> tuple[list[Any], dict[str, int], float]:
        """Returns the decoded reports, the drops by reason, and the workers' CPU seconds."""
        onion = Onion(terms)
        keys = await self.store.run(lambda tx: tx.keys(terms.round_id))
        places = [
            (keys[RELEASE_KEY].private, onion.layer(pb.LANE_REPORT, HOP_RELEASE).label),
            (keys[ENVELOPE_KEY].private, onion.layer(pb.LANE_REPORT, HOP_ANALYZER).label),
        ]
        distinct = list(dict.fromkeys(sealed))
        opened, cpu_s = await self.pool.map_chunks(partial(_open_both, terms.suite, places), distinct)
        reports: list[Any] = []
        decode = _decoder(terms)
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


def _open_both(suite: str, places: list[tuple[bytes, Label]], sealed: list[bytes]) -> list[bytes | None]:
    """Opens the release layer and then the analyzer's own; None where either does not open."""
    (release_key, release_label), (own_key, own_label) = places
    inner = open_many(suite, release_key, release_label, sealed)
    return open_many(suite, own_key, own_label, [ciphertext or b"" for ciphertext in inner])


def _decoder(terms: RoundTerms) -> Callable[[bytes], Any]:
    """Returns what makes a report of opened bytes, or raises ValueError where no honest client has sent them."""
    question = terms.question
    if question.vector is None:
        return question.decode_report
    dimension = question.vector.dimension
    if question.randomizer == "hemisphere":
        return partial(decode_unit_vector, dimension)
    loudest = vector_sigma(question, terms.budget_grid[0])  # any report may have been made with the smallest budget
    longest = longest_gaussian_report(dimension, question.vector.clipping_norm, loudest)
    return partial(decode_gaussian_vector, dimension, longest)


def _answer(
    publication: pb.Publication, terms: RoundTerms, reports: Sequence[Any], certificate: pb.Certificate
) -> None:
    """Writes the estimate into the publication; there is none from fewer reports than may be mixed."""
    question, needed = terms.question, terms.manifest.min_batch_size
    publication.num_reports = len(reports)
    if len(reports) < needed:
        publication.notes.append(f"{len(reports)} reports could be read; the round needs {needed} for an estimate")
        return
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    if question.vector is not None:
        total = np.stack(reports).sum(axis=0, dtype=np.float64)
        shares, notes = tiers_of_reports(tiers, len(reports))
        publication.notes.extend(notes)
        if question.randomizer == "hemisphere":
            found = hemisphere_mean(total, shares, question.vector.clipping_norm)
        else:
            found = gaussian_mean(total, [(vector_sigma(question, epsilon), count) for epsilon, count in shares])
        publication.vector = found.mean.astype("<f4").tobytes()
        publication.vector_standard_error = found.standard_error
        return
    answer = estimate(question, np.array(reports, dtype=np.int64), tiers)
    publication.confidence_level = answer.confidence_level
    publication.notes.extend(answer.notes)
    for index, value in enumerate(answer.values):
        low, high = answer.confidence_intervals[index]
        publication.values.add(
            label=question.letters[index] if question.randomizer == "krr" else "",
            estimate=value,
            projected=answer.projected[index] if answer.projected else None,
            standard_error=answer.standard_errors[index],
            confidence_interval=pb.Interval(low=low, high=high),
            sampling_standard_error=answer.sampling_standard_errors[index],
        )
