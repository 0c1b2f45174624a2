"""Files with a client's key: the first line names the half of the key on the second line, which is hexadecimal.

Both halves have 64 digits, and a public half used as a private one would count as an answer of somebody else.
"""

from __future__ import annotations

from pathlib import Path

from croupier.protocol.names import NO_KEY, PrivateKey

PRIVATE = "croupier client private key v1"
PUBLIC = "croupier client public key v1"
_KEY_BYTES = 32
"""The length of an Ed25519 key, public or private."""


def key_text(header: str, key: bytes) -> str:
    """Returns the contents of a key's file; the header is PRIVATE or PUBLIC."""
    return f"{header}\n{key.hex()}\n"


def read_private_key(file: Path) -> PrivateKey:
    """Returns a client's private key, 32 bytes.

    Args:
        file: to read.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds something else; its contents are not shown, because they may be another secret.
    """
    try:
        lines = file.read_text(encoding="ascii").split("\n")
    except UnicodeDecodeError:
        lines = []
    header, digits, *more = [line.strip() for line in lines if line.strip()] + [""] * 2
    if header == PUBLIC:
        raise ValueError(f"{file} holds the public half of a client's key; answers are signed with the private half")
    key = _key(digits) if header == PRIVATE and not any(more) else NO_KEY
    if not key:
        raise ValueError(
            f"{file} is not the file of a client's private key; it must have the line {PRIVATE!r} and then "
            f"{2 * _KEY_BYTES} hexadecimal digits; 'croupier keygen --client' makes one"
        )
    return key


def _key(digits: str) -> PrivateKey:
    """Returns the key with these digits, NO_KEY if they are not one."""
    try:
        key = PrivateKey(bytes.fromhex(digits))
    except ValueError:
        return NO_KEY
    return key if len(key) == _KEY_BYTES else NO_KEY
