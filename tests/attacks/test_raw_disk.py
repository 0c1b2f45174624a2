"""Reading destroyed keys from blocks of a disk that no file has any more."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from croupier.operator.keys import make_deployment
from croupier.operator.ledger import spent
from croupier.runtime.store import Store
from tests.attacks.reading import POLICY_NOBODY_MEETS, fine_settings
from tests.support.arena import arena
from tests.support.raw_disk import raw_disk


def wrapped_keys(database: Path) -> list[bytes]:
    with closing(sqlite3.connect(database)) as reader:
        return [wrapped for (wrapped,) in reader.execute("SELECT wrapped_private FROM round_keys")]


def found(keys: Iterable[bytes], disk: bytes) -> int:
    """Returns how many keys can be read; the end of a page may cut one in two."""
    return sum(key[:30] in disk or key[30:] in disk for key in keys)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_no_block_of_the_disk_has_a_destroyed_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite truncates and unlinks its log without overwriting it: 10 to 14 of 14 keys were in free blocks."""
    monkeypatch.setattr("tests.support.ephemeral_store", Store)  # the real one, which waits for the disk
    with raw_disk(tmp_path) as (directory, read):
        async with arena(directory, 2) as deployment:
            chain = deployment.deployment.chain
            databases = [deployment.inside.directory / name / "rounds.db" for name in chain]
            rounds = []
            for epsilon in (4.0, POLICY_NOBODY_MEETS):
                terms = await deployment.filled(fine_settings(epsilon=epsilon), 12, value=0.5)
                rounds.append(terms)
            keys = [key for database in databases for key in wrapped_keys(database)]
            assert len(keys) == found(keys, read()) == 14
            await deployment.inside.stop(*chain)  # the end of a service unlinks its log
            await deployment.inside.start(*chain)
            granted = [(await deployment.finish(terms))[1].granted for terms in rounds]
            assert granted == [True, False]
            await deployment.until(lambda: not any(map(wrapped_keys, databases)) and found(keys, read()) == 0)
        assert found(keys, read()) == 0


_DIES_BEFORE_IT_ERASES = """
import asyncio, os, signal, sys
from croupier.protocol.envelope import KeyPair
from croupier.operator.keys import make_deployment
from croupier.operator.ledger import spent
from croupier.runtime.store import Store
store = Store(sys.argv[1], bytes(32))
def prepare(tx):
    tx.add_round("r", "suite", {"release": KeyPair(b"public", os.urandom(32))})
async def work():
    await store.run("prepare", prepare)
    wrapped = await store.run("look", lambda tx: tx.connection.exec_driver_sql("SELECT * FROM round_keys").fetchall())
    print(next(value for value in wrapped[0] if isinstance(value, bytes) and value != b"public").hex(), flush=True)
    await store.run("shred", lambda tx: tx.shred_round("r"))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(work())
"""


@pytest.mark.slow
def test_reading_the_ledger_after_a_crash_unlinks_no_key(tmp_path: Path) -> None:
    """SQLite unlinks its log with the last connection, here that of 'croupier ledger', with what the service left."""
    with raw_disk(tmp_path) as (directory, read):
        deployment = make_deployment(directory / "deployment", "local", 1)
        database = directory / "deployment" / deployment.accountant.name / "rounds.db"
        died = subprocess.run(
            [sys.executable, "-c", _DIES_BEFORE_IT_ERASES, f"sqlite:///{database}"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
        keys = [bytes.fromhex(died.stdout)]
        assert found(keys, read()) == 1
        assert [tier.rounds for tier in spent(directory / "deployment", 1e-5)] == [0]
        assert found(keys, read()) == 0
