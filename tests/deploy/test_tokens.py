"""The operator's files of tokens, and of keys, where the disk is full or the machine stops while they are written."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from croupier.operator import tokens
from croupier.operator.keys import write_secret

KEPT = [bytes([number]) * 32 for number in range(4)]


def fail(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_tokens_that_were_kept_for_canaries_outlast_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file was deleted before the new one was written."""
    tokens.keep_tokens(tmp_path, [token.hex() for token in KEPT[:3]])
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            tokens.keep_tokens(tmp_path, [KEPT[3].hex()])
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            tokens.take_tokens(tmp_path, 1)
    tokens.keep_tokens(tmp_path, [KEPT[3].hex()])
    assert tokens.take_tokens(tmp_path, 1) == KEPT[:1]
    assert tokens.take_tokens(tmp_path, 4) == [*KEPT[1:], b""]
    assert tokens.take_tokens(tmp_path, 1) == [b""]
    assert {file.name for file in (tmp_path / "operator").iterdir()} == {"canary-tokens.txt", "canary-tokens.lock"}


def test_no_two_processes_take_the_same_token(tmp_path: Path) -> None:
    """Each read the file, and wrote what it had left: both had the same tokens, or met at the new file."""
    many = [bytes([number]) * 32 for number in range(40)]
    together = Barrier(8)

    def one_process(number: int) -> list[bytes]:
        together.wait()
        if number % 2:
            return [token for _ in range(5) for token in tokens.take_tokens(tmp_path, 2)]
        tokens.keep_tokens(tmp_path, [token.hex() for token in many[5 * number : 5 * number + 10]])
        return []

    with ThreadPoolExecutor(8) as threads:
        taken = [token for part in threads.map(one_process, range(8)) for token in part if token]
    assert sorted([*taken, *tokens.take_tokens(tmp_path, 40 - len(taken))]) == many


def test_a_secret_that_could_not_be_written_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it stood there, and the next attempt ended with: the file exists."""
    file = tmp_path / "alice.key"
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            write_secret(file, "half")
    write_secret(file, "whole")
    assert file.read_text() == "whole"
    assert file.stat().st_mode & 0o777 == 0o600
