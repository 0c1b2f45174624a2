"""Mixing: open one layer of a batch, leave out what does not belong, permute.

Pure computation on a worker pool; what comes in, what goes out and what is signed is `shuffler.service`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from protocol.envelope import open_many
from protocol.onion import Layer
from protocol.randomness import RandomSource, uniform_permutation
from runtime.workers import WorkerPool

__all__ = ["Opened", "open_layer", "permute"]

DOES_NOT_OPEN = "does-not-open"
REPEATED = "repeated"


@dataclass(frozen=True)
class Opened:
    """The plaintexts of a batch, in the batch's order, the drops by reason, and the workers' CPU seconds."""

    plaintexts: list[bytes]
    drops: dict[str, int]
    cpu_s: float


async def open_layer(
    pool: WorkerPool, suite: str, private_key: bytes, layer: Layer, ciphertexts: Sequence[bytes]
) -> Opened:
    """Opens one layer of every ciphertext; repeats and what does not open are dropped and counted."""
    distinct = list(dict.fromkeys(ciphertexts))
    opened, cpu_s = await pool.map_chunks(partial(open_many, suite, private_key, layer.label), distinct)
    plaintexts = [plaintext for plaintext in opened if plaintext is not None and len(plaintext) == layer.plain_size]
    drops = {DOES_NOT_OPEN: len(distinct) - len(plaintexts), REPEATED: len(ciphertexts) - len(distinct)}
    return Opened(plaintexts, drops, cpu_s)


def permute(batch: Sequence[bytes], source: RandomSource) -> list[bytes]:
    """Returns the batch in a uniformly random order."""
    return [batch[index] for index in uniform_permutation(len(batch), source)]
