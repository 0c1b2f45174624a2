"""Fingerprints as twelve words, for people who compare them by telephone.

The words are the English list of BIP-39, whose first four letters differ from word to word. Twelve words show the first
132 bits of a SHA-256 hash; there is no checksum among them, because nobody types them in.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from croupier.protocol.names import Digest

NUM_WORDS = 12
_BITS = 11


@cache
def _words() -> tuple[str, ...]:
    return tuple((Path(__file__).parent / "words.txt").read_text(encoding="ascii").split())


def fingerprint_words(digest: Digest) -> str:
    """Returns the first 132 bits of a hash as twelve words."""
    bits = int.from_bytes(digest, "big") >> (8 * len(digest) - NUM_WORDS * _BITS)
    indices = (bits >> _BITS * place & 2**_BITS - 1 for place in reversed(range(NUM_WORDS)))
    return " ".join(_words()[index] for index in indices)
