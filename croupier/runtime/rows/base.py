"""The common part of all subjects: the connection of a transaction, and the selection of a lane's chunks."""

from __future__ import annotations

import sqlalchemy as sa

from croupier.protocol.names import RoundId
from croupier.runtime.database_tables import CHUNKS, FORGETTING
from croupier.runtime.kinds import Direction


class TableRows:
    """Reads and changes rows inside one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._db = connection

    @property
    def connection(self) -> sa.Connection:
        """The connection, for a room with tables of its own that change in the same transaction."""
        return self._db


def not_shredded(round_id: RoundId) -> sa.ColumnElement[bool]:
    """Selects rows of a round whose ciphertexts are not shredded."""
    return ~sa.exists().where(FORGETTING.c.round_id == round_id)


def chunks_of(round_id: RoundId, direction: Direction, lane: int) -> sa.ColumnElement[bool]:
    """Selects the chunks of one lane, incoming or outgoing."""
    return (CHUNKS.c.round_id == round_id) & (CHUNKS.c.direction == direction) & (CHUNKS.c.lane == lane)
