"""The client's own memory: who may read it, and for how long it holds what."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy
from sqlalchemy.exc import IntegrityError

from croupier.cli.console import plain_errors
from croupier.client.limits import SpentHere
from croupier.client.outbox import KEPT_DAYS, Outbox
from croupier.client.submission import PreparedReport, SealedSubmission
from croupier.protocol.errors import OtherPersonError
from croupier.protocol.names import PrivateKey, RoundId
from croupier.protocol.onion import BudgetRecord, encode_budget
from tests.support.messages import naming
from tests.support.raw_disk import freed_by_sqlite

ALICE, BOB = (
    PreparedReport(
        letter * 90,
        BudgetRecord(encode_budget(1.0, 1e-6), letter * 15 + b"r"),
        PrivateKey(letter * 63 + b"k"),
        PrivateKey(letter * 31 + b"a"),
        (letter * 31 + b"1", letter * 31 + b"2"),
    )
    for letter in (b"A", b"B")
)
BYTES, HASHES = b"sealed submission of alice", b"hashes of alice's envelope"


def test_only_its_owner_reads_an_outbox(tmp_path: Path) -> None:
    """Reproduction: everybody on the machine could read it."""
    path = tmp_path / "client" / "outbox.db"
    path.parent.mkdir()
    path.touch(0o644)
    outbox = Outbox(path)
    outbox.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0)})
    assert len(list(path.parent.iterdir())) > 1  # with the log beside it
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    outbox.close()


def test_an_error_of_the_disk_names_the_file_and_nothing_of_an_answer(tmp_path: Path) -> None:
    """It came with a traceback, and with all that was to be written: what was spent, and the key that signs."""
    path = tmp_path / "outbox.db"
    outbox = Outbox(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE sealed")
    with pytest.raises(OSError, match=naming("no such table: sealed")) as failed:
        outbox.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0, PrivateKey(b"alice's key"))})
    assert failed.value.filename == str(path)
    with pytest.raises(SystemExit), plain_errors():
        raise failed.value
    told: BaseException | None = failed.value
    while told is not None:
        assert "alice" not in str(told)
        told = told.__cause__ or told.__context__
    outbox.close()


def test_old_bytes_are_forgotten_and_that_the_user_has_answered_is_not(tmp_path: Path) -> None:
    """Reproduction: sealed submissions were kept for ever."""
    path, now = tmp_path / "outbox.db", 1e9
    outbox = Outbox(path, lambda: now)
    outbox.keep(RoundId("round"), {name: SealedSubmission(BYTES, HASHES, 1.0) for name in ("alice", "bob")})
    outbox.acknowledge(RoundId("round"), ["alice"])
    now += KEPT_DAYS * 86400
    outbox.close()
    outbox = Outbox(path, lambda: now)
    assert (set(outbox.inclusion_hashes(RoundId("round"))), set(outbox.pending(RoundId("round")))) == (
        {"alice"},
        {"bob"},
    )
    outbox.keep(RoundId("new"), {"alice": SealedSubmission(BYTES[:6], HASHES, 2.0)})
    outbox.close()
    now += 1
    outbox = Outbox(path, lambda: now)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert BYTES not in files
    assert not outbox.inclusion_hashes(RoundId("round"))
    assert not outbox.pending(RoundId("round"))
    assert set(outbox.pending(RoundId("new"))) == {"alice"}
    assert outbox.users(RoundId("round")) == {"alice", "bob"}
    assert outbox.kept(RoundId("round"), "bob").local_epsilon == 1.0
    with pytest.raises(IntegrityError):
        outbox.keep(RoundId("round"), {"bob": SealedSubmission(BYTES, HASHES, 1.0)})
    outbox.close()


def test_the_end_of_an_outbox_unlinks_none_of_its_bytes(tmp_path: Path) -> None:
    """With its last connection SQLite unlinks the log; what was in it was still on the disk when it was forgotten."""
    outbox = Outbox(tmp_path / "outbox.db")
    outbox.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0, PrivateKey(b"alice's key"))})
    with freed_by_sqlite() as freed:
        outbox.close()
    assert freed
    assert not any(BYTES in content or b"alice's key" in content for content in freed)
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.kept(RoundId("round"), "alice").submission == BYTES
    outbox.close()


def test_an_outbox_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    Outbox(path).close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (1,)
        other.execute("PRAGMA user_version = 2")
        other.execute("ALTER TABLE sealed RENAME TO parcels")
        other.commit()
    with pytest.raises(ValueError, match=naming(2, 1, "delete")):
        Outbox(path)
    with closing(sqlite3.connect(path)) as other:
        tables = other.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    assert tables == [("attempts",), ("kept_reports",), ("kept_waves",), ("parcels",), ("prepared",)]


def test_a_prepared_report_comes_back_as_it_was_and_is_the_only_one(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.prepare(RoundId("round"), {"alice": ALICE, "bob": BOB}) == {"alice": ALICE, "bob": BOB}
    outbox.close()
    outbox = Outbox(tmp_path / "outbox.db")
    assert outbox.prepared(RoundId("round")) == {"alice": ALICE, "bob": BOB}
    assert outbox.prepare(RoundId("round"), {"alice": BOB}) == {"alice": ALICE}
    assert outbox.prepared(RoundId("another")) == {}
    assert outbox.users(RoundId("round")) == set()
    assert outbox.begun(RoundId("round")) == {"alice", "bob"}
    assert outbox.spent_in_all() == SpentHere(0.0, 0.0, 0)  # nothing of it has left
    with pytest.raises(OtherPersonError):
        outbox.prepare(RoundId("round"), {"carol": BOB}, alone=True)
    assert "carol" not in outbox.prepared(RoundId("round"))
    outbox.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0)})
    assert outbox.prepared(RoundId("round")) == {"bob": BOB}
    assert outbox.prepare(RoundId("round"), {"alice": BOB}) == {}  # it has answered
    outbox.discard(RoundId("round"), ["bob"])
    assert outbox.prepared(RoundId("round")) == {}
    outbox.close()


@pytest.mark.parametrize("end", ["sealed", "refused", "forgotten"])
def test_a_seized_device_shows_no_report_that_was_prepared(tmp_path: Path, end: str) -> None:
    """Blind and ciphertext would tell whose the opened report is. They are on the disk until the answer is sealed."""
    path, now = tmp_path / "outbox.db", 1e9
    outbox = Outbox(path, lambda: now)
    outbox.prepare(RoundId("round"), {"alice": ALICE})
    secrets = [ALICE.sealed, ALICE.record.salt, ALICE.key, ALICE.answer_key, *ALICE.blinds]

    def on_disk() -> list[bool]:
        files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        return [secret in files for secret in secrets]

    assert all(on_disk())
    if end == "sealed":
        outbox.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0)})
        outbox.overwrite_log()
    elif end == "refused":
        outbox.discard(RoundId("round"), ["alice"])
        outbox.overwrite_log()
    else:
        outbox.close()
        now += KEPT_DAYS * 86400 + 1
        outbox = Outbox(path, lambda: now)
    assert not any(on_disk())
    outbox.close()
    assert not any(on_disk())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_that_is_damaged_or_no_outbox_is_named_and_stays_as_it_is(tmp_path: Path, damaged: bool) -> None:
    """It ended with a traceback."""
    path = tmp_path / "outbox.db"
    path.write_bytes(b"not a database\n" * 100)
    if damaged:
        path.unlink()
        outbox = Outbox(path)
        outbox.keep(RoundId("round"), {str(user): SealedSubmission(bytes(2000), HASHES, 1.0) for user in range(50)})
        outbox.close()
        path.write_bytes(path.read_bytes()[:40_000])
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"file is not a|database disk image") as failed:
        Outbox(path)
    assert failed.value.filename == str(path)
    assert path.read_bytes() == before


def test_a_second_client_of_a_process_takes_no_lock_of_the_first(tmp_path: Path) -> None:
    """Reproduction: to open the file once more, and close it, gave up the locks of the whole process on it (POSIX).

    Another process then took itself for the last one and unlinked the log, and the first client read a damaged file.
    """
    path = tmp_path / "outbox.db"
    first, second = Outbox(path), Outbox(path)
    second.close()
    first.keep(RoundId("round"), {"alice": SealedSubmission(BYTES, HASHES, 1.0)})
    program = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM sealed'); db.close()"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert Path(f"{path}-wal").exists()
    assert first.users(RoundId("round")) == {"alice"}
    first.close()


def test_processes_that_begin_at_once_make_one_outbox(tmp_path: Path) -> None:
    """Reproduction: of six that opened one, four ended with: table sealed exists already. Threads: alike to SQLite."""
    at_once = Barrier(6)

    def answer(user: int) -> None:
        for number in range(5):
            at_once.wait(60)
            outbox = Outbox(tmp_path / f"{number}.db")
            outbox.keep(RoundId("round"), {str(user): SealedSubmission(BYTES, HASHES, 1.0)})
            outbox.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(answer, range(6)))
    for number in range(5):
        outbox = Outbox(tmp_path / f"{number}.db")
        assert len(outbox.users(RoundId("round"))) == 6
        outbox.close()


@pytest.fixture
def steps() -> Iterator[list[int]]:
    """Yields a list with one number: thousands of steps of SQLite's machine so far. No writer waits for another."""
    counted = [0]

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        def count() -> None:
            counted[0] += 1

        connection.set_progress_handler(count, 1000)
        connection.execute("PRAGMA busy_timeout=0").close()

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", configure)
    yield counted
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", configure)


def test_threads_of_a_client_take_turns(tmp_path: Path, steps: list[int]) -> None:
    """Reproduction: of a fleet's many writers one waited in vain for five seconds, and the fleet ended."""
    outbox = Outbox(tmp_path / "outbox.db")
    users = [f"user {number}" for number in range(40)]
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda user: outbox.prepare(RoundId("round"), {user: ALICE}), users))
        list(
            threads.map(lambda user: outbox.keep(RoundId("round"), {user: SealedSubmission(BYTES, HASHES, 1.0)}), users)
        )
        list(threads.map(lambda user: outbox.acknowledge(RoundId("round"), [user]), users))
    assert outbox.acknowledged(RoundId("round")).keys() == set(users)
    outbox.close()


def test_a_chunk_costs_the_same_however_many_users_there_are(tmp_path: Path, steps: list[int]) -> None:
    """Reproduction: every chunk of a fleet read the names of all users before it."""
    outbox, costs = Outbox(tmp_path / "outbox.db"), []
    for chunk in range(24):
        before, users = steps[0], [f"user {chunk} {number}" for number in range(200)]
        outbox.prepare(RoundId("round"), dict.fromkeys(users, ALICE))
        outbox.keep(RoundId("round"), dict.fromkeys(users, SealedSubmission(BYTES, HASHES, 1.0)))
        costs.append(steps[0] - before)
    assert sum(costs[-6:]) <= 1.5 * sum(costs[:6])
    outbox.close()
