"""Budgets, shares and sizes: what a caller can take of a service, and what it is told when that is too much."""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack

import pytest

from croupier.net import guard
from croupier.net.limits import MAX_FIELDS, Budget, check_fields
from croupier.net.shares import Call, caller_at
from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.errors import Code, Refusal
from tests.support.messages import refuses


def client(address: str) -> Call:
    return Call(caller_at(address), pinned=False)


def peer(name: str) -> Call:
    return Call((name,), pinned=True)


def test_one_caller_gets_a_quarter_and_clients_together_three() -> None:
    slots = Budget(16, for_pinned=4)
    with ExitStack() as held:
        for caller in ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"):
            for _ in range(3):
                held.enter_context(slots.hold(client(caller)))
            with pytest.raises(Refusal) as refused, slots.hold(client(caller)):
                pass
            assert refused.value.code is Code.OVERLOADED
            assert refused.value.retry_after_s is not None
        with pytest.raises(Refusal), slots.hold(client("192.0.2.5")):  # twelve of sixteen are held
            pass
        for _ in range(4):
            held.enter_context(slots.hold(peer("shuffler-2")))
        with pytest.raises(Refusal), slots.hold(peer("operator")):
            pass
    with slots.hold(client("192.0.2.5")):  # all of them were given back
        pass


def test_a_budget_is_given_back_by_calls_that_fail() -> None:
    slots = Budget(8)
    for _ in range(100):
        with pytest.raises(ZeroDivisionError), slots.hold(client("192.0.2.1")):
            raise ZeroDivisionError


def test_too_many_fields_are_refused_before_they_are_read() -> None:
    for field in (b"\x12\x00", b"\x08\x01", b"\x12\x03abc", b"\x09" + bytes(8), b"\x0d" + bytes(4)):
        check_fields(field * MAX_FIELDS)
        with refuses(Code.BAD_REQUEST, f"more than {MAX_FIELDS} fields"):
            check_fields(field * (MAX_FIELDS + 1))
    for odd in (b"", b"\xff" * 30, b"\x12", b"\x12\xff\xff\xff\xff\x0f", b"\x0b", b"\x12\x7fabc"):
        check_fields(odd)


async def waits(budget: Budget, call: Call, amount: int) -> None:
    """Holds a part of a budget, and waits for a message that never comes."""
    with budget.hold(call, amount):
        await call.wait_for(asyncio.Event().wait(), 20.0, "your message")


class Waiting:
    """Calls that wait, by their addresses and numbers; `gone` are those whose wait has ended, in order."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.gone = budget, list[str]()
        self.tasks = list[asyncio.Task[None]]()

    async def begin(self, *addresses: str, amount: int = 1) -> None:
        for address in addresses:
            name = f"{address} {sum(task.get_name().startswith(address) for task in self.tasks)}"
            task = asyncio.create_task(waits(self.budget, client(address), amount), name=name)
            task.add_done_callback(lambda task: self.gone.append(task.get_name()))
            self.tasks.append(task)
        await asyncio.sleep(0.1)


A, B, C, D, E = (f"192.0.2.{number}" for number in range(1, 6))


@pytest.mark.virtual_time
async def test_who_holds_most_makes_room_with_its_oldest_call_that_waits() -> None:
    """Five strangers turned away 57 of 70 calls of a client whose message took two packets: the oldest went."""
    waiting = Waiting(Budget(16))
    await waiting.begin(E)  # the client, and the oldest
    await waiting.begin(A, A, A, A)
    assert waiting.gone == []
    await waiting.begin(A)  # one caller gets a quarter
    assert waiting.gone == [f"{A} 0"]
    await waiting.begin(*(4 * [B]), *(4 * [C]), *(3 * [D]))
    assert waiting.gone == [f"{A} 0"]
    await waiting.begin(D)  # now all is held
    assert waiting.gone == [f"{A} 0", f"{A} 1"]
    for _ in range(100):
        await waiting.begin(A, B, C, D)
    assert f"{E} 0" not in waiting.gone
    ended = await asyncio.gather(*waiting.tasks, return_exceptions=True)
    assert all(
        isinstance(outcome, Refusal) and outcome.code is Code.OVERLOADED for outcome in ended
    )  # none waits for ever


@pytest.mark.virtual_time
async def test_many_addresses_of_one_network_hold_what_a_network_holds() -> None:
    waiting = Waiting(Budget(16))
    await waiting.begin("2001:db8:ffff::1")
    strangers = [f"2001:db8:1:{number:x}::1" for number in range(64)]  # 64 times /64, one /48
    await waiting.begin(*strangers)
    assert "2001:db8:ffff::1 0" not in waiting.gone
    assert len(waiting.gone) == 64 - 15
    for task in waiting.tasks:
        task.cancel()


@pytest.mark.virtual_time
async def test_a_crowd_of_equals_keeps_what_it_has_begun() -> None:
    """Else each new call would turn away one that has waited long, and none would be served."""
    waiting = Waiting(Budget(16, newest_first=True))
    crowd = [f"192.{number}.2.1" for number in range(20)]
    await waiting.begin(*crowd)
    assert waiting.gone == [f"{client} 0" for client in crowd[16:]]
    for task in waiting.tasks:
        task.cancel()


async def test_calls_that_do_not_wait_stay_and_count_for_what_they_have() -> None:
    budget = Budget(4 * MESSAGE_BYTES)
    first, second = client(A), client(A)
    with budget.hold(first, MESSAGE_BYTES):
        with pytest.raises(Refusal, match=Code.OVERLOADED.message), budget.hold(client(A), 1):
            pass
        with budget.hold(client(B), MESSAGE_BYTES):  # which has nothing to do with it
            pass
        budget.release(first)
        with budget.hold(second, MESSAGE_BYTES):
            budget.resize(second, 1000)
            with pytest.raises(Refusal), budget.hold(client(A), MESSAGE_BYTES):
                pass
            with budget.hold(client(A), 1000):
                pass


async def test_an_error_of_what_is_awaited_is_not_taken_for_the_limit() -> None:
    async def fails() -> None:
        raise TimeoutError("inside")

    with pytest.raises(TimeoutError, match="inside"):
        await client(A).wait_for(fails(), 20.0, "your message")


async def test_a_read_that_fails_after_its_call_was_cancelled_is_no_error_of_the_loop() -> None:
    """It was one where a server stopped while a request was on its way: "Task exception was never retrieved"."""
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    stopped = asyncio.Event()

    class Reading:
        async def read(self) -> bytes:
            await stopped.wait()
            raise RuntimeError("Server already stopped.")

    call = asyncio.create_task(guard._read(Reading(), client(A), None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    (read,) = asyncio.all_tasks() - {call, asyncio.current_task()}
    call.cancel()
    await asyncio.wait([call])
    stopped.set()
    await asyncio.wait([read])
    assert read.done()
    del read
    gc.collect()
    await asyncio.sleep(0)
    assert errors == []
