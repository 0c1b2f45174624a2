"""A client's key file says which half of the key it holds, and nothing else is taken for a private key."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.client.key_file import PRIVATE, PUBLIC, key_text, read_private_key

KEY = bytes(range(32))


def test_a_private_key_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    file.write_text(key_text(PRIVATE, KEY))
    assert file.read_text() == f"croupier client private key v1\n{KEY.hex()}\n"
    assert read_private_key(file) == KEY
    file.write_text(f"{PRIVATE}\r\n{KEY.hex()}\r\n\r\n")
    assert read_private_key(file) == KEY


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (key_text(PUBLIC, KEY), "public half"),
        (f"{PRIVATE}\n{KEY.hex()}\n{KEY.hex()}\n", "private key"),
        (f"{PRIVATE}\n{KEY.hex()[2:]}\n", "'croupier.*v1'"),
        (f"{PRIVATE} of Ada\n{KEY.hex()}\n", "'croupier keygen --client' makes one"),
        (f"{KEY.hex()}\n{KEY.hex()}\n", "not the file"),
        (f"{KEY.hex()}\n", "not the file"),  # were they those of a public key, its owner would be counted by it
        ("", "not the file"),
        ("é", "not the file"),
    ],
)
def test_nothing_else_is_taken_for_one_or_shown(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said) as refused:
        read_private_key(file)
    assert KEY.hex()[2:] not in str(refused.value)
