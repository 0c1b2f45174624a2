"""One-use tokens on file: each admits one participant, with a key of the participant's own making, to one round.

Revocation, of tokens and of enrolled keys, is here, too: what is revoked is no longer admitted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from croupier.net.transport import TLS, Transport
from croupier.operator.keys import alone, replace_secret, write_secret
from croupier.operator.roster import note_revoked
from croupier.operator.rounds import Operator
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import PublicKey

__all__ = ["issue_token_file", "revoke", "take_tokens"]

_MAX_TOKENS = 1_000_000
"""The most enrolment tokens that one command makes."""


def _kept(directory: Path) -> Path:
    return directory / OPERATOR / "canary-tokens.txt"


async def issue_token_file(
    directory: Path, count: int, file: Path, canaries: int = 0, transport: Transport = TLS
) -> None:
    """Issues tokens, and writes them into a new file, one a line.

    Args:
        directory: of the deployment.
        count: how many to write.
        file: a new file for them.
        canaries: how many more to issue, at random places among them, and to keep for the operator's canaries.
        transport: how hop 1 is reached.

    Raises:
        ValueError: the count is not in 1..1000000, `canaries` is negative, or the file exists.
        Refusal: NOT_APPROVED; the tokens are in the file, and admit once the proposal is approved and sent.
    """
    if canaries < 0:
        raise ValueError(f"canaries is {canaries}; it must be at least 0")
    if not 1 <= count <= _MAX_TOKENS:
        raise ValueError(f"count is {count}; it must be in 1..{_MAX_TOKENS}")
    if await asyncio.to_thread(file.exists):
        raise ValueError(f"{file} exists; choose another file")
    refused = None
    async with Operator(directory, transport) as operator:
        issued = [secrets.token_bytes(32) for _ in range(count + canaries)]
        try:
            await operator.register_tokens(issued)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_APPROVED:
                raise
            refused = refusal  # the tokens are good once organisations have approved and the proposal was sent
    SystemRandom().shuffle(issued)
    write_secret(file, "".join(f"{token.hex()}\n" for token in issued[:count]))
    if canaries:
        keep_tokens(directory, [token.hex() for token in issued[count:]])
    if refused is not None:
        raise refused


async def revoke(
    directory: Path, client_keys: Sequence[str], tokens: Sequence[str], transport: Transport = TLS
) -> dict[str, int]:
    """Revokes client keys and tokens at hop 1 and the accountant; see `Operator.revoke`.

    Args:
        directory: of the deployment.
        client_keys: public keys, 64 hexadecimal digits each.
        tokens: the same of tokens, as `issue_token_file` wrote them.
        transport: how the services are reached.

    Raises:
        ValueError: nothing is given, or a key or token is not 64 hexadecimal digits.
    """
    if not client_keys and not tokens:
        raise ValueError("no key and no token is given; there is nothing to revoke")
    raw_keys = [_unhex("key", number, text) for number, text in enumerate(client_keys, start=1)]
    raw_tokens = [_unhex("token", number, text) for number, text in enumerate(tokens, start=1)]
    async with Operator(directory, transport) as operator:
        revoked = await operator.revoke(list(map(PublicKey, raw_keys)), raw_tokens)
    note_revoked(directory, [key.hex() for key in raw_keys])
    return revoked


def _unhex(what: str, number: int, text: str) -> bytes:
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if len(token) != 32:  # a token is a secret, and is not shown
        raise ValueError(f"{what} {number} has {len(text)} characters; it must be 64 hexadecimal digits")
    return token


def take_tokens(directory: Path, count: int) -> list[bytes]:
    """Takes `count` of the tokens that were kept for canaries and returns them; b"" for each that is missing."""
    with alone(_kept(directory)):
        kept = _read(directory)
        if kept:
            _write(directory, kept[count:])
    return [*(bytes.fromhex(token) for token in kept[:count]), *([b""] * (count - len(kept)))]


def keep_tokens(directory: Path, tokens: list[str]) -> None:
    with alone(_kept(directory)):
        _write(directory, [*_read(directory), *tokens])


def _read(directory: Path) -> list[str]:
    file = _kept(directory)
    return file.read_text().split() if file.exists() else []


def _write(directory: Path, tokens: list[str]) -> None:
    replace_secret(_kept(directory), "".join(f"{token}\n" for token in tokens))
