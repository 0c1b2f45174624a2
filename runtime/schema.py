"""The version of a store: tables that an older croupier has made are brought up to date, and newer ones are refused.

The number stands in the store itself. It is raised whenever a version of croupier could not use what an older one has
written, or an older one could misread what this one writes; tables that are only added need no new number. A step can
be repeated: where it was interrupted, it is taken again at the next start.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from runtime.transaction import METADATA

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
    found = 0 if "rounds" in tables else STORE_VERSION  # before there was a number, or a new store
    if _version.name in tables:
        found = connection.execute(sa.select(sa.func.max(_version.c.number))).scalar_one() or found
    if found > STORE_VERSION:
        raise ValueError(
            f"{shown} is a store of version {found}, and this croupier knows versions up to {STORE_VERSION}: a newer "
            "croupier has written it; install that one again"
        )
    METADATA.create_all(connection)
    for step in _STEPS[found:]:
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


_STEPS: tuple[Callable[[sa.Connection, str], None], ...] = (_bodies_left_submissions,)
STORE_VERSION = len(_STEPS)
"""Of stores that this croupier writes."""
