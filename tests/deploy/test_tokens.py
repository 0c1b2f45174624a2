"""The operator's files of tokens, and of keys, where the disk is full or the machine stops while they are written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deploy.operator import tokens
from deploy.operator.keys import write_secret

KEPT = [bytes([number]) * 32 for number in range(4)]


def fail(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_tokens_that_were_kept_for_canaries_outlast_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file was deleted before the new one was written."""
    tokens._keep(tmp_path, [token.hex() for token in KEPT[:3]])
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            tokens._keep(tmp_path, [KEPT[3].hex()])
        with pytest.raises(OSError, match="No space left"):
            tokens.take_tokens(tmp_path, 1)
    tokens._keep(tmp_path, [KEPT[3].hex()])
    assert tokens.take_tokens(tmp_path, 1) == KEPT[:1]
    assert tokens.take_tokens(tmp_path, 4) == [*KEPT[1:], b""]
    assert tokens.take_tokens(tmp_path, 1) == [b""]
    assert [file.name for file in (tmp_path / "operator").iterdir()] == ["canary-tokens.txt"]


def test_a_secret_that_could_not_be_written_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it stood there, and the next attempt ended with: the file exists."""
    file = tmp_path / "alice.key"
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            write_secret(file, "half")
    write_secret(file, "whole")
    assert file.read_text() == "whole"
    assert file.stat().st_mode & 0o777 == 0o600
