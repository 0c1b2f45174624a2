"""The reports that the analyzer holds: checked against the certificate, and opened once the round is granted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from croupier.analyzer.estimators import decoder
from croupier.protocol.batches import digest_of_hashes
from croupier.protocol.envelope import HOP_RELEASE, open_many
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest
from croupier.protocol.onion import onion_of, split_report
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import OPENED


class HeldReports:
    """Reads the reports of a round from the store, each once, and those without a ticket not at all."""

    def __init__(self, setup: ServiceSetup, opener: LaneOpener) -> None:
        self._store = setup.store
        self._pool = setup.cluster or setup.pool
        self.opener = opener

    async def check(self, terms: RoundTerms, certificate: pb.Certificate) -> None:
        """Raises Refusal BAD_BATCH unless the certificate is about the batch and the reports that are held here."""
        arrived = [name async for page in self.opener.pages(terms, pb.LANE_REPORT) for name in page.names()]
        if await asyncio.to_thread(batch_digest, arrived) != certificate.batch_digest:
            raise Refusal(Code.BAD_BATCH, "the certificate is for another batch than the one held here")
        del arrived
        accepted = [name async for page in self.accepted(terms) for name, _ in page]
        if await asyncio.to_thread(batch_digest, accepted) != certificate.reports_digest:
            raise Refusal(Code.BAD_BATCH, "the certificate is for other reports than those held here")

    async def accepted(self, terms: RoundTerms) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yields (hash, sealed report) of every report that has a ticket, each once, page by page."""
        without = await self._store.run(
            StoreStep.READ_REPORTS_WITHOUT_TICKET, lambda tx: tx.document(terms.round_id, DocumentKind.REJECTED) or b""
        )
        met = {without[start : start + 32] for start in range(0, len(without), 32)}
        async for records in self.opener.records(terms, pb.LANE_REPORT):
            page = []
            for sealed in (split_report(record.content)[1] for record in records if record.status == OPENED):
                name = hashlib.sha256(sealed).digest()
                if name not in met:
                    met.add(name)
                    page.append((name, sealed))
            yield page

    async def released(self, terms: RoundTerms) -> AsyncIterator[tuple[list[bytes | None], float]]:
        """Yields the contents under the release key of the reports with a ticket, and the workers' CPU seconds."""
        keys = await self._store.run(StoreStep.READ_KEYS_TO_OPEN_REPORTS, lambda tx: tx.keys(terms.round_id))
        label = onion_of(terms).layer(pb.LANE_REPORT, HOP_RELEASE).label
        work = partial(open_many, terms.shared.hpke_suite, keys[KeyPurpose.RELEASE].private, label)
        under_way: asyncio.Task[tuple[list[bytes | None], float]] | None = None
        async for page in self.accepted(terms):  # one is read while the one before it is opened
            before, job = under_way, self._pool.map_chunks(work, [sealed for _, sealed in page])
            under_way = asyncio.create_task(job)
            if before is not None:
                yield await before
        if under_way is not None:
            yield await under_way

    async def decoded(self, terms: RoundTerms) -> tuple[list[Any], dict[str, int], float]:
        """Returns the decoded reports, the drops by reason, and the workers' CPU seconds."""
        reports: list[Any] = []
        decode = decoder(terms.question, terms.budget_grid[0])
        drops, cpu_s = {"does-not-open": 0, "malformed": 0}, 0.0
        async for opened, seconds in self.released(terms):
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


def batch_digest(hashes: Sequence[bytes]) -> Digest:
    """Returns the digest of a batch of envelopes, given by their hashes in any order."""
    return digest_of_hashes(sorted(hashes))
