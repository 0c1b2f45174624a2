"""Mixing: what is dropped, and that orders are uniform and the lanes independent."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Sequence

from croupier.protocol.envelope import seal
from croupier.protocol.onion import Onion
from croupier.protocol.v1.messages_pb2 import Lane
from croupier.runtime.tasks import DOES_NOT_OPEN as IT_DOES_NOT
from croupier.runtime.tasks import HASH_BYTES, OPENED, Page, open_layer
from croupier.shuffler.mixing import DOES_NOT_OPEN, REPEATED, BatchSurvey, OrderWindow, draw_orders
from tests.support import make_kit


def name(letter: str) -> bytes:
    return letter.encode() * HASH_BYTES


def page(letters: str) -> Page:
    """Records named after the letters, of which the capital ones open."""
    records = [name(letter) + bytes([OPENED if letter.isupper() else IT_DOES_NOT]) + b"??" for letter in letters]
    return Page(len(records[0]), b"".join(records))


def holding(contents: Sequence[bytes]) -> Page:
    return Page(
        HASH_BYTES + 1 + len(contents[0]), b"".join(name("n") + bytes([OPENED]) + content for content in contents)
    )


def test_repeats_and_foreign_envelopes_are_dropped_and_counted() -> None:
    survey = BatchSurvey()
    survey.add(page("ABA"))
    survey.add(page("xCxBD"))
    assert bytes(survey.kept) == bytes([1, 1, 0, 0, 1, 0, 0, 1])
    assert survey.drops == {DOES_NOT_OPEN: 1, REPEATED: 3}
    survey.close()
    assert survey.digest == hashlib.sha256(b"".join(map(name, "AABBCDxx"))).digest()


def test_foreign_short_and_altered_envelopes_do_not_open() -> None:
    kit = make_kit()
    layer = Onion(kit.terms).layer(Lane.LANE_REPORT, 2)
    suite, private = kit.terms.shared.hpke_suite, kit.keys["shuffler-2"].private
    good = seal(suite, layer.public_key, layer.label, b"7" * layer.plain_size)
    short = seal(suite, layer.public_key, layer.label, b"too short")
    opened = open_layer(
        suite, private, layer.label, layer.plain_size, [b"\0" * layer.sealed_size, good, short, good[:-1] + b"?"]
    )
    assert opened == [(IT_DOES_NOT, b""), (OPENED, b"7" * layer.plain_size), (IT_DOES_NOT, b""), (IT_DOES_NOT, b"")]


def mixed(contents: Sequence[bytes], kept: bytes, order: Sequence[int], per_window: int, per_page: int) -> list[bytes]:
    """Returns a batch in its new order, made window by window from pages."""
    items: list[bytes] = []
    for start in range(0, len(order), per_window):
        window = OrderWindow(bytearray(kept), order, start, min(start + per_window, len(order)))
        for first in range(0, len(contents), per_page):
            window.add(holding(contents[first : first + per_page]))
        items += window.items
    return items


def test_windows_and_pages_make_no_difference_to_the_order() -> None:
    kept, order = bytes([1, 0, 1, 1, 1, 0, 1]), [3, 0, 4, 2, 1]
    for per_window, per_page in itertools.product((1, 2, 3, 5, 9), (1, 3, 7)):
        letters = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert mixed(letters, kept, order, per_window, per_page) == [b"c", b"g", b"e", b"a", b"d"]


def test_a_window_takes_the_part_of_each_item_that_its_lane_is() -> None:
    for part, expected in ((slice(2), [b"ef", b"ab"]), (slice(2, None), [b"3", b"1"])):
        window = OrderWindow(bytearray(b"\1\0\1"), [1, 0], 0, 2, part)
        window.add(holding([b"ab1", b"cd2", b"ef3"]))
        assert window.items == expected


def placed(count: int) -> list[int]:
    """Returns which of `count` items is at each place of a drawn order, made in two windows."""
    order, batch = draw_orders({Lane.LANE_REPORT: count})[Lane.LANE_REPORT], [bytes([item]) for item in range(count)]
    items = mixed(batch, b"\1" * count, order, -(-count // 2), count)
    return [item[0] for item in items]


def chi_square_limit(degrees: int, log_error: float) -> float:
    """Laurent and Massart 2000: Pr[X ≥ d + 2√(dt) + 2t] ≤ e^−t."""
    return degrees + 2 * math.sqrt(degrees * log_error) + 2 * log_error


def test_every_order_of_four_is_equally_likely() -> None:
    """Fails for a correct shuffler with probability below 1e-9."""
    draws, orders = 6_000, list(itertools.permutations(range(4)))
    seen = Counter(tuple(placed(4)) for _ in range(draws))
    expected = draws / len(orders)
    statistic = sum((seen[order] - expected) ** 2 / expected for order in orders)
    assert statistic < chi_square_limit(len(orders) - 1, math.log(1e9))


def test_each_item_is_equally_likely_at_each_place_of_a_large_batch() -> None:
    """Fails for a correct shuffler with probability below 1e-9."""
    size, draws = 50, 1000
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(draws):
        seen.update(enumerate(placed(size)))
    expected = draws / size
    statistic = sum((seen[place, item] - expected) ** 2 / expected for place in range(size) for item in range(size))
    assert statistic < chi_square_limit(size * size, math.log(1e9))


def test_the_two_lanes_are_permuted_independently() -> None:
    """The joint law of both orders of three is uniform on all 36 pairs; fails by chance with probability below 1e-9."""
    draws = 6_000
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    for _ in range(draws):
        orders = draw_orders({Lane.LANE_REPORT: 3, Lane.LANE_PARAMETER: 3})
        pairs[bytes(orders[Lane.LANE_REPORT]), bytes(orders[Lane.LANE_PARAMETER])] += 1
    expected = draws / 36
    statistic = sum((count - expected) ** 2 / expected for count in pairs.values()) + (36 - len(pairs)) * expected
    assert statistic < chi_square_limit(35, math.log(1e9))
