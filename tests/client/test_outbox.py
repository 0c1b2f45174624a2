"""The client's own memory: who may read it, and for how long it holds what."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import typer
from sqlalchemy.exc import IntegrityError

from client.outbox import KEPT_DAYS, Outbox
from client.submission import Sealed
from deploy.cli.console import plain_errors

BYTES, HASHES = b"sealed submission of alice", b"hashes of alice's envelope"


def test_only_its_owner_reads_an_outbox(tmp_path: Path) -> None:
    """Reproduction: everybody on the machine could read it."""
    path = tmp_path / "client" / "outbox.db"
    path.parent.mkdir()
    path.touch(0o644)
    outbox = Outbox(path)
    outbox.keep("round", {"alice": Sealed(BYTES, HASHES, 1.0)})
    assert len(list(path.parent.iterdir())) > 1  # with the log beside it
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    outbox.close()


def test_an_error_of_the_disk_names_the_file_and_nothing_of_an_answer(tmp_path: Path) -> None:
    """It came with a traceback, and with all that was to be written: what was spent, and the key that signs."""
    path = tmp_path / "outbox.db"
    outbox = Outbox(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE sealed")
    with pytest.raises(OSError, match="it cannot be read or written: no such table: sealed") as failed:
        outbox.keep("round", {"alice": Sealed(BYTES, HASHES, 1.0, b"alice's key")})
    assert failed.value.filename == str(path)
    with pytest.raises(typer.Exit), plain_errors():
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
    outbox.keep("round", {name: Sealed(BYTES, HASHES, 1.0) for name in ("alice", "bob")})
    outbox.acknowledge("round", ["alice"])
    now += KEPT_DAYS * 86400
    outbox.close()
    outbox = Outbox(path, lambda: now)
    assert (set(outbox.inclusion_hashes("round")), set(outbox.pending("round"))) == ({"alice"}, {"bob"})
    outbox.keep("new", {"alice": Sealed(BYTES[:6], HASHES, 2.0)})
    outbox.close()
    now += 1
    outbox = Outbox(path, lambda: now)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert BYTES not in files
    assert not outbox.inclusion_hashes("round")
    assert not outbox.pending("round")
    assert set(outbox.pending("new")) == {"alice"}
    assert outbox.users("round") == {"alice", "bob"}
    assert outbox.spent("round", "bob") == 1.0
    with pytest.raises(IntegrityError):
        outbox.keep("round", {"bob": Sealed(BYTES, HASHES, 1.0)})
    outbox.close()
