"""Tables of a database, each declared by the columns of its key and the types of the others.

Apart from `sqlite_log` this is all that a client needs of the server runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

LARGE: Final = sa.BigInteger
"""The type of numbers that may exceed 32 bits: times, and bytes."""
_TYPES: Mapping[Any, Any] = {str: sa.String, bytes: sa.LargeBinary, int: sa.Integer, float: sa.Float, bool: sa.Boolean}


def table(
    metadata: sa.MetaData, name: str, key: Mapping[str, type], /, *more: sa.schema.SchemaItem, **columns: Any
) -> sa.Table:
    """Returns a table.

    Args:
        metadata: of the database.
        name: of the table.
        key: the columns of the primary key, with their types.
        more: constraints, and columns that may be empty.
        columns: the other columns, with their types.
    """
    keys = [sa.Column(column, _TYPES[kind], primary_key=True) for column, kind in key.items()]
    others = [sa.Column(column, _TYPES.get(kind, kind), nullable=False) for column, kind in columns.items()]
    return sa.Table(name, metadata, *keys, *others, *more)
