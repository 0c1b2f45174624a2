"""Who is one caller, who holds most, and whose turn it is."""

from __future__ import annotations

import pytest

from croupier.net.shares import Caller, FairQueue, Holdings, caller_of


@pytest.mark.parametrize(
    ("peer", "caller"),
    [
        ("ipv4:192.0.2.7:4711", ("192.0.2.0/24", "192.0.2.7")),
        ("ipv6:[::ffff:192.0.2.7]:4711", ("192.0.2.0/24", "192.0.2.7")),
        ("ipv6:[2001:db8:1:203:4:5:6:7]:4711", ("2001:db8:1::/48", "2001:db8:1:200::/56", "2001:db8:1:203::/64")),
        ("ipv6:%5B2001:db8:1:2:ffff::1%5D:4711", ("2001:db8:1::/48", "2001:db8:1::/56", "2001:db8:1:2::/64")),
        ("ipv6:[fe80::1%eth0]:1", ("fe80::/48", "fe80::/56", "fe80::/64")),
        ("unix:/run/croupier", ("unix:/run/croupier",)),
        ("ipv6:[nonsense]:1", ("nonsense",)),
    ],
)
def test_a_caller_is_a_host_in_its_networks_and_not_a_connection(peer: str, caller: Caller) -> None:
    assert caller_of(peer) == caller


def test_the_largest_network_and_its_largest_caller_come_first() -> None:
    held = Holdings[str]()
    held.set("a1", ("a", "1"), 5)
    held.set("b1", ("b", "1"), 3)
    held.set("b2", ("b", "2"), 3)
    held.set("b2 again", ("b", "2"), 1)
    assert (held.total, held.largest(), held.held_by(("b",)), held.held_by(("b", "2"))) == (12, 7, 7, 4)
    assert list(held.largest_first()) == ["b2", "b2 again", "b1", "a1"]
    assert list(held.largest_first(newest_first=True)) == ["b2 again", "b2", "b1", "a1"]
    held.set("b2", ("b", "2"), 1)
    assert list(held.largest_first()) == ["a1", "b1", "b2", "b2 again"]  # equal ones as they came
    for name in ("b1", "b2", "b2 again", "b2 again", "never"):
        held.remove(name)
    assert (held.total, held.held_by(("b",)), list(held.largest_first())) == (5, 0, ["a1"])
    assert list(held.root.parts) == ["a"]  # and nothing of the others stays in memory


def test_each_network_and_each_caller_in_it_has_its_turn() -> None:
    queue = FairQueue[str]()
    for number in range(3):
        queue.put(("a", "1"), f"a1.{number}")
        queue.put(("a", "2"), f"a2.{number}")
    queue.put(("b", "1"), "b1.0")
    taken = [queue.take() for _ in range(4)]
    assert taken == ["a1.0", "b1.0", "a2.0", "a1.1"]
    queue.put(("c", "1"), "c1.0")
    assert [queue.take() for _ in range(4)] == ["a2.1", "c1.0", "a1.2", "a2.2"]
    assert not queue
