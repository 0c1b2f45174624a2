"""Stores and backups that a newer croupier has written: they are refused, and left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from croupier.deploy.node.serve import RunningService
from croupier.operator.keys import make_deployment
from croupier.operator.ledger import backup_ledger, restore_ledger
from croupier.protocol.names import StorageKey
from croupier.runtime.schema import STORE_VERSION
from croupier.runtime.store import Store
from tests.support import Threads
from tests.support.in_memory import Network
from tests.support.messages import naming

KEY = bytes(32)


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


def tables(url: str) -> dict[str, list[str]]:
    engine = sa.create_engine(url)
    inspector = sa.inspect(engine)
    columns = {name: [column["name"] for column in inspector.get_columns(name)] for name in inspector.get_table_names()}
    engine.dispose()
    return columns


def change(url: str, statement: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.slow
def test_a_newer_store_is_refused_and_left_alone(database_url: str) -> None:
    Store(database_url, StorageKey(KEY)).close()
    change(database_url, "UPDATE store_version SET number = 99")
    before = tables(database_url)
    for _ in range(2):
        with pytest.raises(ValueError, match=naming("version 99", STORE_VERSION)):
            Store(database_url, StorageKey(KEY))
    assert tables(database_url) == before
    change(database_url, f"UPDATE store_version SET number = {STORE_VERSION}")
    Store(database_url, StorageKey(KEY)).close()


def test_neither_a_service_nor_a_restore_takes_a_newer_store(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    url, backup = url_of(tmp_path / "accountant" / "rounds.db"), tmp_path / "ledger.json"
    Store(url, StorageKey(KEY)).close()
    backup_ledger(tmp_path, backup)
    change(url, "UPDATE store_version SET number = 99")
    with pytest.raises(ValueError, match=naming("install")):
        RunningService("accountant", tmp_path, pool=Threads(), transport=Network().transport)
    with pytest.raises(ValueError, match=naming("install")):
        restore_ledger(tmp_path, backup)
