"""Retention: rounds that were never opened, when rounds have ended, and who was admitted to rounds that are deleted."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import DOCUMENTS, ENDS, ROUNDS, SUBMISSIONS
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.rows.base import TableRows

ADMITTED_PER_PAGE = 10_000
"""The most clients that one transaction deletes: a larger one keeps every other transaction waiting for longer."""


class RetentionRows(TableRows):
    """The times of rounds, and the rows that go when a round is old."""

    def record_ends(self, final: Iterable[pb.RoundState.ValueType], now_s: int) -> None:
        """Records the time for rounds that have ended and have no recorded end yet."""
        known = sa.select(ENDS.c.round_id)
        ended = ROUNDS.c.state.in_(list(final)) | (ROUNDS.c.problem != "")
        fresh = sa.select(ROUNDS.c.round_id, sa.literal(now_s))
        fresh = fresh.where(ended & (ROUNDS.c.manifest != b"") & ROUNDS.c.round_id.not_in(known))
        self._db.execute(ENDS.insert().from_select(["round_id", "unix_s"], fresh))

    def ends(self, last_s: int | None = None) -> dict[RoundId, int]:
        """Returns the recorded ends of rounds that are kept, all or those until `last_s`."""
        until = sa.true() if last_s is None else ENDS.c.unix_s <= last_s
        return {row.round_id: row.unix_s for row in self._db.execute(sa.select(ENDS).where(until))}

    def never_opened(self, last_s: int) -> list[RoundId]:
        """Returns the rounds that were prepared until `last_s` and never opened."""
        prepared = sa.select(ROUNDS.c.round_id, DOCUMENTS.c.content).join(
            DOCUMENTS, (DOCUMENTS.c.round_id == ROUNDS.c.round_id) & (DOCUMENTS.c.kind == DocumentKind.CREATED)
        )
        rows = self._db.execute(prepared.where(ROUNDS.c.state == pb.ROUND_STATE_PREPARED))
        return [row.round_id for row in rows if int(row.content) <= last_s]

    def delete_admitted(self, round_id: RoundId) -> bool:
        """Deletes a page of the clients whom an ended round has admitted; returns whether there may be more."""
        mark_for_shredding(self._db, round_id, "submissions")
        here, client = SUBMISSIONS.c.round_id == round_id, SUBMISSIONS.c.client_key
        page = sa.select(client).where(here).limit(ADMITTED_PER_PAGE)
        deleted = self._db.execute(SUBMISSIONS.delete().where(here & client.in_(page)))
        return deleted.rowcount == ADMITTED_PER_PAGE
