"""The version of a store: missing tables are made, and a store that a newer croupier has written is refused.

The number is kept in the store itself. It is raised whenever a version of croupier could not use the tables of an older
one, or an older one could misread those of this one; added tables need no new number.
"""

from __future__ import annotations

import sqlalchemy as sa

from croupier.runtime.database_tables import METADATA
from croupier.runtime.tables import table

STORE_VERSION = 1
"""The version of the stores that this croupier writes."""
_version = table(METADATA, "store_version", {"number": int})


def create_tables(connection: sa.Connection, shown: str) -> None:
    """Creates the tables that are missing.

    Args:
        connection: inside a transaction.
        shown: the store's URL for messages, without a password.

    Raises:
        ValueError: the store is newer than this croupier.
    """
    tables = sa.inspect(connection).get_table_names()
    version = None
    if _version.name in tables:
        version = connection.execute(sa.select(sa.func.max(_version.c.number))).scalar_one()
    if version is not None and version > STORE_VERSION:
        raise ValueError(
            f"{shown} is a store of version {version}, and this croupier knows versions up to {STORE_VERSION}: a newer "
            "croupier has written it; install that one again"
        )
    missing = [table for table in METADATA.sorted_tables if table.name not in tables]
    METADATA.create_all(connection, missing, checkfirst=False)
    if version is None:
        connection.execute(_version.insert().values(number=STORE_VERSION))
