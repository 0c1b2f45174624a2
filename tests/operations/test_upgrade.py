"""An older croupier's stores (`tests/vectors/old_store`), opened by this one; a newer one's, refused.

What people were promised is in there: what rounds have cost, who is revoked, what has been published.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from croupier.client.outbox import Outbox
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.users import run_fleet
from croupier.deploy.node.serve import RunningService
from croupier.operator.keys import make_deployment
from croupier.operator.ledger import backup_ledger, restore_ledger, spent
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.names import RoundId, StorageKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.schema import STORE_VERSION
from croupier.runtime.store import Store
from croupier.show.published import publication_json
from tests.support import BIT, InProcess, Threads, settings, sign_again
from tests.support.in_memory import Network
from tests.support.messages import naming
from tests.support.postgresql import Server
from tests.support.rounds import people
from tests.support.statements import codes
from tests.support.virtual_time import VirtualClock

KIND = DocumentKind.PASSED_ON
OLD = Path(__file__).parents[1] / "vectors" / "old_store"
TOLD: dict[str, Any] = json.loads((OLD / "told.json").read_text())
NAMES = ("shuffler-1", "accountant", "analyzer")
KEY = bytes(32)
LIMIT = "\n[privacy_limit]\ntotal_epsilon = 1.7\ntotal_delta = 3e-4\n"


def write_old(file: Path, name: str) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.executescript((OLD / f"{name}.sql").read_text())


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


@pytest.mark.parametrize("name", NAMES)
def test_an_old_store_gets_the_tables_of_a_new_one(name: str, tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    write_old(old, name)
    assert "envelope" in tables(url_of(old))["submissions"]
    assert "store_version" not in tables(url_of(old))
    Store(url_of(new), StorageKey(KEY)).close()
    for _ in range(2):
        Store(url_of(old), StorageKey(KEY)).close()
        now = tables(url_of(old))
        assert {table: now[table] for table in tables(url_of(new))} == tables(url_of(new))
        with closing(sqlite3.connect(old)) as db:
            assert db.execute("SELECT number FROM store_version").fetchall() == [(STORE_VERSION,)]


def test_a_step_that_was_interrupted_is_taken_again(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    write_old(file, "shuffler-1")
    change(url_of(file), "CREATE TABLE store_version (number INTEGER NOT NULL PRIMARY KEY)")
    Store(url_of(file), StorageKey(KEY)).close()
    assert "envelope" not in tables(url_of(file))["submissions"]


def test_a_round_that_only_the_older_version_can_finish_is_left_to_it(tmp_path: Path) -> None:
    """While a round was open, its submissions were in the column that is no longer there."""
    file = tmp_path / "old.db"
    write_old(file, "shuffler-1")
    change(url_of(file), "UPDATE submissions SET envelope = X'00' WHERE round_id = 'second'")
    before = file.read_bytes()
    with pytest.raises(ValueError, match=naming("round 'second'")):
        Store(url_of(file), StorageKey(KEY))
    assert len(tables(url_of(file))["submissions"]) == 4
    assert before.count(b"second") == file.read_bytes().count(b"second")
    change(url_of(file), "UPDATE submissions SET envelope = NULL")  # as its end did
    Store(url_of(file), StorageKey(KEY)).close()


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


def test_tables_of_an_older_postgresql_store_get_parts(postgresql: Server) -> None:
    """As it was made before parts: one table each, with what a round and a document had left in them."""
    url = postgresql.new_database()
    store = Store(url, StorageKey(KEY))
    asyncio.run(store.run("leave a document", lambda tx: tx.put_document(RoundId("round"), KIND, b"1", "kept")))
    store.close()
    for table in ("submissions", "chunks", "opened", "documents"):
        change(url, f"CREATE TABLE {table}_whole AS TABLE {table}")
        change(url, f"DROP TABLE {table}")
        change(url, f"ALTER TABLE {table}_whole RENAME TO {table}")
    change(url, "UPDATE store_version SET number = 1")
    for _ in range(2):
        store = Store(url, StorageKey(KEY))
        assert asyncio.run(store.run("look", lambda tx: tx.document(RoundId("round"), KIND, "kept"))) == b"1"
        asyncio.run(store.run("forget", lambda tx: tx.shred_round(RoundId("another round"))))
        asyncio.run(store.shred())
        store.close()
    assert "documents_0" in tables(url)
    assert not [name for name in tables(url) if name.endswith("_before")]


def test_neither_a_service_nor_a_restore_takes_a_newer_store(tmp_path: Path) -> None:
    make_deployment(tmp_path, "local", 1)
    url = url_of(tmp_path / "accountant" / "rounds.db")
    Store(url, StorageKey(KEY)).close()
    change(url, "UPDATE store_version SET number = 99")
    with pytest.raises(ValueError, match=naming("install")):
        RunningService("accountant", tmp_path, pool=Threads(), transport=Network().transport)
    with pytest.raises(ValueError, match=naming("install")):
        restore_ledger(tmp_path, OLD / "ledger.json")


def lay(directory: Path) -> None:
    """A deployment that has been the old one: its stores, and trust in what its services have signed."""
    deployment = make_deployment(directory, "local", 1)
    file = directory / "deployment.toml"
    text = file.read_text()
    for entry in deployment.services:  # as the older version has written it: without dates
        own = f'identity = "{entry.identity}"\ntls_certificate'
        retired = f'retired_identities = ["{TOLD["identities"][entry.name]}"]\n'
        text = text.replace(own, own.replace("tls_certificate", f"{retired}tls_certificate"))
    file.write_text(text + LIMIT)
    sign_again(directory)
    for name in NAMES:
        write_old(directory / name / "rounds.db", name)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_deployment_goes_on_with_old_stores(tmp_path: Path) -> None:
    place, backup = tmp_path / "d", tmp_path / "ledger.json"
    lay(place)
    inside = InProcess(place, Network().transport, clock=VirtualClock())
    await inside.start(*NAMES)
    try:
        async with inside.operator() as operator:
            for round_id, published in TOLD["publications"].items():
                publication, certificate = await operator.result(round_id, 60.0)
                assert publication == pb.Publication.FromString(bytes.fromhex(published))
                assert certificate.granted
                shown = publication_json(publication, certificate)["certificate"]
                assert shown["epsilon"] == certificate.epsilon
                assert codes(shown["assumptions"]) == [Assumption.STATED_BY_EARLIER_VERSION]
            hop, accountant, _ = await operator.status()
            assert isinstance(hop, rpc.StatusResponse)
            assert isinstance(accountant, rpc.StatusResponse)
            assert (hop.num_revoked, accountant.num_revoked) == (1, 1)
            assert {round_.round_id for round_ in hop.rounds} == set(TOLD["publications"])
            backup_ledger(place, backup)
            old = json.loads((OLD / "ledger.json").read_text())
            assert rounds_of(backup) == [as_now(earlier) for earlier in old["rounds"]]
            tiers = {spending.tier: spending.guarantee for spending in spent(place, 3e-4)}
            assert all(tiers[tier] is not None for tier, _, _ in TOLD["spent"])

            terms = await operator.open_round(settings(), RoundId("third"))
            outbox, named = (
                Outbox(tmp_path / "outbox.db"),
                {str(n): person for n, person in enumerate(people(BIT, 40, 1))},
            )
            async with operator.client_channel() as channel, operator.client_channel("accountant") as tickets:
                await run_fleet(channel, tickets, terms, named, outbox=outbox, pool=Threads(), enrol=operator.enrol)
            outbox.close()
            await operator.close_round(RoundId("third"))
            _, refused = await operator.result(RoundId("third"), 60.0)
            assert not refused.granted, "two old rounds and this one are above the limit"
            assert codes(refused.refusals)[-1] == RefusalReason.LEDGER_LIMIT
    finally:
        await inside.stop(*NAMES)


def as_now(earlier: dict[str, Any]) -> dict[str, Any]:
    """Returns a round of an old backup with the fields that were added since: none of its entries is of a series."""
    entries = [entry | {"series": ""} for entry in earlier["entries"]]
    return earlier | {"entries": entries, "unknown": False}


def rounds_of(backup: Path) -> Any:
    return json.loads(backup.read_text())["rounds"]


def test_an_old_backup_of_the_ledger_is_restored(tmp_path: Path) -> None:
    make_deployment(tmp_path / "d", "local", 1)
    assert restore_ledger(tmp_path / "d", OLD / "ledger.json") == 2
    kept = {spending.tier: spending.rounds for spending in spent(tmp_path / "d", 3e-4)}
    assert kept == {tier: rounds for tier, rounds, _ in TOLD["spent"]}
    assert read_deployment(tmp_path / "d").name == "local"
