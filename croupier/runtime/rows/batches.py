"""Batches: the chunks that arrive in a lane, or are sent in one."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import CHUNKS, OPENED
from croupier.runtime.kinds import Direction
from croupier.runtime.rows.base import TableRows, chunks_of, not_shredded

_OPEN_END = 0
"""The number of chunks of a lane that grows until it is closed."""


class BatchRows(TableRows):
    """Chunks of ciphertexts, by round, direction, lane and index."""

    def put_chunk(
        self, round_id: RoundId, direction: Direction, lane: int, chunk_index: int, chunk_count: int, ciphertexts: bytes
    ) -> bool:
        """Adds a chunk, and returns whether it is new; the same again changes nothing, even after it was shredded.

        Raises:
            Refusal: CONFLICT if the chunk exists with different content or the batch with a different length.
        """
        here = chunks_of(round_id, direction, lane)
        counts = set(self._db.execute(sa.select(CHUNKS.c.chunk_count).where(here).limit(1)).scalars())
        known = self._db.execute(sa.select(CHUNKS.c.digest).where(here & (CHUNKS.c.chunk_index == chunk_index)))
        existing = known.scalar_one_or_none()
        chunk_digest = hashlib.sha256(ciphertexts).digest()
        if counts - {chunk_count} or (existing is not None and existing != chunk_digest):
            raise Refusal(Code.CONFLICT, f"chunk {chunk_index} of {chunk_count} in lane {lane}")
        if existing is None:
            self._db.execute(
                CHUNKS.insert().values(
                    round_id=round_id,
                    direction=direction,
                    lane=lane,
                    chunk_index=chunk_index,
                    chunk_count=chunk_count,
                    digest=chunk_digest,
                    ciphertexts=ciphertexts,
                )
            )
        return existing is None

    def next_chunk_index(self, round_id: RoundId, lane: int) -> int:
        """Returns the index of the next chunk of an incoming lane, counting chunks with only their records left."""
        places = (
            (CHUNKS.c.chunk_index, chunks_of(round_id, Direction.IN, lane)),
            (OPENED.c.chunk_index, (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane)),
        )
        newest = [self._db.execute(sa.select(sa.func.max(index)).where(here)).scalar_one() for index, here in places]
        return max((index + 1 for index in newest if index is not None), default=0)

    def append_chunk(self, round_id: RoundId, lane: int, ciphertexts: bytes) -> None:
        """Appends a chunk to an incoming lane that grows until it is closed."""
        self._db.execute(
            CHUNKS.insert().values(
                round_id=round_id,
                direction=Direction.IN,
                lane=lane,
                chunk_index=self.next_chunk_index(round_id, lane),
                chunk_count=_OPEN_END,
                digest=hashlib.sha256(ciphertexts).digest(),
                ciphertexts=ciphertexts,
            )
        )

    def num_bytes(self, round_id: RoundId, direction: Direction, lane: int) -> int:
        """Returns the number of bytes that have come, or will be sent, in a lane."""
        total = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(CHUNKS.c.ciphertexts)), 0))
        return int(self._db.execute(total.where(chunks_of(round_id, direction, lane))).scalar_one())

    def num_chunks(self, round_id: RoundId, direction: Direction, lane: int) -> int | None:
        """Returns how many chunks a complete batch has, or None while one is missing, and after it was shredded."""
        counts = sa.select(sa.func.count(CHUNKS.c.ciphertexts), sa.func.max(CHUNKS.c.chunk_count))
        here = chunks_of(round_id, direction, lane) & not_shredded(round_id)
        present, expected = self._db.execute(counts.where(here)).one()
        return present if present and present == expected else None

    def chunk(self, round_id: RoundId, direction: Direction, lane: int, chunk_index: int) -> bytes:
        """Returns one chunk, empty if it is not there or was shredded."""
        here = chunks_of(round_id, direction, lane) & (CHUNKS.c.chunk_index == chunk_index) & not_shredded(round_id)
        return self._db.execute(sa.select(CHUNKS.c.ciphertexts).where(here)).scalar_one_or_none() or b""

    def delete_output(self, round_id: RoundId) -> None:
        """Deletes the outgoing lanes, before any of their chunks has been sent."""
        mark_for_shredding(self._db, round_id, "chunks")
        self._db.execute(CHUNKS.delete().where((CHUNKS.c.round_id == round_id) & (CHUNKS.c.direction == Direction.OUT)))
