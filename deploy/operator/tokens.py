"""One-use tokens on file: each admits one participant, with a key of the participant's own making, to one round."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deploy.operator.keys import write_secret
from deploy.operator.rounds import Operator

__all__ = ["issue_token_file"]

_MAX_TOKENS = 1_000_000


def issue_token_file(directory: Path, count: int, file: Path) -> None:
    """Issues tokens, and writes them into a new file, one a line.

    Raises:
        ValueError: the count is not in 1..1000000, or the file exists.
    """
    if not 1 <= count <= _MAX_TOKENS:
        raise ValueError(f"count is {count}; it must be in 1..{_MAX_TOKENS}")
    if file.exists():
        raise ValueError(f"{file} exists; choose another file")
    issued = asyncio.run(_issue(directory, count))
    write_secret(file, "".join(f"{token.hex()}\n" for token in issued))


async def _issue(directory: Path, count: int) -> list[bytes]:
    async with Operator(directory) as operator:
        return await operator.issue_tokens(count)
