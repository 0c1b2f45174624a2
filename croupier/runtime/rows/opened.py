"""Opened records: the encrypted records of chunks, and which chunks are not opened yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from croupier.protocol.names import RoundId
from croupier.runtime.database_tables import CHUNKS, OPENED
from croupier.runtime.kinds import Direction
from croupier.runtime.rows.base import TableRows, chunks_of, not_shredded

PAGE_BYTES, ROWS_PER_PAGE = 1024 * 1024, 2000


class OpenedRows(TableRows):
    """The records of opened chunks, by round, lane and index.

    Queries have bounds on both sides, because PostgreSQL, which has no statistics yet of a table that grows fast, may
    otherwise read all of a lane for each page.
    """

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
