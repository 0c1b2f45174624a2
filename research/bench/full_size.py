"""Strangers against a running deployment on loopback, as many and as large as they were when services gave way.

`.venv/bin/python -m research.bench.full_size [ATTACK ...]` prints a line for each attack; docs/benchmarks.md has them.
It takes four minutes: the tests of each limit are small, and say which limit. Strangers and honest clients come from
addresses of their own in 127.0.0.0/8, each in a network (/24) of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.deploy.local.processes import LocalDeployment, temporary_deployment
from croupier.net.channels import public_channel
from croupier.net.retrying import retrying
from croupier.net.sizes import MESSAGE_BYTES
from croupier.operator.keys import free_addresses
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.errors import Refusal
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import MAX_DIMENSION, VectorTask
from croupier.protocol.names import PrivateKey
from croupier.protocol.onion import Onion
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from research.bench.http2 import calling
from research.bench.load import relay

_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each channel


class Hop1:
    """Hop 1 of a running deployment, a round about one bit, and one whose manifest has 1 MiB."""

    def __init__(self, local: LocalDeployment, terms: RoundTerms, large: RoundTerms) -> None:
        self.local, self.terms = local, terms
        self.manifest = rpc.GetRoundRequest(round_id=large.round_id)
        self.entry = local.deployment.shufflers[0]
        self.pid = local.pids()[self.entry.name]


def forget_peak(pid: int) -> int:
    """Counts the largest memory of a process (VmHWM) from here on, and returns what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return resident_bytes(pid)


def resident_bytes(pid: int, kind: str = "VmRSS") -> int:
    """Returns the memory of a process: what it has now, or at its largest (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) * 1024


def strangers(number: int) -> list[str]:
    """Returns the addresses of strangers."""
    return [f"127.{10 + n}.0.1" for n in range(number)]


def honest(number: int) -> str:
    """Returns the address of an honest client."""
    return f"127.{100 + number % 100}.1.{1 + number // 100}"


async def honest_calls(
    hop: Hop1, calls: int, make: Callable[[stubs.ShufflerAsyncStub], Awaitable[Any]], pause_s: float = 0.0
) -> str:
    """Returns how many calls were answered and how long that took; a call that fails is repeated as clients do."""
    waits, again = list[float](), list[Exception]()
    for number in range(calls):
        async with relay(hop.entry, itertools.repeat(honest(number))) as entry, public_channel(entry, _OPTIONS) as to:
            began = time.perf_counter()
            try:
                stub = stubs.ShufflerStub(to)
                await retrying(partial(make, stub), give_up_after_s=30.0, on_failure=lambda error: again.append(error))
                waits.append(time.perf_counter() - began)
            except (grpc.aio.AioRpcError, Refusal):
                pass
        await asyncio.sleep(pause_s)
    told = f"{len(waits)} of {calls} answered after {len(again)} repetitions"
    return told + (f", median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s" if waits else "")


async def unread_answers(hop: Hop1) -> str:
    """(a) 248 calls from 5 addresses ask for a manifest of 1 MiB and read nothing of it."""
    async with AsyncExitStack() as entered:
        begun = 0
        for number, source in enumerate(strangers(5)):
            caller = await entered.enter_async_context(calling(hop.entry, 0, source))
            for _ in range(50 if number < 4 else 48):
                caller.say(caller.call("Shuffler/GetRound"), hop.manifest.SerializeToString())
                begun += 1
        await asyncio.sleep(3.0)
        seen = await honest_calls(hop, 40, lambda to: to.GetRound(hop.manifest, timeout=30.0))
    return f"{begun} unread calls; a manifest of 1 MiB: {seen}"


@asynccontextmanager
async def holding(where: str, sources: list[str], each: int) -> AsyncIterator[Callable[[], int]]:
    """Holds idle connections, opens those again that end, and yields how many were opened."""
    host, _, port = where.rpartition(":")
    opened = 0

    async def again(source: str) -> None:
        nonlocal opened
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
                opened += 1
                await reader.read()
                writer.transport.abort()
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(again(source)) for source in sources for _ in range(each)]
    await asyncio.sleep(10.0)
    try:
        yield lambda: opened
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def idle_sockets(hop: Hop1) -> str:
    """(b) 1,000 idle connections of one address to a gateway, and requests from other addresses."""
    answers, waits = list[bytes](), list[float]()
    where = free_addresses(1)[0]
    command = [sys.executable, "-m", "croupier.cli", "gateway", "--dir", str(hop.local.directory)]
    host, _, port = where.rpartition(":")
    gateway = await asyncio.create_subprocess_exec(*command, "--listen", where)
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            break
        await asyncio.sleep(0.1)
    async with holding(where, strangers(1), 1000) as opened:
        for number in range(40):
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(honest(number), 0))
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answers.append((await reader.readline()).split(b" ")[1])
            waits.append(time.perf_counter() - began)
            writer.close()
            await asyncio.sleep(0.25)
    gateway.terminate()
    await gateway.wait()
    told = f"{answers.count(b'200')} of 40 requests answered with 200, longest {max(waits):.2f} s"
    return f"{opened():,} connections opened by the stranger; {told}"


async def full_port(hop: Hop1) -> str:
    """(c) Four addresses with 1,000 connections each to the port of hop 1, which they open again when they end."""
    async with holding(hop.entry.public_address or "", strangers(4), 1000) as opened:
        seen = await honest_calls(hop, 40, lambda to: to.GetRound(hop.manifest, timeout=30.0), 0.25)
    return f"{opened():,} connections opened by strangers; {seen}"


async def unfinished_messages(hop: Hop1) -> str:
    """(e) Five addresses begin 60 messages of 1 kB a second each and end none; a client's message has two packets."""

    async def stranger(source: str) -> None:
        async with AsyncExitStack() as entered:
            while True:
                caller = await entered.enter_async_context(calling(hop.entry, source=source))
                for _ in range(90):
                    stream = caller.call("Shuffler/Submit")
                    caller.begin(stream, 2000, bytes(1000))
                    await asyncio.sleep(1 / 60)

    attacking = [asyncio.create_task(stranger(source)) for source in strangers(5)]
    await asyncio.sleep(15.0)
    answered = 0
    for number in range(70):
        async with calling(hop.entry, source=honest(number)) as caller:
            request = rpc.GetRoundRequest(round_id=hop.terms.round_id).SerializeToString()
            stream = caller.call("Shuffler/GetRound")
            caller.begin(stream, len(request), request[:5])
            await asyncio.sleep(0.25)
            caller.frame(0, 1, stream, request[5:])
            async with asyncio.timeout(30.0):
                await caller.over(stream)
            answered += stream in caller.with_data
    for task in attacking:
        task.cancel()
    await asyncio.gather(*attacking, return_exceptions=True)
    return f"{answered} of 70 calls of two packets answered"


def forged(hop: Hop1, number: int) -> pb.SubmitRequest:
    """Returns a call of submissions that are well sealed and not signed."""
    submission = sign_submission(hop.terms.hash, bytes(Onion(hop.terms).joint.sealed_size), PrivateKey(os.urandom(32)))
    submission.signature = bytes(len(submission.signature))
    return pb.SubmitRequest(round_id=hop.terms.round_id, submissions=[submission] * number)


async def forged_signatures(hop: Hop1) -> str:
    """(f) One address has 40 calls of forged signatures under way, for 30 s; others submit one message each."""
    small = forged(hop, 1)
    most = min(1000, (MESSAGE_BYTES - 1000) // small.ByteSize())
    large = forged(hop, most)

    async def stranger(to: stubs.ShufflerAsyncStub) -> None:
        while True:
            with suppress(grpc.aio.AioRpcError):
                await to.Submit(large, timeout=60.0)

    source = itertools.repeat(strangers(1)[0])
    async with relay(hop.entry, source) as entry, public_channel(entry, _OPTIONS) as channel:
        attacking = [asyncio.create_task(stranger(stubs.ShufflerStub(channel))) for _ in range(40)]
        await asyncio.sleep(5.0)
        seen = await honest_calls(hop, 25, lambda to: to.Submit(small, timeout=60.0), 0.5)
        for task in attacking:
            task.cancel()
        await asyncio.gather(*attacking, return_exceptions=True)
    return f"40 calls of {most} forged signatures; {seen}"


async def refused_calls(hop: Hop1) -> str:
    """(1.3) 1,600 refused calls of 4 MiB on one connection."""
    request = pb.SubmitRequest(round_id="x" * (MESSAGE_BYTES - 100))
    turn, codes = asyncio.Semaphore(16), set[str]()

    async def call(to: stubs.ShufflerAsyncStub) -> None:
        async with turn:
            try:
                await to.Submit(request, timeout=120.0)
            except grpc.aio.AioRpcError as error:
                codes.add(error.code().name)

    began, source = time.perf_counter(), itertools.repeat(strangers(1)[0])
    async with relay(hop.entry, source) as entry, public_channel(entry, _OPTIONS) as channel:
        await asyncio.gather(*(call(stubs.ShufflerStub(channel)) for _ in range(1600)))
    return f"1,600 calls in {time.perf_counter() - began:.0f} s: {sorted(codes)}"


ATTACKS = (unread_answers, idle_sockets, full_port, unfinished_messages, forged_signatures, refused_calls)


async def _attack(local: LocalDeployment, names: list[str]) -> None:
    parameters = bytes(4 * MAX_DIMENSION)
    vectors = Hemisphere(vector=VectorTask(MAX_DIMENSION, 1.0, "mean", parameters))
    asked = (Question("bit", RandomizedResponse()), Question("large", vectors))
    async with Operator(local.directory) as operator:
        settings = [RoundSettings(question, (1.0,), epsilon_max=1.0, min_batch_size=2) for question in asked]
        hop = Hop1(local, *[await operator.open_round(round_settings) for round_settings in settings])
        for attack in ATTACKS:
            if not names or attack.__name__ in names:
                forget_peak(hop.pid)
                async with asyncio.timeout(180.0):
                    result = await attack(hop)
                peak_mb = resident_bytes(hop.pid, "VmHWM") / 1e6
                sys.stdout.write(f"{attack.__name__}: {result}; hop 1 has {peak_mb:.0f} MB at most\n")
                sys.stdout.flush()


if __name__ == "__main__":
    with temporary_deployment(1) as local:
        asyncio.run(_attack(local, sys.argv[1:]))
