"""Rounds: their states, costs and ends, what goes when they are old, the start of the ledger, and the store's probe."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import COSTS, DOCUMENTS, ENDS, LEDGER_START, PROBE, ROUNDS, SUBMISSIONS
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.rows.base import TableRows

ADMITTED_PER_PAGE = 10_000
"""The most clients that one transaction deletes: a larger one keeps every other transaction waiting for longer."""


@dataclass(frozen=True)
class RoundRow:
    """A round as this service knows it. `manifest` is a serialised Signed, empty until the round opens."""

    round_id: RoundId
    suite: str
    state: pb.RoundState.ValueType
    manifest: bytes
    problem: str
    bytes_sent: int


class RoundRows(TableRows):
    """The rounds that this service knows."""

    def find_round(self, round_id: RoundId) -> RoundRow | None:
        """Returns the round, or None if this service has never heard of it."""
        rows = self.select_rounds(ROUNDS.c.round_id == round_id)
        return rows[0] if rows else None

    def round(self, round_id: RoundId) -> RoundRow:
        """Returns the round; raises Refusal UNKNOWN_ROUND if this service has never heard of it."""
        row = self.find_round(round_id)
        if row is None:
            raise Refusal(Code.UNKNOWN_ROUND, repr(round_id))
        return row

    def rounds(self, limit: int | None = None) -> list[RoundRow]:
        """Returns all rounds, or at most `limit`, newest first."""
        return self.select_rounds(sa.true(), limit)

    def newest_open_round(self) -> RoundRow | None:
        """Returns the newest round that takes submissions, or None."""
        rows = self.select_rounds(ROUNDS.c.state == pb.ROUND_STATE_OPEN, 1)
        return rows[0] if rows else None

    def rounds_in(self, *states: pb.RoundState.ValueType) -> list[RoundRow]:
        """Returns all rounds in these states, newest first."""
        return self.select_rounds(ROUNDS.c.state.in_(states))

    def select_rounds(self, where: sa.ColumnElement[bool], limit: int | None = None) -> list[RoundRow]:
        """Returns rounds, the newest first."""
        rows = self._db.execute(sa.select(ROUNDS).where(where).order_by(ROUNDS.c.serial.desc()).limit(limit))
        return [RoundRow(r.round_id, r.suite, r.state, r.manifest, r.problem, r.bytes_sent) for r in rows]

    def update_round(self, round_id: RoundId, **values: Any) -> None:
        """Sets columns of a round: state, manifest, problem, bytes_sent.

        Raises:
            Refusal: WRONG_STATE for another state of a round that is disposed of: its keys are gone.
        """
        here = ROUNDS.c.round_id == round_id
        if values.get("state", pb.ROUND_STATE_DISPOSED) != pb.ROUND_STATE_DISPOSED:
            here &= ROUNDS.c.state != pb.ROUND_STATE_DISPOSED
        if not self._db.execute(ROUNDS.update().where(here).values(**values)).rowcount:
            raise Refusal(Code.WRONG_STATE, f"round {round_id!r} has ended here")

    def add_cost(self, round_id: RoundId, stage: str, wall_s: float, cpu_s: float) -> None:
        """Adds to the cost of a stage."""
        here = (COSTS.c.round_id == round_id) & (COSTS.c.stage == stage)
        changed = self._db.execute(
            COSTS.update().where(here).values(wall_s=COSTS.c.wall_s + wall_s, cpu_s=COSTS.c.cpu_s + cpu_s)
        )
        if not changed.rowcount:
            self._db.execute(COSTS.insert().values(round_id=round_id, stage=stage, wall_s=wall_s, cpu_s=cpu_s))

    def costs(self, round_id: RoundId) -> list[pb.StageCost]:
        """Returns the cost of each stage so far."""
        rows = self._db.execute(sa.select(COSTS).where(COSTS.c.round_id == round_id))
        return [pb.StageCost(stage=row.stage, wall_s=row.wall_s, cpu_s=row.cpu_s) for row in rows]

    def round_counts(self) -> dict[tuple[pb.RoundState.ValueType, bool], int]:
        """Returns the number of rounds by state and by whether they have a problem."""
        troubled = ROUNDS.c.problem != ""
        counts = sa.select(ROUNDS.c.state, troubled.label("troubled"), sa.func.count().label("number"))
        rows = self._db.execute(counts.group_by(ROUNDS.c.state, troubled))
        return {(row.state, bool(row.troubled)): row.number for row in rows}

    def ledger_has_begun(self) -> bool:
        """Returns whether the ledger of this store was begun, restored, or declared to be new."""
        return self._db.execute(sa.select(LEDGER_START)).first() is not None

    def begin_ledger(self) -> None:
        """Notes that the ledger of this store has begun; the same call again changes nothing."""
        if not self.ledger_has_begun():
            self._db.execute(LEDGER_START.insert().values(serial=1))

    def probe(self, num_bytes: int) -> None:
        """Writes this many bytes over those of the last probe; only a write shows that the store can be written."""
        self._db.execute(PROBE.delete())
        self._db.execute(PROBE.insert().values(serial=1, content=os.urandom(num_bytes)))

    # ------------------------------------------------------------- the times of rounds, and what goes when they are old

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
