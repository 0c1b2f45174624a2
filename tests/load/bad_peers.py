"""Bad peers: those that say nothing, too little, too much or nonsense, and those that come too often.

Each runs until it is cancelled. They come from an address of their own, as strangers do.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from typing import Any

import grpc
import grpc.aio

from croupier.net.channels import public_channel
from croupier.net.limits import MAX_FIELDS
from croupier.net.sizes import MESSAGE_BYTES
from croupier.protocol.deployment import ServiceEntry
from croupier.protocol.identity import sign_submission
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from research.bench import load
from research.bench.http2 import UNVERIFIED, calling

BadPeer = Callable[[], Coroutine[Any, Any, None]]
STRANGERS = "127.0.0.66"
SUBMIT = "/croupier.protocol.v1.Shuffler/Submit"
_AGAIN_S = 0.2


def relay(entry: ServiceEntry) -> AbstractAsyncContextManager[ServiceEntry]:
    """Yields the service as strangers see it: who calls there comes to it from their address."""
    return load.relay(entry, itertools.repeat(STRANGERS))


def bad_peers(entry: ServiceEntry, terms: RoundTerms) -> dict[str, BadPeer]:
    """Returns one peer of every kind by name; `entry` is where they call."""
    host, _, port = (entry.public_address or "").rpartition(":")

    @asynccontextmanager
    async def connected(tls: bool = False) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=UNVERIFIED if tls else None)
        with closing(writer):
            yield reader, writer

    async def mute() -> None:
        async with connected() as (reader, _):
            await reader.read()

    async def half_a_handshake() -> None:
        async with connected() as (reader, writer):
            writer.write(bytes.fromhex("16030100c8010000c40303"))
            await reader.read()

    async def trickles_after_tls() -> None:
        async with connected(tls=True) as (_, writer):
            for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(10_000):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.5)

    async def noise() -> None:
        async with connected() as (_, writer):
            writer.write(os.urandom(10_000))
            await writer.drain()

    async def noise_inside_tls() -> None:
        async with connected(tls=True) as (_, writer):
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(10_000))
            await writer.drain()

    async def comes_and_goes() -> None:
        async with connected():
            pass

    async def asks_and_never_says_what() -> None:
        async with public_channel(entry) as channel:
            calls: list[Any] = [channel.stream_unary(SUBMIT)() for _ in range(200)]
            await asyncio.gather(*(call.code() for call in calls))

    async def never_finishes() -> None:
        async with calling(entry) as caller:
            await caller.say_almost_all([caller.call("Shuffler/Submit") for _ in range(5)])
            await asyncio.sleep(10.0)  # and lets the service wait for the rest

    async def sends(raw: bytes) -> None:
        async with public_channel(entry) as channel:
            call: Any = channel.unary_unary(SUBMIT)
            await asyncio.gather(*(call(raw, timeout=60) for _ in range(5)), return_exceptions=True)

    async def too_large() -> None:
        await sends(bytes(MESSAGE_BYTES + 1))

    async def too_many_fields() -> None:
        await sends(b"\x12\x00" * (MAX_FIELDS * 4))

    async def many_strangers_at_once() -> None:
        stranger = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), PrivateKey(os.urandom(32)))
        await sends(pb.SubmitRequest(round_id=terms.round_id, submissions=[stranger] * 1000).SerializeToString())

    async def hangs_up() -> None:
        stranger = sign_submission(terms.hash, bytes(Onion(terms).joint.sealed_size), PrivateKey(os.urandom(32)))
        request = pb.SubmitRequest(round_id=terms.round_id, submissions=[stranger])
        async with public_channel(entry) as channel:
            for _ in range(20):
                call = asyncio.ensure_future(stubs.ShufflerStub(channel).Submit(request))
                await asyncio.sleep(0.002)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

    kinds = (
        mute,
        half_a_handshake,
        trickles_after_tls,
        noise,
        noise_inside_tls,
        comes_and_goes,
        asks_and_never_says_what,
        never_finishes,
        too_large,
        too_many_fields,
        many_strangers_at_once,
        hangs_up,
    )
    return {kind.__name__: _again_and_again(kind) for kind in kinds}


def _again_and_again(kind: BadPeer) -> BadPeer:
    """Whatever the service does about it, the peer is back."""

    async def run() -> None:
        me = asyncio.current_task()
        while me and not me.cancelling():  # what a closing connection raises may take the place of the cancellation
            with suppress(OSError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                await kind()
            await asyncio.sleep(_AGAIN_S)

    return run
