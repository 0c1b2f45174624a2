"""Mixing: which items of a batch are passed on, in which order, and the part of the new order that is written next.

Pure computation on hashes, places and one window of bodies; where bodies come from and go to, and what is signed, is
`shuffler.batch_mixer`'s. What grows with the batch is a hash, a flag and a place for each item.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from croupier.protocol.batches import digest_of_hashes
from croupier.protocol.names import Lane
from croupier.protocol.randomness import SystemRandom, uniform_permutation
from croupier.runtime.tasks import HASH_BYTES, OPENED, Page

DOES_NOT_OPEN = "does-not-open"
REPEATED = "repeated"


class BatchSurvey:
    """The first reading of a batch: repeated items and items that do not open are dropped and counted.

    Attributes:
        kept: for every item, in the order of arrival, whether it is passed on, 1 or 0.
        drops: how many are not, by reason.
        digest: the name of the batch as it arrived, once it is `close`d.
    """

    def __init__(self) -> None:
        self.kept = bytearray()
        self.drops = {DOES_NOT_OPEN: 0, REPEATED: 0}
        self.digest = b""
        self._hashes: list[bytes] = []
        self._seen: set[bytes] = set()

    def add(self, page: Page) -> None:
        """Goes on with the next records."""
        size, packed = page
        for at in range(0, len(packed), size):
            name, status = packed[at : at + HASH_BYTES], packed[at + HASH_BYTES]
            is_new, opens = self.is_new(name), status == OPENED
            self._hashes.append(name)
            self.kept.append(is_new and opens)
            if not is_new:
                self.drops[REPEATED] += 1
            elif not opens:
                self.drops[DOES_NOT_OPEN] += 1

    def is_new(self, name: bytes) -> bool:
        """Returns whether an item has not been met before, and remembers it."""
        known = len(self._seen)
        self._seen.add(name)
        return len(self._seen) > known

    def close(self) -> None:
        """Ends the reading: computes the digest, and deletes the hashes."""
        self._seen.clear()
        self._hashes.sort()
        self.digest = digest_of_hashes(self._hashes)
        self._hashes = []


class PageCache:
    """The pages of a lane, kept in memory for the second reading if all of them fit.

    Attributes:
        pages: in their order; None if they do not fit.
    """

    def __init__(self, most_bytes: int) -> None:
        self.pages: list[Page] | None = []
        self._left = most_bytes

    def add(self, page: Page) -> None:
        """Goes on with the next page."""
        if self.pages is not None:
            self.pages.append(page)
            self._left -= len(page.packed)
            if self._left < 0:
                self.pages = None


def draw_orders(counts: Mapping[Lane, int]) -> dict[Lane, Sequence[int]]:
    """Returns for each lane the place of each of its `counts[lane]` items: an independent uniform permutation."""
    return {lane: array("q", uniform_permutation(count, SystemRandom())) for lane, count in counts.items()}


class OrderWindow:
    """The places `start` .. `stop` − 1 of a new order, filled in one pass over the batch in its old order.

    Args:
        kept: of the `BatchSurvey`.
        order: of `draw_orders`: the place of each item that is kept.
        start: the first place.
        stop: the place behind the last.
        part: of what each item holds.
    """

    def __init__(self, kept: bytearray, order: Sequence[int], start: int, stop: int, part: slice = slice(None)) -> None:
        self._kept, self._order, self._start, self._stop, self._part = kept, order, start, stop, part
        self._item = self._next = 0
        self.items = [b""] * (stop - start)

    def add(self, page: Page) -> None:
        """Goes on with the next records, and takes from them what has a place here."""
        kept, order, start, stop, items = self._kept, self._order, self._start, self._stop, self.items
        size, packed = page
        first, last, _ = self._part.indices(size - HASH_BYTES - 1)
        first, last = first + HASH_BYTES + 1, last + HASH_BYTES + 1
        for at in range(0, len(packed), size):
            if kept[self._item]:
                place = order[self._next]
                self._next += 1
                if start <= place < stop:
                    items[place - start] = packed[at + first : at + last]
            self._item += 1

    def add_fakes(self, fakes: Sequence[bytes]) -> None:
        """Takes those of the hop's own items that have a place here; the last places of the order are theirs."""
        first = len(self._order) - len(fakes)
        for fake, place in zip(fakes, self._order[first:], strict=True):
            if self._start <= place < self._stop:
                self.items[place - self._start] = fake
