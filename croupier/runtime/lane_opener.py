"""Opens the lanes that come to a service, chunk by chunk while they arrive, and keeps the records in the store.

The records of a chunk are stored once, in one transaction; a crash before that costs the work alone. Chunks that are
not opened when a batch is complete are opened then, so work in the background may fail or stop at any point. Records
are encrypted with a key that is derived from the round's private key: only its holders, who can open the envelopes, can
read them, and nobody can once that key is destroyed.

All records of a lane have one size.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from croupier.protocol.batches import unpack
from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane, PrivateKey, RoundId
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.tasks import LaneWork, Page, Record, records_of
from croupier.runtime.transaction import Transaction

_log = logging.getLogger(__name__)
_NONCE_BYTES = 12
ITEMS_AT_ONCE, ITEMS_ON_A_CLUSTER = 500, 1000
"""The number of items that one job opens: 20 ms of work in a process here, 40 ms on a cluster, where a job costs 2
ms."""
_PAGES_AT_ONCE, _PAGES_ON_A_CLUSTER = 2, 16
"""The number of pages that are opened side by side: the processes have work while the records of one are stored."""
MakeLaneWork = Callable[[RoundTerms, Mapping[KeyPurpose, KeyPair], Lane], LaneWork]
"""Returns how a role opens a lane, from the terms and the keys of the round."""


class _RecordCipher:
    """Encrypts and decrypts the records of a chunk for the store."""

    def __init__(self, private_key: PrivateKey, round_id: RoundId, lane: Lane) -> None:
        key = HKDF(SHA256(), 32, salt=None, info=b"croupier/v1/opened").derive(private_key)
        self._cipher, self._place = ChaCha20Poly1305(key), f"{round_id}\0{lane}\0"

    def encrypt(self, index: int, records: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, records, f"{self._place}{index}".encode())

    def decrypt(self, index: int, content: bytes) -> bytes:
        return self._cipher.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], f"{self._place}{index}".encode())


class LaneOpener:
    """Opens the chunks of lanes, and returns their contents.

    Args:
        setup: of the service.
        lane_work: returns the role's work on a lane, with the keys of the round.
        early: the lanes whose chunks are opened as they arrive; the others wait until their batch is complete.
    """

    def __init__(self, setup: ServiceSetup, lane_work: MakeLaneWork, early: Collection[Lane]) -> None:
        self._store = setup.store
        self._metrics = setup.metrics
        self._pool = setup.pool
        self.cluster = setup.cluster
        self._lane_work = lane_work
        self._early = early
        self._pages_at_once = _PAGES_AT_ONCE if setup.cluster is None else _PAGES_ON_A_CLUSTER
        self._opened_until = 0.0
        self.opening: dict[tuple[str, Lane], asyncio.Task[None]] = {}

    def open_soon(self, terms: RoundTerms, lane: Lane, in_s: float = 0.0) -> None:
        """Opens the arrived chunks of a lane, in the background, now or `in_s` seconds later; not if it must wait."""
        place = terms.round_id, lane
        if lane in self._early and place not in self.opening:
            task = self.opening[place] = asyncio.create_task(self._open_in_background(terms, lane, in_s))
            task.add_done_callback(lambda _: self.opening.pop(place, None))

    async def _open_in_background(self, terms: RoundTerms, lane: Lane, in_s: float) -> None:
        await asyncio.sleep(in_s)
        try:
            await self._open_behind(terms, lane, None)
        except Refusal as refusal:  # the store's; the rest is opened when the batch is complete
            _log.warning("what arrives is not opened now: %s", refusal, extra={"round_id": terms.round_id})
        except Exception:  # noqa: BLE001 (the error occurs again where it can stop the round)
            _log.exception("what arrives is not opened now", extra={"round_id": terms.round_id})

    async def open_all(self, terms: RoundTerms, lane: Lane) -> None:
        """Opens the rest of a complete lane."""
        if task := self.opening.get((terms.round_id, lane)):
            await asyncio.wait([task])
        await self._open_behind(terms, lane, -1)

    async def stop(self) -> None:
        """Stops the work in the background, and waits until it has ended."""
        for task in self.opening.values():
            task.cancel()
        await asyncio.gather(*self.opening.values(), return_exceptions=True)

    async def _open_behind(self, terms: RoundTerms, lane: Lane, after: int | None) -> None:
        """Opens the unopened chunks of a lane after a chunk, or (None) after the last opened one."""
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            while True:
                page = await self._next_unopened(terms, lane, after)
                if page:
                    after = page[-1][0]
                    under_way.append(asyncio.create_task(self.open_page(terms, lane, page)))
                elif not under_way:
                    return
                if not page or len(under_way) == self._pages_at_once:
                    await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _next_unopened(self, terms: RoundTerms, lane: Lane, after: int | None) -> list[tuple[int, bytes]]:
        return await self._store.run(
            StoreStep.FIND_UNOPENED_CHUNKS, lambda tx: tx.unopened(terms.round_id, lane, after)
        )

    async def open_page(self, terms: RoundTerms, lane: Lane, page: list[tuple[int, bytes]]) -> None:
        """Opens a page of envelopes of a lane, and stores their contents."""
        started = time.perf_counter()
        keys = await self._store.run(StoreStep.READ_KEYS_TO_OPEN, lambda tx: tx.keys(terms.round_id))
        if KeyPurpose.ENVELOPE not in keys:  # shredded meanwhile
            return
        lane_work = self._lane_work(terms, keys, lane)
        cipher = _RecordCipher(keys[KeyPurpose.ENVELOPE].private, terms.round_id, lane)
        chunks = [unpack(chunk, lane_work.arriving_size) for _, chunk in page]
        items = [item for chunk in chunks for item in chunk]
        pool, at_once = (self.cluster, ITEMS_ON_A_CLUSTER) if self.cluster else (self._pool, ITEMS_AT_ONCE)
        records, cpu_s = await pool.map_chunks(partial(records_of, lane_work), items, at_once)
        opened, start = [], 0
        for (index, _), chunk in zip(page, chunks, strict=True):
            opened.append((index, cipher.encrypt(index, b"".join(records[start : start + len(chunk)]))))
            start += len(chunk)

        def keep(tx: Transaction) -> None:
            tx.put_opened(terms.round_id, lane, opened)
            now = time.perf_counter()  # pages or lanes that are opened side by side count once
            tx.add_cost(terms.round_id, "open", now - max(started, self._opened_until), cpu_s)
            self._opened_until = now

        await self._store.run(StoreStep.KEEP_RECORDS, keep)
        self._metrics.stage("open", time.perf_counter() - started)

    def keep_records(self, tx: Transaction, terms: RoundTerms, lane: Lane, records: Sequence[bytes]) -> None:
        """Adds records behind the others of a lane that grows until it is closed, as if their items had been kept."""
        cipher = _RecordCipher(tx.keys(terms.round_id)[KeyPurpose.ENVELOPE].private, terms.round_id, lane)
        index = tx.next_chunk_index(terms.round_id, lane)
        tx.append_opened(terms.round_id, lane, index, cipher.encrypt(index, b"".join(records)))

    async def records(self, terms: RoundTerms, lane: Lane) -> AsyncIterator[list[Record]]:
        """Yields the records of a lane, in the order in which its items arrived, page by page."""
        async for page in self.pages(terms, lane):
            yield page.records()

    async def pages(self, terms: RoundTerms, lane: Lane) -> AsyncIterator[Page]:
        """Yields the records of a lane as packed pages."""
        keys = await self._store.run(StoreStep.READ_KEYS_OF_RECORDS, lambda tx: tx.keys(terms.round_id))
        if KeyPurpose.ENVELOPE not in keys:
            raise Refusal(Code.WRONG_STATE, "the keys of the round are gone")
        size = self._lane_work(terms, keys, lane).record_size
        cipher = _RecordCipher(keys[KeyPurpose.ENVELOPE].private, terms.round_id, lane)
        after = -1
        while page := await self._next_opened(terms, lane, after):
            after = page[-1][0]
            yield Page(size, b"".join(cipher.decrypt(index, content) for index, content in page))

    async def _next_opened(self, terms: RoundTerms, lane: Lane, after: int) -> list[tuple[int, bytes]]:
        return await self._store.run(StoreStep.READ_RECORDS, lambda tx: tx.opened(terms.round_id, lane, after))
