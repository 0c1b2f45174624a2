"""Chunks: those that arrive in a lane or are sent in one, the encrypted records of opened ones, and their deletion."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import CHUNKS, FORGETTING, OPENED
from croupier.runtime.kinds import Direction
from croupier.runtime.rows.base import TableRows

_OPEN_END = 0
"""The number of chunks of a lane that grows until it is closed."""
PAGE_BYTES, ROWS_PER_PAGE = 1024 * 1024, 2000
SHREDDED_BYTES = 4 * 1024 * 1024
"""The amount that one transaction deletes: others wait for it for a tenth of a second or less."""


def not_shredded(round_id: RoundId) -> sa.ColumnElement[bool]:
    """Selects rows of a round whose ciphertexts are not shredded."""
    return ~sa.exists().where(FORGETTING.c.round_id == round_id)


def chunks_of(round_id: RoundId, direction: Direction, lane: int) -> sa.ColumnElement[bool]:
    """Selects the chunks of one lane, incoming or outgoing."""
    return (CHUNKS.c.round_id == round_id) & (CHUNKS.c.direction == direction) & (CHUNKS.c.lane == lane)


class ChunkPlace(NamedTuple):
    """The place of a chunk in the order in which chunks are deleted."""

    round_id: RoundId
    direction: str
    lane: int
    chunk_index: int


class ChunkRows(TableRows):
    """Chunks of ciphertexts and their records, by round, direction, lane and index."""

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

    # ------------------------------------------------------------- records of opened chunks
    # Queries have bounds on both sides, because PostgreSQL, which has no statistics yet of a table that grows fast, may
    # otherwise read all of a lane for each page.

    def unopened(self, round_id: RoundId, lane: int, after: int | None) -> list[tuple[int, bytes]]:
        """Returns the next page of (index, chunk) of incoming chunks that are not opened, in order.

        The page begins after an index; with None after the last opened chunk, which is found at once in a long lane.
        """
        opened = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane)
        if after is None:
            last = self._db.execute(sa.select(sa.func.max(OPENED.c.chunk_index)).where(opened)).scalar_one()
            after = -1 if last is None else last
        index = CHUNKS.c.chunk_index
        here = chunks_of(round_id, Direction.IN, lane) & CHUNKS.c.ciphertexts.is_not(None) & not_shredded(round_id)
        while (window := self._window(index, here, after)) is not None:
            there = sorted(self._db.execute(sa.select(index).where(here & index.between(*window))).scalars())
            known = self._opened_in(round_id, lane, window)
            first = next((chunk_index for chunk_index in there if chunk_index not in known), None)
            if first is not None:
                end = next(
                    (chunk_index for chunk_index in there if chunk_index > first and chunk_index in known),
                    window[1] + 1,
                )
                return self._page(index, CHUNKS.c.ciphertexts, here & index.between(first, end - 1))
            after = window[1]
        return []

    def put_opened(self, round_id: RoundId, lane: int, opened: Collection[tuple[int, bytes]]) -> None:
        """Keeps the records of incoming chunks, once each, unless a chunk has been shredded meanwhile."""
        if not opened:
            return
        window = min(index for index, _ in opened), max(index for index, _ in opened)
        here = chunks_of(round_id, Direction.IN, lane) & CHUNKS.c.ciphertexts.is_not(None) & not_shredded(round_id)
        here &= CHUNKS.c.chunk_index.between(*window)
        there = set(self._db.execute(sa.select(CHUNKS.c.chunk_index).where(here)).scalars())
        new = there - self._opened_in(round_id, lane, window)
        rows = [
            {"round_id": round_id, "lane": lane, "chunk_index": index, "content": content}
            for index, content in opened
            if index in new
        ]
        if rows:
            self._db.execute(OPENED.insert(), rows)

    def append_opened(self, round_id: RoundId, lane: int, index: int, content: bytes) -> None:
        """Keeps the records of items that are not kept themselves."""
        self._db.execute(OPENED.insert().values(round_id=round_id, lane=lane, chunk_index=index, content=content))

    def opened(self, round_id: RoundId, lane: int, after: int) -> list[tuple[int, bytes]]:
        """Returns the next page of (index, records) after an index, in order."""
        here = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane) & not_shredded(round_id)
        window = self._window(OPENED.c.chunk_index, here, after)
        if window is None:
            return []
        return self._page(OPENED.c.chunk_index, OPENED.c.content, here & OPENED.c.chunk_index.between(*window))

    def _opened_in(self, round_id: RoundId, lane: int, window: tuple[int, int]) -> set[int]:
        """Returns the opened chunks in a window of indices, both ends included."""
        here = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane) & OPENED.c.chunk_index.between(*window)
        return set(self._db.execute(sa.select(OPENED.c.chunk_index).where(here)).scalars())

    def _window(self, index: sa.Column[int], here: sa.ColumnElement[bool], after: int) -> tuple[int, int] | None:
        """Returns the next window of indices after `after` that contains a row, or None at the end."""
        window = after + 1, after + ROWS_PER_PAGE
        if self._db.execute(sa.select(index).where(here & index.between(*window)).limit(1)).first() is not None:
            return window
        nearest = self._db.execute(sa.select(sa.func.min(index)).where(here & (index > after))).scalar_one()
        return None if nearest is None else (nearest, nearest + ROWS_PER_PAGE - 1)

    def _page(
        self, index: sa.Column[int], content: sa.Column[Any], where: sa.ColumnElement[bool]
    ) -> list[tuple[int, bytes]]:
        """Returns (index, content) of the first rows that fill a page, at least one row."""
        page: list[tuple[int, bytes]] = []
        left = PAGE_BYTES
        query = sa.select(index, content).where(where).order_by(index).execution_options(stream_results=True)
        with self._db.execute(query) as rows:
            for number, body in rows:
                page.append((number, body))
                left -= len(body)
                if left <= 0:
                    break
        return page

    # ------------------------------------------------------------- chunks and records that are being deleted

    def shred_ciphertexts(self, round_id: RoundId) -> None:
        """Shreds the ciphertexts of a round: they are not returned any more, and `shred_page` deletes them."""
        if round_id not in self.being_shredded():
            self._db.execute(FORGETTING.insert().values(round_id=round_id))

    def being_shredded(self) -> set[RoundId]:
        """Returns the rounds whose shredded ciphertexts may still be in the tables."""
        return set(self._db.execute(sa.select(FORGETTING.c.round_id)).scalars())

    def shred_page(self, after: ChunkPlace | None = None) -> ChunkPlace | None:
        """Deletes one page of shredded ciphertexts; returns the cursor for the next call, or None when done.

        A large round in one transaction would keep all others waiting. After an interruption, begin with None.
        """
        after = after or self._first_shredded()
        if after is None:
            return None
        round_id, *place = after
        mark_for_shredding(self._db, round_id, "chunks", "opened")
        here, index = OPENED.c.round_id == round_id, (OPENED.c.lane, OPENED.c.chunk_index)
        last, left = self._end_of_page(index, OPENED.c.content, here, SHREDDED_BYTES)
        if last is not None:
            self._db.execute(OPENED.delete().where(here & (sa.tuple_(*index) <= sa.tuple_(*last))))
        if not left:
            return after
        columns = (CHUNKS.c.direction, CHUNKS.c.lane, CHUNKS.c.chunk_index)
        here = (CHUNKS.c.round_id == round_id) & (sa.tuple_(*columns) > sa.tuple_(*place))
        here &= CHUNKS.c.ciphertexts.is_not(None)
        last, left = self._end_of_page(columns, CHUNKS.c.ciphertexts, here, left)
        if last is not None:
            until = sa.tuple_(*columns) <= sa.tuple_(*last)
            self._db.execute(CHUNKS.update().where(here & until).values(ciphertexts=None))
            if not left:
                return ChunkPlace(round_id, *last)
        self._db.execute(FORGETTING.delete().where(FORGETTING.c.round_id == round_id))
        return self._first_shredded()

    def _first_shredded(self) -> ChunkPlace | None:
        first = self._db.execute(sa.select(sa.func.min(FORGETTING.c.round_id))).scalar_one()
        return None if first is None else ChunkPlace(first, "", -1, -1)

    def _end_of_page(
        self, place: tuple[sa.Column[Any], ...], content: sa.Column[Any], where: sa.ColumnElement[bool], left: int
    ) -> tuple[tuple[Any, ...] | None, int]:
        """Returns the last row of a page, if there is one, and the number of bytes that the page can still take.

        0 bytes mean that there may be more rows. The row that fills the page belongs to it.
        """
        rows = sa.select(*place, sa.func.length(content)).where(where).order_by(*place).limit(ROWS_PER_PAGE)
        page = self._db.execute(rows).all()
        for row in page:
            left -= row[-1]
            if left <= 0:
                return tuple(row[:-1]), 0
        return tuple(page[-1][:-1]) if page else None, 0 if len(page) == ROWS_PER_PAGE else left
