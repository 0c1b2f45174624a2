"""The common part of all subjects: the connection of a transaction."""

from __future__ import annotations

import sqlalchemy as sa


class TableRows:
    """Reads and changes rows inside one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._db = connection

    @property
    def connection(self) -> sa.Connection:
        """The connection, for a room with tables of its own that change in the same transaction."""
        return self._db
