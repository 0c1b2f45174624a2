"""Slots, shares and sizes: what a caller can take of a service, and what it is told when that is too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from protocol.errors import Code, Refusal
from runtime.limits import MAX_FIELDS, MESSAGE_BYTES, Room, Slots, check_fields, host_of, let_in


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2:ffff::1%5D:4711", "2001:db8:1:2::/64"),
        ("ipv6:[fe80::1%eth0]:1", "fe80::/64"),
        ("unix:/run/croupier", "unix:/run/croupier"),
        ("ipv6:[nonsense]:1", "nonsense"),
    ],
)
def test_a_caller_is_a_host_and_not_a_connection(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_one_caller_gets_a_quarter_and_clients_together_three() -> None:
    slots = Slots(16)
    with ExitStack() as held:
        for caller, share in (("a", 3), ("b", 3), ("c", 3), ("d", 3)):
            for _ in range(share):
                held.enter_context(slots.work(caller, pinned=False))
            with pytest.raises(Refusal) as refused, slots.work(caller, pinned=False):
                pass
            assert refused.value.code is Code.OVERLOADED
            assert refused.value.retry_after_s is not None
        with pytest.raises(Refusal), slots.work("e", pinned=False):  # twelve of sixteen are held
            pass
        for _ in range(4):
            held.enter_context(slots.work("shuffler-2", pinned=True))
        with pytest.raises(Refusal), slots.work("operator", pinned=True):
            pass
    with slots.work("e", pinned=False):  # all of them were given back
        pass


def test_slots_are_given_back_by_calls_that_fail() -> None:
    slots = Slots(8)
    for _ in range(100):
        with pytest.raises(ZeroDivisionError), slots.work("a", pinned=False):
            raise ZeroDivisionError


def test_too_many_fields_are_refused_before_they_are_read() -> None:
    for field in (b"\x12\x00", b"\x08\x01", b"\x12\x03abc", b"\x09" + bytes(8), b"\x0d" + bytes(4)):
        check_fields(field * MAX_FIELDS)
        with pytest.raises(Refusal, match=f"more than {MAX_FIELDS} fields") as refused:
            check_fields(field * (MAX_FIELDS + 1))
        assert refused.value.code is Code.BAD_REQUEST
    for odd in (b"", b"\xff" * 30, b"\x12", b"\x12\xff\xff\xff\xff\x0f", b"\x0b", b"\x12\x7fabc"):
        check_fields(odd)


async def silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def waits(room: Room, caller: str) -> str:
    """Holds room for a message that never comes; returns why the wait ended."""
    with room.hold(caller, pinned=False) as held:
        try:
            await held.message(silence())
        except Refusal as refusal:
            return f"{caller} {refusal.code.name}"
    return "arrived"


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_the_oldest_message_that_has_not_arrived_makes_room_for_a_new_one() -> None:
    room, order = Room(4 * 4 * MESSAGE_BYTES), list[str]()

    def begin(caller: str, number: int) -> asyncio.Task[str]:
        task = asyncio.create_task(waits(room, caller))
        task.add_done_callback(lambda _: order.append(f"{caller}{number}"))
        return task

    tasks = [begin("a", number) for number in range(4)]
    await asyncio.sleep(0.1)
    assert order == []
    tasks.append(begin("a", 4))  # one caller gets a quarter
    await asyncio.sleep(0.1)
    assert order == ["a0"]
    tasks += [begin(caller, number) for caller in "bcd" for number in range(4)]
    await asyncio.sleep(0.1)
    assert order == ["a0"]
    tasks.append(begin("e", 0))  # now the whole room is full
    await asyncio.sleep(0.1)
    assert order == ["a0", "a1"]
    assert {one.split()[1] for one in await asyncio.gather(*tasks)} == {"OVERLOADED"}  # nobody waits for ever


@pytest.mark.asyncio
async def test_messages_in_work_stay_and_count_for_what_they_have() -> None:
    room = Room(4 * MESSAGE_BYTES)
    with room.hold("a", pinned=False) as first:
        with pytest.raises(Refusal, match="fill the room"), room.hold("a", pinned=False):
            pass
        with room.hold("a", pinned=True), room.hold("b", pinned=False):  # neither has anything to do with it
            pass
        let_in()  # the caller of a stream has proved who it is
        with room.hold("a", pinned=False) as second:
            room.resize(second, 1000)
            with pytest.raises(Refusal), room.hold("a", pinned=False):
                pass
            with room.hold("a", 1000, pinned=False):
                pass
    assert first.num_bytes == 0
