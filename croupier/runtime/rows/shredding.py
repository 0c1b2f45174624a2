"""Shredding: ciphertexts of a round that has ended are deleted page by page."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from croupier.protocol.names import RoundId
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import CHUNKS, FORGETTING, OPENED
from croupier.runtime.rows.base import TableRows

PAGE_BYTES, ROWS_PER_PAGE = 4 * 1024 * 1024, 2000
"""The amount that one transaction deletes: others wait for it for a tenth of a second or less."""


class ChunkPlace(NamedTuple):
    """The place of a chunk in the order in which chunks are deleted."""

    round_id: RoundId
    direction: str
    lane: int
    chunk_index: int


class ShreddingRows(TableRows):
    """Chunks and records that are being deleted."""

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
        last, left = self._end_of_page(index, OPENED.c.content, here, PAGE_BYTES)
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
