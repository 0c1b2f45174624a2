"""Mixing: what is dropped, and that orders are uniform and the lanes independent."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import pytest

from protocol.envelope import seal
from protocol.onion import Onion
from protocol.randomness import SystemRandom
from protocol.v1.messages_pb2 import Lane
from runtime.workers import WorkerPool
from shuffler.mixing import DOES_NOT_OPEN, REPEATED, open_layer, permute
from shuffler.service import _permute_all
from tests.support import make_kit


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(1)
    yield workers
    workers.close()


@pytest.mark.asyncio
async def test_repeats_and_foreign_envelopes_are_dropped_and_counted(pool: WorkerPool) -> None:
    kit = make_kit()
    layer = Onion(kit.terms).layer(Lane.LANE_REPORT, 2)
    suite, private = kit.terms.suite, kit.keys["shuffler-2"].private
    good = [seal(suite, layer.public_key, layer.label, bytes([i]) * layer.plain_size) for i in range(4)]
    short = seal(suite, layer.public_key, layer.label, b"too short")
    noise = b"\0" * layer.sealed_size
    opened = await open_layer(pool, suite, private, layer, [good[0], noise, good[1], good[0], short, *good[2:]])
    assert opened.plaintexts == [bytes([i]) * layer.plain_size for i in range(4)]
    assert opened.drops == {DOES_NOT_OPEN: 2, REPEATED: 1}


def chi_square_limit(degrees: int, log_error: float) -> float:
    """Laurent and Massart 2000: Pr[X ≥ d + 2√(dt) + 2t] ≤ e^−t."""
    return degrees + 2 * math.sqrt(degrees * log_error) + 2 * log_error


def test_every_order_of_four_is_equally_likely() -> None:
    """Fails for a correct shuffler with probability below 1e-9."""
    draws, orders = 24_000, list(itertools.permutations(range(4)))
    seen = Counter(tuple(b[0] for b in permute([bytes([i]) for i in range(4)], SystemRandom())) for _ in range(draws))
    expected = draws / len(orders)
    statistic = sum((seen[order] - expected) ** 2 / expected for order in orders)
    assert statistic < chi_square_limit(len(orders) - 1, math.log(1e9))


def test_each_item_is_equally_likely_at_each_place_of_a_large_batch() -> None:
    """Fails for a correct shuffler with probability below 1e-9."""
    size, draws = 50, 4000
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(draws):
        seen.update(
            (place, item[0]) for place, item in enumerate(permute([bytes([i]) for i in range(size)], SystemRandom()))
        )
    expected = draws / size
    statistic = sum((seen[place, item] - expected) ** 2 / expected for place in range(size) for item in range(size))
    assert statistic < chi_square_limit(size * size, math.log(1e9))


def test_the_two_lanes_are_permuted_independently() -> None:
    """The joint law of both orders of three is uniform on all 36 pairs; fails by chance with probability below 1e-9."""
    draws = 18_000
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    for _ in range(draws):
        lanes = {Lane.LANE_REPORT: [b"a", b"b", b"c"], Lane.LANE_PARAMETER: [b"a", b"b", b"c"]}
        _permute_all(lanes)
        pairs[b"".join(lanes[Lane.LANE_REPORT]), b"".join(lanes[Lane.LANE_PARAMETER])] += 1
    expected = draws / 36
    statistic = sum((count - expected) ** 2 / expected for count in pairs.values()) + (36 - len(pairs)) * expected
    assert statistic < chi_square_limit(35, math.log(1e9))
