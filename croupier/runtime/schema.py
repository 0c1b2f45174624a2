"""The version of a store: tables that an older croupier has made are brought up to date, and newer ones are refused.

The number is kept in the store itself. It is raised whenever a version of croupier could not use what an older one has
written, or an older one could misread what this one writes; tables that are only added need no new number. A step can
be repeated: where it was interrupted, it is taken again at the next start.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from croupier.runtime.database import IN_PARTS
from croupier.runtime.tables import METADATA

__all__ = ["STORE_VERSION", "bring_up_to_date"]

_version = sa.Table("store_version", METADATA, sa.Column("number", sa.Integer, primary_key=True))


def bring_up_to_date(connection: sa.Connection, shown: str) -> None:
    """Creates what is missing and takes the steps from the store's version to this one.

    Args:
        connection: inside a transaction.
        shown: the store's URL for messages, without a password.

    Raises:
        ValueError: the store is newer than this croupier, or holds what only the older version can finish.
    """
    tables = sa.inspect(connection).get_table_names()
    version = 0 if "rounds" in tables else STORE_VERSION  # before there was a number, or a new store
    if _version.name in tables:
        version = connection.execute(sa.select(sa.func.max(_version.c.number))).scalar_one() or version
    if version > STORE_VERSION:
        raise ValueError(
            f"{shown} is a store of version {version}, and this croupier knows versions up to {STORE_VERSION}: a newer "
            "croupier has written it; install that one again"
        )
    missing = [table for table in METADATA.sorted_tables if table.name not in tables]
    METADATA.create_all(connection, missing, checkfirst=False)
    for step in _STEPS[version:]:
        step(connection, shown)
    if connection.execute(sa.select(sa.func.max(_version.c.number))).scalar_one() != STORE_VERSION:
        connection.execute(_version.delete())
        connection.execute(_version.insert().values(number=STORE_VERSION))


def _bodies_left_submissions(connection: sa.Connection, shown: str) -> None:
    """0 → 1: what clients had sent stood in a column of `submissions` while their round was open; it is in `chunks`."""
    if "envelope" not in {column["name"] for column in sa.inspect(connection).get_columns("submissions")}:
        return
    held = connection.exec_driver_sql("SELECT round_id FROM submissions WHERE envelope IS NOT NULL LIMIT 1").scalar()
    if held is not None:
        raise ValueError(
            f"{shown} holds submissions of round {held!r} as an older croupier keeps them: install that one again, "
            "close or withdraw the round, wait until it has ended, and then upgrade"
        )
    connection.exec_driver_sql("ALTER TABLE submissions DROP COLUMN envelope")


def _tables_got_parts(connection: sa.Connection, _shown: str) -> None:
    """1 → 2: PostgreSQL keeps large tables in parts, of which erasure rewrites only those of the ended round."""
    if connection.dialect.name != "postgresql":
        return
    for table in METADATA.sorted_tables:
        kind = sa.text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(:name)")
        has_parts = connection.execute(kind, {"name": table.name}).scalar_one()
        if has_parts or IN_PARTS not in table.info:
            continue
        before = sa.Table(f"{table.name}_before", sa.MetaData(), *(sa.Column(column.name) for column in table.columns))
        connection.exec_driver_sql(f"CREATE TABLE {before.name} AS TABLE {table.name}")
        table.drop(connection)
        table.create(connection)
        connection.execute(table.insert().from_select(table.columns.keys(), sa.select(before)))
        before.drop(connection)


def _forgetting_takes_pieces(_connection: sa.Connection, _shown: str) -> None:
    """2 → 3: what a round has forgotten goes in pieces. An older croupier would leave there what is still to go."""


def _certificates_have_codes(_connection: sa.Connection, _shown: str) -> None:
    """3 → 4: certificates and results state codes. An older croupier would show them without their assumptions."""


_STEPS: tuple[Callable[[sa.Connection, str], None], ...] = (
    _bodies_left_submissions,
    _tables_got_parts,
    _forgetting_takes_pieces,
    _certificates_have_codes,
)
STORE_VERSION = len(_STEPS)
"""The version of the stores that this croupier writes."""
