"""The operator's files of keys, where the disk is full or the machine stops while they are written."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from croupier.operator import canaries
from croupier.operator.keys import write_secret
from croupier.protocol.names import PrivateKey

KEPT = [PrivateKey(bytes([number]) * 32) for number in range(4)]


def fail(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_keys_reserved_for_canaries_outlast_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file was deleted before the new one was written."""
    canaries.keep_keys(tmp_path, KEPT[:3])
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            canaries.keep_keys(tmp_path, KEPT[3:])
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            canaries.take_keys(tmp_path, 1)
    canaries.keep_keys(tmp_path, KEPT[3:])
    assert canaries.take_keys(tmp_path, 1) == KEPT[:1]
    *reserved, new = canaries.take_keys(tmp_path, 4)
    assert reserved == KEPT[1:]
    assert canaries.take_keys(tmp_path, 1) not in ([new], *([key] for key in KEPT))
    assert {file.name for file in (tmp_path / "operator").iterdir()} == {"canary-keys.txt", "canary-keys.lock"}


def test_no_two_processes_take_the_same_key(tmp_path: Path) -> None:
    """Each read the file, and wrote what it had left: both had the same keys, or met at the new file."""
    many = [PrivateKey(bytes([number]) * 32) for number in range(40)]
    together = Barrier(8)

    def one_process(number: int) -> list[PrivateKey]:
        together.wait()
        if number % 2:
            return [key for _ in range(5) for key in canaries.take_keys(tmp_path, 2)]
        canaries.keep_keys(tmp_path, many[5 * number : 5 * number + 10])
        return []

    with ThreadPoolExecutor(8) as threads:
        taken = [key for part in threads.map(one_process, range(8)) for key in part if key in many]
    assert sorted([*taken, *canaries.take_keys(tmp_path, 40 - len(taken))]) == many


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
